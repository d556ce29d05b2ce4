"""Reads the transition table `P` of Gymnasium's toy_text environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lazymdp._arguments import real_array, shown
from lazymdp._arrays import SUM_TOLERANCE
from lazymdp._env_outcomes import flag_of, reward_of


class Table(NamedTuple):
    """A transition table as arrays, in which every terminated transition leads to an absorbing state.

    Attributes:
        transitions: Sparse `[S*A, S]`.
        rewards: `[S, A]` expected rewards.
        gains: Sparse `[S*A, S]`, probability times reward of each transition, with the entries of `transitions`.
        start: `[S]` distribution of the initial state, or None if the environment does not declare it.
        state_names: One name per state, or None.
        action_names: One name per action, or None.
    """

    transitions: sp.csr_array
    rewards: NDArray[np.float64]
    gains: sp.csr_array
    start: NDArray[np.float64] | None
    state_names: Sequence[str] | None
    action_names: Sequence[str] | None


def read_table(env: Any) -> Table:
    """Reads `env.P`; `MDP.from_gymnasium` describes how terminated transitions are handled."""
    table = getattr(env, "P", None)
    if table is None:
        raise ValueError(
            f"{type(env).__name__} carries no transition table `P`, so that no exact model can be read from it. "
            "Build an MDP by hand, or learn from samples instead."
        )
    n_states = len(table)
    space: Any = getattr(env, "action_space", None)
    if n_states == 0 or not hasattr(space, "n"):
        raise ValueError(f"{type(env).__name__} has a table `P` of {n_states} states and the action space {space}.")
    n_actions = int(space.n)
    rows, columns, weights, terminated, gains = _entries(table, n_states, n_actions)
    rewards = np.zeros((n_states, n_actions))
    np.add.at(rewards.ravel(), rows, gains)
    start = getattr(env, "initial_state_distrib", None)
    starts = np.zeros(n_states) if start is None else real_array(start, "probabilities initial_state_distrib")
    if starts.shape != (n_states,):
        raise ValueError(f"initial_state_distrib has shape {starts.shape}, expected [{n_states}]: one entry per state.")
    names = getattr(env, "state_names", None)

    entered_alive = np.zeros(n_states, dtype=bool)
    entered_alive[columns[(rows // n_actions != columns) & ~terminated]] = True
    final = np.zeros(n_states, dtype=bool)
    final[columns[terminated]] = True
    final &= ~entered_alive & (starts == 0)
    stray = terminated & ~final[columns]  # these lead to a state that is not absorbing, and need an added one
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
    """Returns the entries of a table: row, next state, probability, terminated, and probability times reward."""
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
    """Returns sparse transitions and gains, in which the states in `closed` return to themselves with reward 0."""
    loops = (closed[:, None] * n_actions + np.arange(n_actions)).ravel()
    place = (np.concatenate([rows, loops]), np.concatenate([columns, np.repeat(closed, n_actions)]))
    shape = (n_states * n_actions, n_states)
    matrix, weighted = (
        sp.csr_array(sp.coo_array((np.concatenate([entries, added]), place), shape=shape))
        for entries, added in ((weights, np.ones(loops.size)), (gains, np.zeros(loops.size)))
    )
    return matrix, weighted


def _row(table: Any, state: int, action: int, n_states: int) -> list[tuple[float, int, float, bool]]:
    """Returns the checked entries of one state and action."""
    place = f"the table `P` of state {state}, action {action}"
    try:
        entries = list(table[state][action])
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{place} has no entry.") from error
    return [_entry(entry, place, n_states) for entry in entries]


def _entry(entry: Any, place: str, n_states: int) -> tuple[float, int, float, bool]:
    """Returns a checked entry; `place` is for the error message."""
    try:
        probability, following, reward, terminated = entry
        weight, gain, state = reward_of(probability), reward_of(reward), reward_of(following)
        ends = flag_of(terminated, "terminated")
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{place} holds {shown(entry)}, expected (probability, next state, reward, terminated): three finite "
            "numbers, and True or False."
        ) from error
    if not 0.0 <= weight <= 1.0 + SUM_TOLERANCE:
        raise ValueError(f"{place} holds {shown(entry)}: the probability is {weight}, expected a number from 0 to 1.")
    if not 0 <= state < n_states or not state.is_integer():
        raise ValueError(
            f"{place} holds {shown(entry)}: it leads to state {shown(following)}, expected 0 to {n_states - 1}."
        )
    return weight, int(state), gain, ends
