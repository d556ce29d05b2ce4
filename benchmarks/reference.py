"""The reference solution for all solvers: a plain value iteration on the explicit model.

It shares no code with lazymdp or the peers. The bounds of Porteus and MacQueen (Puterman 2005,
Theorem 6.6.3) prove its error: with ``d = T v - v``, the optimal value lies between
``T v + gamma / (1 - gamma) * min d`` and ``T v + gamma / (1 - gamma) * max d``.
"""

from __future__ import annotations

import numba
import numpy as np

from models import Explicit

MAX_SWEEPS = 100_000


@numba.njit(parallel=True, cache=True)
def _sweep(data, indices, indptr, rewards, gamma, value, out):
    n_states, n_actions = rewards.shape
    for state in numba.prange(n_states):
        best = -np.inf
        for action in range(n_actions):
            row = state * n_actions + action
            expected = 0.0
            for k in range(indptr[row], indptr[row + 1]):
                expected += data[k] * value[indices[k]]
            best = max(best, rewards[state, action] + gamma * expected)
        out[state] = best


def reference_value(model: Explicit, tol: float) -> tuple[np.ndarray, float]:
    """Solves an explicit model to a proven sup-norm error.

    Args:
        model: the explicit model, with gamma below 1.
        tol: largest error bound.

    Returns:
        The value ``[S]`` and its proven error bound.

    Raises:
        RuntimeError: if ``MAX_SWEEPS`` sweeps do not reach ``tol``.
    """
    value, swept = np.zeros(len(model.rewards)), np.empty(len(model.rewards))
    matrix, gamma = model.transitions, model.gamma
    scale = gamma / (1 - gamma)
    for _ in range(MAX_SWEEPS):
        _sweep(matrix.data, matrix.indices, matrix.indptr, model.rewards, gamma, value, swept)
        np.subtract(swept, value, out=value)
        low, high = scale * value.min(), scale * value.max()
        value, swept = swept, value
        if high - low <= 2 * tol:
            return value + (low + high) / 2, (high - low) / 2
    raise RuntimeError(f"reference: bound {high - low:.1e} after {MAX_SWEEPS} sweeps, not {tol}")
