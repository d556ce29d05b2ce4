"""The paper's worlds as the experiments use them: models, default policies, and distances to key actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lazymdp.envs import KeyDoorTreasure, RiversAndBridges
from lazymdp.exact import policies
from lazymdp.mdp import MDP

GAMMA = 0.99
"""Discount factor of every tabular experiment of the paper."""


def key_door_treasure(apple: bool = False) -> tuple[KeyDoorTreasure, MDP]:
    """Return Key-Door-Treasure and its model."""
    world = KeyDoorTreasure(apple=apple)
    return world, MDP.from_gymnasium(world, GAMMA)


def rivers_and_bridges() -> tuple[RiversAndBridges, MDP]:
    """Return Rivers & Bridges and its model."""
    world = RiversAndBridges()
    return world, MDP.from_gymnasium(world, GAMMA)


def bridges(world: RiversAndBridges) -> NDArray[np.bool_]:
    """Return `[S]`, whether each state is on a bridge."""
    return np.array([world.layout[row][column] == "=" for row, column in world.cells])


def slippery(world: RiversAndBridges, mdp: MDP) -> NDArray[np.float64]:
    """Return `[S, A]`, the default policy of Fig. 2: optimal, but uniform on the bridges."""
    return np.where(bridges(world)[:, None], policies.uniform(mdp), policies.optimal(mdp))


def reachable(mdp: MDP) -> NDArray[np.bool_]:
    """Return `[S]`, whether some policy reaches the state from the start; False for absorbing states."""
    successors = mdp.transitions.indices.reshape(mdp.n_states, mdp.n_actions)
    reached = mdp.start > 0.0
    for _ in range(mdp.n_states):
        reached[successors[reached]] = True
    return reached & ~mdp.absorbing


def moves_to_key_action(world: KeyDoorTreasure, mdp: MDP) -> NDArray[np.int64]:
    """Return `[S]`, moves to the nearest key action: through a gap in a wall, onto the key or the treasure."""
    layout = world.layout

    def is_gap(row: int, column: int) -> bool:
        across = layout[row][column - 1] == layout[row][column + 1] == "#"
        return layout[row][column] == "D" or across or layout[row - 1][column] == layout[row + 1][column] == "#"

    key = [layout[row][column] in "KT" or is_gap(row, column) for row, column in world.cells]
    successors = mdp.transitions.indices.reshape(mdp.n_states, mdp.n_actions)  # every move has exactly one
    moves = np.where(key, 0, mdp.n_states)
    for _ in range(mdp.n_states):
        moves = np.minimum(moves, 1 + moves[successors].min(axis=1))
    return moves
