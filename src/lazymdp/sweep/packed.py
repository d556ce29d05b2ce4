"""Runs that are trained as one population: all seeds and prices of a MinAtar game, in one program on one device."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lazymdp.learn.deep.checked_files import Damaged, read_arrays, write_arrays
from lazymdp.sweep.execute import Beat, Job, Stop, resolved, rows_of, write_agent, write_result
from lazymdp.sweep.extras import deep
from lazymdp.sweep.run_spec import RunSpec
from lazymdp.sweep.sweep_folder import SweepFolder

_STATE = "population.safetensors"
_LARGEST_CHUNK = 20
"""Largest number of iterations per call of the compiled program."""


def execute_packed(job: Job, folder: SweepFolder, beat: Beat, stop: Stop, checkpoint_seconds: float) -> None:
    """Trains and evaluates the members of a population; the arguments are those of `execute`."""
    started, first = time.monotonic(), job.specs[0]
    with resolved(first, folder) as config, folder.working_copy(f"packs/{job.id}") as copy:
        algorithm = deep("factory").make_algorithm(config)
        iterations = config.settings.iterations
        chunk = max(size for size in range(1, _LARGEST_CHUNK + 1) if iterations % size == 0)
        population = deep("population").Population(algorithm, chunk)
        beat(0, job.steps, "starting")
        prices = [spec.member_price for spec in job.specs]
        runs = population.start_members([spec.config.seed for spec in job.specs], prices)
        done, path = 0, copy.path / _STATE
        if path.exists():
            runs, done = _restored(runs, path)
        saved = time.monotonic()
        while done < iterations:
            runs, summary = population.advance(runs)
            done += chunk
            int(summary.episodes.sum())  # wait for the device, because calls only queue work
            beat(job.steps * done // iterations, job.steps, "training")
            stopped = stop()
            if stopped or done == iterations or time.monotonic() - saved >= checkpoint_seconds:
                write_arrays(path, deep("named_arrays").to_named(runs), {"iteration": done, "job": job.id})
                copy.send()
                saved = time.monotonic()
            if stopped and done < iterations:
                raise KeyboardInterrupt
        played = _evaluate(population, runs, job.specs, beat, stop)
        arrays = deep("named_arrays").to_named(runs)
        seconds = time.monotonic() - started
        for place, spec in enumerate(job.specs):
            member = {name: array[place] for name, array in arrays.items()}
            alone = replace(config, seed=spec.config.seed)
            write_agent(alone, member, config.total_steps, folder, f"runs/{spec.id}/agent")
            one = _of_member(played, place)
            write_result(folder, spec, rows_of(one), one.doubts(), seconds / len(job.specs))
            beat(place, len(job.specs), "writing results")
    folder.remove(f"packs/{job.id}")


def _restored(runs: Any, path: Path) -> tuple[Any, int]:
    """Returns the members as they were at the checkpoint; a checkpoint that is damaged is ignored."""
    try:
        arrays, about = read_arrays(path)
        return deep("named_arrays").from_named(runs, arrays), int(about["iteration"])
    except Damaged:
        return runs, 0


def _evaluate(population: Any, runs: Any, specs: tuple[RunSpec, ...], beat: Beat, stop: Stop) -> Any:
    """Plays whole episodes with every member at its own prices, and with the default policy alone."""

    def progress(done: int, total: int) -> None:
        beat(done, total, "evaluating")
        if stop():
            raise KeyboardInterrupt

    module, evaluation = deep("evaluation_episodes"), specs[0].evaluation
    etas = np.array([[*(spec.evaluation.etas or ()), math.inf] for spec in specs])
    limit = evaluation.max_steps or population.algorithm.env.max_steps or module.MAX_STEPS
    return population.evaluate(
        runs, etas, episodes=evaluation.episodes, seed=evaluation.seed, epsilon=evaluation.epsilon, max_steps=limit,
        progress=progress,
    )  # fmt: skip


def _of_member(played: Any, place: int) -> Any:
    """Returns the evaluation of one member, as `Agent.evaluate` would return it."""
    module = deep("evaluation_episodes")
    return module.with_default_alone(module.selected(played, place))
