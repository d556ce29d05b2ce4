"""Local workers: one thread per job, which supervises the process of the job."""

from __future__ import annotations

import queue
import threading

from lazymdp.sweep.execute import Job
from lazymdp.sweep.supervise import Limits, Outcome, supervise


class LocalPool:
    """Executes jobs in processes on this machine.

    Args:
        address: The folder of the sweep.
        workers: Number of jobs at a time.
        limits: How jobs are executed.
    """

    def __init__(self, address: str, workers: int, limits: Limits) -> None:
        self._address, self._workers, self._limits = address, workers, limits
        self._stopping = threading.Event()
        self._ended: queue.Queue[tuple[Job, Outcome]] = queue.Queue()
        self.running = 0

    def room(self) -> int:
        """Returns how many more jobs can be started now."""
        return self._workers - self.running

    def obstacle(self) -> str:
        """Returns an empty text: this machine can always start a job."""
        return ""

    def start(self, job: Job) -> None:
        """Starts a job."""
        self.running += 1
        threading.Thread(target=self._supervise, args=(job,), daemon=True).start()

    def finished(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Returns the jobs that have ended, after waiting for at most some seconds for one."""
        found = []
        try:
            found.append(self._ended.get(timeout=seconds))
            while True:
                found.append(self._ended.get_nowait())
        except queue.Empty:
            self.running -= len(found)
            return found

    def stop(self) -> None:
        """Asks all jobs to stop with a checkpoint."""
        self._stopping.set()

    def _supervise(self, job: Job) -> None:
        try:
            outcome = supervise(job, self._address, self._limits, self._stopping.is_set)
        except Exception as error:  # for example, no memory for another process
            outcome = Outcome("failed", f"{type(error).__name__}: {error}")
        self._ended.put((job, outcome))
