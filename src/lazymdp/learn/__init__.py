"""Learning when to act from samples."""

from lazymdp.learn.estimates import EtaMaxEstimate, EtaMinEstimate, estimate_eta_max, estimate_eta_min
from lazymdp.learn.tabular import TabularResult, q_learning, sarsa

__all__ = [
    "EtaMaxEstimate",
    "EtaMinEstimate",
    "TabularResult",
    "estimate_eta_max",
    "estimate_eta_min",
    "q_learning",
    "sarsa",
]
