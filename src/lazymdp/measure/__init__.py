"""Measures of an agent's behavior, of the importance of states, and of the uncertainty of means over runs."""

from lazymdp.measure.frequency import LazyFrequency, lazy_frequency
from lazymdp.measure.importance import action_gap, importance_advice
from lazymdp.measure.statistics import Interval, iqm_interval, mean_interval, skewed_mean_interval

__all__ = [
    "Interval",
    "LazyFrequency",
    "action_gap",
    "importance_advice",
    "iqm_interval",
    "lazy_frequency",
    "mean_interval",
    "skewed_mean_interval",
]


def __dir__() -> list[str]:
    return __all__
