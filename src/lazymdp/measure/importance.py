"""How much a state matters, from action values alone: what the paper compares the lazy-gap with (App. Fig. 11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def action_gap(q: ArrayLike) -> NDArray[np.float64]:
    """Best action's value minus the second best's, `[...]` from `q [..., A]`; 0 where there is a single action."""
    values = _checked(q)
    if values.shape[-1] == 1:
        return np.zeros(values.shape[:-1])
    top = np.partition(values, -2, axis=-1)
    return top[..., -1] - top[..., -2]


def importance_advice(q: ArrayLike) -> NDArray[np.float64]:
    """Best action's value minus the worst's (importance advising), `[...]` from `q [..., A]`."""
    values = _checked(q)
    return values.max(axis=-1) - values.min(axis=-1)


def _checked(q: ArrayLike) -> NDArray[np.float64]:
    values = np.asarray(q, dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError(f"q is nan at {tuple(int(i) for i in np.argwhere(np.isnan(values))[0])}, expected numbers.")
    if values.ndim == 0 or values.shape[-1] == 0:
        raise ValueError(f"q has shape {values.shape}, expected [..., A] with at least one action.")
    return values
