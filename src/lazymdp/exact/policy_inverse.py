"""The inverse of a policy's matrix `B = I - gamma P_pi`, as sparse LU factors or as a dense matrix.

Used by the walk along the exact eta-path; `path_sparse` explains how the inverse follows the policy.
"""

from __future__ import annotations

import warnings
from typing import Any

import numba
import numpy as np
import scipy.linalg
import scipy.linalg.blas
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from lazymdp.exact.bellman import Rows, expect
from lazymdp.exact.linear import TOO_LONG

_LARGEST_INVERSE = 12_000
"""Largest number of states for a dense inverse (1.2 GB)."""

_LARGEST_FACTORIZED = 30_000
"""Largest number of states for sparse factors: some minutes, as every breakpoint takes a sweep over all states."""


class Factors:
    """The sparse LU factorization of a matrix."""

    largest = _LARGEST_FACTORIZED
    scarce = "time"

    def factorize(self, matrix: sp.csr_array) -> None:
        """Computes the inverse of `matrix [S, S]`."""
        # The pattern is symmetric in grids, and nearly so in most models in which neighbors are near.
        try:
            self._factors = scipy.sparse.linalg.splu(
                sp.csc_matrix(matrix), "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
            )
        except RuntimeError as error:  # raised by SuperLU for a singular matrix
            raise ValueError(TOO_LONG) from error

    def update(self, matrix: sp.csr_array, *steps: Any) -> None:
        """Replaces the matrix; the steps that led to it are not needed here."""
        self.factorize(matrix)

    def column(self, state: int) -> NDArray[np.float64]:
        """Returns a column of the inverse, `[S]`, which the caller may change."""
        unit = np.zeros(self._factors.shape[0])
        unit[state] = 1.0
        return self._factors.solve(unit)

    def solve(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solves for each row of `right [k, S]`."""
        return np.array([self._factors.solve(b) for b in right])


class Inverse:
    """The dense inverse of a matrix."""

    largest = _LARGEST_INVERSE
    scarce = "memory"

    def factorize(self, matrix: sp.csr_array) -> None:
        """Computes the inverse of `matrix [S, S]`."""
        # Stored by columns: each column is contiguous, and BLAS works in place.
        with warnings.catch_warnings():
            warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
            try:
                factors = scipy.linalg.lu_factor(matrix.toarray().T, overwrite_a=True, check_finite=False)
            except scipy.linalg.LinAlgWarning as error:
                raise ValueError(TOO_LONG) from error
        unit = np.eye(matrix.shape[0], order="F")
        self._inverse = scipy.linalg.lu_solve(factors, unit, trans=1, overwrite_b=True, check_finite=False)

    def update(self, matrix: sp.csr_array, rows: Rows, columns: Any, pivots: Any, cross: Any, changes: Any) -> None:
        """Applies the steps: `B^-1 -= sum_i c_i r_i / p_i` with `r_i = d_i B_(i-1)^-1`."""
        n = self._inverse.shape[0]
        right = np.empty((len(pivots), n))
        _row_products(rows, self._inverse.T, changes, right)
        lower = np.tril(cross, -1) / pivots
        lower[np.diag_indices(len(pivots))] = 1.0
        right = scipy.linalg.solve_triangular(lower, right, lower=True, unit_diagonal=True, overwrite_b=True)
        right /= pivots[:, None]
        self._inverse = scipy.linalg.blas.dgemm(-1.0, columns.T, right.T, 1.0, self._inverse, trans_b=1, overwrite_c=1)

    def column(self, state: int) -> NDArray[np.float64]:
        """Returns a column of the inverse, `[S]`, which the caller may change."""
        return self._inverse[:, state].copy()

    def solve(self, right: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solves for each row of `right [k, S]`."""
        return scipy.linalg.blas.dgemm(1.0, right, self._inverse, trans_b=1)


@numba.njit(cache=True, nogil=True, inline="always")
def expected(rows: Rows, x: Any, state: Any, action: Any, n_actions: Any) -> Any:
    """Computes `gamma P(. | state, action) . x`; the action `A` is lazy."""
    first = state * n_actions
    if action < n_actions:
        return rows.gamma * expect(rows, x, first + action)
    total = 0.0
    for a in range(n_actions):
        total += rows.default[first + a] * expect(rows, x, first + a)
    return rows.gamma * total


@numba.njit(cache=True, nogil=True, inline="always")
def row_change(rows: Rows, x: Any, change: Any, n_actions: Any) -> Any:
    """Computes `d . x` for the change of a row, `d = gamma (P_before - P_after)`."""
    state = np.uint64(change[0])
    before = expected(rows, x, state, np.uint64(change[1]), n_actions)
    return before - expected(rows, x, state, np.uint64(change[2]), n_actions)


@numba.njit(cache=True, nogil=True)
def _row_products(rows: Rows, inverse: Any, changes: Any, out: Any) -> None:
    """Computes `out[i] = d_i B_0^-1`, where `inverse[j, i]` is entry `(i, j)` of the inverse."""
    n_actions = np.uint64(rows.rewards.size // rows.absorbing.size)
    for j in range(inverse.shape[0]):
        for i in range(changes.shape[0]):
            out[i, j] = row_change(rows, inverse[j], changes[i], n_actions)
