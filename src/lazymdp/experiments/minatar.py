"""Our own: one dial against a specialist for every price on MinAtar, with the same total number of steps.

Three methods are compared. *augmented* trains, for each price, a network with A + 1 outputs, as in the paper;
*structured* trains, for each price, a network with A outputs from which the lazy value is derived; *dial* trains one
network for all prices, for as many steps as all specialists together. Each network is then evaluated on episodes of at
most `max_steps` steps, without exploration unless `epsilon` is above 0.

The settings of the dial were chosen on Breakout and Asterix. To be fair to the specialists, the table `trials` holds
runs with other settings, and at every price a specialist is represented by the settings that worked best for it.

Return (interquartile mean over seeds, with 95% bootstrap intervals) against the control rate, the share of steps in
control; one point per price. Points further up and to the left are better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT, INK
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, table
from lazymdp.experiments.study import Parts, joined
from lazymdp.measure.statistics import Interval, iqm_interval
from lazymdp.show import styled

TITLE = "MinAtar: one dial against a specialist for every price"
NEEDS_GPU = True
METHODS = {"augmented": (FAINT, "--", "s"), "structured": (INK, "-.", "^"), "dial": (CONTROL, "-", "o")}
"""Color, line style and marker of each method."""
PROTOTYPE = {("breakout", 0.1): 16.1, ("asterix", 0.02): 21.2, ("freeway", 0.02): 44.0}
"""Returns of the first prototype of the dial, by game and price: 4 seeds, evaluated with 5% random choices."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = ("breakout", "asterix", "freeway", "space_invaders", "seaquest")
    """MinAtar games; each can be run separately into the same folder."""
    etas: tuple[float, ...] = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    """Prices; the dial is trained on the range from the smallest positive price to the largest."""
    seeds: int = 10
    """Number of runs per method and price."""
    steps: int = 5_000_000
    """Training steps of a specialist; the dial is trained for this many steps times the number of prices."""
    episodes: int = 64
    """Evaluation episodes per run and price."""
    max_steps: int = 20_000
    """Number of steps after which an evaluation episode is truncated."""
    epsilon: float = 0.0
    """Share of random choices during evaluation."""
    n_envs: int = 128
    """Parallel environments of a specialist; the dial has this many times the number of prices."""
    epochs: int = 1
    """Passes over each rollout."""
    learning_rate: float = 1e-3
    """Learning rate of a specialist."""
    dial_learning_rate: float = 2e-3
    """Learning rate of the dial, whose batches are larger by the number of prices."""
    chunk: int = 20
    """Training iterations per call of the compiled program."""
    skip_exploring: bool = False
    """Skip the dials that are compared with the prototype, which are evaluated with 5% random choices."""


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Train and evaluate every method on every game; finished parts are saved in `parts`."""
    unknown = [game for game in config.games if game not in Config().games]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(Config().games)}.")
    exploring = replace(config, seeds=4, epsilon=0.05)
    wanted = [("runs", config, game, method) for game in config.games for method in METHODS]
    if not config.skip_exploring:
        wanted += [("exploring", exploring, game, "dial") for game, _ in PROTOTYPE if game in config.games]
    data: dict[str, dict[str, NDArray[Any]]] = {}
    for place, (name, settings, game, method) in enumerate(wanted):

        def tell(share: float, place: int = place) -> None:
            if progress is not None:
                progress(round(100 * (place + share)), 100 * len(wanted))

        def make(settings: Config = settings, game: str = game, method: str = method) -> Table:
            return part(settings, game, method, tell)

        rows = make() if parts is None else parts.get(f"{name}-{game}-{method}", make)
        data[name] = joined(data[name], rows) if name in data else dict(rows)
        tell(1.0)
    return data


def part(config: Config, game: str, method: str, tell: Callable[[float], None]) -> Table:
    """Run one method on one game, for all seeds and prices; `tell` is called with the share of the work done."""
    of_dial = method == "dial"
    rate = config.dial_learning_rate if of_dial else config.learning_rate
    # A dial has one run per seed, which is evaluated at all prices; a specialist has one run per price and seed.
    shape = (config.seeds, len(config.etas)) if of_dial else (len(config.etas) * config.seeds, 1)
    etas = np.tile(config.etas, config.seeds) if of_dial else np.repeat(config.etas, config.seeds)
    seeds = np.arange(config.seeds)
    return table(
        game=game,
        method=method,
        eta=etas,
        seed=np.repeat(seeds, len(config.etas)) if of_dial else np.tile(seeds, len(config.etas)),
        **_train_and_evaluate(config, game, method, rate, etas.reshape(shape), tell),
        epochs=config.epochs,
        learning_rate=rate,
    )


def _train_and_evaluate(
    config: Config,
    game: str,
    method: str,
    learning_rate: float,
    etas: NDArray[np.float64],
    tell: Callable[[float], None],
) -> Table:
    """Train all runs of a method as one compiled program and evaluate run `r` at the prices `etas[r]`, `[R, E]`.

    This is the only function of the experiments that uses `lazymdp.learn.deep`.
    """
    try:
        from lazymdp.learn.deep.compiled_defaults import uniform
        from lazymdp.learn.deep.config import PQNConfig
        from lazymdp.learn.deep.jax_env import minatar
        from lazymdp.learn.deep.population import Population
        from lazymdp.learn.deep.pqn import PQN
    except ImportError as error:
        raise ImportError(f"training on MinAtar needs JAX ({error}): pip install 'lazymdp[minatar]'") from error

    factor = len(config.etas) if method == "dial" else 1
    low, high = min(eta for eta in config.etas if eta > 0.0), max(config.etas)
    settings = PQNConfig(
        steps=config.steps * factor,
        n_envs=config.n_envs * factor,
        epochs=config.epochs,
        learning_rate=learning_rate,
        form="augmented" if method == "augmented" else "structured",
        eta=(low, high) if low < high else (0.5 * low, high),  # makes the network see the price; `prices` are drawn
    )
    env = minatar(game)
    population = Population(PQN(env, settings, uniform(env.n_actions)), config.chunk)
    # Smallest and largest price of a run, and the share of episodes at price 0.
    single = [(max(eta, low), max(eta, low), float(eta == 0.0)) for eta in config.etas]
    prices = [(low, high, 1.0 / factor)] if method == "dial" else single
    learners = population.start(range(config.seeds), prices)
    calls = max(1, settings.iterations // config.chunk)
    for call in range(calls):
        learners, ended = population.advance(learners)
        if (call + 1) % -(-calls // 20) == 0:
            int(ended.episodes.sum())  # wait for the device, because calls only queue work
            tell(0.95 * (call + 1) / calls)
    played = population.evaluate(
        learners, etas, episodes=config.episodes, epsilon=config.epsilon, max_steps=config.max_steps
    )
    return {
        "mean_return": played.mean_return.ravel(),
        "mean_length": played.steps.mean(-1).ravel(),
        "control_rate": played.control_rate.ravel(),
        "truncated": played.unfinished.mean(-1).ravel(),
    }


def _cell(rows: Table, game: str, method: str, eta: float) -> Table:
    here = (rows["game"] == game) & (rows["method"] == method) & (rows["eta"] == eta)
    return {name: column[here] for name, column in rows.items()}


def _return(rows: Table, game: str, method: str, eta: float) -> Interval:
    return iqm_interval(_cell(rows, game, method, eta)["mean_return"])


def _value(rows: Table, game: str, method: str, eta: float) -> float:
    """Return the mean return minus the price paid, which agents maximize, for the best of the settings tried."""
    cell = _cell(rows, game, method, eta)
    value = cell["mean_return"] - eta * cell["control_rate"] * cell["mean_length"]
    settings = np.stack([cell["epochs"], cell["learning_rate"]], -1)
    return max(float(value[(settings == one).all(-1)].mean()) for one in np.unique(settings, axis=0))


def complete_games(rows: Table) -> list[str]:
    """Return the games on which every method has been run."""
    made = set(zip(rows["game"].tolist(), rows["method"].tolist(), strict=True))
    return [game for game in Config().games if all((game, method) in made for method in METHODS)]


def claims(data: Tables) -> list[Claim]:
    """Check that control falls with the price and that the dial is at least as good as a specialist."""
    rows = data["runs"]
    trials = data.get("trials", rows)
    tried = {name: np.concatenate([rows[name], trials[name]]) for name in trials}
    games, etas = complete_games(rows), np.unique(rows["eta"])
    found = []
    for game in games:
        control = [_cell(rows, game, "dial", eta)["control_rate"].mean() for eta in etas]
        falls = bool((np.diff(control) < 0.02).all())
        words = f"from {control[0]:.2f} to {control[-1]:.2f}" + ("" if falls else ", but it rises in between")
        found.append(Claim(f"{game}: the higher the price, the less control the dial takes", "the control rate falls",
                           words, falls))  # fmt: skip
        dial = [_value(rows, game, "dial", eta) for eta in etas]
        specialist = [_value(tried, game, "structured", eta) for eta in etas]
        better = int(sum(one >= other for one, other in zip(dial, specialist, strict=True)))
        found.append(
            Claim(
                f"{game}: return minus the price paid is at least as high for the dial as for the best structured "
                "specialist",
                f"at {etas.size // 2 + 1} or more of {etas.size} prices",
                f"at {better} of {etas.size} prices",
                better > etas.size // 2,
            )
        )
    return found + _prototype_claims(data, games, etas.tolist())


def _prototype_claims(data: Tables, games: list[str], etas: list[float]) -> list[Claim]:
    """Compare the dial with its first prototype, under the prototype's protocol if such runs exist."""
    exploring, found = data.get("exploring", {"game": np.array([], dtype=str)}), []
    for (game, eta), wanted in PROTOTYPE.items():
        if game in games and eta in etas:
            alike, how = (
                (exploring, ", evaluated with 5% random choices") if game in exploring["game"] else (data["runs"], "")
            )
            returns = _cell(alike, game, "dial", eta)["mean_return"]  # one per seed
            mean, seeds = float(returns.mean()), "one seed" if returns.size == 1 else f"mean of {returns.size} seeds"
            text = f"{game}, eta = {eta:g}: the dial's return is at least that of the first prototype ({seeds}{how})"
            found.append(Claim(text, f">= {wanted:g}", f"{mean:.1f}", mean >= wanted))
    return found


def plot(data: Tables) -> Figure:
    """Draw return against control rate, one panel per game."""
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
                returns = [_return(rows, game, method, eta) for eta in etas]
                control = [float(_cell(rows, game, method, eta)["control_rate"].mean()) for eta in etas]
                mean = np.array([float(one.mean) for one in returns])
                off = np.array([(one.mean - one.low, one.high - one.mean) for one in returns], dtype=float).T
                look = dict(color=color, linestyle=dashes, marker=marker, markersize=4, elinewidth=0.8)
                ax.errorbar(control, mean, np.maximum(off, 0.0), label=method, **look)
            ax.set_title(game.replace("_", " "))
            ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
        figure.supxlabel("control rate (share of steps in control)")
        figure.supylabel("return (price excluded)")
        if len(free):
            free[0].legend(*axes[0, 0].get_legend_handles_labels(), loc="center")
        else:
            axes[0, 0].legend(loc="upper left")
    return figure
