"""BiCGSTAB for `(I - gamma P) d = change`, preconditioned by symmetric Gauss-Seidel sweeps.

Split `A = I - gamma P` into its diagonal `D` and its strictly lower and upper parts `L` and `U`. The preconditioner is
`M = (D + L) D^-1 (D + U)`. With `y = (D + L)^-1 x` and `z = (D + U)^-1 D y`, both `z = M^-1 x` and `A z = L z + D y` (a
trick by Eisenstat) take one and a half passes over the matrix together, instead of three.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

_ONE = np.uint64(1)

_GOLDEN_RATIO = 0.6180339887498949
"""The fractional parts of its multiples are spread evenly and do not repeat."""


class _Split(NamedTuple):
    """A matrix `gamma P` whose rows are sorted: first the entries left of the diagonal, last those right of it."""

    columns: NDArray[np.int32]  # [entries]
    weights: NDArray[np.float64]  # [entries]
    begin: NDArray[np.int32]  # [n] where the entries left of the diagonal begin
    left: NDArray[np.int32]  # [n] where they end
    right: NDArray[np.int32]  # [n] where the entries right of the diagonal begin
    end: NDArray[np.int32]  # [n] where they end
    diagonal: NDArray[np.float64]  # [n] D, that is 1 minus the diagonal of gamma P
    inverse: NDArray[np.float64]  # [n] 1 / D: a division for every state would take longer than the rest of its row


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _split(ends: Any, columns: Any, weights: Any) -> Any:
    """Sorts the rows of `gamma P`."""
    n = ends.size - 1
    new_columns, new_weights = np.empty_like(columns), np.empty_like(weights)
    left, right = np.empty(n, dtype=ends.dtype), np.empty(n, dtype=ends.dtype)
    diagonal = np.ones(n)
    for i in range(n):
        first, last = ends[i], ends[i + 1]
        for j in range(ends[i], ends[i + 1]):
            if columns[j] < i:
                new_columns[first], new_weights[first] = columns[j], weights[j]
                first += 1
            elif columns[j] > i:
                last -= 1
                new_columns[last], new_weights[last] = columns[j], weights[j]
            else:
                diagonal[i] -= weights[j]
        left[i], right[i] = first, last
    return _Split(new_columns, new_weights, ends[:-1], left, right, ends[1:], diagonal, 1.0 / diagonal)


@numba.njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _precondition(matrix: _Split, x: Any, half: Any, out: Any, image: Any) -> None:
    """Computes `out = M^-1 x` and `image = A out`; `half` is scratch space."""
    columns, weights = matrix.columns, matrix.weights
    n = np.uint64(x.size)
    for i in range(n):
        total = x[i]
        for j in range(np.uint64(matrix.begin[i]), np.uint64(matrix.left[i])):
            total += weights[j] * half[np.uint32(columns[j])]
        half[i] = total * matrix.inverse[i]
    for k in range(n):
        back = n - _ONE - k
        total = 0.0
        for j in range(np.uint64(matrix.right[back]), np.uint64(matrix.end[back])):
            total += weights[j] * out[np.uint32(columns[j])]
        out[back] = half[back] + total * matrix.inverse[back]
    for i in range(n):
        total = matrix.diagonal[i] * half[i]
        for j in range(np.uint64(matrix.begin[i]), np.uint64(matrix.left[i])):
            total -= weights[j] * out[np.uint32(columns[j])]
        image[i] = total


@numba.njit(cache=True, nogil=True, fastmath=True)
def _dot(x: Any, y: Any) -> float:
    """Computes `x . y`. BLAS would start threads for vectors this short, and spend its time waiting for them."""
    total = 0.0
    for i in range(np.uint64(x.size)):
        total += x[i] * y[i]
    return total


@numba.njit(cache=True, nogil=True)
def bicgstab(
    ends: Any, columns: Any, weights: Any, change: Any, forcing: float, floor: float, max_iterations: int
) -> Any:
    """Solves `(I - gamma P) d = change` until no residual exceeds `max(forcing * largest change, floor)`.

    If the right-hand side has few entries, those of the next residuals can all lie elsewhere, and a recurrence that
    compares them with it divides by zero. Then the solution starts again and compares them with arbitrary numbers.

    Args:
        ends: `[n + 1]` where the rows of `gamma P` begin and end.
        columns: `[entries]` columns of the entries.
        weights: `[entries]` values of the entries.
        change: `[n]` right-hand side.
        forcing: Relative tolerance of the residual.
        floor: Absolute tolerance of the residual.
        max_iterations: Number of iterations after which it gives up.

    Returns:
        The correction `d`, and whether it converged. A correction that did not converge must not be used.
    """
    largest = np.max(np.abs(change))
    target = max(forcing * largest, floor)
    if largest <= target:
        return np.zeros(change.size), True
    matrix = _split(ends, columns, weights)
    solution, converged, broke_down = _attempt(matrix, change, change, target, max_iterations)
    if broke_down:
        shadow = largest * (np.arange(change.size) * _GOLDEN_RATIO % 1.0 - 0.5)
        solution, converged, broke_down = _attempt(matrix, change, shadow, target, max_iterations)
    return solution, converged


@numba.njit(cache=True, nogil=True, error_model="numpy")  # division by zero gives inf or nan, not an exception
def _attempt(matrix: _Split, change: Any, shadow: Any, target: float, max_iterations: int) -> Any:
    """Returns the correction, whether it converged, and whether it did not because of a division by zero."""
    n = change.size
    solution, residual = np.zeros(n), change.copy()
    direction, image, half = np.zeros(n), np.zeros(n), np.empty(n)
    smooth, smooth_image, smooth_direction = np.empty(n), np.empty(n), np.empty(n)
    rho = alpha = omega = 1.0
    for iteration in range(max_iterations):
        rho_new = _dot(shadow, residual)
        if iteration == 0:
            direction[:] = residual
        else:
            beta = (rho_new / rho) * (alpha / omega)
            for i in range(n):
                direction[i] = residual[i] + beta * (direction[i] - omega * image[i])
        rho = rho_new
        _precondition(matrix, direction, half, smooth_direction, image)
        alpha = rho / _dot(shadow, image)
        for i in range(n):
            residual[i] -= alpha * image[i]
        _precondition(matrix, residual, half, smooth, smooth_image)
        scale = _dot(smooth_image, smooth_image)
        omega = _dot(smooth_image, residual) / scale if scale > 0.0 else 0.0
        worst, checksum = 0.0, 0.0
        for i in range(n):
            solution[i] += alpha * smooth_direction[i] + omega * smooth[i]
            residual[i] -= omega * smooth_image[i]
            worst = max(worst, abs(residual[i]))
            checksum += solution[i] + residual[i]  # `max` ignores nan, a sum does not
        if not np.isfinite(checksum):
            return solution, False, True
        if worst <= target:
            return solution, True, False
        if omega == 0.0 or rho == 0.0:
            return solution, False, True
    return solution, False, False
