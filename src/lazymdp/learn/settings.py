"""Settings of the deep learners; reading them needs no JAX."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DialConfig:
    """Settings of the dial."""

    steps: int = 3_000_000
    """Agent steps in all, over all environments."""
    eta_low: float = 0.005
    """Smallest price above 0 that is drawn; prices are spread evenly in their logarithm."""
    eta_high: float = 0.5
    """Largest price that is drawn; the same as `eta_low` for a single price."""
    free_share: float = 0.125
    """Share of episodes at price 0."""
    structured: bool = True
    """A outputs with the lazy value derived; False: A + 1 outputs, the paper's form."""
    n_envs: int = 128
    """Environments side by side."""
    rollout: int = 32
    """Steps of each between two fits."""
    epochs: int = 2
    """Passes over a rollout."""
    minibatches: int = 16
    """Gradient steps in a pass."""
    gamma: float = 0.99
    """Discount."""
    trace: float = 0.65
    """Lambda."""
    learning_rate: float = 5e-4
    """At the start; falls linearly ..."""
    final_learning_rate: float = 1e-5
    """... to this."""
    largest_gradient: float = 10.0
    """Norm to which gradients are clipped."""
    final_epsilon: float = 0.05
    """Share of random choices after exploration has fallen from 1, linearly ..."""
    exploration: float = 0.1
    """... over this share of the steps."""
    hidden: tuple[int, ...] = (256, 128)
    """Widths of the layers."""

    @property
    def iterations(self) -> int:
        """Rollouts in all."""
        return max(1, self.steps // (self.n_envs * self.rollout))


@dataclass(frozen=True)
class TrainConfig:
    """What is trained on what."""

    env: str
    """`minatar/GAME`, or the id of a Gymnasium environment that carries `P` (its states become one-hot vectors)."""
    default: str = "uniform"
    """What acts when the agent is lazy: `uniform`, or the number of an action."""
    seed: int = 0
    """Of everything random."""
    settings: DialConfig = field(default_factory=DialConfig)
    """Of the learner."""


def check_settings(settings: DialConfig) -> None:
    """Refuses settings that cannot be meant, before anything is compiled."""
    for name in ("steps", "n_envs", "rollout", "epochs", "minibatches"):
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} is {getattr(settings, name)}, expected at least 1.")
    if not 0.0 < settings.eta_low <= settings.eta_high < math.inf:
        raise ValueError(
            f"prices from {settings.eta_low} to {settings.eta_high}: expected 0 < eta_low <= eta_high; for price 0 "
            "alone use free_share = 1."
        )
    for name in ("free_share", "gamma", "trace", "final_epsilon", "exploration"):
        if not 0.0 <= getattr(settings, name) <= 1.0:
            raise ValueError(f"{name} is {getattr(settings, name)}, expected a number between 0 and 1.")
    if settings.exploration == 0.0 or not settings.hidden or min(settings.hidden) < 1:
        raise ValueError(f"exploration is {settings.exploration} and hidden {settings.hidden}, expected both above 0.")
    if settings.rollout * settings.n_envs < settings.minibatches:
        raise ValueError(f"{settings.minibatches} minibatches of {settings.rollout * settings.n_envs} steps: too many.")
