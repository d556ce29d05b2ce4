"""MinAtar: learning on top of pretrained agents, as in the paper's Figure 9.

The paper trains DQN on 60 Atari games from scratch, warm-restarted from an agent that has half of its final score, and
in the lazy-MDP whose default policy is that agent (`eta` = 0.05). Here the algorithm is `pqn`, the games are those of
MinAtar, and every method has the same number of steps. For each seed, *scratch* is plain learning at price 0. The
*default* policy is the greedy policy of that run at the checkpoint whose return is closest to half of the final one.
*restart* starts from the weights of the default policy, with a new optimizer, and explores again. *lazy* is a new
network in the lazy-MDP at price 0.05. *dial* is a new network for all prices up to 0.5, shown at the price with the
highest final return, which is chosen in other episodes than those that are reported.

Scores are returns without the price, on a scale on which random actions have 0 and the mean of the final returns of
*scratch* 1. Evaluation is greedy. *Steps to beat the default* are the training steps until the first evaluation with a
return above that of the default policy.

Score against training steps: interquartile mean and median over all games and seeds, with 95% stratified bootstrap
intervals. The dotted line is the default policy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT, INK
from lazymdp._provenance import machine
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, stacked, table
from lazymdp.experiments.jobs import run_jobs
from lazymdp.experiments.study import Parts
from lazymdp.measure.statistics import Interval
from lazymdp.show import styled

TITLE = "MinAtar: learning on top of pretrained agents"
NEEDS_GPU = True
METHODS = {"scratch": (INK, "-"), "restart": (FAINT, "--"), "lazy": (CONTROL, "--"), "dial": (CONTROL, "-")}
"""Color and line style of each method."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = ("breakout", "asterix", "freeway", "space_invaders", "seaquest")
    """MinAtar games."""
    seeds: int = 10
    """Number of runs per method."""
    steps: int = 5_000_000
    """Training steps of every run."""
    points: int = 25
    """Number of evaluations of a run, equally spaced."""
    eta: float = 0.05
    """Price of *lazy*."""
    etas: tuple[float, ...] = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    """Prices at which the dial is evaluated; it is trained from the smallest positive one to the largest."""
    episodes: int = 32
    """Episodes per evaluation."""
    max_steps: int = 3_000
    """Number of steps after which an evaluation episode is truncated."""
    n_envs: int = 128
    """Parallel environments of a run."""


def jobs(config: Config) -> list[str]:
    """Return the names of the jobs: one per game."""
    unknown = [game for game in config.games if game not in Config().games]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(Config().games)}.")
    return list(config.games)


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Train and evaluate every method on every game; finished games are saved in `parts`."""
    return {"runs": run_jobs(jobs(config), lambda job: make_job(config, job), progress, parts)}


def make_job(config: Config, job: str) -> Table:
    """Run all methods on one game. This is the only function here that uses `lazymdp.learn.deep`."""
    try:
        from lazymdp.learn.deep.compiled_defaults import uniform
        from lazymdp.learn.deep.config import PQNConfig
        from lazymdp.learn.deep.jax_env import minatar
        from lazymdp.learn.deep.population import Population
        from lazymdp.learn.deep.pqn import PQN
    except ImportError as error:
        raise ImportError(f"training on MinAtar needs JAX ({error}): pip install 'lazymdp[minatar]'") from error

    low, high, count = min(eta for eta in config.etas if eta > 0.0), max(config.etas), config.seeds
    settings = PQNConfig(steps=config.steps, n_envs=config.n_envs, eta=(low, high))
    chunk = max(1, settings.iterations // config.points)
    env, seeds = minatar(job), list(range(count))
    algorithm = PQN(env, settings, uniform(env.n_actions))
    ticks = settings.steps_per_iteration * chunk * np.arange(1, config.points + 1)
    free = [(low, low, 1.0)] * count  # every episode at price 0
    plain = Population(algorithm, chunk)

    def curve(population: Any, runs: Any, etas: NDArray[np.float64]) -> tuple[Any, list[Any], list[Any]]:
        """Train, and return the runs, their evaluations and their parameters at every tick."""
        evaluations, parameters = [], []
        for _ in ticks:
            runs, _ = population.advance(runs)
            evaluations.append(_evaluate(config, population, runs, etas))
            parameters.append([np.asarray(leaf) for leaf in _leaves(runs.learner.parameters)])
        return runs, evaluations, parameters

    zero = np.zeros((count, 1))
    runs = plain.start_members(seeds, free)
    chance = _evaluate(config, plain, runs, zero, epsilon=1.0)
    runs, scratch, saved = curve(plain, runs, zero)
    returns = np.array([played.mean_return[:, 0] for played in scratch])  # [points, seeds]
    half = np.abs(returns - 0.5 * returns[-1]).argmin(0)
    default = _like(runs.learner.parameters, [np.stack(leaf) for leaf in _picked(saved, half)])
    _, restart, _ = curve(plain, plain.start_members([seed + count for seed in seeds], free, default), zero)

    both = _like(default, [np.concatenate([np.asarray(leaf)] * 2) for leaf in _leaves(default)])
    on_top = Population(algorithm, chunk, both)
    prices = [(config.eta, config.eta, 0.0)] * count + [(low, high, 1.0 / len(config.etas))] * count
    etas = np.concatenate([np.full((count, len(config.etas)), config.eta), np.tile(config.etas, (count, 1))])
    runs, lazy, _ = curve(on_top, on_top.start_members([seed + 2 * count for seed in seeds] * 2, prices), etas)
    chosen = _evaluate(config, on_top, runs, etas, seed=1).mean_return[count:].argmax(-1)

    def rows(method: str, evaluations: list[Any], at: slice, place: NDArray[Any]) -> dict[str, NDArray[Any]]:
        members = np.arange(count), place
        return stacked([
            _rows(config, job, method, step, etas[at][members] if method in ("lazy", "dial") else 0.0,
                  *(column[at][members] for column in (played.mean_return, played.control_rate,
                                                       played.unfinished.mean(-1))))
            for step, played in zip(ticks, evaluations, strict=True)
        ])  # fmt: skip

    first, last, same = slice(0, count), slice(count, 2 * count), np.zeros(count, dtype=int)
    final = lazy[-1]
    found = [
        _rows(config, job, "random", 0, 0.0, chance.mean_return[:, 0], 1.0, chance.unfinished.mean(-1)[:, 0]),
        _rows(config, job, "default", ticks[half], 0.0, returns[half, np.arange(count)], 1.0, 0.0),
        rows("scratch", scratch, first, same),
        rows("restart", restart, first, same),
        rows("lazy", lazy, first, same),
        rows("dial", lazy, last, chosen),
    ]
    for place, eta in enumerate(config.etas):
        columns = (final.mean_return, final.control_rate, final.unfinished.mean(-1))
        found.append(_rows(config, job, "prices", ticks[-1], eta, *(column[last][:, place] for column in columns)))
    return stacked(found)


def _evaluate(config: Config, population: Any, runs: Any, etas: Any, seed: int = 0, epsilon: float = 0.0) -> Any:
    return population.evaluate(
        runs, etas, episodes=config.episodes, seed=seed, epsilon=epsilon, max_steps=config.max_steps
    )


def _rows(
    config: Config, game: str, method: str, step: Any, eta: Any, mean: Any, control: Any, truncated: Any
) -> dict[str, NDArray[Any]]:
    """Return one row per seed."""
    return table(
        game=game, method=method, seed=np.arange(config.seeds), step=step, eta=eta, mean_return=np.round(mean, 4),
        control_rate=np.round(control, 4), truncated=np.round(truncated, 4), machine=machine(),
    )  # fmt: skip


def _leaves(tree: Any) -> list[Any]:
    import jax

    return list(jax.tree.leaves(tree))


def _like(tree: Any, leaves: list[Any]) -> Any:
    import jax

    return jax.tree.unflatten(jax.tree.structure(tree), leaves)


def _picked(saved: list[list[NDArray[Any]]], half: NDArray[np.intp]) -> list[list[NDArray[Any]]]:
    """Return, for every leaf, the parameters of each run at its chosen tick."""
    return [[saved[tick][leaf][place] for place, tick in enumerate(half)] for leaf in range(len(saved[0]))]


# -- from the data -----------------------------------------------------------------------------------------------------


def scores(rows: Table, method: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the `[P]` steps at which a method was evaluated and its `[G, S, P]` scores."""
    games = [game for game in Config().games if game in rows["game"]]
    found = []
    for game in games:
        here = rows["game"] == game
        last = here & (rows["method"] == "scratch") & (rows["step"] == rows["step"].max())
        zero = rows["mean_return"][here & (rows["method"] == "random")].mean()
        one = rows["mean_return"][last].mean()
        mine = here & (rows["method"] == method)
        order = np.lexsort((rows["step"][mine], rows["seed"][mine]))
        values = (rows["mean_return"][mine][order] - zero) / (one - zero)
        found.append(values.reshape(np.unique(rows["seed"][mine]).size, -1))
        steps = np.unique(rows["step"][mine])
    return steps, np.stack(found)


def aggregate(
    samples: NDArray[np.float64], measure: Callable[[NDArray[np.float64]], NDArray[np.float64]], resamples: int = 2_000
) -> Interval:
    """Return a statistic of `[G, S, ...]` scores over games and seeds, with its stratified bootstrap interval.

    Args:
        samples: Scores of G games and S seeds.
        measure: Computes the statistic over the first axis.
        resamples: Number of bootstrap samples, each of which draws the seeds of every game anew.
    """
    rng, (games, seeds) = np.random.default_rng(0), samples.shape[:2]

    def flat(one: NDArray[np.float64]) -> NDArray[np.float64]:
        return measure(one.reshape(games * seeds, *samples.shape[2:]))

    drawn = []
    for _ in range(resamples):
        places = rng.integers(seeds, size=(games, seeds))
        drawn.append(flat(samples[np.arange(games)[:, None], places]))
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Interval(flat(samples), low, high)


def iqm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the interquartile mean over the first axis."""
    cut = len(values) // 4
    return np.asarray(np.sort(values, axis=0)[cut : len(values) - cut].mean(0))


def median(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the median over the first axis."""
    return np.asarray(np.median(values, axis=0))


def steps_to_beat(rows: Table, method: str) -> NDArray[np.float64]:
    """Return `[G, S]` training steps until the return is above that of the default policy; infinite if it never is."""
    steps, found = scores(rows, method)
    wanted = scores(rows, "default")[1]
    above = found > wanted.reshape(*found.shape[:2], 1)
    return np.where(above.any(-1), steps[above.argmax(-1)], np.inf)


def _said(one: Interval) -> str:
    return f"{float(one.mean):.2f} [{float(one.low):.2f}, {float(one.high):.2f}]"


def claims(data: Tables) -> list[Claim]:
    """Check the paper's words about Figure 9."""
    rows = data["runs"]
    curves = {method: scores(rows, method)[1] for method in METHODS}
    n_points = curves["scratch"].shape[-1]
    early, found = max(1, n_points // 4), []
    shown = {method: aggregate(curve, iqm) for method, curve in curves.items()}
    start = {method: aggregate(curve[..., :early].mean(-1), iqm) for method, curve in curves.items()}
    end = {method: aggregate(curve[..., -1], iqm) for method, curve in curves.items()}
    default = aggregate(scores(rows, "default")[1].reshape(*curves["scratch"].shape[:2]), iqm)

    def add(text: str, expected: str, found_: str, holds: Any) -> None:
        found.append(Claim(text, expected, found_, bool(holds)))

    add("The default policies have half of the final score (IQM over games and seeds)", "0.4 to 0.6", _said(default),
        0.4 <= default.mean <= 0.6)  # fmt: skip
    for method, words in (("lazy", "at eta = 0.05"), ("dial", "at the best price of a dial")):
        add(f"Lazy {words} rises faster than learning from scratch: mean score in the first quarter of the steps (IQM)",
            f"> {_said(start['scratch'])}, without overlap", _said(start[method]),
            start[method].low > start["scratch"].high)  # fmt: skip
        curve = np.asarray(shown[method].mean)
        fall = float((np.maximum.accumulate(curve) - curve).max())
        add(f"Lazy {words} does not decay: largest fall of its curve (IQM) below an earlier point", "<= 0.05",
            f"{fall:.2f}", fall <= 0.05)  # fmt: skip
        beats = {name: steps_to_beat(rows, name) for name in (method, "scratch")}
        add(f"Lazy {words} beats the default policy in fewer steps than learning from scratch (median of all runs)",
            f"< {np.median(beats['scratch']):,.0f}", f"{np.median(beats[method]):,.0f}",
            np.median(beats[method]) < np.median(beats["scratch"]))  # fmt: skip
    more = f"> {_said(start['scratch'])}, without overlap"
    add("Warm restarts rise faster than learning from scratch (as above)", more, _said(start["restart"]),
        start["restart"].low > start["scratch"].high)  # fmt: skip
    fall = float((np.maximum.accumulate(shown["restart"].mean) - shown["restart"].mean).max())
    add("Warm restarts eventually decrease: largest fall of their curve (IQM) below an earlier point", "> 0.05",
        f"{fall:.2f}", fall > 0.05)  # fmt: skip
    add("Lazy at eta = 0.05 has no gain in the end: its final score (IQM)", f"<= {float(end['scratch'].high):.2f}",
        _said(end["lazy"]), end["lazy"].mean <= end["scratch"].high)  # fmt: skip
    more = f"> {_said(end['scratch'])}, without overlap"
    add("Lazy at the best price of a dial is better than learning from scratch in the end (IQM)", more,
        _said(end["dial"]), end["dial"].low > end["scratch"].high)  # fmt: skip
    return found


def plot(data: Tables) -> Figure:
    """Draw the scores of all methods against training steps."""
    rows = data["runs"]
    with styled():
        figure, axes = plt.subplots(1, 2, figsize=(8.4, 3.3), sharey=True)
        for ax, (title, measure) in zip(axes, (("interquartile mean", iqm), ("median", median)), strict=True):
            for method, (color, style) in METHODS.items():
                steps, curve = scores(rows, method)
                shown = aggregate(curve, measure, 500)
                ax.plot(steps / 1e6, shown.mean, color=color, linestyle=style, label=method)
                ax.fill_between(steps / 1e6, shown.low, shown.high, color=color, alpha=0.12, linewidth=0)
            level = scores(rows, "default")[1]
            ax.axhline(float(measure(level.ravel())), color=INK, linestyle=":", linewidth=1.0)
            ax.set_title(title)
            ax.set_xlabel("training steps (millions)")
        axes[0].set_ylabel("normalized score")
        axes[1].legend(loc="lower right")
    return figure
