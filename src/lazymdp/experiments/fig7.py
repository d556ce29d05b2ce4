"""Fig. 7: Q-learning in Key-Door-Treasure with an apple as a distractor, with and without a lazy action.

The settings are the paper's; eta = 0 is plain Q-learning without a lazy action, as in the paper's text. Bands are 95%
bootstrap intervals of the mean over seeds.

Left: where the agent spends its time before it has the key, at the end of training. Right: return during training,
price excluded. Plain Q-learning settles for the apple (return 0.1). Only the agent with eta = 0.03 finds the treasure
(return 1); with eta = 0.05 the agent rarely takes control.
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
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, stacked, table
from lazymdp.learn.tabular.q_learning import TabularResult, q_learning
from lazymdp.mdp import MDP
from lazymdp.measure.statistics import Interval, mean_interval
from lazymdp.show import heat_map, return_curves, styled

TITLE = "Lazy exploration: Q-learning gets past the apple only at the right price"


@dataclass(frozen=True)
class Config:
    """Settings of Fig. 7."""

    seeds: int = 100
    """Number of runs per price."""
    episodes: int = 100_000
    """Episodes per run."""
    max_steps: int = 1_000
    """Number of steps after which an episode is truncated."""
    etas: tuple[float, ...] = (0.0, 0.03, 0.05)
    """Prices; 0 is plain Q-learning."""
    alpha: float = 0.5
    """Step size of Q-learning."""
    epsilon: float = 0.1
    """Exploration rate in the first episode; it falls linearly to 0 in the last."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Learn at every price with every seed."""
    world, mdp = paper_worlds.key_door_treasure(apple=True)
    per_price = config.seeds * config.episodes
    results = []
    for place, eta in enumerate(config.etas):

        def tell(done: int, _: int, before: int = place * per_price) -> None:
            if progress is not None:
                progress(before + done, per_price * len(config.etas))

        results.append(_learn(config, mdp, eta, tell))
    occupancy = {
        f"occupancy_{eta:g}": _occupancy_without_key(world, result)
        for eta, result in zip(config.etas, results, strict=True)
    }
    return {
        "curves": stacked([_curve(eta, result) for eta, result in zip(config.etas, results, strict=True)]),
        "final": stacked([_final(eta, result) for eta, result in zip(config.etas, results, strict=True)]),
        "states": table(
            state=np.arange(mdp.n_states),
            row=world.cells[:, 0],
            column=world.cells[:, 1],
            has_key=world.has_key,
            **occupancy,
        ),
    }


def _learn(config: Config, mdp: MDP, eta: float, progress: Progress) -> TabularResult:
    """Run Q-learning at one price."""
    return q_learning(
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
        progress=progress,
    )


def _occupancy_without_key(world: KeyDoorTreasure, result: TabularResult) -> NDArray[np.float64]:
    """Return `[S]` the share of the steps without the key that are spent in each state, as a mean over seeds.

    A state is a cell and whether the agent has the key, which it never loses: these are the steps before the key.
    """
    without_key = np.where(world.has_key, 0.0, result.occupancy[0])
    return np.asarray((without_key / without_key.sum(axis=1, keepdims=True)).mean(axis=0))


def _curve(eta: float, result: TabularResult) -> dict[str, NDArray[Any]]:
    returns, control_rate = mean_interval(result.mean_return[0]), mean_interval(result.control_rate[0])
    return table(
        eta=eta,
        episode=result.episode,
        mean_return=returns.mean,
        return_low=returns.low,
        return_high=returns.high,
        control_rate=control_rate.mean,
    )


def _final(eta: float, result: TabularResult) -> dict[str, NDArray[Any]]:
    final_return, control_rate = result.mean_return[0, :, -1], result.control_rate[0, :, -1]
    return table(eta=eta, seed=result.seeds, mean_return=final_return, control_rate=control_rate)


def _at(columns: Table, eta: float, name: str) -> NDArray[Any]:
    return columns[name][columns["eta"] == eta]


def claims(data: Tables) -> list[Claim]:
    """Check the statements of the paper about the figure."""
    etas = set(data["final"]["eta"].tolist())
    found = []
    if 0.0 in etas:
        plain = float(_at(data["final"], 0.0, "mean_return").mean())
        found.append(
            Claim("Plain Q-learning settles for the apple (final return)", "<= 0.12", f"{plain:.3f}", plain <= 0.12)
        )
    if 0.03 in etas:
        lazy = float(_at(data["final"], 0.03, "mean_return").mean())
        found.append(
            Claim("With eta = 0.03, it finds the treasure (final return)", ">= 0.95", f"{lazy:.3f}", lazy >= 0.95)
        )
    if 0.05 in etas:
        rate = float(_at(data["final"], 0.05, "control_rate").mean())
        high = float(_at(data["final"], 0.05, "mean_return").mean())
        found += [
            Claim("With eta = 0.05, it rarely takes control (control rate)", "< 10%", f"{rate:.1%}", rate < 0.1),
            Claim("With eta = 0.05, it does not reach the optimum (final return)", "< 0.5", f"{high:.3f}",
                  high < 0.5),
        ]  # fmt: skip
    return found


def plot(data: Tables) -> Figure:
    """Draw the occupancy at each price, then the learning curves."""
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
            bands["plain Q-learning" if eta == 0.0 else f"eta = {eta:g}"] = Interval(
                *(_at(curves, eta, name) for name in ("mean_return", "return_low", "return_high"))
            )
        return_curves(_at(curves, etas[0], "episode"), bands, ax=axes[-1])
        axes[-1].set_title(f"mean of {np.unique(data['final']['seed']).size} seeds")
        axes[-1].set_ylim(-0.03, 1.06)
        axes[-1].xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g} k" if x else "0")
    return figure
