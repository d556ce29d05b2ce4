"""lazymdp tells you *when to act*.

A lazy-MDP adds one action to a decision problem, *lazy*, which leaves the step to a default policy, and charges a price
eta for every step on which the agent takes control. The optimal agent takes control only where that is worth the price.
"""

from typing import Any

from lazymdp import envs as envs
from lazymdp import explain as explain
from lazymdp import learn as learn
from lazymdp import measure as measure
from lazymdp.defaults.protocol import DefaultPolicy, Mixture
from lazymdp.exact import policies as policies
from lazymdp.exact.control_plan import ControlPlan
from lazymdp.exact.eta_bounds import EtaMinTheorem, eta_max, eta_min, eta_min_theorem
from lazymdp.exact.evaluate import Evaluation, evaluate, steps_to_absorption
from lazymdp.exact.finite_horizon import HorizonSolution
from lazymdp.exact.path import EtaPath, eta_path
from lazymdp.exact.solve import NotConverged, Solution, solve
from lazymdp.lazy import LazyMDP, lazy_gap
from lazymdp.mdp import MDP
from lazymdp.measure.frequency import LazyFrequency, lazy_frequency
from lazymdp.measure.importance import action_gap, importance_advice
from lazymdp.wrappers.lazy_action import LazyAction
from lazymdp.wrappers.lazy_vector_action import LazyVectorAction

__version__ = "0.1.0"

__all__ = [
    "MDP",
    "ControlPlan",
    "DefaultPolicy",
    "EtaMinTheorem",
    "EtaPath",
    "Evaluation",
    "HorizonSolution",
    "LazyAction",
    "LazyFrequency",
    "LazyMDP",
    "LazyVectorAction",
    "Mixture",
    "NotConverged",
    "Solution",
    "action_gap",
    "envs",
    "eta_max",
    "eta_min",
    "eta_min_theorem",
    "eta_path",
    "evaluate",
    "explain",
    "importance_advice",
    "lazy_frequency",
    "lazy_gap",
    "learn",
    "measure",
    "policies",
    "show",
    "solve",
    "steps_to_absorption",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Imports `lazymdp.show` on first use, so that importing the library does not import matplotlib."""
    if name == "show":
        import importlib

        return importlib.import_module("lazymdp.show")
    raise AttributeError(f"module 'lazymdp' has no attribute {name!r}")
