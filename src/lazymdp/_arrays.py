"""What arrives from outside, as arrays the library can rely on: real numbers, in one sparse form, never repaired."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

SUM_TOLERANCE = 1e-8
"""How far from 1 a row of probabilities may sum; rounding stays far below it, a typing error far above."""

LARGEST = 1e100
"""Largest size of a reward or a price: beyond it, values and their products would overflow."""

_SHARED_FROM = 16 * 2**20
"""Bytes from which an array that fits is shared with the caller instead of copied."""


def real_array(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Values as a contiguous array of doubles; masked and complex arrays raise.

    The array is the caller's own only where it is large and fits as it is.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{what} are a masked array: fill in the masked entries first.")
    given = np.asarray(values)
    if given.dtype.kind not in "biuf":
        raise ValueError(f"{what} are of type {given.dtype}, expected real numbers.")
    array = np.ascontiguousarray(given, dtype=np.float64)
    if isinstance(values, np.ndarray) and array.nbytes < _SHARED_FROM and np.may_share_memory(array, values):
        return array.copy()
    return array.view()


def check_gamma(gamma: float) -> float:
    """The discount as a float between 0 and 1."""
    if (not np.isscalar(gamma) and np.ndim(gamma) != 0) or gamma is None:
        raise ValueError(f"gamma is {gamma!r}, expected a number between 0 and 1.")
    value = float(gamma)
    if not 0.0 <= value <= 1.0:  # also catches nan
        raise ValueError(f"gamma is {value}, expected a number between 0 and 1.")
    return value


def check_names(names: Sequence[str] | None, count: int, what: str) -> tuple[str, ...] | None:
    """Names as a tuple of the right length, or None."""
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{what} is the text {names!r}, expected a list of {count} names.")
    if len(names) != count:
        raise ValueError(f"{what} has {len(names)} names, expected {count}.")
    return tuple(str(name) for name in names)


def transition_rows(transitions: Any) -> sp.csr_array:
    """Any of the three forms as one canonical sparse `[S*A, S]`; arrays that fit are shared, not copied."""
    if sp.issparse(transitions):
        matrix = transitions
    elif isinstance(transitions, list | tuple) and len(transitions) and sp.issparse(transitions[0]):
        matrix = _interleave(transitions)
    else:
        array = real_array(transitions, "transitions")
        if array.ndim != 3 or array.shape[0] != array.shape[2]:
            raise ValueError(
                f"transitions have shape {array.shape}, expected [S, A, S], a list of A sparse [S, S], "
                "or one sparse [S*A, S]."
            )
        matrix = array.reshape(-1, array.shape[2])
    n_rows, n_states = matrix.shape
    if n_states == 0 or n_rows == 0 or n_rows % n_states:
        raise ValueError(
            f"transitions have {n_rows} rows and {n_states} columns; expected S*A rows (row s*A + a) and S columns."
        )
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"transitions are of type {matrix.dtype}, expected real numbers.")
    given = sp.csr_array(matrix, dtype=np.float64)
    _check_places(given)
    # Views: our arrays become read-only, the caller's stay as they are.
    rows = sp.csr_array((given.data.view(), given.indices.view(), given.indptr.view()), shape=given.shape)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    if rows.data.size and not np.all(rows.data):
        rows = rows.copy()
        rows.eliminate_zeros()
    if rows.indices.dtype != np.int32 and max(rows.nnz, n_rows) < np.iinfo(np.int32).max:
        rows = sp.csr_array((rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int32)), shape=rows.shape)
    return rows


def _check_places(matrix: sp.csr_array) -> None:
    """Refuses next states that do not exist: compiled code would read beyond its arrays."""
    ends = matrix.indptr
    if ends[0] != 0 or ends[-1] > matrix.indices.size or (np.diff(ends) < 0).any():
        raise ValueError("transitions are not a valid sparse matrix: its row ends do not increase from 0 to its size.")
    outside = (matrix.indices < 0) | (matrix.indices >= matrix.shape[1])
    if outside.any():
        entry = int(np.argmax(outside))
        row = int(np.searchsorted(ends, entry, side="right")) - 1
        state, action = divmod(row, matrix.shape[0] // matrix.shape[1])
        raise ValueError(
            f"transitions of state {state}, action {action} lead to state {matrix.indices[entry]}, "
            f"expected 0 to {matrix.shape[1] - 1}."
        )


def _interleave(matrices: Sequence[Any]) -> sp.csr_array:
    n_states = matrices[0].shape[1]
    for action, matrix in enumerate(matrices):
        if matrix.shape != (n_states, n_states):
            raise ValueError(
                f"transitions of action {action} have shape {matrix.shape}, expected [S, S] = ({n_states}, {n_states})."
            )
    stacked = sp.csr_array(sp.vstack([sp.csr_array(m) for m in matrices]))
    order = np.arange(n_states * len(matrices)).reshape(len(matrices), n_states).T.ravel()
    return stacked[order]
