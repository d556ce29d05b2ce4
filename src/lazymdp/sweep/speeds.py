"""How fast runs are: the speeds of finished runs, and a table of measured speeds for a study that has none yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from lazymdp.sweep.run_spec import RunSpec


@dataclass(frozen=True)
class Speed:
    """The speed of a kind of run.

    Attributes:
        steps_per_second: Agent steps per second of one job, over all of its runs.
        source: Where this was measured.
        start_seconds: Seconds of a job that do not depend on its steps: start, compilation, evaluation.
    """

    steps_per_second: float
    source: str
    start_seconds: float = 0.0

    def seconds(self, steps: int) -> float:
        """Returns the time of a job."""
        return self.start_seconds + steps / self.steps_per_second

    def __str__(self) -> str:
        start = f" after {self.start_seconds:g} s" if self.start_seconds else ""
        return f"{self.steps_per_second:,.0f} steps/s{start} ({self.source})"


_CPU = "AMD EPYC, one core, 2026-11-16"
_GPU = "NVIDIA H200 with 16 cores, 2026-11-16"
MEASURED = {
    # Fitted to the processor times of whole runs in benchmarks/results/algorithms.csv and control.csv.
    ("minatar", "pqn", "cpu", False): Speed(105_000, _CPU, 26.0),
    ("minatar", "dqn", "cpu", False): Speed(7_600, _CPU, 26.0),
    ("control", "pqn", "cpu", False): Speed(25_000, _CPU, 14.0),
    ("control", "dqn", "cpu", False): Speed(900, _CPU, 10.0),
    # All steps of results/minatar, by the time that it took with compilation and evaluation. Training alone makes 19
    # million steps per second.
    ("minatar", "pqn", "gpu", True): Speed(3_490_000, "NVIDIA H200 with 16 cores, whole study, 2026-11-15"),
    # benchmarks/results/deep_gpu.json, training alone: a quarter of the frames per second.
    ("ALE", "pqn", "gpu", False): Speed(17_800, _GPU),
    ("ALE", "dqn", "gpu", False): Speed(8_190, _GPU),
}
"""Measured speeds by family of environments, algorithm, device, and whether runs are packed."""


def family(env: str) -> str:
    """Returns the kind of an environment: `minatar`, `ALE` or `control`."""
    first = env.partition("/")[0]
    return first if first in ("minatar", "ALE") else "control"


def speed_of(spec: RunSpec, device: str, finished: Mapping[tuple[str, str, bool], Speed]) -> Speed | None:
    """Returns the speed of a run: of finished runs in its environment if there are any, else from the table.

    Args:
        spec: The run.
        device: `cpu` or `gpu`.
        finished: Speeds of finished runs; see `finished_speeds`.
    """
    env, algorithm, packed = spec.config.env, spec.config.algorithm, spec.member_price is not None
    for name in (env, family(env)):
        if (name, algorithm, packed) in finished:
            return finished[name, algorithm, packed]
    known = MEASURED.get((family(env), algorithm, device, packed))
    # A population fills a GPU. On a CPU, it is about as fast as its runs one after the other.
    return known or (MEASURED.get((family(env), algorithm, "cpu", False)) if device == "cpu" else None)


def finished_speeds(results: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, bool], Speed]:
    """Returns median speeds of finished runs by environment and by family, algorithm, and whether they were packed.

    The wall time of a run includes its start and its evaluation. After an interruption it is that of the last attempt
    only, so such a run looks too fast; the median limits the harm.
    """
    found: dict[tuple[str, str, bool], list[float]] = defaultdict(list)
    for result in results:
        spec = RunSpec.from_json(result["spec"])
        speed = spec.config.total_steps / max(result["seconds"], 1e-3)
        for name in (spec.config.env, family(spec.config.env)):
            found[name, spec.config.algorithm, spec.member_price is not None].append(speed)
    return {key: Speed(median(speeds), _finished(len(speeds))) for key, speeds in found.items()}


def _finished(count: int) -> str:
    return f"{count} finished run{'s' if count > 1 else ''}"
