"""Our own: what generality costs. One dial against specialists on MinAtar, with as many steps for each specialist.

Three methods are compared, all `pqn` in the structured form and with the same network. *dial* trains one network for
all prices. *specialist* trains one network for each price, each with as many steps as the dial. *eighth* does the same
with an eighth of the steps. The dial has twice as many environments as a specialist, so that it makes as many gradient
steps of the same size, and it learns from each step at several prices.

The score of the dial at a price is its gain over the default policy alone, divided by that of the specialist. A gain is
a mean return minus the price paid, which is what agents maximize, minus the return of the default policy.

Gain of the dial as a share of the specialist's gain at each price (mean over seeds, with 95% bootstrap intervals over
the seeds of both). Prices at which no specialist gains anything are left out. Squares: specialists with an eighth of
the steps.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT, INK
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, stacked, table
from lazymdp.experiments.jobs import run_jobs
from lazymdp.experiments.study import Parts
from lazymdp.show import styled

TITLE = "MinAtar: one dial against specialists with as many steps each"
NEEDS_GPU = True
GAMES = ("breakout", "asterix", "space_invaders", "freeway", "seaquest")
METHODS = ("dial", "specialist", "eighth")
GOAL, LEAST = 0.95, 0.85
"""Share of the specialist's gain wanted at every price in all games but one, and at every price in every game."""
ALWAYS_LAZY = 1e6
"""A price at which every agent is lazy, so that the default policy plays alone."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = ("breakout", "asterix", "space_invaders")  # the games run so far
    """MinAtar games; each can be run separately into the same folder."""
    etas: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1, 0.2)
    """Prices at which agents are compared."""
    low: float = 0.005
    """Lowest positive price of the dial."""
    high: float = 0.5
    """Highest price of the dial."""
    seeds: int = 5
    """Number of runs per method and price."""
    steps: int = 40_000_000
    """Training steps of the dial and of each specialist."""
    episodes: int = 64
    """Evaluation episodes per run and price."""
    max_steps: int = 5_000
    """Number of steps after which an evaluation episode is truncated."""
    width: int = 512
    """Width of the first hidden layer; the second is half as wide."""
    prices_per_step: int = 4
    """Number of prices at which the dial learns from each step."""
    n_envs: int = 256
    """Parallel environments of the dial; a specialist has 128."""
    minibatches: int = 32
    """Gradient steps of the dial per rollout, of as many steps each as the 16 of a specialist."""
    zero_share: float = 0.2
    """Share of the dial's episodes at price 0."""
    chunk: int = 20
    """Training iterations per call of the compiled program."""


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Train and evaluate every method on every game; finished jobs are saved in `parts`."""
    return {"runs": run_jobs(jobs(config), functools.partial(make_job, config), progress, parts)}


def jobs(config: Config) -> list[str]:
    """Return the names of the jobs of the study: a game and a method."""
    unknown = [game for game in config.games if game not in GAMES]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(GAMES)}.")
    return [f"{game}_{method}" for game in config.games for method in METHODS]


def make_job(config: Config, job: str) -> Table:
    """Do one job of the study."""
    game, _, method = job.rpartition("_")
    return part(config, game, method)


def part(config: Config, game: str, method: str) -> Table:
    """Train all runs of a method on a game as one compiled program, and evaluate them.

    This is the only function of the experiment that uses `lazymdp.learn.deep`.
    """
    try:
        from lazymdp.learn.deep.compiled_defaults import uniform
        from lazymdp.learn.deep.config import PQNConfig
        from lazymdp.learn.deep.jax_env import minatar
        from lazymdp.learn.deep.population import Population
        from lazymdp.learn.deep.pqn import PQN
    except ImportError as error:
        raise ImportError(f"training on MinAtar needs JAX ({error}): pip install 'lazymdp[minatar]'") from error

    of_dial = method == "dial"
    names = ("n_envs", "minibatches", "prices_per_step", "zero_share")
    own = {name: getattr(config, name) for name in names} if of_dial else {}
    settings = PQNConfig(
        steps=config.steps // 8 if method == "eighth" else config.steps,
        hidden=(config.width, config.width // 2),
        eta=(config.low, config.high),
        **own,
    )
    env = minatar(game)
    population = Population(PQN(env, settings, uniform(env.n_actions)), config.chunk)
    single = [(max(eta, config.low), max(eta, config.low), float(eta == 0.0)) for eta in config.etas]
    ranges = [(config.low, config.high, settings.zero_share)] if of_dial else single
    learners = population.start(range(config.seeds), ranges)
    for _ in range(max(1, settings.iterations // config.chunk)):
        learners, ended = population.advance(learners)
        int(ended.episodes.sum())  # wait for the device, because calls only queue work
    # A dial is evaluated at all prices and once always lazy, a specialist at its own price.
    etas = np.tile([*config.etas, ALWAYS_LAZY], (config.seeds, 1))
    etas = etas if of_dial else np.repeat(config.etas, config.seeds)[:, None]
    seeds = np.arange(config.seeds)
    played = population.evaluate(learners, etas, episodes=config.episodes, max_steps=config.max_steps)
    rows = table(
        game=game,
        method=method,
        eta=etas.ravel(),
        seed=np.repeat(seeds, etas.shape[1]) if of_dial else np.tile(seeds, len(config.etas)),
        mean_return=np.round(played.mean_return.ravel(), 4),
        mean_length=np.round(played.steps.mean(-1).ravel(), 2),
        control_rate=np.round(played.control_rate.ravel(), 5),
        truncated=np.round(played.unfinished.mean(-1).ravel(), 4),
    )
    rows["method"] = np.where(rows["eta"] == ALWAYS_LAZY, "default", rows["method"])
    rows["eta"] = np.where(rows["eta"] == ALWAYS_LAZY, 0.0, rows["eta"])
    return rows


class Score(NamedTuple):
    """A method compared with the specialist at one price."""

    share: float  # its gain as a share of the specialist's; nan if the specialist gains nothing
    low: float  # 95% bootstrap interval of the share over the seeds of both
    high: float
    difference: float  # its gain minus the specialist's


def _gains(rows: Table, game: str, method: str, eta: float) -> NDArray[np.float64]:
    """Return one gain per seed: return minus the price paid, minus the mean return of the default policy alone."""
    here = (rows["game"] == game) & (rows["method"] == method) & (rows["eta"] == eta)
    cell = {name: column[here] for name, column in rows.items()}
    alone = (rows["game"] == game) & (rows["method"] == "default")
    net = cell["mean_return"] - eta * cell["control_rate"] * cell["mean_length"]
    return net - float(rows["mean_return"][alone].mean())


def score(rows: Table, game: str, method: str, eta: float, resamples: int = 2_000) -> Score:
    """Compare a method with the specialist at one price."""
    ours, theirs = _gains(rows, game, method, eta), _gains(rows, game, "specialist", eta)
    difference = float(ours.mean() - theirs.mean())
    if theirs.mean() <= 0.0:
        return Score(np.nan, np.nan, np.nan, difference)
    rng = np.random.default_rng(0)
    drawn = [sample[rng.integers(sample.size, size=(resamples, sample.size))].mean(1) for sample in (ours, theirs)]
    low, high = np.quantile(drawn[0] / np.maximum(drawn[1], 1e-9), [0.025, 0.975])
    return Score(float(ours.mean() / theirs.mean()), float(low), float(high), difference)


def scores(rows: Table) -> dict[str, NDArray[Any]]:
    """Return the scores of the dial and of the short specialists, one row per game, method and price."""
    parts = []
    for game in _complete(rows):
        for method in sorted({"dial", "eighth"} & set(_methods(rows, game))):
            for eta in _etas(rows):
                found = score(rows, game, method, eta)
                parts.append(
                    table(game=game, method=method, eta=eta, **{k: round(v, 4) for k, v in found._asdict().items()})
                )
    return stacked(parts)


def _complete(rows: Table) -> list[str]:
    """Return the games on which the dial and the specialists have been run."""
    return [game for game in GAMES if {"dial", "specialist"} <= set(_methods(rows, game))]


def _methods(rows: Table, game: str) -> list[str]:
    """Return the methods that have been run on a game."""
    made = set(rows["method"][rows["game"] == game].tolist())
    return [method for method in METHODS if method in made]


def _etas(rows: Table) -> NDArray[np.float64]:
    """Return the prices at which methods are compared."""
    return np.unique(rows["eta"][rows["method"] == "dial"])


def claims(data: Tables) -> list[Claim]:
    """Check the dial's scores: the goal at every price in all games but one, and never below the least share."""
    rows, found, shares = data["runs"], [], []
    etas = _etas(rows)
    for game in _complete(rows):
        cells = [score(rows, game, "dial", eta) for eta in etas]
        defined = [one.share for one in cells if np.isfinite(one.share)]
        words = ", ".join(
            f"{eta:g}: {one.share:.1%}" if np.isfinite(one.share) else f"{eta:g}: {one.difference:+.2g}"
            for eta, one in zip(etas, cells, strict=True)
        )
        shares.append(min(defined))
        text = f"{game}: one dial has at least {GOAL:.0%} of a specialist's gain at every price"
        found.append(Claim(text, f">= {GOAL:.0%} at every price", words, shares[-1] >= GOAL))
    least = f"{min(shares):.1%}" if shares else "no game"
    found.append(
        Claim(f"never less than {LEAST:.0%} of it", f">= {LEAST:.0%}", least, bool(shares) and min(shares) >= LEAST)
    )
    return found


def plot(data: Tables) -> Figure:
    """Draw the shares of the specialists' gains by price, one panel per game."""
    rows = data["runs"]
    games, etas = _complete(rows), _etas(rows)
    looks = {"dial": (CONTROL, "o", "-"), "eighth": (FAINT, "s", "--")}
    with styled():
        figure, axes = plt.subplots(1, len(games), figsize=(2.4 * len(games) + 0.6, 2.9), sharey=True, squeeze=False)
        for ax, game in zip(axes.flat, games, strict=True):
            ax.axhline(1.0, color=INK, linewidth=0.8)
            ax.axhline(GOAL, color=INK, linewidth=0.8, linestyle=":")
            for method, (color, marker, line) in looks.items():
                if method not in _methods(rows, game):
                    continue
                cells = np.array([score(rows, game, method, eta)[:3] for eta in etas])
                off = np.maximum(np.abs(cells[:, 1:] - cells[:, :1]).T, 0.0)
                label = "dial" if method == "dial" else "specialist, 1/8 of the steps"
                ax.errorbar(range(etas.size), cells[:, 0], off, color=color, marker=marker, linestyle=line,
                            markersize=4, elinewidth=0.8, label=label)  # fmt: skip
            ax.set_xticks(range(etas.size), [f"{eta:g}" for eta in etas])
            ax.set_title(game.replace("_", " "))
            ax.set_ylim(0.0, 1.9)
        axes[0, 0].legend(loc="upper left")
        figure.supxlabel("price")
        figure.supylabel("share of the specialist's gain")
    return figure
