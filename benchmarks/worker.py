"""Measures the time, warm-up time and memory of one solver on one problem, in a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import statistics
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from models import Explicit, Problem, explicit, grid, load, model_bytes, random_sparse
from peers import SOLVERS
from solvers import Solver

MEMORY_LIMIT = 16 * 2**30  # bytes of address space; a solver that needs more gets a MemoryError
PILOT_SECONDS = 90.0  # try no further settings after this much solving time
EACH_SECONDS = 2.0  # while settings are compared, stop repeating one of them after this long
REPEAT_SECONDS = 30.0  # stop repeating the best settings after this long


def measure(key: str, folder: Path, repeats: int, limit: int, variants: tuple[str, ...] = ()) -> dict:
    """Runs a solver in a new process and returns its measurements.

    Args:
        key: a key of ``SOLVERS``.
        folder: folder in which ``models.save`` wrote the problem (``base`` and ``explicit``).
        repeats: number of runs with the best settings.
        limit: time limit of the build and of each solve, in seconds.
        variants: the settings to try; if empty, those of the solver.

    Returns:
        The measurements that :func:`_work` reported before it ended. ``status`` is "ok" or says what
        went wrong. The values found are in ``folder / "value.npy"``.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    variants = variants or SOLVERS[key].variants
    process = context.Process(target=_run, args=(sender, key, folder, repeats, limit, variants))
    process.start()
    sender.close()
    found: dict = {"status": "started"}
    try:
        while True:
            found.update(receiver.recv())
    except EOFError:
        process.join()
    if process.exitcode == -signal.SIGALRM and found.get("runs"):
        # Some settings finished before the time limit, a later one did not: use those that finished.
        return measure(key, folder, repeats, limit, tuple(found["runs"]))
    if process.exitcode == -signal.SIGALRM:
        found["status"] = f"{found['status']} > {limit} s"
    elif process.exitcode != 0:
        found["status"] = f"{found['status']}: process ended with {process.exitcode}"
    return found


def _run(report: Connection, key: str, *arguments: object) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the default action ends the process, even inside C++ code
    try:
        _work(report.send, key, *arguments)
    except MemoryError:
        report.send({"status": f"needs more than {MEMORY_LIMIT / 2**30:.0f} GiB"})
    except Exception as error:  # whatever a peer raises becomes a row of the table
        report.send({"status": f"{type(error).__name__}: {error}"})


def _work(
    report: Callable[[dict], None],
    key: str,
    folder: Path,
    repeats: int,
    limit: int,
    variants: tuple[str, ...],
) -> None:
    solver = SOLVERS[key]()
    report({"status": "warm-up", "warm_up": _seconds(partial(_warm_up, key), limit)})

    baseline = _reset_peak()
    kind, name = (Explicit, "explicit") if solver.explicit else (Problem, "base")
    model = load(kind, folder / name)
    report({"status": "building", "model_bytes": model_bytes(model)})
    report({"build": _seconds(partial(_build, solver, model), limit), "status": "solving"})
    del model  # free the arrays that the library does not keep

    runs: dict[str, list[float]] = {}
    for variant in variants:
        if sum(map(sum, runs.values())) < PILOT_SECONDS:
            _repeat(solver, variant, runs, limit, repeats, EACH_SECONDS)
            report({"runs": runs})
            last = variant
    best = min(runs, key=lambda variant: statistics.median(runs[variant]))
    _repeat(solver, best, runs, limit, repeats, REPEAT_SECONDS)
    if last != best:  # solve once more, so that the value below comes from the best settings
        _repeat(solver, best, runs, limit, len(runs[best]) + 1, float("inf"))
    report({"runs": runs, "seconds": statistics.median(runs[best]), "peak": _peak() - baseline})
    np.save(folder / "value.npy", solver.value())
    report({"algorithm": solver.algorithm(best), "status": "ok"})


def _build(solver: Solver, model: Explicit | Problem) -> None:
    solver.build(model)
    solver.prepare(solver.variants[0])


def _repeat(
    solver: Solver,
    variant: str,
    runs: dict[str, list[float]],
    limit: int,
    repeats: int,
    seconds: float,
) -> None:
    """Adds runs of one variant until there are `repeats` of them or they have taken `seconds` in total."""
    times = runs.setdefault(variant, [])
    while len(times) < repeats and sum(times) < seconds:
        solver.prepare(variant)
        times.append(_seconds(partial(solver.solve, variant), limit))


def _warm_up(key: str) -> None:
    """Imports and compiles on two toy problems. The time is reported separately."""
    for problem in (grid(8), random_sparse(200)):
        solver = SOLVERS[key]()
        solver.build(explicit(problem) if solver.explicit else problem)
        for variant in solver.variants:
            solver.prepare(variant)
            solver.solve(variant)
            solver.value()


def _seconds(task: Callable[[], None], limit: int) -> float:
    signal.alarm(limit)
    start = time.perf_counter()
    task()
    elapsed = time.perf_counter() - start
    signal.alarm(0)
    return elapsed


def _reset_peak() -> int:
    """Resets the high-water mark of resident memory to the current use and returns it, in bytes.

    ``ru_maxrss`` would not work: it cannot be reset, and a child process inherits its parent's.
    """
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """Returns the high-water mark of resident memory, in bytes."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
