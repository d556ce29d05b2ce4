"""Measures of the importance of a state that the paper compares with the lazy-gap (App. Fig. 11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def action_gap(q: ArrayLike) -> NDArray[np.float64]:
    """Returns the value of the best action minus that of the second best, `[...]`; 0 if there is only one action.

    Args:
        q: `[..., A]` action values.
    """
    values = _checked(q)
    if values.shape[-1] == 1:
        return np.zeros(values.shape[:-1])
    top = np.partition(values, -2, axis=-1)
    return top[..., -1] - top[..., -2]


def importance_advice(q: ArrayLike) -> NDArray[np.float64]:
    """Returns the value of the best action minus that of the worst, `[...]` (importance advising).

    Args:
        q: `[..., A]` action values.
    """
    values = _checked(q)
    return values.max(axis=-1) - values.min(axis=-1)


def _checked(q: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(q, dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError(f"q is nan at {tuple(int(i) for i in np.argwhere(np.isnan(values))[0])}, expected numbers.")
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"q has shape {values.shape}, expected [..., A] with at least one action.")
    return values
