"""The nodes of a Ray cluster: one task per job, which supervises the process of the job on its node.

Ray only says where a job runs and whether its node is alive. Retries, checkpoints and results are ours, on disk.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lazymdp.sweep.execute import Job
from lazymdp.sweep.run_spec import RunSpec
from lazymdp.sweep.supervise import Limits, Outcome, supervise

_PENDING = 2
"""Jobs that are submitted beyond those that the cluster has room for, so that a cluster that scales sees the demand."""


class RayPool:
    """Executes jobs on a Ray cluster.

    Args:
        address: The folder of the sweep, which every node can reach.
        cluster: Address of the cluster, such as `auto`.
        workers: Largest number of jobs at a time; by default as many as the cluster has cores for.
        limits: How jobs are executed.
        gpus: GPUs per job; a fraction lets jobs share one.
    """

    def __init__(self, address: str, cluster: str, workers: int | None, limits: Limits, gpus: float = 0.0) -> None:
        self._ray = _ray()
        if not self._ray.is_initialized():
            try:
                _knock(cluster)
                with _same_sigterm():
                    self._ray.init(address=cluster, log_to_driver=False, logging_level="error")
            except (OSError, RuntimeError, ValueError) as error:
                reason = " ".join(str(error).split()).rstrip(".")
                raise ConnectionError(
                    f"address is {cluster}, but no Ray cluster answers there ({reason}): start one with `ray start "
                    "--head`, or give the address that this command prints."
                ) from error
        self._address, self._workers, self._limits, self._gpus = address, workers, limits, gpus
        self._jobs: dict[Any, Job] = {}
        options = {"num_cpus": limits.cores, "num_gpus": gpus, "max_retries": 0, "max_calls": 0}
        self._task = self._ray.remote(**options)(_supervise_task)

    @property
    def running(self) -> int:
        """Number of jobs that have been started and have not been returned by `finished`."""
        return len(self._jobs)

    def room(self) -> int:
        """Returns how many more jobs can be started now."""
        if self._workers is not None:
            return self._workers - len(self._jobs)
        there = self._ray.cluster_resources()
        room = int(there.get("CPU", 0.0) // self._limits.cores)
        if self._gpus:
            room = min(room, int(there.get("GPU", 0.0) / self._gpus))
        return room + _PENDING - len(self._jobs)

    def obstacle(self) -> str:
        """Returns what kind of node to start if no node of the cluster is large enough for a job."""
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        sizes = [(node.get("CPU", 0.0), node.get("GPU", 0.0)) for node in nodes]
        cores, gpus = float(self._limits.cores), self._gpus
        if any(has_cores >= cores and has_gpus >= gpus for has_cores, has_gpus in sizes):
            return ""
        largest = max(sizes, key=lambda size: (size[1], size[0]) if gpus else size, default=(0.0, 0.0))
        wanted, found = _size(cores, gpus, gpus), _size(largest[0], largest[1], gpus)
        options = f"--num-cpus={cores:g}" + (f" --num-gpus={math.ceil(gpus)}" if gpus else "")
        return (
            f"No node of the cluster has {wanted} for a run; the largest has {found}. Waiting for one: start a node "
            f"with `ray start --address=HEAD:PORT {options}`, or stop the sweep and give smaller --cores or --gpus."
        )

    def start(self, job: Job) -> None:
        """Starts a job."""
        specs = json.dumps([spec.to_json() for spec in job.specs])
        limits = dataclasses.asdict(self._limits)
        self._jobs[self._task.remote(specs, self._address, limits, list(sys.path))] = job

    def expect(self, waiting: int) -> None:
        """Does nothing: which node executes the next job is not known yet."""

    def finished(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Returns the jobs that have ended, after waiting for at most some seconds for one."""
        if not self._jobs:
            time.sleep(seconds)
            return []
        ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=seconds)
        return [(self._jobs.pop(one), self._outcome(one)) for one in ready]

    def stop(self) -> None:
        """Asks all jobs to stop with a checkpoint."""
        for one in self._jobs:
            self._ray.cancel(one, force=False)

    def _outcome(self, one: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            return Outcome(**self._ray.get(one))
        except (errors.TaskCancelledError, KeyboardInterrupt):
            return Outcome("stopped")
        except errors.RayTaskError as error:
            return Outcome("failed", f"its task failed: {error.cause!r}" if hasattr(error, "cause") else str(error))
        except errors.RayError as error:
            words = " ".join(str(error).split())
            return Outcome("failed", f"its node or its worker was lost ({type(error).__name__})", log=words)


def _supervise_task(specs: str, address: str, limits: dict[str, Any], path: list[str]) -> dict[str, Any]:
    """Supervises a job on a node; Ray cancels it by raising `KeyboardInterrupt`."""
    sys.path[:] = [*sys.path, *(entry for entry in path if entry not in sys.path)]
    job = Job(tuple(RunSpec.from_json(spec) for spec in json.loads(specs)))
    try:
        return dataclasses.asdict(supervise(job, address, Limits(**limits)))
    except KeyboardInterrupt:
        return dataclasses.asdict(Outcome("stopped"))


def _size(cores: float, gpus: float, wanted: float) -> str:
    """Returns the size of a node in words; GPUs are named if they are wanted."""
    words = "1 core" if cores == 1.0 else f"{cores:g} cores"
    return words + (f" and {gpus:g} GPU{'s' if gpus > 1.0 else ''}" if gpus else " and no GPU" if wanted else "")


def _knock(cluster: str) -> None:
    """Raises an error if nothing listens at `host:port`; Ray itself would try for minutes, deaf to Ctrl-C."""
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10.0).close()


@contextmanager
def _same_sigterm() -> Iterator[None]:
    """Restores the handler of SIGTERM, which `ray.init` replaces by one that ends the process at once."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, before)


def _ray() -> Any:
    try:
        found = importlib.import_module("ray")
        importlib.import_module("ray.exceptions")
    except ImportError as error:
        raise ImportError("a cluster needs Ray: pip install 'lazymdp[ray]'") from error
    return found
