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
    rewards: NDArray[np.float64]  # [S, A]
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
    rows, columns, weights, ends, rewards = _entries(table, n_states, n_actions)
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
    matrix, rewards = _close(rows, columns, weights, rewards, final)
    return Table(matrix, rewards, None if start is None else starts, names, getattr(env, "action_names", None))


def _entries(
    table: Any, n_states: int, n_actions: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    """The entries of a toy_text table: row, next state, probability and `terminated` each, and mean rewards [S, A]."""
    rows, columns, weights, ends = [], [], [], []
    rewards = np.zeros((n_states, n_actions))
    for state in range(n_states):
        for action in range(n_actions):
            for probability, following, reward, terminated in _row(table, state, action, n_states):
                if probability == 0.0:
                    continue
                rows.append(state * n_actions + action)
                columns.append(following)
                weights.append(probability)
                ends.append(terminated)
                rewards[state, action] += probability * reward
    if not rows:
        raise ValueError("the table `P` has no transitions.")
    return np.array(rows), np.array(columns), np.array(weights), np.array(ends), rewards


def _close(
    rows: NDArray[np.int64],
    columns: NDArray[np.int64],
    weights: NDArray[np.float64],
    rewards: NDArray[np.float64],
    final: NDArray[np.bool_],
) -> tuple[sp.csr_array, NDArray[np.float64]]:
    """Replaces the rows of the `final [S]` states by loops with reward 0."""
    n_states, n_actions = rewards.shape
    kept = ~final[rows // n_actions]
    closed = np.flatnonzero(final)
    loops = (closed[:, None] * n_actions + np.arange(n_actions)).ravel()
    entries = np.concatenate([weights[kept], np.ones(loops.size)])
    place = (np.concatenate([rows[kept], loops]), np.concatenate([columns[kept], np.repeat(closed, n_actions)]))
    matrix = sp.csr_array(sp.coo_array((entries, place), shape=(n_states * n_actions, n_states)))
    return matrix, np.where(final[:, None], 0.0, rewards)


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
