"""Local workers: one thread per job, which supervises the process of the job.

While jobs wait, one more process is kept ready, so that the next job does not wait for Python and JAX to start.
"""

from __future__ import annotations

import contextlib
import queue
import threading

from lazymdp.sweep.execute import Job
from lazymdp.sweep.supervise import Limits, Outcome, Worker, supervise


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
        self._ready: Worker | None = None
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
        worker, self._ready = self._ready, None
        if worker is not None and worker.process.poll() is not None:  # someone has killed it
            worker.close()
            worker = None
        threading.Thread(target=self._supervise, args=(job, worker), daemon=True).start()

    def expect(self, waiting: int) -> None:
        """Keeps a process ready if jobs wait; otherwise ends the one that may be there."""
        if waiting and self._ready is None:
            with contextlib.suppress(OSError):  # no memory: the job starts one when it is its turn
                self._ready = Worker(self._limits.cores)
        elif not waiting and self._ready is not None:
            self._ready.close()
            self._ready = None

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

    def _supervise(self, job: Job, worker: Worker | None) -> None:
        try:
            outcome = supervise(job, self._address, self._limits, self._stopping.is_set, worker)
        except Exception as error:  # for example, no memory for another process
            outcome = Outcome("failed", f"{type(error).__name__}: {error}")
        self._ended.put((job, outcome))
