"""A sweep from its study file to its table: what `lazymdp sweep run` does, as functions."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lazymdp import _cores
from lazymdp.sweep.engine import Pool, Sweep
from lazymdp.sweep.local_pool import LocalPool
from lazymdp.sweep.plan import Plan, check_runs, make_plan
from lazymdp.sweep.results_table import RunLabels, read_results, write_plan
from lazymdp.sweep.study_file import Study, read_study
from lazymdp.sweep.supervise import Limits
from lazymdp.sweep.sweep_folder import FAILED, STUDY, SweepFolder
from lazymdp.sweep.sweep_lock import only_sweep


@dataclass(frozen=True)
class Where:
    """Where jobs are executed.

    Attributes:
        workers: Jobs at a time; by default one per `limits.cores` cores of this machine, or of the cluster.
        cluster: Address of a Ray cluster, such as `auto`; None for processes on this machine.
        gpus: GPUs per job on a cluster.
        limits: How jobs are executed.
    """

    workers: int | None = None
    cluster: str | None = None
    gpus: float = 0.0
    limits: Limits = field(default_factory=Limits)

    def pool(self, address: str) -> Pool:
        """Returns a pool that executes jobs there."""
        if self.cluster is None:
            return LocalPool(address, self.local_workers, self.limits)
        from lazymdp.sweep.ray_pool import RayPool

        return RayPool(address, self.cluster, self.workers, self.limits, self.gpus)

    @property
    def local_workers(self) -> int:
        """Jobs at a time on this machine."""
        return self.workers or max(1, _cores.available() // self.limits.cores)


class Prepared:
    """A study that has been read and checked, and what its folder already holds.

    Args:
        study_file: The study file.
        address: The folder of the sweep.
        retry: Whether to try runs again that were set aside.
        device: `cpu` or `gpu`, for the estimate of the time.

    Attributes:
        study: The study.
        folder: The folder.
        results: Results of the runs that are done, by id.
        set_aside: Reasons of the runs that were set aside, by id.
        retried: The same for runs that were set aside and are now tried again.
        plan: What remains.
    """

    def __init__(
        self, study_file: str | os.PathLike[str], address: str | os.PathLike[str], *, retry: bool = False,
        device: str = "cpu",
    ) -> None:  # fmt: skip
        self.study: Study = read_study(study_file)
        self.folder = SweepFolder(address)
        wanted = set(self.study.specs)
        self.results: dict[str, dict[str, Any]] = read_results(self.folder, wanted)
        failed = set_aside_runs(self.folder, wanted - set(self.results))
        self.set_aside, self.retried = ({}, failed) if retry else (failed, {})
        self.plan: Plan = make_plan(self.study, self.results, list(self.set_aside), device)


def set_aside_runs(folder: SweepFolder, wanted: set[str]) -> dict[str, str]:
    """Returns the reasons of the runs that were set aside, by id."""
    there = folder.names("runs") & wanted
    found = {name: folder.read_sealed(f"runs/{name}/{FAILED}") for name in sorted(there)}
    return {name: str(about["reason"]) for name, about in found.items() if about is not None}


def run_sweep(
    prepared: Prepared, where: Where, *, tell: Callable[[str], None] = lambda text: None,
    stop: Callable[[], bool] = lambda: False,
) -> Sweep:  # fmt: skip
    """Executes what remains of a sweep.

    Args:
        prepared: The study and its folder.
        where: Where jobs are executed.
        tell: Called with lines of text for the user.
        stop: Called often; if it returns True, all jobs stop with a checkpoint, and the sweep ends.

    Returns:
        The sweep, with its results and the runs that were set aside.
    """
    study, folder = prepared.study, prepared.folder
    labels = [RunLabels.of(run) for run in study.runs]
    pool = where.pool(folder.address if folder.local is None else str(folder.local))  # fails if there is no cluster
    try:
        pool.expect(len(prepared.plan.jobs))
        check_runs(study)
        with only_sweep(folder, tell) as lost:
            folder.write(STUDY, study.path.read_text(encoding="utf-8"))
            study.inputs.send(folder)
            write_plan(folder, study.runs)
            for name in prepared.retried:
                folder.remove(f"runs/{name}/{FAILED}")
            aside = dict(prepared.set_aside)
            sweep = Sweep(folder, labels, prepared.results, pool, tell, lambda: stop() or lost(), set_aside=aside)
            sweep.run(prepared.plan.jobs)
            if lost():
                raise OSError(f"another sweep has taken over {folder.shown}: this one has stopped.")
    finally:
        pool.expect(0)
    return sweep
