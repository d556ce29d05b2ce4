"""Runs of `dqn` on Atari: trained on a GPU that several of them share, and evaluated there or later.

A run keeps its agent, its newest network if that is another one, both in half precision, and the reports of its
training. A run that is stopped leaves them as they were less than a minute before. It cannot be continued, because its
replay buffer, of seven gigabytes, is not saved. A run that is complete is not trained again but evaluated, so that the
folder of a run can be carried from a machine with a GPU to one without.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._files import write_csv
from lazymdp.experiments.experiment import table
from lazymdp.experiments.results_io import read_table

AGENT, NEWEST = "agent", "newest"
"""Folders of the agent and of the newest network, in the folder of a run."""
NEWEST_ETAS = (0.0, 0.005, 0.05)
"""Prices at which the newest network of a dial is evaluated."""
FRAMES_PER_STEP = 4
MILLION = 1_000_000
_SAVE_SECONDS = 30.0
_REPORTS, _CLOCK = "reports.csv", "clock.csv"
_REPORT = ("frames", "eta", "episodes", "mean_return", "control_rate")


def train_in(folder: Path, env: str, seed: int, frames: int, settings: dict[str, Any]) -> None:
    """Train an agent, unless the folder holds the complete run; one that was stopped begins anew."""
    try:
        from lazymdp.learn.deep.export import AVERAGE, write_agent
        from lazymdp.learn.deep.run_folder import RunFolder
        from lazymdp.learn.deep.trainer import train
    except ImportError as error:
        raise ImportError(f"training on Atari needs JAX ({error}): pip install 'lazymdp[deep,atari]'") from error

    agent = RunFolder(folder / AGENT)
    if agent.exists and agent.step() == agent.config().total_steps:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reports: list[tuple[float, ...]] = []
    clock: list[tuple[float, float]] = []
    saved = time.monotonic()

    def keep(run: Any, metrics: Any) -> None:
        nonlocal saved
        clock.append((FRAMES_PER_STEP * run.step, round(time.time(), 2)))
        reports.extend(
            (FRAMES_PER_STEP * one.step, one.eta, one.episodes, one.mean_return, one.control_rate) for one in metrics
        )
        if run.done or time.monotonic() - saved >= _SAVE_SECONDS:
            for name, columns, rows in ((_REPORTS, _REPORT, reports), (_CLOCK, ("frames", "time"), clock)):
                write_csv(folder / name, dict(zip(columns, np.reshape(rows, (-1, len(columns))).T, strict=True)))
            arrays = run.arrays()
            newest = {name: array for name, array in arrays.items() if not name.startswith(AVERAGE)}
            agents = {NEWEST: newest, AGENT: arrays} if run.config.settings.average_share else {AGENT: arrays}
            for name, kept in agents.items():
                new = folder / f"new-{name}"
                shutil.rmtree(new, ignore_errors=True)
                write_agent(run.config, kept, run.step, new)
                shutil.rmtree(folder / name, ignore_errors=True)
                new.rename(folder / name)
            saved = time.monotonic()

    train(env, algorithm="dqn", seed=seed, steps=frames // FRAMES_PER_STEP, on_report=keep, **settings)


def evaluated(folder: Path, episodes: int, max_steps: int) -> dict[str, NDArray[Any]]:
    """Evaluate the agent of a run, and return the rows of its training and of its evaluation.

    Each price of the agent and the default policy alone are played with the same seed and 0.1% random choices; so is
    the newest network, at fewer prices, if the run has kept it.
    """
    from lazymdp import learn
    from lazymdp.learn.deep.run_folder import RunFolder

    of = RunFolder(folder / AGENT)
    config, steps = of.config(), of.step() or 0
    settings: Any = config.settings
    if steps == config.total_steps:  # whole iterations
        steps = settings.steps

    def plays_of(name: str, etas: tuple[float, ...] | None) -> list[tuple[Any, ...]]:
        agent = learn.load(folder / name)
        played = agent.evaluate(etas, episodes=episodes, seed=config.seed, epsilon=0.001, max_steps=max_steps)
        alone = played.default_alone
        agent.algorithm.env.close()
        whole = [(played, place) for place in range(played.etas.size)]
        if alone is not None and name == AGENT:
            whole.append((alone, 0))
        phase = "evaluation" if name == AGENT else NEWEST
        return [
            (phase, FRAMES_PER_STEP * steps, one.etas[place], episodes, one.returns[place], one.control_rate[place])
            for one, place in whole
        ]

    plays = plays_of(AGENT, None)
    if (folder / NEWEST).is_dir():
        plays += plays_of(NEWEST, NEWEST_ETAS if settings.is_range else None)
    reports, clock = read_table(folder / _REPORTS), read_table(folder / _CLOCK)
    return run_rows(
        list(zip(*(reports[name] for name in _REPORT), strict=True)),
        list(zip(clock["frames"], clock["time"], strict=True)),
        plays,
        acts="target" if settings.act_with_target else "newest",
        zero_fraction=settings.zero_fraction,
        average_share=settings.average_share,
    )


def run_rows(
    ended: Any, clock: Any, plays: Any, *, acts: str, zero_fraction: float, average_share: float
) -> dict[str, NDArray[Any]]:
    """Build the rows of a run.

    Args:
        ended: Reports of training: frames, price, number of episodes, their mean return, control rate.
        clock: Times of the reports: frames, seconds since 1970.
        plays: For each price of an evaluation: phase, frames, price, number of episodes, `[N]` their returns, control
            rate.
        acts: The network that chose in training, `newest` or `target`.
        zero_fraction: The setting of that name.
        average_share: The setting of that name.
    """
    totals: dict[tuple[int, float], NDArray[np.float64]] = {}
    for frames, eta, count, mean, rate in ended:
        place = (-(-int(frames) // MILLION) * MILLION, float(eta))
        totals[place] = totals.get(place, np.zeros(3)) + count * np.array([1.0, mean, rate])
    known_frames, known_times = np.array(clock, dtype=float).reshape(-1, 2).T

    def reached(frames: int) -> float:
        inside = known_frames.size > 0 and known_frames[0] <= frames <= known_frames[-1]
        return float(np.interp(frames, known_frames, known_times)) if inside else np.nan

    rows = [
        ("training", frames, eta, int(sums[0]), sums[1] / sums[0], np.nan, sums[2] / sums[0], reached(frames))
        for (frames, eta), sums in sorted(totals.items())
    ]
    rows += [
        (phase, frames, eta, count, np.mean(returns), np.std(returns, ddof=1), rate, np.nan)
        for phase, frames, eta, count, returns, rate in plays
    ]
    names = ("phase", "frames", "eta", "episodes", "mean_return", "std_return", "control_rate", "time")
    columns = {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}
    rounded = {name: np.round(columns[name], 4) for name in names[4:]}
    return table(acts=acts, zero_fraction=zero_fraction, average_share=average_share, **{**columns, **rounded})
