"""The state of a sweep, read from its folder: what is running, done and set aside, and how long the rest will take."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from lazymdp.sweep.results_table import RunLabels, read_plan, read_results
from lazymdp.sweep.run_sweep import set_aside_runs
from lazymdp.sweep.sweep_folder import OBSTACLE, PROGRESS, SweepFolder

_ALIVE_SECONDS = 120.0
"""A run whose last report of progress is older than this is not counted as running."""


@dataclass(frozen=True)
class Running:
    """A job that is running.

    Attributes:
        label: The run, or the first of several that are trained together.
        runs: Number of runs in the job.
        doing: What it is doing: training, evaluating, ...
        share: Share of that which is done.
        steps_per_second: Speed of training in this attempt, over all runs of the job; None if it is not known.
    """

    label: RunLabels
    runs: int
    doing: str
    share: float
    steps_per_second: float | None


@dataclass(frozen=True)
class Status:
    """The state of a sweep.

    Attributes:
        total: Number of runs.
        done: Number of runs that are done.
        running: Jobs that are running.
        set_aside: Runs that were set aside, with the reason.
        seconds_left: Estimated seconds until all are done; None if nothing runs or nothing is known yet.
        obstacle: Why no run could be started when the sweep last looked; empty if nothing stands in the way.
    """

    total: int
    done: int
    running: tuple[Running, ...]
    set_aside: tuple[tuple[RunLabels, str], ...]
    seconds_left: float | None
    obstacle: str = ""


class StatusReader:
    """Reads the state of a sweep again and again; results that were read once are not read again.

    Args:
        address: The folder of the sweep.
    """

    def __init__(self, address: str) -> None:
        self.folder = SweepFolder(address)
        self._seconds: dict[str, float] = {}

    def read(self) -> Status:
        """Returns the state of the sweep."""
        labels = {label.run: label for label in read_plan(self.folder)}
        new = read_results(self.folder, set(labels) - set(self._seconds))
        self._seconds |= {name: float(result["seconds"]) for name, result in new.items()}
        done = set(self._seconds) & set(labels)
        aside = set_aside_runs(self.folder, set(labels) - done)
        running = self._running({name: label for name, label in labels.items() if name not in {*done, *aside}})
        left = len(labels) - len(done) - len(aside)
        per_step = self._seconds_per_step({name: labels[name] for name in done}, running)
        seconds = None
        if per_step is not None and running and left:
            open_steps = sum(label.steps for name, label in labels.items() if name not in {*done, *aside})
            made = sum((one.share if one.doing == "training" else 1.0) * one.runs * one.label.steps
                       for one in running if one.doing != "starting")  # fmt: skip
            seconds = per_step * max(0.0, open_steps - made) / len(running)
        reasons = tuple((labels[name], reason) for name, reason in aside.items())
        about = self.folder.read_sealed(OBSTACLE) if left and not running else None
        obstacle = "" if about is None else str(about["reason"])
        return Status(len(labels), len(done), tuple(running), reasons, seconds, obstacle)

    def _seconds_per_step(self, done: dict[str, RunLabels], running: list[Running]) -> float | None:
        """Returns seconds of a job per step: of finished runs, or of those that are running if none is finished."""
        if done:
            return sum(self._seconds[name] for name in done) / sum(label.steps for label in done.values())
        speeds = [one.steps_per_second for one in running if one.steps_per_second]
        return len(speeds) / sum(speeds) if speeds else None

    def _running(self, labels: dict[str, RunLabels]) -> list[Running]:
        found: list[Running] = []
        for name in self.folder.names("runs") & set(labels):
            about: dict[str, Any] | None = self.folder.read_sealed(f"runs/{name}/{PROGRESS}")
            if about is not None and time.time() - about["time"] <= _ALIVE_SECONDS:
                share = about["step"] / max(about["total"], 1)
                found.append(Running(labels[name], int(about["runs"]), str(about["doing"]), share, _speed(about)))
        return sorted(found, key=lambda one: list(labels).index(one.label.run))


def _speed(about: dict[str, Any]) -> float | None:
    """Returns the steps per second of a job that is training, given its progress."""
    if about["doing"] != "training" or "since" not in about:
        return None
    made, seconds = about["step"] - about["from_step"], about["time"] - about["since"]
    return float(made / seconds) if made > 0 and seconds > 0.0 else None
