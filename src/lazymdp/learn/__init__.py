"""Learning from samples when to act: tabular learners, and deep agents (which need JAX)."""

from typing import Any

from lazymdp.learn.deep.config import DQNConfig, PQNConfig, default_config
from lazymdp.learn.tabular.estimate_eta import EtaMaxEstimate, EtaMinEstimate, estimate_eta_max, estimate_eta_min
from lazymdp.learn.tabular.q_learning import TabularResult, q_learning, sarsa

__all__ = [
    "DQNConfig",
    "EtaMaxEstimate",
    "EtaMinEstimate",
    "PQNConfig",
    "TabularResult",
    "default_config",
    "estimate_eta_max",
    "estimate_eta_min",
    "export",
    "load",
    "q_learning",
    "resume",
    "sarsa",
    "train",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Imports the functions for deep agents on first use, so that the tabular learners do not need JAX."""
    if name in ("train", "resume", "load", "export"):
        try:
            from lazymdp.learn.deep import export, factory, trainer
        except ImportError as error:
            raise ImportError(f"deep agents need JAX ({error}): pip install 'lazymdp[deep]'") from error
        return getattr({"load": factory, "export": export}.get(name, trainer), name)
    raise AttributeError(f"module 'lazymdp.learn' has no attribute {name!r}")
