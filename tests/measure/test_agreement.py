"""Rank correlation and overlap: values by hand, and against scipy."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from lazymdp.measure.agreement import rank_correlation, top_overlap, top_sets


def test_rank_correlation_is_that_of_scipy():
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, second = rng.integers(0, 6, (2, 15)).astype(float)
        assert rank_correlation(first, second) == pytest.approx(spearmanr(first, second).statistic)


def test_rank_correlation_by_hand():
    assert rank_correlation([1, 2, 3], [10, 20, 90]) == pytest.approx(1.0)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert np.isnan(rank_correlation([1, 1, 1], [3, 2, 1]))
    assert rank_correlation([1.0, 1.0 + 1e-12, 3.0], [2.0, 1.0, 3.0]) == pytest.approx(np.sqrt(3) / 2)  # a tie


def test_overlap_by_hand():
    assert top_overlap([4, 3, 2, 1], [4, 3, 1, 2], 0.5) == 1.0
    assert top_overlap([4, 3, 2, 1], [1, 2, 3, 4], 0.5) == 0.0
    # One of three tied states is on top beside the first: each with probability 1/3.
    assert top_overlap([4, 1, 1, 1], [4, 3, 2, 1], 0.5) == pytest.approx((1 + 1 / 3) / 2)
    assert top_overlap([0, 0, 0, 0], [4, 3, 2, 1], 0.25) == pytest.approx(0.25)


def test_sets_break_ties_at_random():
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(top_sets([3, 1, 2], 2, 5, rng), [[True, False, True]])
    sets = top_sets([3, 1, 1, 1], 2, 300, rng)
    assert sets[:, 0].all() and (sets.sum(axis=1) == 2).all()
    assert sets[:, 1:].mean(axis=0) == pytest.approx([1 / 3] * 3, abs=0.1)


def test_measures_of_different_states_are_refused():
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(3,\), expected \[N\] for both"):
        rank_correlation([1, 2], [1, 2, 3])
    with pytest.raises(ValueError, match="not finite"):
        top_overlap([1, np.nan], [1, 2])
