"""Fig. 7: Q-learning in Key-Door-Treasure with an apple that distracts, with and without a lazy action.

The settings are the paper's; eta = 0 is plain Q-learning without a lazy action, as in the paper's text. Bands are 95 %
bootstrap intervals of the mean over seeds.

Left: where the agent is before it has the key, at the end of training. Right: score, price excluded. Plain Q-learning
settles for the apple (0.1); only the agent at eta = 0.03 finds the treasure (1); at 0.05 it hardly ever takes control.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp.envs import KeyDoorTreasure
from lazymdp.experiments import paper_worlds
from lazymdp.experiments.registry import Claim, Progress
from lazymdp.experiments.results_io import Table, Tables, table
from lazymdp.learn.tabular.q_learning import TabularResult, q_learning
from lazymdp.measure.statistics import Interval, mean_interval
from lazymdp.show import heat_map, return_curves, styled

TITLE = "Lazy exploration: Q-learning goes past the apple only at the right price"


@dataclass(frozen=True)
class Config:
    """Settings of Fig. 7."""

    seeds: int = 100
    """Runs per price."""
    episodes: int = 100_000
    """Episodes of a run."""
    max_steps: int = 1_000
    """Steps after which an episode is cut off."""
    etas: tuple[float, ...] = (0.0, 0.03, 0.05)
    """Prices; 0 is plain Q-learning."""
    alpha: float = 0.5
    """Step size."""
    epsilon: float = 0.1
    """Exploration in the first episode; it falls linearly to 0."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Learns with every price and seed."""
    world, mdp = paper_worlds.key_door_treasure(apple=True)
    per_price = config.seeds * config.episodes
    total = per_price * len(config.etas)
    results = []
    for place, eta in enumerate(config.etas):

        def tell(done: int, _: int, before: int = place * per_price) -> None:
            if progress is not None:
                progress(before + done, total)

        results.append(
            q_learning(
                mdp,
                None,
                eta,
                lazy=eta != 0.0,
                form="augmented",
                alpha=config.alpha,
                epsilon=config.epsilon,
                episodes=config.episodes,
                max_steps=config.max_steps,
                seed=range(config.seeds),
                progress=tell,
            )
        )
    curves = [_curve(eta, result) for eta, result in zip(config.etas, results, strict=True)]
    final = [_final(eta, result) for eta, result in zip(config.etas, results, strict=True)]
    states = table(
        state=np.arange(mdp.n_states),
        row=world.cells[:, 0],
        column=world.cells[:, 1],
        has_key=world.has_key,
        **{f"occupancy_{eta:g}": _occupancy_without_key(world, result)
           for eta, result in zip(config.etas, results, strict=True)},
    )  # fmt: skip
    return {
        name: {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        for name, parts in (("curves", curves), ("final", final), ("states", [states]))
    }


def _occupancy_without_key(world: KeyDoorTreasure, result: TabularResult) -> NDArray[np.float64]:
    """Returns `[S]` the share of the steps without the key that are spent in each state, as a mean over seeds.

    A state is a cell and whether the agent has the key, which it never loses: these are the steps before the key.
    """
    without_key = np.where(world.has_key, 0.0, result.occupancy[0])
    return np.asarray((without_key / without_key.sum(axis=1, keepdims=True)).mean(axis=0))


def _curve(eta: float, result: TabularResult) -> Table:
    score, control = mean_interval(result.mean_return[0]), mean_interval(result.control_rate[0])
    return table(
        eta=eta,
        episode=result.episode,
        score=score.mean,
        score_low=score.low,
        score_high=score.high,
        control=control.mean,
    )


def _final(eta: float, result: TabularResult) -> Table:
    return table(eta=eta, seed=result.seeds, score=result.mean_return[0, :, -1], control=result.control_rate[0, :, -1])


def _at(columns: Table, eta: float, name: str) -> NDArray[Any]:
    return columns[name][columns["eta"] == eta]


def claims(data: Tables) -> list[Claim]:
    """What the paper says of the figure."""
    etas = set(data["final"]["eta"].tolist())
    found = []
    if 0.0 in etas:
        plain = float(_at(data["final"], 0.0, "score").mean())
        found.append(
            Claim("plain Q-learning settles for the apple (final score)", "<= 0.12", f"{plain:.3f}", plain <= 0.12)
        )
    if 0.03 in etas:
        lazy = float(_at(data["final"], 0.03, "score").mean())
        found.append(Claim("at eta = 0.03 it finds the treasure (final score)", ">= 0.95", f"{lazy:.3f}", lazy >= 0.95))
    if 0.05 in etas:
        control = float(_at(data["final"], 0.05, "control").mean())
        high = float(_at(data["final"], 0.05, "score").mean())
        found += [
            Claim(
                "at eta = 0.05 it hardly ever takes control (share of steps)", "< 10 %", f"{control:.1%}", control < 0.1
            ),
            Claim("at eta = 0.05 it does not reach the optimum (final score)", "< 0.5", f"{high:.3f}", high < 0.5),
        ]
    return found


def plot(data: Tables) -> Figure:
    """Occupancy per price, then the score curves."""
    world = KeyDoorTreasure(apple=True)
    curves = data["curves"]
    etas = [eta for eta in np.unique(curves["eta"]) if f"occupancy_{eta:g}" in data["states"]]
    with styled():
        widths = (*[1.0] * len(etas), 1.45)
        figure, axes = plt.subplots(1, len(etas) + 1, figsize=(3.1 * len(etas) + 4.4, 3.3), width_ratios=widths)
        bands = {}
        for ax, eta in zip(axes, etas, strict=False):
            occupancy = data["states"][f"occupancy_{eta:g}"]
            heat_map(world, occupancy, layer=~world.has_key, label="share of steps", ax=ax)
            ax.set_title("plain Q-learning" if eta == 0.0 else f"eta = {eta:g}")
            bands["plain" if eta == 0.0 else f"eta = {eta:g}"] = Interval(
                *(_at(curves, eta, name) for name in ("score", "score_low", "score_high"))
            )
        return_curves(_at(curves, etas[0], "episode"), bands, ax=axes[-1])
        axes[-1].set_title(f"mean of {np.unique(data['final']['seed']).size} seeds")
        axes[-1].set_ylim(-0.03, 1.06)
        axes[-1].xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g} k" if x else "0")
    return figure
