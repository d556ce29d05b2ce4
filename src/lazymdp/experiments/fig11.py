"""App. Fig. 11: how important each state of Key-Door-Treasure is, according to five measures.

The paper compares the maps by eye. We compare numbers: rank correlations with the number of moves to the treasure and
to the nearest key action (passing through a gap in a wall, stepping onto the key or onto the treasure), and the share
of the total importance that lies within two moves of a key action.

Upper row: the agent does not have the key; lower row: it does. Each map has its own scale; states that cannot be
reached are white. Importance advice follows the distance to the reward. The lazy-gap at a given price, and
`critical_eta`, which needs no price, pick out the passages, the key and the treasure.
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
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, table
from lazymdp.lazy import LazyMDP
from lazymdp.measure.importance import action_gap, importance_advice
from lazymdp.show import heat_map, styled

TITLE = "Importance maps: only the lazy-gap picks out the key, the doors and the treasure"
_NEAR = 2
"""A state is near a key action if it is at most this many moves away."""
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
    """Price of the second lazy-gap map."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Compute every measure in every state."""
    world, mdp = paper_worlds.key_door_treasure()
    default_policy = policies.uniform(mdp)
    base, low, high = (solve(LazyMDP(mdp, default_policy, eta)) for eta in (0.0, config.low, config.high))
    alive = ~mdp.absorbing
    if progress is not None:
        progress(1, 2)
    measures = {
        "action_gap": action_gap(base.q),
        "importance_advice": importance_advice(base.q),
        "lazy_gap_low": low.lazy_gap,
        "lazy_gap_high": high.lazy_gap,
        "critical_eta": eta_path(mdp, default_policy).critical_eta,
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
    """Return `[S]` moves to the treasure, from the value of the optimal agent: gamma**(moves - 1)."""
    moves = np.zeros(value.size, dtype=np.int64)
    moves[alive] = np.rint(np.log(value[alive]) / np.log(paper_worlds.GAMMA)).astype(np.int64) + 1
    return moves


def _correlation(states: Table, measure: str, distance: str, layer: int) -> float:
    """Return Spearman's rank correlation over the reachable states of a layer; -1 if nearer is more important."""
    here = (states["reachable"] == 1) & (states["has_key"] == layer)
    from scipy.stats import spearmanr  # takes 0.4 s to import, and few commands need it

    return float(spearmanr(states[measure][here], states[distance][here]).statistic)


def _share_near(states: Table, measure: str) -> float:
    """Return the share of the total importance that lies near key actions."""
    reachable = states["reachable"] == 1
    near = reachable & (states["moves_to_key_action"] <= _NEAR)
    return float(states[measure][near].sum() / states[measure][reachable].sum())


def claims(data: Tables) -> list[Claim]:
    """Check the paper's observations about the maps, as numbers."""
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
            "Importance advice is dominated by the distance to the reward (rank correlation, with the key)",
            "<= -0.9; weaker for the lazy-gap",
            f"{to_reward['importance_advice']:.2f}; lazy-gap at eta = {low:g}: {to_reward['lazy_gap_low']:.2f}",
            to_reward["importance_advice"] <= -0.9 < to_reward["lazy_gap_low"],
        ),
        Claim(
            "Without the key, the lazy-gap follows the distance to the nearest key action more closely than importance "
            "advice does (rank correlation)",
            "closer to -1",
            f"{to_key['lazy_gap_low']:.2f} against {to_key['importance_advice']:.2f}",
            to_key["lazy_gap_low"] < to_key["importance_advice"],
        ),
        Claim(
            f"The lazy-gap puts more of its weight on the states within {_NEAR} moves of a key action ({share:.0%} of "
            "the reachable states) than importance advice does",
            "larger share",
            f"lazy-gap at eta = {high:g}: {near['lazy_gap_high']:.0%}, critical eta: {near['critical_eta']:.0%}, "
            f"importance advice: {near['importance_advice']:.0%}",
            near["lazy_gap_high"] > near["importance_advice"] and near["critical_eta"] > near["importance_advice"],
        ),
        Claim(
            f"The action-gap is also positive farther from key actions; the lazy-gap exceeds {high:g} only near them",
            "farther for the action-gap",
            f"action-gap: up to {gap_reach} moves away; lazy-gap above {high:g}: up to {reach} moves",
            gap_reach > reach,
        ),
    ]


def plot(data: Tables) -> Figure:
    """Draw one column per measure; the upper row without the key, the lower row with it."""
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
