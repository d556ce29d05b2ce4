"""The process that executes one job: `python -m lazymdp.sweep.worker PARENT`, started by `supervise`.

It imports what every job needs, and then waits for its job, so that it can be started while another job is executed.
The job comes as JSON on standard input; if the input ends without one, so does the process. Signs of life and the
outcome go to standard output, one JSON object per line. Whatever the environment prints goes to standard error.
SIGTERM stops the job with a checkpoint. If the process PARENT, which started this one, ends, even by SIGKILL, this one
ends at once: otherwise a job of a lost node would go on beside its own second attempt.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from lazymdp._parent import end_with_parent

STOPPED = 130
_BEAT_SECONDS = 0.5


def main() -> int:
    """Executes the job on standard input and returns the exit code: 0 done, 1 failed, 130 stopped."""
    end_with_parent(int(sys.argv[1]))
    out = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # so that nothing that an environment prints is read as a message
    # The runs of a study share most programs. Not in /tmp, where another user could put programs for us to run.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lazymdp" / "jax"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    _import_for_jobs()
    line = sys.stdin.readline()
    if not line.endswith("\n"):
        return 0
    given = json.loads(line)
    sys.path[:] = [*sys.path, *(entry for entry in given["sys_path"] if entry not in sys.path)]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches every process; the parent decides

    last = (-1e9, "")

    def beat(step: int, total: int, doing: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last[0] >= _BEAT_SECONDS or doing != last[1]:
            last = now, doing
            out.write(json.dumps({"step": step, "total": total, "doing": doing}) + "\n")

    try:
        from lazymdp.sweep.execute import Job, execute
        from lazymdp.sweep.run_spec import RunSpec
        from lazymdp.sweep.sweep_folder import SweepFolder

        job = Job(tuple(RunSpec.from_json(spec) for spec in given["specs"]))
        execute(job, SweepFolder(given["folder"]), beat, stopping.is_set, given["checkpoint_seconds"])
    except KeyboardInterrupt:
        return STOPPED
    except Exception as error:
        _tell(out, error)
        return 1
    return 0


def _import_for_jobs() -> None:
    """Imports what every job needs. An error is raised again when the job is executed, and reported then."""
    with contextlib.suppress(Exception):
        for module in ("sweep.execute", "learn.deep.trainer", "learn.deep.evaluation_episodes", "learn.deep.export"):
            import_module(f"lazymdp.{module}")


def _tell(out: Any, error: Exception) -> None:
    import traceback

    traceback.print_exc()
    if isinstance(error.__cause__, type(error)):  # the trainer adds how to resume the run, which the sweep does itself
        error = error.__cause__
    words = " ".join(str(error).split())
    out.write(json.dumps({"error": f"{type(error).__name__}: {words}" if words else type(error).__name__}) + "\n")


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # native code (ale-py, XLA) may hang while a process ends in the usual way
