"""Settings of the deep agents. This module does not need JAX.

A deep agent is four independent choices: an algorithm (`PQNConfig` or `DQNConfig`), a form, a price, and a default
policy. The form and the price are settings that both algorithms share (`AlgorithmConfig`). The default policy is part
of a run's config (`train_config`), together with the environment and the seed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal

from lazymdp._arguments import check_choice
from lazymdp.learn.deep.config_checks import (
    MOST_HELD,
    MOST_REPLAYED,
    POSITIVE,
    check_at_least_1,
    check_name,
    check_positive,
    check_shares,
    check_types,
    is_a,
)
from lazymdp.learn.deep.env_failures import LARGEST_REWARD

Form = Literal["structured", "augmented"]

FIRST_PRICE = 0.01
"""Price from which a control budget starts if none is given. Steering multiplies the price, so 0 would stay 0."""

LARGEST_PRICE = LARGEST_REWARD
"""Largest absolute price: it is part of the reward."""

CONTROL_ETA = (0.005, 5.0)
"""Default range of prices for control problems, in units of `reward_scale`."""


@dataclass(frozen=True, kw_only=True)
class AlgorithmConfig:
    """Settings shared by all algorithms.

    When an older run is loaded, a setting that did not exist yet gets its default. The default of a new setting must
    therefore keep the old behavior; `DQNConfig.atari` and the like may choose another value for new runs.
    """

    steps: int = 3_000_000
    """Total agent steps over all environments, rounded down to whole iterations (at least one)."""
    eta: float | tuple[float, float] = (0.005, 0.5)
    """Price of one step of control. One number is a single price. Two numbers are a range, which makes the agent a
    dial: each episode has its own price, which is either 0 or drawn log-uniformly from the range."""
    zero_share: float = 0.125
    """For a range of prices, the share of episodes that are played at price 0."""
    zero_fraction: float = 0.0
    """Share of the run after which the price has its final distribution. In the first half of that time, the price is
    always 0. Then a single price rises linearly to `eta`; for a range, the share of episodes at price 0 falls linearly
    to `zero_share`. At a high price, an agent that has not learned what control is worth is lazy and never finds out.
    A control budget does without this."""
    prices_per_step: int = 4
    """Number of prices at which each step is learned from, if there is a range: 0, and others drawn from the range."""
    control_budget: float | None = None
    """Target control rate; a single price is steered until it is met. By default, the price stays fixed."""
    budget_step: float = 0.05
    """Change of log(eta) per iteration, per unit by which the control rate exceeds the budget."""
    form: Form = "structured"
    """`structured`: the network has A outputs and the lazy value is derived. `augmented`: A + 1 outputs, as in the
    paper; chosen without this option if the default policy does not tell its probabilities."""
    n_envs: int = 128
    """Number of parallel environments."""
    rollout: int = 32
    """Steps per environment in each iteration."""
    gamma: float = 0.99
    """Discount factor."""
    learning_rate: float = 1e-3
    """Step size of the optimizer."""
    final_learning_rate: float | None = None
    """Step size at the end of the run; by default it stays the same. With a control budget, the step size does not fall
    below a tenth of `learning_rate`, because the network has to keep up with the price."""
    exploration_fraction: float = 0.1
    """Share of the run over which epsilon falls linearly from 1 to `final_epsilon`."""
    final_epsilon: float = 0.05
    """Share of the steps that explore after epsilon has fallen."""
    exploration_persistence: float = 0.0
    """Probability, times epsilon, that an exploring step is followed by a repetition of its choice. Random choices thus
    last longest at first, which finds distant rewards; epsilon remains the share of steps that explore."""
    reward_scale: float = 1.0
    """Size of a typical reward. Inside the network, values and prices are in this unit, and so are the errors of the
    loss. Outside, all values, prices and returns are in the environment's own units."""
    clip_rewards: bool = False
    """Clip rewards to [-1, 1] for learning. Reported returns are never clipped."""
    network: Literal["nature", "minatar", "mlp"] | None = None
    """Network architecture. By default, `nature` for images of at least 36 x 36 pixels and `mlp` otherwise."""
    hidden: tuple[int, ...] = (256, 128)
    """Widths of the hidden layers of an `mlp`."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for name in ("hidden", "eta"):  # a config read from a file has lists
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        check_types(self)
        self._check()

    @property
    def is_range(self) -> bool:
        """Whether the agent is a dial, trained for a range of prices."""
        return isinstance(self.eta, tuple)

    @property
    def last_learning_rate(self) -> float:
        """Step size at the end of the run: `final_learning_rate` with its exceptions."""
        if self.final_learning_rate is None:
            return self.learning_rate
        return max(self.final_learning_rate, 0.1 * self.learning_rate if self.control_budget is not None else 0.0)

    @property
    def eta_range(self) -> tuple[float, float]:
        """Lowest and highest positive price that is drawn; for a single price, that price twice."""
        if isinstance(self.eta, tuple):
            return self.eta
        first = FIRST_PRICE if self.control_budget is not None and self.eta == 0.0 else self.eta
        return float(first), float(first)

    @property
    def reported_etas(self) -> tuple[float, ...]:
        """Prices to report on: the single price; or 0, the ends of the range, and 1, 2, 5 times powers of 10 in it."""
        low, high = self.eta_range
        if not self.is_range:
            return (low,)
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5))
        return (0.0, *sorted({low, high, *(price for price in steps if low < price < high)}))

    @property
    def iterations(self) -> int:
        """Number of iterations of the run."""
        return max(1, self.steps // self.steps_per_iteration)

    @property
    def steps_per_iteration(self) -> int:
        """Agent steps per iteration, over all environments."""
        return self.n_envs * self.rollout

    @property
    def total_steps(self) -> int:
        """Agent steps of the whole run: `steps` rounded down to whole iterations, at least one."""
        return self.iterations * self.steps_per_iteration

    @property
    def unused(self) -> frozenset[str]:
        """Names of the settings that change nothing, given the others: the id of a run in a study leaves them out."""
        used = {
            "zero_share": self.is_range,
            "prices_per_step": self.is_range,
            "zero_fraction": self.control_budget is None and self.eta != 0.0,
            "budget_step": self.control_budget is not None,
            "hidden": self.network in (None, "mlp"),
        }
        return frozenset(name for name, counts in used.items() if not counts)

    @property
    def steers_from(self) -> int:
        """Agent steps after which a control budget starts to steer the price; before, the network learns nothing."""
        return 0

    def _check(self) -> None:
        """Raises an error if a setting is out of range."""
        check_at_least_1(self, "steps")
        check_at_least_1(self, "n_envs", "rollout", "prices_per_step", most=MOST_HELD)
        check_shares(self, "gamma", "final_epsilon", "exploration_fraction", "exploration_persistence", "zero_fraction")
        check_positive(self, "learning_rate", "budget_step", "reward_scale")
        low, high = self.eta_range
        if self.is_range and not 0.0 < low < high < math.inf:
            raise ValueError(f"eta is {self.eta}, expected a range (low, high) with 0 < low < high, or one price.")
        if not -LARGEST_PRICE <= low <= high <= LARGEST_PRICE:
            raise ValueError(f"eta is {self.eta}, expected prices between {-LARGEST_PRICE:g} and {LARGEST_PRICE:g}.")
        if self.is_range and low < POSITIVE[0]:
            raise ValueError(f"eta is {self.eta}, expected a lowest price of at least {POSITIVE[0]:g}.")
        if self.final_learning_rate is not None and not 0.0 <= self.final_learning_rate < math.inf:
            raise ValueError(f"final_learning_rate is {self.final_learning_rate}, expected a number of at least 0.")
        if low < 0.0 and self.control_budget is not None:
            raise ValueError(f"eta is {self.eta}, expected a price of at least 0 to steer toward a control budget.")
        if self.is_range and not 0.0 < self.zero_share < 1.0:
            raise ValueError(f"zero_share is {self.zero_share}, expected a share of the episodes between 0 and 1.")
        if self.control_budget is not None:
            if self.is_range:
                raise ValueError(
                    f"control_budget is {self.control_budget} and eta the range {self.eta}: a budget steers a single "
                    "price. Train without it and ask the trained agent: agent.for_control_rate(share)."
                )
            check_shares(self, "control_budget")
        if self.exploration_persistence == 1.0:
            raise ValueError("exploration_persistence is 1, expected a probability below 1.")
        if self.exploration_fraction == 0.0:
            raise ValueError("exploration_fraction is 0, expected a share of the steps above 0.")
        if self.network in (None, "mlp") and (not self.hidden or min(self.hidden) < 1 or max(self.hidden) > MOST_HELD):
            raise ValueError(f"hidden is {self.hidden}, expected layer widths of at least 1 and at most {MOST_HELD}.")


@dataclass(frozen=True, kw_only=True)
class PQNConfig(AlgorithmConfig):
    """Settings of PQN: parallel Q(lambda) without replay. The fastest algorithm in compiled environments."""

    final_learning_rate: float | None = 1e-5
    """Step size at the end of the run; it falls linearly from `learning_rate`."""
    epochs: int = 1
    """Passes over each rollout."""
    minibatches: int = 16
    """Gradient steps per pass."""
    lambda_: float = 0.65
    """Trace parameter of Q(lambda)."""
    prices_per_step: int = 1
    """Number of prices at which each step is learned from, if there is a range: that of its episode, and others drawn
    in the same way. With 4, a dial is better at high prices, at 60% of the speed."""
    max_grad_norm: float = 10.0
    """Global norm to which gradients are clipped."""

    name = "pqn"

    @classmethod
    def atari(cls, **changed: Any) -> PQNConfig:
        """Returns the settings for Atari; keyword arguments override individual settings."""
        settings: dict[str, Any] = dict(
            steps=12_500_000, n_envs=512, epochs=2, learning_rate=2.5e-4, final_learning_rate=0.0, final_epsilon=0.001,
            clip_rewards=True,
        )  # fmt: skip
        return cls(**(settings | changed))

    def _check(self) -> None:
        super()._check()
        check_at_least_1(self, "epochs", "minibatches", most=MOST_HELD)
        check_shares(self, "lambda_")
        check_positive(self, "max_grad_norm")
        if self.steps_per_iteration < self.minibatches:
            raise ValueError(
                f"minibatches is {self.minibatches}, but an iteration has only {self.steps_per_iteration} steps "
                "(n_envs x rollout)."
            )


@dataclass(frozen=True, kw_only=True)
class DQNConfig(AlgorithmConfig):
    """Settings of DQN: replay and a target network. Needs fewer samples than PQN. The defaults suit small worlds."""

    n_envs: int = 16
    rollout: int = 64
    learning_rate: float = 2.5e-4
    final_epsilon: float = 0.01
    adam_epsilon: float = 1e-8
    """Epsilon of the Adam optimizer."""
    buffer_size: int = 100_000
    """Largest number of agent steps kept in the replay buffer, over all environments."""
    batch_size: int = 32
    """Replayed steps per update."""
    learning_starts: int = 1_000
    """Agent steps before the first update."""
    update_interval: int = 4
    """Agent steps between two updates, over all environments."""
    target_update_interval: int = 1_000
    """Agent steps between two copies of the network to the target network."""
    act_with_target: bool = False
    """Choose with the target network. Between two steps of an environment there are `n_envs / update_interval` updates.
    If these are many, the newest network's best action changes within an episode, and no policy is followed for long.
    """
    average_share: float = 0.0
    """The trained agent is the average of the networks that chose, over about this share of the steps so far; if 0, it
    is the newest network, which can play far worse than the networks before it."""
    huber: bool = False
    """Use the Huber loss, which is linear in errors above `reward_scale`, instead of the squared error."""
    max_grad_norm: float | None = None
    """Global norm to which gradients are clipped, if any."""
    decay_fraction: float = 1.0
    """Share of the run, at its end, over which the step size falls linearly to `final_learning_rate`."""
    layer_norm: bool = False
    """Apply layer norm before each ReLU, which keeps values from diverging. Dopamine's networks have none."""
    warm_start: str | None = None
    """Folder of a dqn run whose network is the initial network (the paper's warm-restart baseline)."""

    name = "dqn"

    def __post_init__(self) -> None:
        if self.warm_start is not None:
            if not isinstance(self.warm_start, str | os.PathLike):
                raise TypeError(f"warm_start is {self.warm_start!r}, expected a path.")
            object.__setattr__(self, "warm_start", os.path.abspath(self.warm_start))
        super().__post_init__()

    @classmethod
    def atari(cls, **changed: Any) -> DQNConfig:
        """Returns Dopamine's settings for Atari, but with 128 environments instead of one.

        The range of prices covers games with frequent rewards, in which a dial still takes control at a price of 0.1,
        and games with rare ones, in which it takes control up to 0.01. Half of the episodes are played at price 0,
        because episodes in which the agent is lazy teach little, and at first all of them. (On Zaxxon, of two dials
        that began so, one learned within ten million frames, and one that did not begin so hardly did.) The target
        network chooses, because there are 32 updates between two steps of an environment.
        """
        settings: dict[str, Any] = dict(
            steps=50_000_000, n_envs=128, buffer_size=1_000_000, learning_starts=20_000, target_update_interval=8_000,
            learning_rate=6.25e-5, adam_epsilon=1.5e-4, clip_rewards=True, act_with_target=True, eta=(0.001, 0.5),
            zero_share=0.5, average_share=0.05,
        )  # fmt: skip
        if isinstance(changed.get("eta", settings["eta"]), tuple | list):
            settings["zero_fraction"] = 0.8
        return cls._exploring(settings | changed)

    @classmethod
    def minatar(cls, **changed: Any) -> DQNConfig:
        """Returns Dopamine's settings for MinAtar, but with 16 environments instead of one."""
        return cls._exploring(
            dict(steps=10_000_000, network="minatar", clip_rewards=True, adam_epsilon=3.125e-4) | changed
        )

    @classmethod
    def control(cls, **changed: Any) -> DQNConfig:
        """Returns settings for control problems, whose observations are vectors and whose runs are short.

        The replay buffer and the target network are sized to the run: the target network is copied a thousand times,
        because each copy propagates values by one step. Random choices last for several steps at first, since single
        random actions cancel each other.
        """
        given = {"steps": 200_000, "n_envs": 8} | changed
        # A value that is not an integer is reported by the checks of the settings below.
        steps, n_envs = (int(given[name]) if is_a(given[name], int) else 1 for name in ("steps", "n_envs"))
        settings: dict[str, Any] = dict(
            rollout=32, hidden=(256, 256), layer_norm=True, huber=True, batch_size=64, update_interval=1,
            learning_rate=2.5e-4, final_learning_rate=2.5e-6, decay_fraction=0.3, max_grad_norm=10.0,
            exploration_fraction=0.2, exploration_persistence=0.95, final_epsilon=0.05,
            zero_share=0.5, zero_fraction=0.5,
            learning_starts=max(n_envs, min(1_000, steps // 10)), buffer_size=min(max(100_000, steps // 2), 1_000_000),
            target_update_interval=min(max(8, steps // 1_000), 1_000),
        )  # fmt: skip
        return cls(**(settings | given))

    @classmethod
    def _exploring(cls, settings: dict[str, Any]) -> DQNConfig:
        """Returns a config in which epsilon falls over 250,000 agent steps, as in Dopamine, in a run of any length."""
        made = cls(**settings)
        if "exploration_fraction" in settings:
            return made
        return replace(made, exploration_fraction=min(1.0, 250_000 / made.total_steps))

    @property
    def unused(self) -> frozenset[str]:
        """Names of the settings that change nothing, given the others."""
        return super().unused | ({"decay_fraction"} if self.final_learning_rate is None else set())

    @property
    def steers_from(self) -> int:
        """Agent steps before the first update."""
        return self.learning_starts

    def _check(self) -> None:
        super()._check()
        check_at_least_1(self, "update_interval", "target_update_interval")
        check_at_least_1(self, "batch_size", most=MOST_HELD)
        if self.is_range and self.prices_per_step < 2:
            raise ValueError(
                f"prices_per_step is {self.prices_per_step}, expected at least 2: price 0 and one from the range."
            )
        check_positive(self, "adam_epsilon")
        check_shares(self, "decay_fraction", "average_share")
        if self.max_grad_norm is not None:
            check_positive(self, "max_grad_norm")
        if self.learning_starts < self.n_envs:
            raise ValueError(
                f"learning_starts is {self.learning_starts} with {self.n_envs} environments, expected at least one "
                "step of each before the first update."
            )
        if self.learning_starts >= self.total_steps:
            raise ValueError(
                f"learning_starts is {self.learning_starts}, but the run has only {self.total_steps} steps: nothing "
                "would be learned."
            )
        if self.buffer_size < 2 * self.n_envs:
            raise ValueError(
                f"buffer_size is {self.buffer_size} with {self.n_envs} environments, expected room for at least two "
                "steps of each."
            )
        check_at_least_1(self, "buffer_size", most=MOST_REPLAYED)


ALGORITHMS: dict[str, type[PQNConfig] | type[DQNConfig]] = {"pqn": PQNConfig, "dqn": DQNConfig}
"""Algorithms by name."""


def is_control(env: str) -> bool:
    """Returns whether an environment is a control problem: neither a MinAtar game nor an Atari game."""
    return env.partition("/")[0] not in ("minatar", "ALE")


def default_config(env: str, algorithm: str | None = None, **changed: Any) -> PQNConfig | DQNConfig:
    """Returns the default settings of an algorithm for a kind of environment.

    There are three kinds: MinAtar games (`minatar/...`), Atari games (`ALE/...`), and control problems (all others).

    Args:
        env: Name of the environment.
        algorithm: `pqn` or `dqn`; by default `pqn` for MinAtar games and `dqn` for all others.
        changed: Settings that replace the defaults. For a control problem, `reward_scale` also sets the default range
            of prices.
    """
    check_name(env)
    family = env.partition("/")[0]
    if algorithm is None:
        algorithm = "pqn" if family == "minatar" else "dqn"
    check_choice(algorithm, "algorithm", list(ALGORITHMS))
    kind = ALGORITHMS[algorithm]
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(changed) - known)
    if unknown:
        names = ("settings " if len(unknown) > 1 else "setting ") + ", ".join(map(repr, unknown))
        raise TypeError(f"{algorithm} has no {names}; it has {', '.join(sorted(known))}.")
    if changed.get("control_budget") is not None:
        changed = {"eta": 0.0} | changed  # a budget steers a single price
    if family == "ALE":
        return kind.atari(**changed)
    if family == "minatar":
        return DQNConfig.minatar(**changed) if algorithm == "dqn" else kind(**changed)
    if is_a(changed.get("reward_scale"), float):
        changed = {"eta": tuple(share * changed["reward_scale"] for share in CONTROL_ETA)} | changed
    return DQNConfig.control(**changed) if algorithm == "dqn" else kind(**changed)
