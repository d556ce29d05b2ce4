"""The supervision of one job: a process that executes it, and what becomes of it.

Local workers and Ray tasks both call `supervise`, so a job is executed in the same way everywhere: in a process of its
own, which a crash or a lack of memory ends without harm to others, and which is killed if it shows no sign of life.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from lazymdp._cores import limited
from lazymdp.sweep.execute import Job
from lazymdp.sweep.redact import without_secrets
from lazymdp.sweep.sweep_folder import PROGRESS, SweepFolder
from lazymdp.sweep.worker import STOPPED

_LOG = 2_000
"""Number of characters of the end of a failed job's standard error that are kept."""
_GRACE = 60.0
"""Seconds that a job has to write a checkpoint after it was asked to stop."""
_LAST_WORDS = 5.0
"""Seconds in which the messages of a process that has ended are read: a process that it has forked may keep the pipe
open forever."""


@dataclass(frozen=True)
class Limits:
    """How jobs are executed; none of this changes their results."""

    checkpoint_seconds: float = 60.0
    """Seconds between checkpoints."""
    hang_seconds: float = 900.0
    """Seconds without a sign of life after which a job is killed."""
    cores: int = 1
    """Cores that a job may use."""


@dataclass(frozen=True)
class Outcome:
    """What became of an attempt at a job."""

    status: str
    """`done`, `stopped` or `failed`."""
    reason: str = ""
    """Why it failed."""
    log: str = ""
    """The end of its standard error."""
    seconds: float = 0.0
    """Wall time."""


class Worker:
    """A process that waits for a job. It executes one job only.

    Args:
        cores: Cores that the job may use.
    """

    def __init__(self, cores: int) -> None:
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by whoever ends the process)
        # -P: the modules of the user come last, as for the command, so that they hide nothing that is installed.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lazymdp.sweep.worker", str(os.getpid())], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True, env=_environment(cores),
        )  # fmt: skip

    def close(self) -> None:
        """Ends a process that has not been given a job."""
        with self.log, self.process:
            _end(self.process, gently=False)


def supervise(
    job: Job, address: str, limits: Limits, asked_to_stop: Callable[[], bool] = lambda: False,
    worker: Worker | None = None,
) -> Outcome:  # fmt: skip
    """Executes a job in a process of its own and waits for it.

    Args:
        job: The job.
        address: The folder of the sweep.
        limits: How the job is executed.
        asked_to_stop: Called often. Once it returns True, the job writes a checkpoint and ends.
        worker: A process that was started in advance; by default, one is started now.
    """
    started = time.monotonic()
    given = {"specs": [spec.to_json() for spec in job.specs], "folder": address, "sys_path": [*sys.path, os.getcwd()],
             "checkpoint_seconds": limits.checkpoint_seconds}  # fmt: skip
    worker = worker or Worker(limits.cores)
    process = worker.process
    with worker.log as log:
        try:
            reason = _watch(process, job, SweepFolder(address), json.dumps(given), limits, asked_to_stop)
        except BaseException:  # a Ray task that is canceled
            _end(process, gently=True)
            raise
        finally:
            _end(process, gently=False)
            with contextlib.suppress(Exception):
                SweepFolder(address).remove(f"runs/{job.specs[0].id}/{PROGRESS}")
        end = _end_of(log)
    seconds = time.monotonic() - started
    if reason is None:
        return Outcome("done" if process.returncode == 0 else "stopped", seconds=seconds)
    return Outcome("failed", without_secrets(reason), end, seconds)


def _watch(
    process: subprocess.Popen[str], job: Job, folder: SweepFolder, given: str, limits: Limits,
    asked_to_stop: Callable[[], bool],
) -> str | None:  # fmt: skip
    """Waits for a process; returns why it failed, or None if it is done or was stopped."""
    messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
    assert process.stdin is not None and process.stdout is not None
    threading.Thread(target=_read, args=(process.stdout, messages), daemon=True).start()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(given + "\n")
        process.stdin.close()
    alive = told = time.monotonic()
    stopped_at, ended_at, error, shown = None, None, "", _Progress(folder, job)
    every = 2.0 if folder.local is not None else 10.0  # seconds between two reports of progress
    silent = False
    while not silent or process.poll() is None:
        try:
            message = messages.get(timeout=0.2)
        except queue.Empty:
            message = {}
        if message is None:  # it has closed its output, so it ends now
            silent, message = True, {}
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
        now = time.monotonic()
        error = message.get("error", error)
        if "step" in message:
            alive = now
        if shown.update(message) or now - told >= every:
            told = now
            shown.write()
        if stopped_at is None and asked_to_stop():
            stopped_at = now
            process.terminate()
        if process.poll() is not None:
            ended_at = ended_at or now
            if now - ended_at > _LAST_WORDS:
                break
        elif stopped_at is not None and now - stopped_at > _GRACE:
            process.kill()
        elif now - alive > limits.hang_seconds:
            process.kill()
            return f"it gave no sign of life for {limits.hang_seconds:g} s"
    while not messages.empty():
        error = (messages.get() or {}).get("error", error)
    if process.returncode == 0 or (process.returncode == STOPPED and not error) or stopped_at is not None:
        return None
    return error or _exit_reason(process.returncode)


def _end_of(log: IO[bytes]) -> str:
    """Returns the end of a log, without secrets. It begins with a whole line, because half a secret is not found."""
    cut = max(0, log.seek(0, os.SEEK_END) - 4 * _LOG)
    log.seek(cut)
    text = log.read().decode(errors="replace")
    return without_secrets(text.partition("\n")[2] if cut else text)[-_LOG:]


def _read(stream: IO[str], messages: queue.Queue[dict[str, Any] | None]) -> None:
    """Puts the messages of a process into a queue, and None after the last."""
    with stream:
        for line in stream:
            with contextlib.suppress(ValueError):
                messages.put(json.loads(line))
    messages.put(None)


class _Progress:
    """How far a job is, for `sweep status`. It is written while the process lives, even if that says nothing."""

    def __init__(self, folder: SweepFolder, job: Job) -> None:
        self._folder, self._name = folder, f"runs/{job.specs[0].id}/{PROGRESS}"
        self._about: dict[str, Any] = {"step": 0, "total": job.steps, "doing": "starting", "runs": len(job.specs)}

    def update(self, message: dict[str, Any]) -> bool:
        """Takes over a message of the process; returns whether it now does something else."""
        if "step" not in message:
            return False
        if message["doing"] == "training" and "since" not in self._about:
            self._about |= {"since": time.time(), "from_step": message["step"]}
        changed = bool(message["doing"] != self._about["doing"])
        self._about |= message
        return changed

    def write(self) -> None:
        """Writes the progress; a job goes on if this fails."""
        with contextlib.suppress(Exception):
            self._folder.write_sealed(self._name, {**self._about, "time": time.time()})


def _end(process: subprocess.Popen[str], gently: bool) -> None:
    """Ends a process that still runs, and those that it has started; if `gently`, it can first write a checkpoint."""
    if gently and process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE)
    if process.poll() is None:
        process.kill()
    process.wait()
    with contextlib.suppress(AttributeError, OSError):  # it leads a group of its own; there are none on Windows
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _exit_reason(code: int) -> str:
    if code == -9:
        return "its process was killed (SIGKILL): by the system for lack of memory, or by someone"
    return f"its process ended with signal {-code}" if code < 0 else f"its process ended with exit code {code}"


def _environment(cores: int) -> dict[str, str]:
    """Returns the environment variables of a job: as many threads as it has cores."""
    found = limited(cores)
    source = str(Path(__file__).parents[2])  # the process runs the same code as this one
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (source, found.get("PYTHONPATH", ""))))
    return found
