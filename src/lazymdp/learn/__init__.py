"""Learning when to act from samples."""

from typing import Any

from lazymdp.learn.deep.config import DialConfig, DQNConfig, TrainConfig, for_env
from lazymdp.learn.tabular.estimate_eta import EtaMaxEstimate, EtaMinEstimate, estimate_eta_max, estimate_eta_min
from lazymdp.learn.tabular.q_learning import TabularResult, q_learning, sarsa

__all__ = [
    "DQNConfig",
    "DialConfig",
    "EtaMaxEstimate",
    "EtaMinEstimate",
    "TabularResult",
    "TrainConfig",
    "estimate_eta_max",
    "estimate_eta_min",
    "for_env",
    "q_learning",
    "sarsa",
]


def __dir__() -> list[str]:
    return [*__all__, "load", "train"]


def __getattr__(name: str) -> Any:
    """Loads `train` and `load` on first use, so that the tabular learners need no JAX."""
    if name in ("train", "load"):
        try:
            from lazymdp.learn.deep import making, trainer
        except ImportError as error:
            raise ImportError(f"deep agents need JAX ({error}): pip install 'lazymdp[deep]'") from error
        return trainer.train if name == "train" else making.load
    raise AttributeError(f"module 'lazymdp.learn' has no attribute {name!r}")
