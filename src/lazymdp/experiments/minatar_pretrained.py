"""MinAtar: learning on top of pretrained agents, as in the paper's Figure 9.

The paper trains DQN on 60 Atari games from scratch, warm-restarted from an agent that has half of its final score, and
in the lazy-MDP whose default policy is that agent (`eta` = 0.05). Here the games are two of MinAtar's, the algorithm is
`pqn` (or `dqn`, which has not been run), and every method has the same number of steps. For each seed, *scratch* is
plain learning at price 0. The *default* policy is the greedy policy of that run at the checkpoint whose return is
closest to half of the final one. *restart* starts from the weights of the default policy, with a new optimizer, and
explores again. *lazy* is a new network in the lazy-MDP at price 0.05. *dial* is a new network for all prices up to 0.5,
shown at the price with the highest final return, which is chosen in other episodes than those that are reported.

Scores are returns without the price, on a scale on which random actions have 0 and the mean of the final returns of
*scratch* 1. Evaluation is greedy. *Steps to beat the default* are the training steps until the first evaluation with a
return above that of the default policy.

Score against training steps: interquartile mean and median over the games and all seeds with `pqn` (and the
interquartile mean with `dqn`), with 95% stratified bootstrap intervals. The dotted line is the default policy.
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
GAMES = ("breakout", "asterix", "freeway", "space_invaders", "seaquest")
METHODS = {"scratch": (INK, "-"), "restart": (FAINT, "--"), "lazy": (CONTROL, "--"), "dial": (CONTROL, "-")}
"""Color and line style of each method."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = ("breakout", "asterix")  # the games run so far
    """MinAtar games; each can be run separately into the same folder."""
    seeds: int = 10
    """Number of runs per method."""
    steps: int = 5_000_000
    """Training steps of every run with `pqn`."""
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
    """Parallel environments of a run with `pqn`."""
    dqn_games: tuple[str, ...] = ()  # none has been run
    """Games on which the study is repeated with `dqn`."""
    dqn_steps: int = 600_000
    """Training steps of every run with `dqn`."""


def jobs(config: Config) -> list[str]:
    """Return the names of the jobs: one per algorithm and game."""
    unknown = [game for game in (*config.games, *config.dqn_games) if game not in GAMES]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(GAMES)}.")
    return [f"pqn_{game}" for game in config.games] + [f"dqn_{game}" for game in config.dqn_games]


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Train and evaluate every method on every game; finished games are saved in `parts`."""
    return {"runs": run_jobs(jobs(config), lambda job: make_job(config, job), progress, parts)}


def make_job(config: Config, job: str) -> Table:
    """Run all methods on one game with one algorithm."""
    name, _, game = job.partition("_")
    study = _Runs(config, name, game)
    count, width = config.seeds, len(config.etas)
    zero, same = np.zeros((count, 1)), np.zeros(count, dtype=int)
    plain = study.population(0.0)
    chance = study.evaluate(plain, study.start(plain, 0), zero, epsilon=1.0)
    scratch, saved = study.curve(plain, study.start(plain, 0), zero)
    returns = np.array([played.mean_return[:, 0] for played in scratch])  # [points, seeds]
    half = np.abs(returns - 0.5 * returns[-1]).argmin(0)
    default = study.picked(saved, half)
    restart, _ = study.curve(plain, study.start(plain, 1, default), zero)
    lazy = study.population(config.eta, default, plain)
    at_one, _ = study.curve(lazy, study.start(lazy, 2), np.full((count, 1), config.eta))
    dial = study.population((min(eta for eta in config.etas if eta > 0.0), max(config.etas)), default, plain)
    every = np.tile(config.etas, (count, 1))
    at_all, _ = study.curve(dial, study.start(dial, 3), every)
    chosen = study.evaluate(dial, study.last, every, seed=1).mean_return.argmax(-1)

    def rows(method: str, step: Any, played: Any, place: NDArray[Any], eta: Any = 0.0) -> dict[str, NDArray[Any]]:
        members = np.arange(count), place
        return table(
            game=game, algorithm=name, method=method, seed=np.arange(count), step=step, eta=eta,
            mean_return=played.mean_return[members].round(4), control_rate=played.control_rate[members].round(4),
            truncated=played.unfinished.mean(-1)[members].round(4), machine=machine(),
        )  # fmt: skip

    found = [rows("random", 0, chance, same)]
    found += [
        {key: column[[seed]] for key, column in rows("default", study.ticks[tick], scratch[tick], same).items()}
        for seed, tick in enumerate(half)
    ]
    for step, *played in zip(study.ticks, scratch, restart, at_one, at_all, strict=True):
        found += [rows("scratch", step, played[0], same), rows("restart", step, played[1], same)]
        found += [rows("lazy", step, played[2], same, config.eta)]
        found += [rows("dial", step, played[3], chosen, np.array(config.etas)[chosen])]
    found += [rows("prices", study.ticks[-1], at_all[-1], same + place, config.etas[place]) for place in range(width)]
    return stacked(found)


class _Runs:
    """The runs of all methods on one game, as populations. This is the only part that uses `lazymdp.learn.deep`."""

    def __init__(self, config: Config, algorithm: str, game: str) -> None:
        try:
            from lazymdp.learn.deep.jax_env import minatar
        except ImportError as error:
            raise ImportError(f"training on MinAtar needs JAX ({error}): pip install 'lazymdp[minatar]'") from error

        self.config, self.algorithm, self.env = config, algorithm, minatar(game)
        settings = self._settings(0.0)
        self._chunk = max(1, settings.iterations // config.points)
        self.ticks = settings.steps_per_iteration * self._chunk * np.arange(1, config.points + 1)
        self.last: Any = None

    def _settings(self, eta: float | tuple[float, float]) -> Any:
        from lazymdp.learn.deep.config import default_config

        own = {"steps": self.config.steps, "n_envs": self.config.n_envs}
        if self.algorithm == "dqn":
            own = {"steps": self.config.dqn_steps}
        return default_config(f"minatar/{self.env.name}", self.algorithm, eta=eta, **own)

    def population(self, eta: float | tuple[float, float], defaults: Any = None, of: Any = None) -> Any:
        """Return a population at one price or in a range, over the networks `defaults` of the population `of`."""
        from lazymdp.learn.deep.compiled_defaults import uniform
        from lazymdp.learn.deep.dqn import DQN
        from lazymdp.learn.deep.population import Population
        from lazymdp.learn.deep.pqn import PQN

        made: Any = DQN if self.algorithm == "dqn" else PQN
        algorithm = made(self.env, self._settings(eta), uniform(self.env.n_actions))
        return Population(algorithm, self._chunk, defaults, None if of is None else of.algorithm.network)

    def start(self, population: Any, method: int, parameters: Any = None) -> Any:
        """Start one run per seed; every method has seeds of its own."""
        config, count = population.algorithm.config, self.config.seeds
        price = (*config.eta_range, config.zero_share if config.is_range else 0.0)
        return population.start_members(range(method * count, (method + 1) * count), [price] * count, parameters)

    def evaluate(self, population: Any, runs: Any, etas: Any, seed: int = 0, epsilon: float = 0.0) -> Any:
        """Evaluate every run at its prices `[R, E]`."""
        episodes, max_steps = self.config.episodes, self.config.max_steps
        return population.evaluate(runs, etas, episodes=episodes, seed=seed, epsilon=epsilon, max_steps=max_steps)

    def curve(self, population: Any, runs: Any, etas: NDArray[np.float64]) -> tuple[list[Any], list[Any]]:
        """Train, and return the evaluations and the parameters of all runs at every tick; `last` is the final state."""
        import jax

        evaluations, parameters = [], []
        for _ in self.ticks:
            runs, _ = population.advance(runs)
            evaluations.append(self.evaluate(population, runs, etas))
            parameters.append(jax.tree.map(np.array, runs.learner.agent))
        self.last = runs
        return evaluations, parameters

    @staticmethod
    def picked(saved: list[Any], ticks: NDArray[np.intp]) -> Any:
        """Return the parameters of each run at its own tick."""
        import jax

        return jax.tree.map(lambda *leaves: np.stack([leaves[tick][run] for run, tick in enumerate(ticks)]), *saved)


# -- from the data -----------------------------------------------------------------------------------------------------


def scores(rows: Table, method: str) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Return the `[P]` steps at which a method was evaluated and its `[G, S, P]` scores."""
    games = [game for game in GAMES if game in rows["game"]]
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
    """Check the paper's words about Figure 9, for both algorithms."""
    return [claim for name in ("pqn", "dqn") if name in data["runs"]["algorithm"] for claim in _claims(data, name)]


def _of(data: Tables, algorithm: str) -> Table:
    rows = data["runs"]
    return {name: column[rows["algorithm"] == algorithm] for name, column in rows.items()}


def _claims(data: Tables, algorithm: str) -> list[Claim]:
    rows = _of(data, algorithm)
    curves = {method: scores(rows, method)[1] for method in METHODS}
    n_points = curves["scratch"].shape[-1]
    early, found = max(1, n_points // 4), []
    shown = {method: aggregate(curve, iqm) for method, curve in curves.items()}
    start = {method: aggregate(curve[..., :early].mean(-1), iqm) for method, curve in curves.items()}
    end = {method: aggregate(curve[..., -1], iqm) for method, curve in curves.items()}
    default = aggregate(scores(rows, "default")[1].reshape(*curves["scratch"].shape[:2]), iqm)

    def add(text: str, expected: str, found_: str, holds: Any) -> None:
        found.append(Claim(f"{algorithm}: {text[0].lower()}{text[1:]}", expected, found_, bool(holds)))

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
    panels = [("pqn", "interquartile mean", iqm), ("pqn", "median", median), ("dqn", "interquartile mean", iqm)]
    panels = [panel for panel in panels if panel[0] in data["runs"]["algorithm"]]
    with styled():
        figure, axes = plt.subplots(1, len(panels), figsize=(3.9 * len(panels) + 0.4, 3.3), sharey=True, squeeze=False)
        for ax, (algorithm, words, measure) in zip(axes.flat, panels, strict=True):
            rows = _of(data, algorithm)
            for method, (color, style) in METHODS.items():
                steps, curve = scores(rows, method)
                shown = aggregate(curve, measure, 500)
                ax.plot(steps / 1e6, shown.mean, color=color, linestyle=style, label=method)
                ax.fill_between(steps / 1e6, shown.low, shown.high, color=color, alpha=0.12, linewidth=0)
            level = scores(rows, "default")[1]
            ax.axhline(float(measure(level.ravel())), color=INK, linestyle=":", linewidth=1.0)
            ax.set_title(f"{algorithm}, {words}")
            ax.set_xlabel("training steps (millions)")
        axes[0, 0].set_ylabel("normalized score")
        axes[0, 0].legend(loc="lower right")
    return figure
