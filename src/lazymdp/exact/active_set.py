"""Sweeps restricted to the states whose values still change, accelerated by linear solves on those states.

States are grouped in blocks of `BLOCK`. A block is swept again only if a block it can lead to has changed by more than
`theta` since its last sweep (Gauss-Seidel, alternately forward and backward). In large models most states are often far
from any reward, and are then not visited again.

A sweep alone shrinks the error by a factor of gamma. Between sweeps there is therefore a step of policy iteration on
the active states: with the greedy choices fixed, the correction `d` of their values solves `(I - gamma P) d = T v - v`,
while inactive states keep their values. It is solved approximately, by BiCGSTAB. Where BiCGSTAB does not converge (on
long cycles without a discount to speak of, for example), it is solved directly if the factors fit in memory.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from lazymdp.exact.bellman import Rows, best_and_lazy
from lazymdp.exact.krylov import bicgstab
from lazymdp.exact.sparsity import stays_sparse

BLOCK = 64

_CHEAP_UP_TO, _FEW_ITERATIONS = 2_000, 40
"""Number of states up to which a direct solution is cheap, so that BiCGSTAB gets this many iterations only."""

_SMALL = 100
"""Largest number of states for which a correction is solved with a dense matrix if BiCGSTAB fails, even if sparse."""

_DENSE_UP_TO = 1_500
"""Largest number of states for which a correction is solved with a dense matrix if BiCGSTAB fails, if not sparse."""

_LARGEST_FACTORIZED = 100_000
"""Largest number of states for which a correction is solved with sparse LU factors if BiCGSTAB fails."""

_ONE = np.uint64(1)


class ActiveSet:
    """Keeps track of the blocks whose values still change. Improves `value [S]` in place; make one per solution."""

    def __init__(self, rows: Rows, value: NDArray[np.float64]) -> None:
        self.rows, self.value = rows, value
        n_blocks = -(-value.size // BLOCK)
        self._links, self._link_ends = _successor_blocks(rows, n_blocks)
        self._moved = np.zeros(n_blocks, dtype=np.int64)  # time at which the block last changed
        self._seen = np.zeros(n_blocks, dtype=np.int64)  # time at which the block was last swept
        self._drift = np.zeros(n_blocks)  # accumulated change since `_moved` was last set, at most theta
        self._where = np.full(value.size, -1, dtype=np.int32)  # index of a state in the linear system, or -1
        self._clock = 1
        self._forwards = False
        self._direct = False  # whether BiCGSTAB has failed
        self._sparse: bool | None = None  # whether LU factors are sparse; None if not known yet

    def wake(self, changes: NDArray[np.float64], theta: float) -> None:
        """Marks the blocks in which `changes [S]`, made to the values from outside, exceed `theta`."""
        blocks = np.arange(0, changes.size, BLOCK)
        largest = np.maximum(np.maximum.reduceat(changes, blocks), -np.minimum.reduceat(changes, blocks))
        self._clock += 1
        self._moved[largest > theta] = self._clock

    def sweep(self, theta: float, passes: int) -> bool:
        """Makes up to `passes` passes over the blocks that are due. Returns False once no block is due."""
        for _ in range(passes):
            swept, self._clock = _pass(
                self.rows, self.value, self._links, self._link_ends, self._moved, self._seen, self._drift,
                self._clock, theta, self._forwards,
            )  # fmt: skip
            self._forwards = not self._forwards
            if not swept:
                return False
        return True

    def correct(self, since: int, theta: float, forcing: float, max_iterations: int) -> bool:
        """Makes a step of policy iteration on the blocks swept since time `since`. Returns False if it failed."""
        states = _states_of(self._seen >= since, self.rows.absorbing)
        if not states.size:
            return True
        self._where[states] = np.arange(states.size, dtype=np.int32)
        chosen, change, ends = _choose(self.rows, self.value, states, self._where)
        columns, weights = _fill(self.rows, states, self._where, chosen, ends)
        self._where[states] = -1
        done = False
        if not self._direct:
            if states.size <= _CHEAP_UP_TO:
                max_iterations = min(max_iterations, _FEW_ITERATIONS)
            correction, done = bicgstab(ends, columns, weights, change, forcing, 0.3 * theta, max_iterations)
        if not done:
            step = sp.csr_array((weights, columns, ends), shape=(states.size, states.size))
            matrix = sp.csr_array(sp.eye_array(states.size, format="csr") - step)
            if self._sparse is None:
                self._sparse = _SMALL < states.size <= _LARGEST_FACTORIZED and stays_sparse(matrix)
            direct = _solve_directly(matrix, change, self._sparse)
            if direct is None:
                return False
            correction, self._direct = direct, True
        self._clock += 1
        _apply(self.value, states, correction, self._moved, self._drift, self._clock, theta)
        return True

    @property
    def clock(self) -> int:
        """Time, counted in block sweeps."""
        return self._clock


def _solve_directly(matrix: sp.csr_array, change: NDArray[np.float64], sparse: bool) -> NDArray[np.float64] | None:
    """Solves `matrix d = change` by LU factors; returns None if they would be too large, or the matrix singular."""
    try:
        if sparse:
            # Diagonally dominant by rows, so that no pivoting is needed.
            options = {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
            factors = scipy.sparse.linalg.splu(sp.csc_matrix(matrix), "MMD_AT_PLUS_A", **options)
            return np.asarray(factors.solve(change))
        return np.linalg.solve(matrix.toarray(), change) if change.size <= _DENSE_UP_TO else None
    except (np.linalg.LinAlgError, RuntimeError):  # raised by NumPy and SuperLU for a singular matrix
        return None


# Arrays are sized by counting first: an array that grows inside a loop makes the loop ten times slower.


@numba.njit(cache=True, nogil=True)
def _successor_blocks(rows: Rows, n_blocks: int) -> Any:
    """Finds the blocks that each block `b` can lead to: `links[link_ends[b] : link_ends[b + 1]]`."""
    n_states = rows.absorbing.size
    n_actions = rows.rewards.size // n_states
    ends = np.zeros(n_blocks + 1, dtype=np.int64)
    links = np.empty(0, dtype=np.int32)
    for fill in (False, True):
        last = np.full(n_blocks, -1, dtype=np.int32)
        count = np.uint64(0)
        for block in range(n_blocks):
            begin = rows.indptr[np.uint64(block * BLOCK * n_actions)]
            end = rows.indptr[np.uint64(min(n_states, (block + 1) * BLOCK) * n_actions)]
            tag = np.int32(block)
            for j in range(np.uint64(begin), np.uint64(end)):
                other = np.uint32(rows.indices[j]) // np.uint32(BLOCK)
                if last[other] != tag:
                    last[other] = tag
                    if fill:
                        links[count] = other
                    count += _ONE
            ends[block + 1] = count
        if not fill:
            links = np.empty(count, dtype=np.int32)
    return links, ends


@numba.njit(cache=True, nogil=True)
def _pass(
    rows: Rows, value: Any, links: Any, link_ends: Any, moved: Any, seen: Any, drift: Any,
    clock: int, theta: float, forwards: bool,
) -> Any:  # fmt: skip
    """Makes one Gauss-Seidel pass over the blocks that are due. Returns the number of states swept and the time."""
    n_states, n_blocks = value.size, seen.size
    n_actions = np.uint64(rows.rewards.size // n_states)
    swept = 0
    for i in range(n_blocks):
        block = i if forwards else n_blocks - 1 - i
        due = False
        for k in range(link_ends[block], link_ends[block + 1]):
            if moved[links[k]] > seen[block]:
                due = True
                break
        if not due:
            continue
        seen[block] = clock
        clock += 1
        begin, end = block * BLOCK, min(n_states, (block + 1) * BLOCK)
        largest = 0.0
        for k in range(end - begin):
            state = np.uint64(begin + k if forwards else end - 1 - k)
            if rows.absorbing[state]:
                continue
            best, lazy, _ = best_and_lazy(rows, value, state, n_actions)
            new = max(best - rows.eta, lazy)
            largest = max(largest, abs(new - value[state]))
            value[state] = new
        swept += end - begin
        drift[block] += largest
        if drift[block] > theta:
            moved[block] = clock
            drift[block] = 0.0
    return swept, clock


@numba.njit(cache=True, nogil=True)
def _states_of(chosen: Any, absorbing: Any) -> Any:
    """Lists the states of the blocks marked in `chosen`, without the absorbing ones."""
    states = np.empty(np.sum(chosen) * BLOCK, dtype=np.int32)
    count = 0
    for block in range(chosen.size):
        if chosen[block]:
            for state in range(block * BLOCK, min(absorbing.size, (block + 1) * BLOCK)):
                if not absorbing[state]:
                    states[count] = state
                    count += 1
    return states[:count]


@numba.njit(cache=True, nogil=True)
def _choose(rows: Rows, value: Any, states: Any, where: Any) -> Any:
    """Finds the greedy choices in `states`: their rows (-1 for lazy), `T v - v`, and where their entries will end."""
    n_actions = np.uint64(rows.rewards.size // value.size)
    chosen = np.empty(states.size, dtype=np.int64)
    change = np.empty(states.size, dtype=np.float64)
    ends = np.zeros(states.size + 1, dtype=np.int32)
    last = np.full(states.size, -1, dtype=np.int32)
    count = 0
    for i in range(np.uint64(states.size)):
        state = np.uint64(states[i])
        best, lazy, best_row = best_and_lazy(rows, value, state, n_actions)
        control = best - rows.eta > lazy
        chosen[i] = np.int64(best_row) if control else -1
        change[i] = (best - rows.eta if control else lazy) - value[state]
        first, final = (best_row, best_row + _ONE) if control else (state * n_actions, (state + _ONE) * n_actions)
        tag = np.int32(i)
        for j in range(np.uint64(rows.indptr[first]), np.uint64(rows.indptr[final])):
            k = where[np.uint32(rows.indices[j])]
            if k >= 0 and last[k] != tag:
                last[k] = tag
                count += 1
        ends[i + _ONE] = count
    return chosen, change, ends


@numba.njit(cache=True, nogil=True)
def _fill(rows: Rows, states: Any, where: Any, chosen: Any, ends: Any) -> Any:
    """Builds the rows of `gamma P` under `chosen` (columns and weights); a lazy row blends the rows of its actions."""
    n_actions = np.uint64(rows.rewards.size // where.size)
    columns = np.empty(ends[-1], dtype=np.int32)
    weights = np.empty(ends[-1], dtype=np.float64)
    slot = np.full(states.size, -1, dtype=np.int32)
    for i in range(np.uint64(states.size)):
        begin = ends[i]
        count = begin
        control = chosen[i] >= 0
        state = np.uint64(states[i])
        first = np.uint64(chosen[i]) if control else state * n_actions
        for row in range(first, first + (_ONE if control else n_actions)):
            scale = rows.gamma if control else rows.gamma * rows.default[row]
            for j in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + _ONE])):
                k = where[np.uint32(rows.indices[j])]
                if k < 0:
                    continue
                if slot[k] >= begin:
                    weights[slot[k]] += scale * rows.data[j]
                else:
                    slot[k] = count
                    columns[count], weights[count] = k, scale * rows.data[j]
                    count += 1
    return columns, weights


@numba.njit(cache=True, nogil=True)
def _apply(value: Any, states: Any, correction: Any, moved: Any, drift: Any, clock: int, theta: float) -> None:
    """Adds the correction to the values and marks the blocks that it changes."""
    for i in range(states.size):
        state = states[i]
        value[state] += correction[i]
        if abs(correction[i]) > theta - drift[state // BLOCK]:
            moved[state // BLOCK] = clock
