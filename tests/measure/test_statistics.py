"""Confidence intervals of means."""

import numpy as np
import pytest
from scipy import stats

from lazymdp.measure.statistics import iqm_interval, mean_interval, skewed_mean_interval


def test_the_interval_covers_the_mean_as_often_as_it_says():
    generator = np.random.default_rng(0)
    samples = generator.exponential(size=(40, 500))  # 500 experiments of 40 runs each
    low, high = (np.array([mean_interval(samples[:, k])[i] for k in range(500)]) for i in (1, 2))
    covered = ((low <= 1.0) & (high >= 1.0)).mean()
    assert 0.88 < covered < 0.98  # 95 %, a little less with few skewed runs


def test_the_interval_that_allows_for_skewness_covers_the_mean_and_is_students_where_there_is_none():
    generator = np.random.default_rng(0)
    skewed = (
        generator.lognormal(size=(100, 4000)),
        generator.exponential(size=(40, 4000)),
        -generator.exponential(size=(40, 4000)),
    )
    for samples, mean, least in zip(skewed, (np.exp(0.5), 1.0, -1.0), (0.91, 0.93, 0.93), strict=True):
        found = skewed_mean_interval(samples)
        assert least < ((found.low <= mean) & (mean <= found.high)).mean() < 0.97
    even = np.concatenate([skewed[0], -skewed[0]])
    student = stats.t.interval(0.9, len(even) - 1, even.mean(axis=0), stats.sem(even, axis=0))
    np.testing.assert_allclose(skewed_mean_interval(even, confidence=0.9)[1:], student, rtol=1e-5)
    assert skewed_mean_interval([3.0, 3.0]) == (3.0, 3.0, 3.0)
    assert skewed_mean_interval([3.0]) == (3.0, -np.inf, np.inf)


def test_the_interval_is_seeded_and_keeps_the_shape():
    samples = np.random.default_rng(1).normal(size=(10, 3, 2))
    first, again, other = mean_interval(samples), mean_interval(samples), mean_interval(samples, seed=1)
    assert first.mean.shape == first.low.shape == (3, 2)
    np.testing.assert_array_equal(first.low, again.low)
    assert not np.array_equal(first.low, other.low)
    one = mean_interval([3.0])
    assert one.mean == one.low == one.high == 3.0
    with pytest.raises(ValueError, match="at least one run"):
        mean_interval([])
    with pytest.raises(ValueError, match="confidence is 95"):
        mean_interval([1.0], confidence=95)


def test_the_interquartile_mean_leaves_out_the_extremes():
    samples = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 1000.0])
    found = iqm_interval(samples)
    assert found.mean == 3.5 and found.low <= 3.5 <= found.high
    assert iqm_interval(samples).low == found.low != iqm_interval(samples, seed=1).low
    assert iqm_interval(np.ones((4, 3))).mean.shape == (3,)
    with pytest.raises(ValueError, match="at least one run"):
        iqm_interval([])
