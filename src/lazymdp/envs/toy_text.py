"""Reading the transition table `P` that toy_text environments carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray


class Table(NamedTuple):
    """A transition table as arrays, every terminated transition leading to a state that loops with reward 0."""

    transitions: sp.csr_array  # [S*A, S]
    rewards: NDArray[np.float64]  # [S, A] expected
    gains: sp.csr_array  # [S*A, S] probability times reward of each transition, stored where `transitions` are
    start: NDArray[np.float64] | None  # [S]
    state_names: Sequence[str] | None
    action_names: Sequence[str] | None


def read_table(env: Any) -> Table:
    """Reads `env.P`; see `MDP.from_gymnasium` for what happens to terminated transitions."""
    table = getattr(env, "P", None)
    if table is None:
        raise ValueError(
            f"{type(env).__name__} carries no transition table `P`: an exact model cannot be read from it. "
            "Build an MDP by hand, or learn from samples instead."
        )
    n_states = len(table)
    space: Any = getattr(env, "action_space", None)
    if n_states == 0 or not hasattr(space, "n"):
        raise ValueError(f"{type(env).__name__} has a table `P` of {n_states} states and the action space {space}.")
    n_actions = int(space.n)
    rows, columns, weights, ends, gains = _entries(table, n_states, n_actions)
    rewards = np.zeros((n_states, n_actions))
    np.add.at(rewards.ravel(), rows, gains)
    start = getattr(env, "initial_state_distrib", None)
    starts = np.zeros(n_states) if start is None else np.asarray(start, dtype=float)
    names = getattr(env, "state_names", None)

    entered_alive = np.zeros(n_states, dtype=bool)
    entered_alive[columns[(rows // n_actions != columns) & ~ends]] = True
    final = np.zeros(n_states, dtype=bool)
    final[columns[ends]] = True
    final &= ~entered_alive & (starts == 0)
    stray = ends & ~final[columns]
    if stray.any():
        columns = np.where(stray, n_states, columns)
        names = None if names is None else [*names, "terminal"]
        final = np.append(final, True)
        rewards = np.vstack([rewards, np.zeros((1, n_actions))])
        starts = np.append(starts, 0.0)
    kept = ~final[rows // n_actions]
    entries = rows[kept], columns[kept], weights[kept], gains[kept]
    matrix, closed_gains = _close(*entries, np.flatnonzero(final), final.size, n_actions)
    rewards = np.where(final[:, None], 0.0, rewards)
    start = None if start is None else starts
    return Table(matrix, rewards, closed_gains, start, names, getattr(env, "action_names", None))


def _entries(
    table: Any, n_states: int, n_actions: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """The entries of a toy_text table: row, next state, probability, `terminated`, probability times reward."""
    rows, columns, weights, ends, gains = [], [], [], [], []
    for state in range(n_states):
        for action in range(n_actions):
            for probability, following, reward, terminated in _row(table, state, action, n_states):
                if probability == 0.0:
                    continue
                rows.append(state * n_actions + action)
                columns.append(following)
                weights.append(probability)
                ends.append(terminated)
                gains.append(probability * reward)
    if not rows:
        raise ValueError("the table `P` has no transitions.")
    return np.array(rows), np.array(columns), np.array(weights), np.array(ends), np.array(gains)


def _close(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    weights: NDArray[np.float64],
    gains: NDArray[np.float64],
    closed: NDArray[np.int64],
    n_states: int,
    n_actions: int,
) -> tuple[sp.csr_array, sp.csr_array]:
    """Transitions and gains, with loops of reward 0 in the states that are `closed`."""
    loops = (closed[:, None] * n_actions + np.arange(n_actions)).ravel()
    place = (np.concatenate([rows, loops]), np.concatenate([columns, np.repeat(closed, n_actions)]))
    shape = (n_states * n_actions, n_states)
    matrix, weighted = (
        sp.csr_array(sp.coo_array((np.concatenate([entries, added]), place), shape=shape))
        for entries, added in ((weights, np.ones(loops.size)), (gains, np.zeros(loops.size)))
    )
    return matrix, weighted


def _row(table: Any, state: int, action: int, n_states: int) -> list[tuple[float, int, float, bool]]:
    """The entries of one state and action, checked."""
    place = f"the table `P` of state {state}, action {action}"
    try:
        entries = list(table[state][action])
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{place} has no entry.") from error
    checked = []
    for entry in entries:
        try:
            probability, following, reward, terminated = entry
            values = float(probability), int(following), float(reward), bool(terminated)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{place} holds {entry!r}, expected (probability, next state, reward, done).") from error
        if values[1] != following or not 0 <= values[1] < n_states:
            raise ValueError(f"{place} leads to state {following}, expected 0 to {n_states - 1}.")
        checked.append(values)
    return checked
