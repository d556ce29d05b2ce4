"""Rows of probabilities: transitions in one checked form, and sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import real_array

SUM_TOLERANCE = 1e-8
"""Largest difference from 1 of the sum of a row of probabilities: far above rounding, far below a typing error."""


def transition_rows(transitions: Any) -> sp.csr_array:
    """Converts transitions to one canonical sparse `[S*A, S]` matrix; the class `MDP` lists the accepted forms.

    Sparse arrays that need no conversion are shared with the caller, not copied.
    """
    if sp.issparse(transitions) and transitions.ndim == 2:
        matrix = transitions
    elif sp.issparse(transitions):
        raise ValueError(f"transitions are a sparse array of shape {transitions.shape}, expected [S*A, S].")
    elif isinstance(transitions, list | tuple) and len(transitions) and sp.issparse(transitions[0]):
        matrix = _interleave(transitions)
    else:
        array = real_array(transitions, "transitions")
        if array.ndim != 3 or array.shape[0] != array.shape[2] or not array.size:
            swapped = array.ndim == 3 and array.size and array.shape[1] == array.shape[2]
            remedy = " From [A, S, S], make transitions.transpose(1, 0, 2)." if swapped else ""
            raise ValueError(
                f"transitions have shape {array.shape}, expected [S, A, S] with at least one state and one action, a "
                f"list of A sparse [S, S], or one sparse [S*A, S].{remedy}"
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
    # Views, because the model makes its arrays read-only: the caller's must stay writeable.
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
    """Raises an error if a next state does not exist: compiled code would read outside its arrays."""
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
    """Joins A sparse `[S, S]` matrices into one `[S*A, S]`, with the actions of a state next to each other."""
    n_states = matrices[0].shape[1]
    for action, matrix in enumerate(matrices):
        if matrix.shape != (n_states, n_states):
            raise ValueError(
                f"transitions of action {action} have shape {matrix.shape}, expected [S, S] = ({n_states}, {n_states})."
            )
    stacked = sp.csr_array(sp.vstack([sp.csr_array(m) for m in matrices]))
    order = np.arange(n_states * len(matrices)).reshape(len(matrices), n_states).T.ravel()
    return stacked[order]


def sample_rows(probabilities: ArrayLike, uniforms: ArrayLike) -> NDArray[np.int64]:
    """Samples one index from each row of probabilities by inverting its cumulative distribution.

    Each row is divided by its sum, so that rounding can neither leave a gap at the end of the distribution nor give
    weight to an index with probability 0: such an index is never returned.

    Args:
        probabilities: `[..., A]` probabilities; each row has a positive sum.
        uniforms: `[...]` random numbers in `[0, 1)`, one per sample.

    Returns:
        `[...]` indices from 0 to A - 1.
    """
    cumulative = np.cumsum(probabilities, axis=-1, dtype=np.float64)
    cumulative /= cumulative[..., -1:]  # the last entry is now exactly 1, above every uniform number
    return (np.asarray(uniforms)[..., None] >= cumulative).sum(axis=-1)
