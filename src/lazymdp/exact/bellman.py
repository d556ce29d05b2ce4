"""Compiled sweeps over the states: the only code that loops over all transitions.

All of them read a `Rows`, the flat view of a lazy-MDP, and apply the operator of Sec. 4.3 to values,

    (T v)(s) = max( max_a x(s, a) - eta,  sum_a default(a|s) x(s, a) ),
    x(s, a) = r(s, a) + gamma sum_s' P(s'|s, a) v(s'),

so that the lazy action needs no transitions of its own. Indices are unsigned on purpose: signed ones may be negative,
which the compiled code has to check at every access and which makes a sweep twice as slow.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from lazymdp import _cores
from lazymdp.lazy import LazyMDP

_PARALLEL_FROM = 200_000
"""Number of transitions per thread from which starting another thread (about 0.1 ms) pays."""

_ONE = np.uint64(1)


class Rows(NamedTuple):
    """A lazy-MDP as flat arrays; row `s*A + a` belongs to state `s` and action `a`."""

    indptr: NDArray[np.int32]  # [S*A + 1]
    indices: NDArray[np.int32]  # [nnz]
    data: NDArray[np.float64]  # [nnz]
    rewards: NDArray[np.float64]  # [S*A]
    default: NDArray[np.float64]  # [S*A]
    absorbing: NDArray[np.bool_]  # [S]
    gamma: float
    eta: float


def rows_of(lazy: LazyMDP) -> Rows:
    """Returns the flat view of a lazy-MDP, which shares its arrays."""
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
    """Computes `sum_s' P(s' | row) value(s')`."""
    j, end = np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + _ONE])
    total = 0.0
    while j < end:
        total += rows.data[j] * value[np.uint32(rows.indices[j])]
        j += _ONE
    return total


@numba.njit(cache=True, nogil=True, inline="always")
def best_and_lazy(rows: Rows, value: Any, state: Any, n_actions: Any) -> Any:
    """Returns the value of the best action (without its price), the value of being lazy, and the best action's row."""
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
def opening(rows: Rows, out: Any, begin: int, end: int) -> Any:
    """Computes `out = T 0` for the states `begin` to `end - 1`: the first sweep, which needs no transitions."""
    n_actions = np.uint64(rows.rewards.size // rows.absorbing.size)
    for state in range(np.uint64(begin), np.uint64(end)):
        row = state * n_actions
        best, lazy = -np.inf, 0.0
        for _ in range(n_actions):
            best = max(best, rows.rewards[row])
            lazy += rows.default[row] * rows.rewards[row]
            row += _ONE
        out[state] = 0.0 if rows.absorbing[state] else max(best - rows.eta, lazy)
    return 0.0, 0.0


@numba.njit(cache=True, nogil=True)
def backup(rows: Rows, value: Any, out: Any, chosen: Any, begin: int, end: int) -> Any:
    """Computes `out = T value` for the states `begin` to `end - 1`.

    `chosen [S]` receives the row of the greedy action, or -1 for lazy. Pass an empty array to skip that.

    Returns:
        The smallest and the largest change `T v - v` over the states that are not absorbing.
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
            chosen[state] = np.int64(best_row) if control else -1
        change = new - value[state]
        low = min(low, change)
        high = max(high, change)
        out[state] = new
    return low, high


class PolicyRows(NamedTuple):
    """The packed rows of one policy, all that a sweep with fixed choices reads."""

    ends: NDArray[np.int64]  # [S + 1]
    columns: NDArray[np.int32]  # [entries]
    weights: NDArray[np.float64]  # [entries], gamma included
    rewards: NDArray[np.float64]  # [S], price included


def pack(rows: Rows, chosen: NDArray[np.int64], spare: PolicyRows | None = None) -> PolicyRows:
    """Packs the rows of the choices `chosen [S]` (a row, or -1 for lazy), reusing the arrays of `spare` if they fit.

    The operating system zeroes the pages of new arrays, which takes longer than filling them.
    """
    ends = np.empty(chosen.size + 1, dtype=np.int64) if spare is None else spare.ends
    size = _row_ends(rows, chosen, ends)
    if spare is None or spare.columns.size < size:
        room = min(size + size // 8, rows.data.size)
        spare = PolicyRows(
            ends, np.empty(room, dtype=np.int32), np.empty(room, dtype=np.float64), np.empty(chosen.size)
        )
    over_states(_pack, rows, chosen, *spare)
    return spare


@numba.njit(cache=True, nogil=True)
def _row_ends(rows: Rows, chosen: Any, ends: Any) -> Any:
    """Computes where the entries of each state's packed row end, `ends [S + 1]`; absorbing states have no entries."""
    n_actions = np.uint64(rows.rewards.size // chosen.size)
    ends[0] = 0
    for state in range(np.uint64(chosen.size)):
        lazy = chosen[state] < 0
        first = state * n_actions if lazy else np.uint64(chosen[state])
        final = first + (n_actions if lazy else _ONE)
        size = 0 if rows.absorbing[state] else rows.indptr[final] - rows.indptr[first]
        ends[state + _ONE] = ends[state] + size
    return ends[-1]


@numba.njit(cache=True, nogil=True)
def _pack(rows: Rows, chosen: Any, ends: Any, columns: Any, weights: Any, rewards: Any, begin: int, end: int) -> Any:
    """Fills the packed rows of the states `begin` to `end - 1`. The two numbers returned have no meaning here."""
    n_actions = np.uint64(rows.rewards.size // chosen.size)
    for state in range(np.uint64(begin), np.uint64(end)):
        rewards[state] = 0.0
        if rows.absorbing[state]:
            continue
        lazy = chosen[state] < 0
        first = state * n_actions if lazy else np.uint64(chosen[state])
        place = np.uint64(ends[state])
        for row in range(first, first + (n_actions if lazy else _ONE)):
            share = rows.default[row] if lazy else 1.0
            rewards[state] += share * rows.rewards[row] if lazy else rows.rewards[row] - rows.eta
            for j in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + _ONE])):
                columns[place], weights[place] = rows.indices[j], rows.gamma * share * rows.data[j]
                place += _ONE
    return 0.0, 0.0


@numba.njit(cache=True, nogil=True)
def follow(policy: PolicyRows, value: Any, out: Any, begin: int, end: int) -> Any:
    """Like `backup`, with fixed choices: one sweep over the states `begin` to `end - 1`."""
    low, high = np.inf, -np.inf
    for state in range(np.uint64(begin), np.uint64(end)):
        new = policy.rewards[state]
        for j in range(np.uint64(policy.ends[state]), np.uint64(policy.ends[state + _ONE])):
            new += policy.weights[j] * value[np.uint32(policy.columns[j])]
        change = new - value[state]
        low = min(low, change)
        high = max(high, change)
        out[state] = new
    return low, high


@numba.njit(cache=True, nogil=True)
def action_values(rows: Rows, value: Any, q: Any, gap: Any, action: Any, begin: int, end: int) -> Any:
    """Computes `q [S*A]` (price included), `gap [S]` and the best `action [S]` from `value [S]`.

    All are 0 in absorbing states.

    Returns:
        The smallest and the largest change, as from `backup`.
    """
    n_actions = np.uint64(rows.rewards.size // rows.absorbing.size)
    low, high = np.inf, -np.inf
    for state in range(np.uint64(begin), np.uint64(end)):
        first = state * n_actions
        if rows.absorbing[state]:
            gap[state], action[state] = 0.0, 0
            for a in range(n_actions):
                q[first + a] = 0.0
            continue
        best, lazy = -np.inf, 0.0
        best_action: Any = np.uint64(0)  # mixing signed and unsigned would make it a float
        for a in range(n_actions):
            x = rows.rewards[first + a] + rows.gamma * expect(rows, value, first + a)
            lazy += rows.default[first + a] * x
            q[first + a] = x - rows.eta
            if x > best:
                best, best_action = x, a
        action[state] = best_action
        shortfall = 0.0
        for a in range(n_actions):
            shortfall += rows.default[first + a] * (best - rows.eta - q[first + a])
        gap[state] = shortfall
        change = max(best - rows.eta, lazy) - value[state]
        low = min(low, change)
        high = max(high, change)
    return low, high


class QSweep(NamedTuple):
    """What `action_values` computes, and the smallest and the largest change."""

    q: NDArray[np.float64]  # [S*A], price included
    gap: NDArray[np.float64]  # [S]
    action: NDArray[np.int64]  # [S]
    low: float
    high: float


def q_sweep(rows: Rows, value: NDArray[np.float64]) -> QSweep:
    """Runs `action_values` on `value [S]` over all states."""
    q, gap, action = np.empty(rows.rewards.size), np.empty(value.size), np.empty(value.size, dtype=np.int64)
    return QSweep(q, gap, action, *over_states(action_values, rows, value, q, gap, action))


@functools.cache
def thread_pool() -> ThreadPoolExecutor:
    """Returns the threads of the sweeps, started on first use. A forked child inherits none and starts its own."""
    return ThreadPoolExecutor(max(1, _cores.available() - 1), thread_name_prefix="lazymdp")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=thread_pool.cache_clear)


def over_states(
    sweep: Callable[..., tuple[float, float]], rows: Rows | PolicyRows, *arrays: NDArray[Any]
) -> tuple[float, float]:
    """Runs a sweep over all states, in one thread per core if the model is large enough.

    Every state is computed from `value` alone, so the result does not depend on the number of threads.

    Returns:
        The smallest and the largest change; 0 and 0 if every state is absorbing.
    """
    n_states = rows.absorbing.size if isinstance(rows, Rows) else rows.rewards.size
    entries = rows.data.size if isinstance(rows, Rows) else rows.columns.size
    threads = min(_cores.available(), 1 + entries // _PARALLEL_FROM)
    if threads == 1:
        low, high = sweep(rows, *arrays, 0, n_states)
    else:
        cuts = [n_states * i // threads for i in range(threads + 1)]
        others = [thread_pool().submit(sweep, rows, *arrays, cuts[i], cuts[i + 1]) for i in range(1, threads)]
        parts = [sweep(rows, *arrays, cuts[0], cuts[1]), *(other.result() for other in others)]
        low, high = min(part[0] for part in parts), max(part[1] for part in parts)
    return (low, high) if low <= high else (0.0, 0.0)
