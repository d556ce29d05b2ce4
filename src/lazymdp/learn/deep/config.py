"""Settings of the deep learners; reading them needs no JAX."""

from __future__ import annotations

import math
import operator
import os
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Literal


@dataclass(frozen=True)
class DialConfig:
    """Settings of the dial."""

    steps: int = 3_000_000
    """Agent steps in all, over all environments; rounded down to whole iterations, at least one."""
    eta_low: float = 0.005
    """Smallest price above 0 that is drawn; prices are spread evenly in their logarithm."""
    eta_high: float = 0.5
    """Largest price that is drawn; the same as `eta_low` for a single price."""
    free_share: float = 0.125
    """Share of episodes at price 0."""
    structured: bool = True
    """A outputs with the lazy value derived, or else A + 1 outputs, the paper's form."""
    n_envs: int = 128
    """Environments side by side."""
    rollout: int = 32
    """Steps of each between two fits."""
    epochs: int = 1
    """Passes over a rollout."""
    minibatches: int = 16
    """Gradient steps in a pass."""
    gamma: float = 0.99
    """Discount."""
    trace: float = 0.65
    """Lambda."""
    learning_rate: float = 1e-3
    """At the start; falls linearly ..."""
    final_learning_rate: float = 1e-5
    """... to this."""
    largest_gradient: float = 10.0
    """Norm to which gradients are clipped."""
    final_epsilon: float = 0.05
    """Share of random choices after exploration has fallen from 1, linearly ..."""
    exploration: float = 0.1
    """... over this share of the steps."""
    clip_rewards: bool = False
    """Learn from rewards clipped to [-1, 1]; scores are never clipped."""
    network: Literal["nature", "mlp"] | None = None
    """If not given, `nature` (convolutions) for images of at least 36 x 36, else `mlp`."""
    hidden: tuple[int, ...] = (256, 128)
    """Widths of the layers of an `mlp`."""

    @classmethod
    def atari(cls, **changed: Any) -> DialConfig:
        """Settings for Atari; others as arguments."""
        settings: dict[str, Any] = dict(
            steps=12_500_000, n_envs=512, epochs=2, learning_rate=2.5e-4, final_learning_rate=0.0, final_epsilon=0.001,
            clip_rewards=True,
        )  # fmt: skip
        return cls(**(settings | changed))

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))

    @property
    def prices(self) -> tuple[float, ...]:
        """Prices to tell of, which are 0 if drawn, the ends of the range, and 1, 2, 5 times powers of ten between."""
        free = (0.0,) if self.free_share > 0.0 else ()
        if self.free_share == 1.0:
            return free
        powers = range(math.floor(math.log10(self.eta_low)), math.ceil(math.log10(self.eta_high)) + 1)
        between = (float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5))
        inside = (price for price in between if self.eta_low < price < self.eta_high)
        return (*free, *sorted({self.eta_low, self.eta_high, *inside}))

    @property
    def iterations(self) -> int:
        """Rollouts in all."""
        return max(1, self.steps // (self.n_envs * self.rollout))


@dataclass(frozen=True)
class DQNConfig:
    """Settings of DQN at one price; as they stand, Dopamine's for Atari but for the number of environments."""

    steps: int = 50_000_000
    """Agent steps in all, over all environments; rounded down to whole iterations, at least one."""
    eta: float = 0.0
    """Price of a step of control; where there is a budget, the price to start from, 0.01 if this is 0."""
    structured: bool = False
    """A outputs with the lazy value derived, or else A + 1 outputs, the paper's form."""
    n_envs: int = 128
    """Environments side by side; Dopamine has one."""
    rollout: int = 64
    """Steps of each in an iteration."""
    gamma: float = 0.99
    """Discount."""
    capacity: int = 1_000_000
    """Steps that are remembered, over all environments."""
    batch: int = 32
    """Remembered steps in an update."""
    min_replay: int = 20_000
    """Agent steps before the first update."""
    update_period: int = 4
    """Agent steps per update, over all environments."""
    target_period: int = 8_000
    """Agent steps between two copies of the network to the target network."""
    final_epsilon: float = 0.01
    """Share of random choices after exploration has fallen from 1, linearly ..."""
    epsilon_decay: int = 250_000
    """... over this many agent steps, after the first `min_replay`."""
    learning_rate: float = 6.25e-5
    """Of Adam."""
    adam_epsilon: float = 1.5e-4
    """Of Adam."""
    clip_rewards: bool = True
    """Learn from rewards clipped to [-1, 1]; scores are never clipped."""
    network: Literal["nature", "minatar", "mlp"] | None = None
    """`nature` and `minatar` are Dopamine's; if not given, `nature` for images of at least 36 x 36, else `mlp`."""
    hidden: tuple[int, ...] = (256, 128)
    """Widths of the layers of an `mlp`."""
    warm_start: str | None = None
    """A run of DQN whose network to start from, the paper's warm-restart baseline."""
    control_budget: float | None = None
    """Share of steps in control that the price is steered to; if not given, the price stays."""
    budget_step: float = 0.05
    """How fast, as what the price's logarithm gains in `target_period` steps, per unit of control above the budget."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if self.warm_start:
            object.__setattr__(self, "warm_start", os.path.abspath(self.warm_start))

    @classmethod
    def minatar(cls, **changed: Any) -> DQNConfig:
        """Dopamine's settings for MinAtar, with 16 environments; others as arguments."""
        settings: dict[str, Any] = dict(
            steps=10_000_000, n_envs=16, capacity=100_000, min_replay=1000, target_period=1000, learning_rate=2.5e-4,
            adam_epsilon=3.125e-4, network="minatar",
        )  # fmt: skip
        return cls(**(settings | changed))

    @property
    def iterations(self) -> int:
        """Iterations in all."""
        return max(1, self.steps // (self.n_envs * self.rollout))


@dataclass(frozen=True)
class TrainConfig:
    """What is trained on what."""

    env: str
    """`minatar/GAME`, `ALE/GAME-v5`, or the id of any Gymnasium environment with discrete actions."""
    default: str = "uniform"
    """What acts when the agent is lazy, that is `uniform`, `noop`, `repeat`, the number of an action, the folder of a
    run of ours (`RUN`, `RUN:epsilon=0.1` or `RUN:softmax=0.5`), or a model saved by Stable-Baselines3."""
    seed: int = 0
    """Of everything random."""
    settings: DialConfig | DQNConfig = None  # type: ignore[assignment]
    """Of the learner, and by their kind of which. If not given, the dial's for this environment."""

    def __post_init__(self) -> None:
        if not isinstance(self.env, str):
            raise TypeError(f"env is {self.env!r}, expected the id of an environment.")
        if not isinstance(self.default, str | os.PathLike):
            raise TypeError(
                f"default is of type {type(self.default).__name__}, expected a name or a folder; "
                "lz.learn.train(default=) takes other forms."
            )
        object.__setattr__(self, "default", os.fspath(self.default))
        object.__setattr__(self, "seed", operator.index(self.seed))
        if self.settings is None:
            object.__setattr__(self, "settings", for_env(self.env))
        if not isinstance(self.settings, DialConfig | DQNConfig):
            raise TypeError(f"settings are {self.settings!r}, expected a DialConfig or a DQNConfig.")


def for_env(env: str, learner: str = "dial", **changed: Any) -> DialConfig | DQNConfig:
    """The settings a learner starts from in an environment, as on the command line; others as arguments.

    Args:
        env: Name of the environment.
        learner: `dial` or `dqn`.
        changed: Settings that are to be others.
    """
    family = env.partition("/")[0]
    if learner == "dial":
        return DialConfig.atari(**changed) if family == "ALE" else DialConfig(**changed)
    if learner == "dqn":
        if family == "ALE":
            return DQNConfig(**changed)
        own: dict[str, Any] = {} if family == "minatar" else dict(network=None, clip_rewards=False)
        return DQNConfig.minatar(**(own | changed))
    raise ValueError(f"there is no learner {learner!r}: dial or dqn.")


_KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "True or False"), int: (Integral, "a whole number"), float: (Real, "a number"),
}  # fmt: skip


def check_settings(settings: DialConfig | DQNConfig) -> None:
    """Refuses settings that cannot be meant, before anything is compiled."""
    for field in fields(settings):
        value, kind = getattr(settings, field.name), type(field.default)
        expected = _KINDS.get(kind)
        if expected and (not isinstance(value, expected[0]) or isinstance(value, bool) != (kind is bool)):
            raise TypeError(f"{field.name} is {value!r}, expected {expected[1]}.")
    if isinstance(settings, DQNConfig):
        _check_dqn(settings)
    else:
        _check_dial(settings)


def _check_dial(settings: DialConfig) -> None:
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
    _check_positive(settings, "learning_rate", "largest_gradient")
    if not 0.0 <= settings.final_learning_rate < math.inf:
        raise ValueError(f"final_learning_rate is {settings.final_learning_rate}, expected a number of at least 0.")
    _check_network(settings, "nature", "mlp")
    if settings.exploration == 0.0:
        raise ValueError("exploration is 0, expected a share of the steps above 0.")
    if not settings.hidden or min(settings.hidden) < 1:
        raise ValueError(f"hidden is {settings.hidden}, expected widths above 0.")
    if settings.rollout * settings.n_envs < settings.minibatches:
        raise ValueError(f"{settings.minibatches} minibatches of {settings.rollout * settings.n_envs} steps: too many.")


def _check_dqn(settings: DQNConfig) -> None:
    counts = ("steps", "n_envs", "rollout", "batch", "update_period", "target_period", "epsilon_decay")
    for name in counts:
        if getattr(settings, name) < 1:
            raise ValueError(f"{name} is {getattr(settings, name)}, expected at least 1.")
    for name in ("gamma", "final_epsilon"):
        if not 0.0 <= getattr(settings, name) <= 1.0:
            raise ValueError(f"{name} is {getattr(settings, name)}, expected a number between 0 and 1.")
    if settings.min_replay < settings.n_envs:
        raise ValueError(
            f"min_replay is {settings.min_replay} with {settings.n_envs} environments, expected at least one step of "
            "each before the first update."
        )
    if settings.min_replay >= (total := settings.iterations * settings.n_envs * settings.rollout):
        raise ValueError(f"min_replay is {settings.min_replay} with {total} steps in all: nothing would be learned.")
    if settings.capacity < 2 * settings.n_envs:
        raise ValueError(
            f"capacity is {settings.capacity} with {settings.n_envs} environments, expected at least two steps of each."
        )
    if not 0.0 <= settings.eta < math.inf:
        raise ValueError(f"eta is {settings.eta}, expected a price of at least 0.")
    _check_positive(settings, "learning_rate", "adam_epsilon")
    _check_network(settings, "nature", "minatar", "mlp")
    if settings.network in (None, "mlp") and (not settings.hidden or min(settings.hidden) < 1):
        raise ValueError(f"hidden is {settings.hidden}, expected widths above 0.")
    if settings.control_budget is not None:
        if not 0.0 <= settings.control_budget <= 1.0:
            raise ValueError(f"control_budget is {settings.control_budget}, expected a share between 0 and 1.")
        _check_positive(settings, "budget_step")


def _check_positive(settings: DialConfig | DQNConfig, *names: str) -> None:
    for name in names:
        if not 0.0 < getattr(settings, name) < math.inf:
            raise ValueError(f"{name} is {getattr(settings, name)}, expected a number above 0.")


def _check_network(settings: DialConfig | DQNConfig, *kinds: str) -> None:
    if settings.network not in (None, *kinds):
        raise ValueError(
            f"network is {settings.network!r}, expected {', '.join(kinds)}, or None to choose by what is seen."
        )
