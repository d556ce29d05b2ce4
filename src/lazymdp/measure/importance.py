"""Measures of the importance of a state that the paper compares with the lazy-gap (App. Fig. 11)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_finite


def action_gap(q: ArrayLike) -> NDArray[np.float64]:
    """Returns the value of the best action minus that of the second best, `[...]`; 0 if there is only one action.

    Args:
        q: `[..., A]` action values.
    """
    values = check_finite(q, "q")
    if values.shape[-1] == 1:
        return np.zeros(values.shape[:-1])
    top = np.partition(values, -2, axis=-1)
    return top[..., -1] - top[..., -2]


def importance_advice(q: ArrayLike) -> NDArray[np.float64]:
    """Returns the value of the best action minus that of the worst, `[...]` (importance advising).

    Args:
        q: `[..., A]` action values.
    """
    values = check_finite(q, "q")
    return values.max(axis=-1) - values.min(axis=-1)
