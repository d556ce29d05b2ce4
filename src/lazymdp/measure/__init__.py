"""Measures of an agent's behavior, of the importance of states and its fidelity, and of the uncertainty of means."""

from lazymdp.measure.agreement import rank_correlation, top_overlap
from lazymdp.measure.control_removal import removal_loss, removal_loss_of_sets, visit_frequency
from lazymdp.measure.fidelity import Fidelity, fidelity
from lazymdp.measure.fidelity_score import FidelityScore, fidelity_score
from lazymdp.measure.frequency import LazyFrequency, lazy_frequency
from lazymdp.measure.importance import action_gap, importance_advice
from lazymdp.measure.statistics import Interval, iqm_interval, mean_interval, skewed_mean_interval

__all__ = [
    "Fidelity",
    "FidelityScore",
    "Interval",
    "LazyFrequency",
    "action_gap",
    "fidelity",
    "fidelity_score",
    "importance_advice",
    "iqm_interval",
    "lazy_frequency",
    "mean_interval",
    "rank_correlation",
    "removal_loss",
    "removal_loss_of_sets",
    "skewed_mean_interval",
    "top_overlap",
    "visit_frequency",
]


def __dir__() -> list[str]:
    return __all__
