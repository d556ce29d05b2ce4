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
    """

    steps_per_second: float
    source: str


_CPU = "AMD EPYC, one core, 2026-11-16"
_GPU = "NVIDIA H200 with 16 cores, 2026-11-16"
MEASURED = {
    # Steps per CPU second, start and evaluation included: benchmarks/results/algorithms.csv and control.csv.
    ("minatar", "pqn", "cpu", False): Speed(37_500, _CPU),
    ("minatar", "dqn", "cpu", False): Speed(5_100, _CPU),
    ("control", "pqn", "cpu", False): Speed(15_200, _CPU),
    ("control", "dqn", "cpu", False): Speed(840, _CPU),
    # benchmarks/results/deep_gpu.json; for Atari, a quarter of the frames per second.
    ("minatar", "pqn", "gpu", True): Speed(19_090_000, _GPU),
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
    return {key: Speed(median(speeds), f"{len(speeds)} finished runs") for key, speeds in found.items()}
