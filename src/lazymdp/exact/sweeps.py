"""Compiled passes over the states: the only code that touches every transition.

All of them read a `Rows`, the flat view of a lazy-MDP, and apply the operator of Sec. 4.3 in value form,

    (T v)(s) = max( max_a x(s, a) - eta,  sum_a default(a|s) x(s, a) ),
    x(s, a) = r(s, a) + gamma sum_s' P(s'|s, a) v(s'),

so that the lazy action costs no transitions of its own. Indices are unsigned on purpose: with signed ones the compiler
has to allow for negative indices at every access, which makes a sweep twice as slow.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from lazymdp.lazy import LazyMDP

_PARALLEL_FROM = 200_000
"""Transitions from which a second thread is worth its start (about 0.1 ms)."""

_ONE = np.uint64(1)


class Rows(NamedTuple):
    """A lazy-MDP as flat arrays; row `s*A + a` is state `s`, action `a`."""

    indptr: NDArray[np.int32]  # [S*A + 1]
    indices: NDArray[np.int32]  # [nnz]
    data: NDArray[np.float64]  # [nnz]
    rewards: NDArray[np.float64]  # [S*A]
    default: NDArray[np.float64]  # [S*A]
    absorbing: NDArray[np.bool_]  # [S]
    gamma: float
    eta: float


def rows_of(lazy: LazyMDP) -> Rows:
    """The flat view of a lazy-MDP; shares its arrays."""
    mdp = lazy.mdp
    matrix = mdp.transitions
    return Rows(
        matrix.indptr,
        matrix.indices,
        matrix.data,
        mdp.rewards.reshape(-1),
        lazy.default_policy.reshape(-1),
        mdp.absorbing,
        mdp.gamma,
        lazy.eta,
    )


@numba.njit(cache=True, nogil=True, inline="always")
def expect(rows: Rows, value: Any, row: Any) -> Any:
    """`sum_s' P(s' | row) value(s')`."""
    j, end = np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + _ONE])
    total = 0.0
    while j < end:
        total += rows.data[j] * value[np.uint32(rows.indices[j])]
        j += _ONE
    return total


@numba.njit(cache=True, nogil=True, inline="always")
def best_and_lazy(rows: Rows, value: Any, state: Any, n_actions: Any) -> Any:
    """Values of the best action (without its price) and of being lazy, and the best action's row."""
    row = state * n_actions
    best, best_row, lazy = -np.inf, row, 0.0
    for _ in range(n_actions):
        x = rows.rewards[row] + rows.gamma * expect(rows, value, row)
        lazy += rows.default[row] * x
        if x > best:
            best, best_row = x, row
        row += _ONE
    return best, lazy, best_row


@numba.njit(cache=True, nogil=True)
def backup(rows: Rows, value: Any, out: Any, chosen: Any, begin: int, end: int) -> Any:
    """One sweep `out = T value` over the states `begin .. end`.

    `chosen [S]` receives the row of the greedy action, or -1 for lazy; pass it empty to skip that.

    Returns:
        Smallest and largest change, `min(T v - v)` and `max(T v - v)`, over the states not absorbing.
    """
    n_actions = np.uint64(rows.rewards.size // rows.absorbing.size)
    low, high = np.inf, -np.inf
    for state in range(np.uint64(begin), np.uint64(end)):
        if rows.absorbing[state]:
            out[state] = 0.0
            continue
        best, lazy, best_row = best_and_lazy(rows, value, state, n_actions)
        control = best - rows.eta > lazy
        new = best - rows.eta if control else lazy
        if chosen.size:
            chosen[state] = best_row if control else -1
        change = new - value[state]
        low = min(low, change)
        high = max(high, change)
        out[state] = new
    return low, high


@numba.njit(cache=True, nogil=True)
def follow(rows: Rows, value: Any, out: Any, chosen: Any, begin: int, end: int) -> Any:
    """One sweep under the fixed choices `chosen [S]` (a row, or -1 for lazy); returns as `backup`."""
    n_actions = np.uint64(rows.rewards.size // rows.absorbing.size)
    low, high = np.inf, -np.inf
    for state in range(np.uint64(begin), np.uint64(end)):
        if rows.absorbing[state]:
            out[state] = 0.0
            continue
        if chosen[state] >= 0:
            row = np.uint64(chosen[state])
            new = rows.rewards[row] - rows.eta + rows.gamma * expect(rows, value, row)
        else:
            row = state * n_actions
            new = 0.0
            for _ in range(n_actions):
                if rows.default[row] != 0.0:
                    new += rows.default[row] * (rows.rewards[row] + rows.gamma * expect(rows, value, row))
                row += _ONE
        change = new - value[state]
        low = min(low, change)
        high = max(high, change)
        out[state] = new
    return low, high


@numba.njit(cache=True, nogil=True)
def action_values(rows: Rows, value: Any, q: Any, gap: Any, begin: int, end: int) -> Any:
    """Fills `q [S*A]` (price included) and `gap [S]` from `value [S]`; both are 0 in absorbing states.

    Returns:
        Smallest and largest change, as `backup`.
    """
    n_actions = np.uint64(rows.rewards.size // rows.absorbing.size)
    low, high = np.inf, -np.inf
    for state in range(np.uint64(begin), np.uint64(end)):
        first = state * n_actions
        if rows.absorbing[state]:
            gap[state] = 0.0
            for a in range(n_actions):
                q[first + a] = 0.0
            continue
        best = -np.inf
        for a in range(n_actions):
            x = rows.rewards[first + a] - rows.eta + rows.gamma * expect(rows, value, first + a)
            q[first + a] = x
            best = max(best, x)
        shortfall = 0.0
        for a in range(n_actions):
            shortfall += rows.default[first + a] * (best - q[first + a])
        gap[state] = shortfall
        change = max(best, best - shortfall + rows.eta) - value[state]
        low = min(low, change)
        high = max(high, change)
    return low, high


def over_states(sweep: Callable[..., tuple[float, float]], rows: Rows, *arrays: NDArray[Any]) -> tuple[float, float]:
    """Runs a sweep over all states, in as many threads as there are cores where the model is large enough.

    Every state is computed from `value` alone, so the result does not depend on the number of threads.

    Returns:
        Smallest and largest change; 0 and 0 if every state is absorbing.
    """
    n_states = rows.absorbing.size
    threads = min(len(os.sched_getaffinity(0)), 1 + rows.data.size // _PARALLEL_FROM)
    if threads == 1:
        low, high = sweep(rows, *arrays, 0, n_states)
    else:
        cuts = np.linspace(0, n_states, threads + 1).astype(int).tolist()
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(lambda i: sweep(rows, *arrays, cuts[i], cuts[i + 1]), range(threads)))
        low, high = min(part[0] for part in parts), max(part[1] for part in parts)
    return (low, high) if low <= high else (0.0, 0.0)
