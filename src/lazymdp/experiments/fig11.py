"""App. Fig. 11: how much each state of Key-Door-Treasure matters, by five measures.

The paper compares by eye. Here it is measured: rank correlations with the moves to the treasure and to the nearest key
action (through a passage, onto the key or the treasure), and how much of the importance lies within two moves of one.

Above without the key, below with it; each map on its own scale, states that play never reaches left white. Importance
advice follows the distance to the reward; the lazy-gap at a price, and `critical_eta`, which needs no price, pick out
passages, key and treasure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp.envs import KeyDoorTreasure
from lazymdp.exact import policies
from lazymdp.exact.path import eta_path
from lazymdp.exact.solve import solve
from lazymdp.experiments import paper_worlds
from lazymdp.experiments.registry import Claim, Progress
from lazymdp.experiments.results_io import Table, Tables, table
from lazymdp.lazy import LazyMDP
from lazymdp.measure.importance import action_gap, importance_advice
from lazymdp.show import heat_map, styled

TITLE = "Importance maps: only the lazy-gap picks out key, doors and treasure"
_NEAR = 2
"""Moves from a key action that count as near."""
_MEASURES = {
    "action_gap": "action-gap",
    "importance_advice": "importance advice",
    "lazy_gap_low": "lazy-gap, eta = {low:g}",
    "lazy_gap_high": "lazy-gap, eta = {high:g}",
    "critical_eta": "critical eta",
}


@dataclass(frozen=True)
class Config:
    """Settings of Fig. 11."""

    low: float = 0.03
    """Price of the first lazy-gap map."""
    high: float = 0.05
    """Price of the second."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Every measure of every state."""
    world, mdp = paper_worlds.key_door_treasure()
    default = policies.uniform(mdp)
    base, low, high = (solve(LazyMDP(mdp, default, eta)) for eta in (0.0, config.low, config.high))
    alive = ~mdp.absorbing
    if progress is not None:
        progress(1, 2)
    measures = {
        "action_gap": action_gap(base.q),
        "importance_advice": importance_advice(base.q),
        "lazy_gap_low": low.lazy_gap,
        "lazy_gap_high": high.lazy_gap,
        "critical_eta": eta_path(mdp, default).critical_eta,
    }
    if progress is not None:
        progress(2, 2)
    return {
        "states": table(
            state=np.arange(mdp.n_states),
            row=world.cells[:, 0],
            column=world.cells[:, 1],
            has_key=world.has_key,
            reachable=paper_worlds.reachable(mdp),
            moves_to_key_action=paper_worlds.moves_to_key_action(world, mdp),
            moves_to_treasure=_moves_to_treasure(base.value, alive),
            control_high=high.control,
            **{name: np.where(alive, measure, 0.0) for name, measure in measures.items()},
        ),
        "prices": table(low=config.low, high=config.high),
    }


def _moves_to_treasure(value: NDArray[np.float64], alive: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The treasure is worth gamma**(moves - 1) to the optimal agent."""
    moves = np.zeros(value.size, dtype=np.int64)
    moves[alive] = np.rint(np.log(value[alive]) / np.log(paper_worlds.GAMMA)).astype(np.int64) + 1
    return moves


def _correlation(states: Table, measure: str, distance: str, layer: int) -> float:
    """Spearman's, over the reachable states of a layer; near -1: the nearer the more important."""
    here = (states["reachable"] == 1) & (states["has_key"] == layer)
    from scipy.stats import spearmanr  # 0.4 s to import, which few commands need

    return float(spearmanr(states[measure][here], states[distance][here]).statistic)


def _share_near(states: Table, measure: str) -> float:
    """How much of all importance lies near a key action."""
    reachable = states["reachable"] == 1
    near = reachable & (states["moves_to_key_action"] <= _NEAR)
    return float(states[measure][near].sum() / states[measure][reachable].sum())


def claims(data: Tables) -> list[Claim]:
    """What the paper reads off the maps, as numbers."""
    states, (low, high) = data["states"], (float(data["prices"][name][0]) for name in ("low", "high"))
    alive = states["reachable"] == 1
    control = alive & (states["control_high"] == 1)
    reach = int(states["moves_to_key_action"][control].max(initial=0))
    gap_reach = int(states["moves_to_key_action"][alive & (states["action_gap"] > 1e-9)].max())
    to_reward = {m: _correlation(states, m, "moves_to_treasure", 1) for m in ("importance_advice", "lazy_gap_low")}
    to_key = {m: _correlation(states, m, "moves_to_key_action", 0) for m in ("importance_advice", "lazy_gap_low")}
    near = {m: _share_near(states, m) for m in ("importance_advice", "lazy_gap_high", "critical_eta")}
    share = float((states["moves_to_key_action"][alive] <= _NEAR).mean())
    return [
        Claim(
            "importance advice is dominated by the distance to the reward (rank correlation, with the key)",
            "<= -0.9",
            f"{to_reward['importance_advice']:.2f}; lazy-gap at {low:g}: {to_reward['lazy_gap_low']:.2f}",
            to_reward["importance_advice"] <= -0.9 < to_reward["lazy_gap_low"],
        ),
        Claim(
            "without the key the lazy-gap follows the distance to a key action more than advice does",
            "more negative",
            f"{to_key['lazy_gap_low']:.2f} against {to_key['importance_advice']:.2f}",
            to_key["lazy_gap_low"] < to_key["importance_advice"],
        ),
        Claim(
            f"the lazy-gap puts its weight near key actions (within {_NEAR} moves: {share:.0%} of the states reached)",
            "more than advice does",
            f"{near['lazy_gap_high']:.0%} at {high:g}, critical eta {near['critical_eta']:.0%}, "
            f"advice {near['importance_advice']:.0%}",
            near["lazy_gap_high"] > near["importance_advice"] and near["critical_eta"] > near["importance_advice"],
        ),
        Claim(
            f"the action-gap also marks the way between key actions; the lazy-gap exceeds {high:g} near them only",
            "farther than control",
            f"action-gap up to {gap_reach} moves away, control up to {reach}",
            gap_reach > reach,
        ),
    ]


def plot(data: Tables) -> Figure:
    """A column per measure, a row without and one with the key."""
    world, states = KeyDoorTreasure(), data["states"]
    prices = {name: float(data["prices"][name][0]) for name in ("low", "high")}
    with styled():
        figure, axes = plt.subplots(2, len(_MEASURES), figsize=(3.2 * len(_MEASURES), 5.7))
        for column, (measure, label) in enumerate(_MEASURES.items()):
            for row, layer in enumerate((~world.has_key, world.has_key)):
                shown = np.where(states["reachable"] == 1, states[measure], np.nan)
                heat_map(world, shown, layer=layer, ax=axes[row, column])
                axes[row, column].set_title(label.format(**prices) if row == 0 else "")
        for row, words in enumerate(("without the key", "with the key")):
            axes[row, 0].set_ylabel(words)
    return figure
