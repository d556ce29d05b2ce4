"""The linear system of a correction: one step of policy iteration on some of the states, while the others keep theirs.

`active_set` explains when it is solved, and `krylov` how.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from lazymdp.exact.bellman import Rows, best_and_lazy

SMALL = 100
"""Largest number of states for which a correction is solved with a dense matrix if BiCGSTAB fails, even if sparse."""

_DENSE_UP_TO = 1_500
"""Largest number of states for which a correction is solved with a dense matrix if BiCGSTAB fails, if not sparse."""

LARGEST_FACTORIZED = 100_000
"""Largest number of states for which a correction is solved with sparse LU factors if BiCGSTAB fails."""

_NARROW = 8
"""Largest bandwidth of a matrix that is solved as a band matrix."""

_ONE = np.uint64(1)


def solve_directly(matrix: sp.csr_array, change: NDArray[np.float64], sparse: bool) -> NDArray[np.float64] | None:
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


def solve_narrow(ends: Any, columns: Any, weights: Any, change: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Solves `(I - gamma P) d = change` if states lead to near ones only, as on a chain or a ring; otherwise None."""
    n = change.size
    if n > LARGEST_FACTORIZED:
        return None
    width, ring = _band(ends, columns)
    if width > _NARROW:
        return None
    place = np.arange(n)
    if ring:  # fold it: the first state comes next to the last, the second next to the one before, and so on
        place = np.minimum(2 * place, 2 * (n - 1 - place) + 1)
        width = min(2 * width + 1, n - 1)
    right = np.empty(n)
    right[place] = change
    diagonals = _diagonals(ends, columns, weights, place, width)
    try:
        return np.asarray(scipy.linalg.solve_banded((width, width), diagonals, right, True, True, False)[place])
    except np.linalg.LinAlgError:  # singular
        return None


@numba.njit(cache=True, nogil=True)
def _band(ends: Any, columns: Any) -> Any:
    """Returns the largest distance from the diagonal, either way around a ring, and whether any entry needs the ring.

    Distances above `_NARROW` are only known to be above.
    """
    n = ends.size - 1
    width, ring = 0, False
    for i in range(n):
        for j in range(ends[i], ends[i + 1]):
            distance = abs(columns[j] - i)
            ring |= distance > n - distance
            width = max(width, min(distance, n - distance))
        if width > _NARROW:
            break
    return width, ring


@numba.njit(cache=True, nogil=True)
def _diagonals(ends: Any, columns: Any, weights: Any, place: Any, width: int) -> Any:
    """Stores `I - gamma P` by its diagonals, as LAPACK does, with state `i` at `place[i]`."""
    diagonals = np.zeros((2 * width + 1, place.size))
    diagonals[width] = 1.0
    for i in range(place.size):
        for j in range(ends[i], ends[i + 1]):
            column = place[columns[j]]
            diagonals[width + place[i] - column, column] -= weights[j]
    return diagonals


@numba.njit(cache=True, nogil=True)
def choose(rows: Rows, value: Any, states: Any, where: Any) -> Any:
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
def fill(rows: Rows, states: Any, where: Any, chosen: Any, ends: Any) -> Any:
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
