"""The plan of a sweep: which jobs remain, in which order, how long they will take and what they will cost."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lazymdp.sweep.execute import Job
from lazymdp.sweep.extras import deep
from lazymdp.sweep.run_spec import RunSpec, reference
from lazymdp.sweep.speeds import MEASURED, Speed, family, finished_speeds, speed_of
from lazymdp.sweep.study_file import Study, StudyError


@dataclass(frozen=True)
class Plan:
    """What remains to be done.

    Attributes:
        total: Number of runs of the study.
        done: Number of runs that are done.
        set_aside: Number of runs that failed too often.
        jobs: The jobs that remain, in the order in which they are started.
        seconds: Estimated seconds of each job; None where no speed is known.
        sources: Where the speeds come from.
    """

    total: int
    done: int
    set_aside: int
    jobs: tuple[Job, ...]
    seconds: tuple[float | None, ...]
    sources: tuple[str, ...]

    @property
    def runs(self) -> int:
        """Number of runs that remain."""
        return sum(len(job.specs) for job in self.jobs)

    @property
    def machine_seconds(self) -> float | None:
        """Estimated time of all jobs one after the other; None if a speed is unknown."""
        known = [seconds for seconds in self.seconds if seconds is not None]
        return sum(known) if len(known) == len(self.seconds) else None

    def wall_seconds(self, workers: int) -> float | None:
        """Returns the estimated time with several workers, each of which takes the next job when it is free."""
        if self.machine_seconds is None:
            return None
        free = [0.0] * max(1, min(workers, len(self.jobs)))
        for seconds in self.seconds:
            heapq.heappush(free, heapq.heappop(free) + (seconds or 0.0))
        return max(free)


def make_plan(study: Study, results: Mapping[str, Mapping[str, Any]], set_aside: Sequence[str], device: str) -> Plan:
    """Makes the plan of a study.

    Args:
        study: The study.
        results: Results of the runs that are done, by id.
        set_aside: Ids of runs that failed too often and are not tried again.
        device: `cpu` or `gpu`, for the estimate.
    """
    specs = study.specs
    jobs = make_jobs([spec for name, spec in specs.items() if name not in results and name not in set_aside])
    finished = finished_speeds(results.values())
    speeds = [speed_of(job.specs[0], device, finished) for job in jobs]
    seconds = tuple(
        None if speed is None else speed.seconds(job.steps) for job, speed in zip(jobs, speeds, strict=True)
    )
    sources = tuple(dict.fromkeys(_source(job, speed, device) for job, speed in zip(jobs, speeds, strict=True)))
    return Plan(len(specs), len(results), len(set_aside), tuple(jobs), seconds, sources)


def make_jobs(specs: Sequence[RunSpec]) -> list[Job]:
    """Returns jobs for some runs in their order; the runs of a population form one job."""
    jobs: dict[str, list[RunSpec]] = {}
    for spec in specs:
        jobs.setdefault(spec.group or spec.id, []).append(spec)
    return [Job(tuple(members)) for members in jobs.values()]


def _source(job: Job, speed: Speed | None, device: str) -> str:
    config = job.specs[0].config
    env = family(config.env)
    if env == "control":
        env = "control problems" if speed in MEASURED.values() else config.env
    kind = f"{config.algorithm} on {env}"
    if speed is None:
        return f"{kind}: no speed has been measured on a {device}"
    return f"{kind}: {speed}"


def check_runs(study: Study) -> None:
    """Raises an error if an environment, a default policy or a network of the study cannot be made."""
    factory, checked = deep("factory"), set()
    for run in study.runs:
        config: Any = run.spec.config
        try:
            policy = _original(study, config.default_policy)
            if policy is None:  # the agent of another run does not exist yet
                factory.choice_of(_reference(config.default_policy)[2])
                policy = "uniform"
            config, start = replace(config, default_policy=policy), None
            if getattr(config.settings, "warm_start", None):
                start = _original(study, config.settings.warm_start)
                if start is None:
                    _check_start(study, config.settings)
                config = replace(config, settings=replace(config.settings, warm_start=start))
            # Prices, seeds and lengths have been checked; what is made here does not depend on them, except that a
            # network to start from has to fit.
            shape = (config.settings.form, config.settings.network) if start is None else config.settings
            key = (config.env, str(config.env_kwargs), policy, config.algorithm, shape)
            if key not in checked:
                checked.add(key)
                factory.check(config)
        except ImportError as error:
            raise ImportError(f"{study.path}: {run.method} on {config.env}: {error}") from error
        except (ValueError, TypeError, RuntimeError, OSError) as error:
            raise StudyError(
                f"{study.path}: {run.method} on {config.env} with the default policy {run.default_policy}: {error}"
            ) from error


def _check_start(study: Study, settings: Any) -> None:
    """Raises an error if a run cannot start from the network of another run of the study, which does not exist yet."""
    theirs: Any = study.specs[_reference(settings.warm_start)[1]].config.settings
    if theirs.name != settings.name:
        raise ValueError(f"its warm_start is the agent of a {theirs.name} run, expected that of a {settings.name} run.")
    for name in ("network", "hidden", "layer_norm", "reward_scale", "is_range"):
        given, wanted = getattr(settings, name), getattr(theirs, name)
        if given != wanted:
            what = "whether its price is a range" if name == "is_range" else name
            raise ValueError(f"{what} is {given}, but {wanted} for the run that warm_start names: make them equal.")


def _reference(text: str) -> tuple[str, str, str]:
    found = reference(text)
    assert found is not None  # the reader of the study has put references in place of other methods
    return found


def _original(study: Study, text: str) -> str | None:
    """Returns a default policy or a run to start from with the user's own path; None for the agent of another run."""
    found = reference(text)
    if found is None:
        return text
    kind, name, manner = found
    if kind != "input":
        return None
    files = study.inputs.files[name]
    path = files["config.json"].parent if "config.json" in files else next(iter(files.values()))
    return f"{path}:{manner}" if manner else str(path)
