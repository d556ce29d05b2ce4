"""Studies that consist of independent jobs, which several processes can do at the same time.

The module of such a study defines `jobs(config)`, the names of its jobs, and `make_job(config, job)`, which returns the
rows of one of them. Every job is a part of the study (`study.Parts`): it is saved when it is finished, so the same
command continues a study that was stopped, also on another machine that was given the folder of the parts.

If the module sets `WHOLE_MACHINE`, each job uses all cores and a GPU, and jobs that run at the same time share them. It
is `make_job(config, job, folder)`, and keeps what it has trained in its folder, `FOLDER/runs/JOB`.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from lazymdp.experiments.experiment import Experiment, Progress, Table
from lazymdp.experiments.study import Parts, joined

_ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",  # processes that share a GPU would each reserve most of its memory
}
"""Environment variables of a process that has one core; those that are set already are kept."""
RUNS = "runs"
"""Folder of what jobs have trained, in the folder of the study."""


class Unfinished(Exception):
    """The time was over before all jobs were done; what is done has been saved."""


def run_jobs(
    jobs: Sequence[str], make: Callable[[str], Table], progress: Progress | None, parts: Parts | None
) -> dict[str, Any]:
    """Do jobs one after the other, or load those that have been done, and return the rows of all of them."""
    rows: dict[str, Any] | None = None
    for place, job in enumerate(jobs):
        new = make(job) if parts is None else parts.get(job, functools.partial(make, job))
        rows = dict(new) if rows is None else joined(rows, new)
        if progress is not None:
            progress(place + 1, len(jobs))
    assert rows is not None, "a study has at least one job"
    return rows


def run_in_processes(
    experiment: Experiment,
    config: Any,
    folder: Path,
    *,
    workers: int = 1,
    stop_after: float | None = None,
    progress: Progress | None = None,
) -> None:
    """Do all jobs of a study that have not been done, each in a process of its own.

    If there are several processes at a time, each has one core, and none has a GPU, unless `JAX_PLATFORMS` says so. In
    a study whose jobs use the whole machine, they share all cores, and each has an equal share of the GPU's memory.

    Args:
        experiment: The study.
        config: Its settings.
        folder: Folder of the study.
        workers: Number of processes at a time.
        stop_after: Seconds after which running jobs are stopped. A job that would probably not be finished by then,
            judging by the longest one of its kind so far, is not started; the kind is the name up to the first `_`. By
            default, there is no limit.
        progress: Called with the number of jobs done and their total number.

    Raises:
        Unfinished: If jobs are left when the time is over.
        RuntimeError: If jobs have failed; the others are done first.
    """
    if experiment.jobs is None or experiment.make_job is None:
        raise ValueError(f"{experiment.name} does not consist of independent jobs; leave out workers and stop_after.")
    names = experiment.jobs(config)
    parts = Parts(folder, config)
    waiting = [name for name in names if not parts.has(name)]
    running: dict[int, tuple[str, BaseProcess, float]] = {}  # by worker
    failed: list[str] = []
    longest: dict[str, float] = {}  # seconds, by kind
    began, limit = time.monotonic(), float("inf") if stop_after is None else stop_after
    try:
        while waiting or running:
            now = time.monotonic() - began
            if now > limit:
                break
            for worker in range(workers):
                fits = (name for name in waiting if now + longest.get(_kind(name), 0.0) < limit)
                name = next(fits, None) if worker not in running else None
                if name is not None:
                    waiting.remove(name)
                    running[worker] = name, _start(experiment, config, folder, name, worker, workers), now
            if not running:
                break
            time.sleep(0.1)
            for worker, (name, process, started) in list(running.items()):
                if process.exitcode is not None:
                    del running[worker]
                    longest[_kind(name)] = max(longest.get(_kind(name), 0.0), time.monotonic() - began - started)
                    failed += [name] * (process.exitcode != 0)
                    if progress is not None:
                        progress(len(names) - len(waiting) - len(running), len(names))
    finally:
        for _, process, _ in running.values():
            process.terminate()
            process.join()
    if failed:
        raise RuntimeError(f"{experiment.name}: {len(failed)} jobs failed ({', '.join(failed)}); see the errors above.")
    left = sum(not parts.has(name) for name in names)
    if left:
        raise Unfinished(f"{experiment.name}: {len(names) - left} of {len(names)} jobs are done and saved.")


def _kind(job: str) -> str:
    return job.partition("_")[0]


def _start(experiment: Experiment, config: Any, folder: Path, job: str, worker: int, workers: int) -> BaseProcess:
    """Start the process of a job, which is one of several workers."""
    variables: dict[str, str] = {}
    core = None if workers == 1 or experiment.whole_machine else worker
    if core is not None:
        variables = _ONE_CORE
    elif workers > 1:
        variables = {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / workers:.2f}"}
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_do_job, args=(experiment, config, folder, job, core))
    with _environment(variables):
        process.start()
    return process


def _do_job(experiment: Experiment, config: Any, folder: Path, job: str, core: int | None) -> None:
    """Do one job of a study, in a process of its own; it has one core if the number of one is given."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
    assert experiment.make_job is not None
    make = functools.partial(experiment.make_job, config, job)
    if experiment.whole_machine:
        make = functools.partial(make, folder / RUNS / job)
    Parts(folder, config).get(job, make)


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for the processes started in this context, unless they are set already."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
