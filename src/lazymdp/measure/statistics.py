"""Means over runs with confidence intervals."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_count, check_number, check_seed, real_array

_MOST_RESAMPLES = 10_000_000
"""Largest number of bootstrap samples, which have to fit in memory."""


class Interval(NamedTuple):
    """A mean and its confidence interval, each of the shape of one sample.

    Attributes:
        mean: The mean.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def mean_interval(samples: ArrayLike, *, confidence: float = 0.95, resamples: int = 2_000, seed: int = 0) -> Interval:
    """Computes the mean over runs and its percentile bootstrap interval.

    Args:
        samples: `[N, ...]` one entry per run (seed).
        confidence: Confidence level of the interval.
        resamples: Number of bootstrap samples.
        seed: Random seed of the bootstrap. The same seed gives the same interval.
    """
    _check_bootstrap(resamples, seed)
    runs = _checked(samples, confidence)
    count = len(runs)
    # The number of times each run is drawn is multinomial, so one matrix product gives the means of all resamples.
    weights = np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=resamples) / count
    return _interval(runs.mean(axis=0), np.tensordot(weights, runs, axes=1), confidence)


def iqm_interval(samples: ArrayLike, *, confidence: float = 0.95, resamples: int = 2_000, seed: int = 0) -> Interval:
    """Computes the interquartile mean over runs (the mean of the middle half) and its percentile bootstrap interval.

    Args:
        samples: `[N, ...]` one entry per run (seed).
        confidence: Confidence level of the interval.
        resamples: Number of bootstrap samples.
        seed: Random seed of the bootstrap. The same seed gives the same interval.
    """
    from scipy.stats import trim_mean  # takes 0.4 s to import, and few commands need it

    _check_bootstrap(resamples, seed)
    runs = _checked(samples, confidence)
    rows = np.random.default_rng(seed).integers(len(runs), size=(resamples, len(runs)))
    return _interval(trim_mean(runs, 0.25, axis=0), trim_mean(runs[rows], 0.25, axis=1), confidence)


def skewed_mean_interval(samples: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Computes the mean and a confidence interval that allows for skewed samples.

    This is Student's t interval after Hall's cubic transformation (1992). It is deterministic. For a single sample the
    interval is the whole real line.

    Args:
        samples: `[N, ...]` one entry per run (episode).
        confidence: Confidence level of the interval.
    """
    from scipy.special import stdtrit  # slow to import, as above

    runs = _checked(samples, confidence)
    count, mean = len(runs), runs.mean(axis=0)
    if count == 1:
        return Interval(mean, np.full_like(mean, -np.inf), np.full_like(mean, np.inf))
    root, off = np.sqrt(count), runs - mean
    error = runs.std(axis=0, ddof=1) / root
    spread = np.sqrt((off**2).mean(axis=0))
    skewness = (off**3).mean(axis=0) / np.where(spread > 0.0, spread, 1.0) ** 3
    bend = np.where(np.abs(skewness) < 1e-6, 1e-6, skewness)
    quantile = stdtrit(count - 1, (1.0 + confidence) / 2.0)

    def transformed(t: float) -> NDArray[np.float64]:
        return 3.0 * root / bend * (np.cbrt(1.0 + bend * (t / root - bend / (6.0 * count))) - 1.0)

    return Interval(mean, mean - error * transformed(quantile), mean - error * transformed(-quantile))


def _checked(samples: ArrayLike, confidence: float) -> NDArray[np.float64]:
    runs = real_array(samples, "samples")
    if runs.ndim == 0 or not len(runs):
        raise ValueError(f"samples have shape {runs.shape}, expected [N, ...] with at least one run.")
    check_confidence(confidence)
    return runs


def check_confidence(confidence: float) -> None:
    """Raises an error if a confidence level is not between 0 and 1."""
    check_number(confidence, "confidence", 0.0, 1.0, "a number between 0 and 1", above=True, below=True)


def _check_bootstrap(resamples: int, seed: int) -> None:
    check_count(resamples, "resamples", "a number of bootstrap samples", _MOST_RESAMPLES)
    check_seed(seed)


def _interval(estimate: NDArray[np.float64], replicates: NDArray[np.float64], confidence: float) -> Interval:
    """Returns an estimate with the percentile interval of its bootstrap replicates `[B, ...]`."""
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(replicates, [tail, 1.0 - tail], axis=0)
    return Interval(estimate, low, high)
