"""The execution of a job: train, evaluate, write the result. Every sweep runs this function, on any machine.

A job is one run, or several runs that are trained as one population. It continues from its last checkpoint, and its
result files are the last files that it writes. `execute` runs in a process of its own (see `worker`).
"""

from __future__ import annotations

import hashlib
import math
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lazymdp._provenance import versions
from lazymdp.learn.deep.checked_files import Damaged
from lazymdp.learn.deep.run_folder import RunFolder
from lazymdp.learn.deep.train_config import TrainConfig
from lazymdp.learn.deep.trust import CONFIG
from lazymdp.sweep.extras import deep
from lazymdp.sweep.half_trained import Snapshots
from lazymdp.sweep.run_inputs import check_code
from lazymdp.sweep.run_spec import Evaluation, RunSpec, reference
from lazymdp.sweep.sweep_folder import RESULT, SweepFolder

Beat = Callable[[int, int, str], None]
"""Called with the steps made, the steps in total and what is being done. It shows that the job has not hung."""
Stop = Callable[[], bool]
"""Returns whether the job should stop with a checkpoint."""
HALF = "half"
"""Folder of a run's agent at half of its final score."""
_RANDOM_EPISODES = 20
"""Largest number of episodes in which the score of random choices is measured."""


@dataclass(frozen=True)
class Job:
    """Runs that are trained together: one, or the members of a population."""

    specs: tuple[RunSpec, ...]

    @cached_property
    def id(self) -> str:
        """Name of the job: the id of its run; for a population, a hash of the ids of all runs."""
        if self.specs[0].member_price is None:
            return self.specs[0].id
        return hashlib.sha256(" ".join(spec.id for spec in self.specs).encode()).hexdigest()[:16]

    @property
    def steps(self) -> int:
        """Agent steps of all runs together."""
        return sum(spec.config.total_steps for spec in self.specs)

    @cached_property
    def needed_runs(self) -> set[str]:
        """Ids of the runs that have to be finished first."""
        return {name for spec in self.specs for name in spec.needed_runs}


def execute(job: Job, folder: SweepFolder, beat: Beat, stop: Stop, checkpoint_seconds: float = 60.0) -> None:
    """Trains and evaluates the runs of a job, and writes their results into the folder of the sweep.

    Args:
        job: The job.
        folder: The folder of the sweep.
        beat: Called often while the job makes progress.
        stop: Called often. If it returns True, the job writes a checkpoint and raises `KeyboardInterrupt`.
        checkpoint_seconds: Seconds between checkpoints.
    """
    if all(folder.read_sealed(f"runs/{spec.id}/{RESULT}") is not None for spec in job.specs):
        return  # an attempt that was thought to be lost has finished it
    for spec in job.specs:
        check_code(spec)
    if job.specs[0].member_price is not None:
        from lazymdp.sweep.packed import execute_packed

        execute_packed(job, folder, beat, stop, checkpoint_seconds)
        return
    (spec,) = job.specs
    started, name = time.monotonic(), f"runs/{spec.id}"
    with resolved(spec, folder) as config, folder.working_copy(f"{name}/training") as copy:
        total = config.total_steps

        def train() -> Any:
            step = RunFolder(copy.path).step() if (copy.path / CONFIG).is_file() else None
            on_window = Snapshots(copy.path, step or 0).keep if spec.leaves_half else lambda run: None

            def on_report(run: Any, _: Any) -> None:
                nonlocal step
                step = run.step

            def asked() -> bool:
                beat(step or 0, total, "training")
                copy.send_if_changed("last.safetensors")  # now, because no file is being written
                return stop()

            return deep("trainer").run_training(
                config, folder=RunFolder(copy.path), checkpoint_seconds=checkpoint_seconds, on_report=on_report,
                report_seconds=min(2.0, checkpoint_seconds), on_window=on_window, stop=asked,
            )  # fmt: skip

        beat(0, total, "starting")
        try:
            agent = train()
        except (Damaged, FileNotFoundError, FileExistsError) as error:
            # A run can be made again from the start. Its best checkpoint without the last one, which is written after
            # it, or without its config, which is sent after it, is what remains if a disk was full or a process was
            # killed at the first checkpoint.
            if not isinstance(error, Damaged) and (copy.path / "last.safetensors").exists():
                raise
            copy.clear()
            agent = train()
        finally:
            copy.send()
        played = _evaluate(agent, spec.evaluation, beat, stop)
        half = _write_half(agent, spec, copy.path, config, folder, beat, stop) if spec.leaves_half else None
        _export(copy.path, config, folder, f"{name}/agent")
    write_result(folder, spec, rows_of(played), played.doubts(), time.monotonic() - started, half)
    folder.remove(f"{name}/training")


@contextmanager
def resolved(spec: RunSpec, folder: SweepFolder) -> Iterator[TrainConfig]:
    """Yields the config of a run, with local paths in place of references."""
    config = spec.config
    with ExitStack() as copies:

        def local(text: str) -> str:
            found = reference(text)
            if found is None:
                return text
            kind, name, manner = found
            source = {"input": f"inputs/{name}", "run": f"runs/{name}/agent", "half": f"runs/{name}/{HALF}"}[kind]
            path = copies.enter_context(folder.working_copy(source)).path
            if kind == "half" and not (path / CONFIG).is_file():
                raise FileNotFoundError(
                    f"the run {name} left no agent at half of its final score, because too few episodes ended: train "
                    "it for more steps."
                )
            if kind == "run" and not (path / CONFIG).is_file():
                again = f"delete {folder.shown}/runs/{name} and start the sweep again, which makes it anew"
                raise FileNotFoundError(f"{folder.shown}/{source} is missing: {again}.")
            if not (path / CONFIG).is_file():
                files = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
                if len(files) != 1:
                    raise FileNotFoundError(f"{folder.shown}/{source} is incomplete: start the sweep again.")
                path = files[0]
            return f"{path}:{manner}" if manner else str(path)

        settings: Any = config.settings
        if getattr(settings, "warm_start", None):
            settings = replace(settings, warm_start=local(settings.warm_start))
        yield replace(config, default_policy=local(config.default_policy), settings=settings)


def _evaluate(agent: Any, evaluation: Evaluation, beat: Beat, stop: Stop) -> Any:
    def progress(done: int, total: int) -> None:
        beat(done, total, "evaluating")
        if stop():
            raise KeyboardInterrupt

    progress(0, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", deep("evaluation_episodes").DoubtfulFrontier)  # kept in the result
        return agent.evaluate(
            evaluation.etas, episodes=evaluation.episodes, seed=evaluation.seed, epsilon=evaluation.epsilon,
            max_steps=evaluation.max_steps, progress=progress,
        )  # fmt: skip


def _write_half(
    agent: Any, spec: RunSpec, training: Path, config: TrainConfig, folder: SweepFolder, beat: Beat, stop: Stop
) -> dict[str, Any] | None:
    """Writes the agent at half of its final score, if there is one, and returns its step and scores."""
    few = replace(spec.evaluation, epsilon=1.0, episodes=min(spec.evaluation.episodes, _RANDOM_EPISODES))
    snapshots = Snapshots(training, config.total_steps)
    found = snapshots.choose(float(_evaluate(agent, few, beat, stop).returns.mean()))
    if found is None:
        return None
    arrays, about = found
    write_agent(config, arrays, about["step"], folder, f"runs/{spec.id}/{HALF}")
    return about


def _export(training: Path, config: TrainConfig, folder: SweepFolder, name: str) -> None:
    checkpoint = RunFolder(training).read("last")
    assert checkpoint is not None  # the run has just ended with one
    write_agent(config, checkpoint.arrays, checkpoint.step, folder, name)


def write_agent(config: TrainConfig, arrays: dict[str, Any], step: int, folder: SweepFolder, name: str) -> None:
    """Writes a trained agent into the folder of the sweep, instead of one that may be there."""
    folder.remove(name)
    with folder.working_copy(name) as copy:
        deep("export").write_agent(config, arrays, step, copy.path)
        copy.send()


def rows_of(played: Any) -> list[dict[str, Any]]:
    """Returns an evaluation as rows of the table of results: one per price, then the default policy alone."""
    rows = []
    for part in (played, played.default_alone):
        for place, eta in enumerate(part.etas.tolist()):
            returns, steps, controls = (getattr(part, name)[place] for name in ("returns", "steps", "controls"))
            alone = not math.isfinite(eta)
            rows.append(
                {
                    "eta": None if alone else eta,
                    "default_alone": alone,
                    "episodes": int(returns.size),
                    "mean_return": float(returns.mean()),
                    "std_return": float(returns.std()),
                    "control_rate": float(controls.sum() / steps.sum()),
                    "mean_controls": float(controls.mean()),
                    "mean_length": float(steps.mean()),
                    "mean_net_return": float(part.net_returns[place].mean()),
                    "unfinished": int(np.sum(part.unfinished[place])),
                }
            )
    return rows


def write_result(
    folder: SweepFolder, spec: RunSpec, rows: list[dict[str, Any]], doubts: list[str], seconds: float,
    half: dict[str, Any] | None = None,
) -> None:  # fmt: skip
    """Writes the result of a run, which is then done.

    Args:
        folder: The folder of the sweep.
        spec: The run.
        rows: Its rows of the table.
        doubts: What contradicts that the agent is optimal; see `AgentEvaluation.doubts`.
        seconds: Wall time of the last attempt.
        half: Step and scores of its agent at half of its final score, if there is one.
    """
    import jax

    about = {
        "run": spec.id, "spec": spec.to_json(), "rows": rows, "doubts": doubts, "seconds": round(seconds, 3),
        "machine": platform.node(), "device": jax.devices()[0].device_kind, "platform": jax.default_backend(),
        "versions": versions(), **({"half": half} if half is not None else {}),
    }  # fmt: skip
    folder.write_sealed(f"runs/{spec.id}/{RESULT}", about)
