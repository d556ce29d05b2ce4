"""What happens when the agent is lazy: the default policy `pi-bar`, in every form a user may have it.

`make_default` turns each accepted form into a `DefaultPolicy`, the one protocol the wrappers (and learners) speak:

* `"uniform"`: every action equally likely;
* `"noop"`: the action the environment calls NOOP, or else its first; an int: always that action;
* `"repeat"`: the action executed last; the no-op before the first step of an episode;
* an `[S, A]` table of probabilities, for `Discrete` observations;
* a callable, from an observation to an action (an integer) or to probabilities (A floats). In a vector environment it
  is given the batch `[B, ...]` in one call and answers `[B]` integers or `[B, A]` floats (`FromFunction` says more);
* a Stable-Baselines3 model, or the path of one: only of files you trust, as SB3 unpickles them;
* any object with `predict(observations, deterministic=True) -> (actions, state)`;
* `Mixture` of two of these; or an object that offers `DefaultPolicy` itself.

A default may depend on the observation and on the last executed action, and on nothing else: without that the
lazy-MDP would be no MDP. Actions are numbered as the environment numbers them, from `action_space.start`.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp.defaults.forms import (
    Actions,
    BadAnswer,
    Constant,
    FromFunction,
    FromPredict,
    Probabilities,
    Repeat,
    Table,
    Uniform,
    check_actions,
)
from lazymdp.defaults.sb3 import from_stable_baselines, is_stable_baselines, load_stable_baselines


@runtime_checkable
class DefaultPolicy(Protocol):
    """What a default must offer. `B` is how many environments are lazy at this step: 1 in `LazyAction`."""

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """One action per row, in one call.

        Args:
            observations: `[B, ...]` batch, laid out as Gymnasium's vector environments do (dicts and tuples of arrays
                for `Dict` and `Tuple` spaces).
            rng: The only source of randomness to use, so that a seed decides everything.
            last_actions: `[B]` actions executed last; the no-op before the first step of an episode.

        Returns:
            `[B]` int actions.
        """

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities | None:
        """`[B, A]` probabilities (column `a` is action `start + a`), or None where they are not known."""


@dataclass(frozen=True)
class Mixture:
    """At each step anew: the first default with probability `weight`, the second otherwise.

    Attributes:
        first: Any form of default.
        second: Any form of default.
        weight: Probability of the first, in `[0, 1]`.
    """

    first: Any
    second: Any
    weight: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight <= 1.0:
            raise ValueError(f"weight is {self.weight}, expected a probability between 0 and 1.")


class BadDefault(ValueError):
    """The default policy failed when it was asked; the message names the step and the value, the cause is chained."""


def make_default(
    default_policy: Any, action_space: spaces.Discrete, observation_space: gym.Space[Any], noop: int, *, batched: bool
) -> DefaultPolicy:
    """Any accepted form (the module lists them) as a `DefaultPolicy`.

    Args:
        default_policy: The form given by the user.
        action_space: Of one environment, without the lazy action.
        observation_space: Of one environment.
        noop: What `"noop"` means here, see `noop_action`.
        batched: Whether callables take batches of observations (vector environments) or one observation.
    """
    if isinstance(default_policy, DefaultPolicy):
        return default_policy
    if isinstance(default_policy, Mixture):
        parts = (default_policy.first, default_policy.second)
        first, second = (make_default(part, action_space, observation_space, noop, batched=batched) for part in parts)
        return _Mixed(first, second, default_policy.weight)
    if isinstance(default_policy, str | os.PathLike):
        if default_policy == "uniform":
            return Uniform(action_space)
        if default_policy == "noop":
            return Constant(noop, action_space)
        if default_policy == "repeat":
            return Repeat(action_space)
        return from_stable_baselines(load_stable_baselines(default_policy), action_space)
    if isinstance(default_policy, int | np.integer) and not isinstance(default_policy, bool):
        return Constant(int(default_policy), action_space)
    if isinstance(default_policy, np.ndarray | list | tuple):
        return Table(default_policy, action_space, observation_space)
    if is_stable_baselines(default_policy):
        return from_stable_baselines(default_policy, action_space)
    if callable(getattr(default_policy, "predict", None)):
        return FromPredict(default_policy, action_space)
    if callable(default_policy):
        return FromFunction(default_policy, action_space, None if batched else observation_space)
    raise TypeError(
        f"default_policy is {reprlib.repr(default_policy)}, expected 'uniform', 'noop', 'repeat', an action, an "
        "[S, A] table, a callable, a Stable-Baselines3 model or its path, an object with predict, a Mixture or a "
        "DefaultPolicy."
    )


class _Mixed:
    def __init__(self, first: DefaultPolicy, second: DefaultPolicy, weight: float) -> None:
        self.first, self.second, self.weight = first, second, weight

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        chosen = rng.random(last_actions.size) < self.weight
        return np.where(
            chosen,
            self.first.sample(observations, rng, last_actions),
            self.second.sample(observations, rng, last_actions),
        )

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities | None:
        first = self.first.probabilities(observations, last_actions)
        second = self.second.probabilities(observations, last_actions)
        if first is None or second is None:
            return None
        return self.weight * first + (1.0 - self.weight) * second


def noop_action(action_space: spaces.Discrete, meanings: Sequence[str] | None) -> int:
    """The action called NOOP by `get_action_meanings()`, where the environment has that; otherwise the first."""
    if meanings is not None and len(meanings) == action_space.n and "NOOP" in meanings:
        return int(action_space.start) + list(meanings).index("NOOP")
    return int(action_space.start)


def ask(
    default: DefaultPolicy,
    observations: Any,
    rng: np.random.Generator,
    last_actions: Actions,
    action_space: spaces.Discrete,
    steps: NDArray[np.int64],
    environments: NDArray[np.int64] | None = None,
) -> Actions:
    """Asks the default once, and checks every action it answers.

    Args:
        default: The default policy.
        observations: `[B, ...]`.
        rng: The wrapper's generator.
        last_actions: `[B]`.
        action_space: Of one environment, without the lazy action.
        steps: `[B]` steps each episode has made, for the message.
        environments: `[B]` which sub-environments these are, for the message; None if there is but one.

    Raises:
        BadDefault: The default raised, or what it answered is no action of this environment.
    """
    try:
        return check_actions(default.sample(observations, rng, last_actions), last_actions.size, action_space)
    except Exception as error:
        # What the default itself raised concerns the batch as a whole: it alone knows which row was at fault.
        row = error.row if isinstance(error, BadAnswer) else None
        at = slice(None) if row is None else slice(row, row + 1)
        where = f"step {_listed(steps[at])} of the episode (counted from 0)"
        if environments is not None:
            where += f", environment {_listed(environments[at])}"
        found = str(error) if isinstance(error, BadAnswer) else f"{error!r}, given {reprlib.repr(observations)}"
        raise BadDefault(f"default_policy failed at {where}: {found}") from error


def _listed(numbers: NDArray[np.int64]) -> str:
    return str(numbers[0]) if numbers.size == 1 else reprlib.repr(numbers.tolist())
