"""Agreement between two measures of importance: rank correlation, and the overlap of their top states.

Values of a measure that differ by less than 1e-9 of its largest absolute value are ties, since rounding errors would
otherwise decide their order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_number, real_array

_DIGITS = 9
"""Digits, relative to the largest absolute value, to which two values have to differ in order not to be tied."""


def rank_correlation(first: ArrayLike, second: ArrayLike) -> float:
    """Computes Spearman's rank correlation of two measures, from -1 to 1; ties share their mean rank.

    Args:
        first: `[N]` one number per state or step.
        second: `[N]` the same for another measure.

    Returns:
        1 if both order all states alike; nan if one of them is constant.
    """
    one, other = _pair(first, second)
    ranks = [_ranks(values) - (values.size - 1) / 2.0 for values in (one, other)]
    spread = float(np.sqrt((ranks[0] ** 2).sum() * (ranks[1] ** 2).sum()))
    return float(ranks[0] @ ranks[1]) / spread if spread > 0.0 else float("nan")


def top_overlap(first: ArrayLike, second: ArrayLike, share: float = 0.1) -> float:
    """Computes the share of the top states of one measure that are also top states of another, from 0 to 1.

    Where a tie leaves open which states are on top, this is the expected overlap if ties are broken at random.

    Args:
        first: `[N]` one number per state or step.
        second: `[N]` the same for another measure.
        share: Share of the states that are on top; their number is rounded, and at least 1.
    """
    one, other = _pair(first, second)
    count = top_count(one.size, share)
    return float(_inclusion(one, count) @ _inclusion(other, count)) / count


def top_count(size: int, share: float) -> int:
    """Returns the number of states in a share of `size` states: rounded, and at least 1."""
    check_number(share, "share", 0.0, 1.0, "a share of the states between 0 and 1", above=True)
    return max(1, round(share * size))


def top_sets(values: ArrayLike, count: int, draws: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Returns sets of the `count` largest values, `[M, N]` bool.

    Args:
        values: `[N]` one number per state or step.
        count: Number of members of a set.
        draws: Number of sets if a tie leaves the members open and is broken at random; otherwise there is one set.
        rng: Breaks the ties.
    """
    rounded = _rounded(real_array(values, "values"))
    inclusion = _inclusion(rounded, count)
    sure = inclusion == 1.0
    if sure.sum() == count:
        return sure[None]
    tied = np.flatnonzero((inclusion > 0.0) & ~sure)
    sets = np.tile(sure, (draws, 1))
    for row in sets:
        row[rng.choice(tied, count - int(sure.sum()), replace=False)] = True
    return sets


def _pair(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    one, other = real_array(first, "first"), real_array(second, "second")
    if one.shape != other.shape or one.ndim != 1 or not one.size:
        raise ValueError(f"the measures have shapes {one.shape} and {other.shape}, expected [N] for both.")
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        raise ValueError("a measure is not finite: leave out the states for which it is unknown.")
    return _rounded(one), _rounded(other)


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    scale = float(np.abs(values).max(initial=0.0))
    return np.round(values / scale, _DIGITS) if scale > 0.0 else values


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns `[N]` ranks from 0, where equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts + 1) / 2.0)[inverse]


def _inclusion(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Returns `[N]` probabilities of being among the `count` largest if ties are broken at random."""
    edge = np.partition(values, -count)[-count]
    above, tied = values > edge, values == edge
    return above + tied * ((count - above.sum()) / tied.sum())
