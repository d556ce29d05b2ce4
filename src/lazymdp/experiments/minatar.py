"""Ours: on MinAtar games, one dial against a specialist for every price, at the same number of steps in all.

*augmented*: a network with A + 1 outputs for each price, as in the paper; *structured*: one with A outputs for each
price, the lazy value derived; *dial*: one network for all prices, trained for as many steps as the specialists
together. Every network then plays episodes of at most `max_steps` steps, as a rule greedily. Needs a GPU to be quick;
`minatar_study` is the command that makes it.

The settings of the dial were chosen on Breakout and Asterix. So that the specialists do not lose by settings that suit
them less, `trials` holds runs with others, and at every price a specialist counts with those that served it best.

Return (interquartile mean over seeds, with 95 % bootstrap intervals) against the share of steps in control, one point
per price. Up and to the left is better.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from lazymdp._colors import CONTROL, FAINT, INK
from lazymdp.experiments.registry import Claim, Progress
from lazymdp.experiments.results_io import Table, Tables, table
from lazymdp.measure.statistics import Interval, iqm_interval
from lazymdp.show import styled

TITLE = "MinAtar: one dial against a specialist for every price"
METHODS = {"augmented": (FAINT, "--", "s"), "structured": (INK, "-.", "^"), "dial": (CONTROL, "-", "o")}
"""Colour, dashes and marker of each."""
PROTOTYPE = {("breakout", 0.1): 16.1, ("asterix", 0.02): 21.2, ("freeway", 0.02): 44.0}
"""Returns of the first prototype of the dial, to be bettered; measured with 5 % of choices random."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = ("breakout", "asterix", "freeway", "space_invaders", "seaquest")
    """MinAtar games."""
    etas: tuple[float, ...] = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    """Prices; the smallest above 0 and the largest bound what the dial draws."""
    seeds: int = 10
    """Runs of each."""
    steps: int = 5_000_000
    """Steps of a specialist; a dial gets as many times more as there are prices."""
    episodes: int = 64
    """Episodes of evaluation per run and price."""
    max_steps: int = 20_000
    """Steps after which an episode of evaluation counts as it is."""
    epsilon: float = 0.0
    """Share of random choices in evaluation."""
    n_envs: int = 128
    """Environments of a specialist; a dial has as many times more as there are prices."""
    epochs: int = 1
    """Passes over a rollout."""
    learning_rate: float = 1e-3
    """Of a specialist."""
    dial_learning_rate: float = 2e-3
    """Of a dial, whose gradient steps are means of as many times more samples as there are prices."""
    chunk: int = 20
    """Iterations per call of the compiled program."""


EXPLORING = Config(seeds=4, epsilon=0.05)
"""As the prototype was measured."""


def part(config: Config, game: str, method: str, tell: Callable[[str], None] | None = None) -> Table:
    """All runs of one method in one game, as one program; `tell` is told now and then how far it is."""
    from lazymdp.learn.deep.compiled_defaults import uniform
    from lazymdp.learn.deep.config import PQNConfig
    from lazymdp.learn.deep.jax_env import minatar
    from lazymdp.learn.deep.population import Population
    from lazymdp.learn.deep.pqn import PQN

    count = len(config.etas) if method == "dial" else 1
    low, high = min(eta for eta in config.etas if eta > 0.0), max(config.etas)
    rate = config.dial_learning_rate if method == "dial" else config.learning_rate
    settings = PQNConfig(
        steps=config.steps * count,
        n_envs=config.n_envs * count,
        epochs=config.epochs,
        learning_rate=rate,
        form="augmented" if method == "augmented" else "structured",
        eta=(low, high),
    )
    env = minatar(game)
    population = Population(PQN(env, settings, uniform(env.n_actions)), config.chunk)
    single = [(max(eta, low), max(eta, low), float(eta == 0.0)) for eta in config.etas]
    prices = [(low, high, 1.0 / count)] if method == "dial" else single
    learners = population.start(range(config.seeds), prices)
    calls, started = max(1, settings.iterations // config.chunk), time.perf_counter()
    for call in range(calls):
        learners, ended = population.advance(learners)
        if tell is not None and (call + 1) % -(-calls // 10) == 0:
            episodes, score = int(ended.episodes.sum()), float(ended.returns.sum())  # waits for the device
            mean = f", mean score {score / episodes:.3g}" if episodes else ""
            tell(f"{game} {method}: {(call + 1) / calls:.0%} in {time.perf_counter() - started:.0f} s{mean}")
    seeds = np.arange(config.seeds)
    etas = (
        np.tile(config.etas, (config.seeds, 1)) if method == "dial" else np.repeat(config.etas, config.seeds)[:, None]
    )
    played = population.evaluate(
        learners, etas, episodes=config.episodes, epsilon=config.epsilon, max_steps=config.max_steps
    )
    return table(
        game=game,
        method=method,
        eta=etas.ravel(),
        seed=np.repeat(seeds, count) if method == "dial" else np.tile(seeds, len(config.etas)),
        score=played.mean_return.ravel(),
        length=played.steps.mean(-1).ravel(),
        control=played.control_rate.ravel(),
        cut_off=played.unfinished.mean(-1).ravel(),
        epochs=config.epochs,
        learning_rate=rate,
    )


def run(
    config: Config,
    progress: Progress | None = None,
    done: Table | None = None,
    on_part: Callable[[Table], None] | None = None,
    tell: Callable[[str], None] | None = None,
) -> Tables:
    """Every method in every game, those in `done` taken over; `on_part` is given each part, `tell` words on the way."""
    rows = done
    wanted = list(product(config.games, METHODS))
    for place, (game, method) in enumerate(wanted):
        if rows is None or not ((rows["game"] == game) & (rows["method"] == method)).any():
            made = part(config, game, method, tell)
            rows = joined(rows, made)
            if on_part is not None:
                on_part(made)
        if progress is not None:
            progress(place + 1, len(wanted))
    return {"runs": rows or {}}


def joined(rows: Table | None, more: Table) -> Table:
    """Both, with nothing (NaN) where older rows do not tell what newer ones do."""
    if rows is None:
        return more
    unknown = np.full(len(rows["game"]), np.nan)
    return {name: np.concatenate([rows.get(name, unknown), more[name]]) for name in more}


def _cell(rows: Table, game: str, method: str, eta: float) -> Table:
    here = (rows["game"] == game) & (rows["method"] == method) & (rows["eta"] == eta)
    return {name: column[here] for name, column in rows.items()}


def _score(rows: Table, game: str, method: str, eta: float) -> Interval:
    return iqm_interval(_cell(rows, game, method, eta)["score"])


def _after_price(rows: Table, game: str, method: str, eta: float) -> float:
    """Mean return less what was paid for control, as agents are trained for; of the settings that did best."""
    cell = _cell(rows, game, method, eta)
    paid = cell["score"] - eta * cell["control"] * cell["length"]
    settings = np.stack([cell["epochs"], cell["learning_rate"]], -1)
    return max(float(paid[(settings == one).all(-1)].mean()) for one in np.unique(settings, axis=0))


def complete_games(rows: Table) -> list[str]:
    """The games in which every method has been run, in order."""
    made = set(zip(rows["game"].tolist(), rows["method"].tolist(), strict=True))
    return [game for game in dict.fromkeys(rows["game"].tolist()) if all((game, method) in made for method in METHODS)]


def claims(data: Tables) -> list[Claim]:
    """Control falls with the price, and the dial is no worse than a specialist."""
    rows = data["runs"]
    trials = data.get("trials", rows)
    tried = {name: np.concatenate([rows[name], trials[name]]) for name in trials}
    games, etas = complete_games(rows), np.unique(rows["eta"])
    found = []
    for game in games:
        control = [_cell(rows, game, "dial", eta)["control"].mean() for eta in etas]
        falls = bool((np.diff(control) < 0.02).all())
        words = f"{control[0]:.2f} to {control[-1]:.2f}" + ("" if falls else ", not always")
        found.append(Claim(f"{game}: the dial's control falls with the price", "falls", words, falls))
        dial = [_after_price(rows, game, "dial", eta) for eta in etas]
        specialist = [_after_price(tried, game, "structured", eta) for eta in etas]
        better = int(sum(one >= other for one, other in zip(dial, specialist, strict=True)))
        found.append(
            Claim(
                f"{game}: return less the price paid, dial at least the best structured specialist's",
                f"at most prices ({etas.size // 2 + 1} or more)",
                f"{better} of {etas.size}",
                better > etas.size // 2,
            )
        )
    exploring = data.get("exploring", {"game": np.array([], dtype=str)})
    for (game, eta), wanted in PROTOTYPE.items():
        if game in games and eta in etas:
            alike, how = (exploring, ", 5 % of choices random") if game in exploring["game"] else (rows, "")
            scores = _cell(alike, game, "dial", eta)["score"]  # a seed each
            score, seeds = float(scores.mean()), "one seed" if scores.size == 1 else f"mean of {scores.size} seeds"
            text = f"{game}, eta {eta:g}: the dial's return, {seeds}{how}"
            found.append(Claim(text, f">= {wanted:g}", f"{score:.1f}", score >= wanted))
    return found


def plot(data: Tables) -> Figure:
    """A frontier per game."""
    rows = data["runs"]
    games, etas = complete_games(rows), np.unique(rows["eta"])
    with styled():
        columns = min(3, len(games)) if len(games) != 4 else 2
        n_rows = -(-len(games) // columns)
        figure, axes = plt.subplots(n_rows, columns, figsize=(3.3 * columns + 0.4, 2.9 * n_rows), squeeze=False)
        free = axes.flat[len(games) :]
        for ax in free:
            ax.axis("off")
        for ax, game in zip(axes.flat, games, strict=False):
            for method, (color, dashes, marker) in METHODS.items():
                scores = [_score(rows, game, method, eta) for eta in etas]
                control = [float(_cell(rows, game, method, eta)["control"].mean()) for eta in etas]
                mean = np.array([float(score.mean) for score in scores])
                off = np.array([(score.mean - score.low, score.high - score.mean) for score in scores], dtype=float).T
                look = dict(color=color, linestyle=dashes, marker=marker, markersize=4, elinewidth=0.8)
                ax.errorbar(control, mean, np.maximum(off, 0.0), label=method, **look)
            ax.set_title(game.replace("_", " "))
            ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
        figure.supxlabel("share of steps in control")
        figure.supylabel("return (price excluded)")
        if len(free):
            free[0].legend(*axes[0, 0].get_legend_handles_labels(), loc="center")
        else:
            axes[0, 0].legend(loc="upper left")
    return figure
