"""The default policy `pi-bar`, which acts when the agent is lazy, in every form that a user may have it.

`make_default` turns each accepted form into a `DefaultPolicy`, the protocol that wrappers and learners use:

* `"uniform"`: every action with the same probability;
* `"noop"`: the action that the environment calls NOOP, or its first action if there is none; an integer: that action;
* `"repeat"`: the last executed action, and the no-op on the first step of an episode;
* an `[S, A]` table of probabilities, for `Discrete` observations;
* a callable that maps an observation to an action (an integer or a boolean) or to probabilities (A floats). In a vector
  environment it receives the batch `[B, ...]` in one call and returns `[B]` integers or booleans, or `[B, A]` floats;
  see `FromFunction`. Deep agents accept both kinds of callables;
* a Stable-Baselines3 model, or the path of one. Load only files that you trust, because SB3 unpickles them;
* any object with `predict(observations, deterministic=True) -> (actions, state)`;
* a `Mixture` of two of these, or an object that implements `DefaultPolicy`.

A default policy may depend on the observation and on the last executed action, and on nothing else: otherwise the
lazy-MDP would not be an MDP. Actions have the numbers of the environment, which begin at `action_space.start`.
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp._arguments import check_probability, safe_repr
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
    takes_batches,
)
from lazymdp.defaults.sb3 import from_stable_baselines, is_stable_baselines, load_stable_baselines


@runtime_checkable
class DefaultPolicy(Protocol):
    """The methods of a default policy. `B` is the number of environments that are lazy on a step."""

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """Samples one action per observation.

        Args:
            observations: `[B, ...]` batch in the layout of Gymnasium's vector environments (dicts and tuples of arrays
                for `Dict` and `Tuple` spaces).
            rng: The only source of random numbers, so that the seed determines every action.
            last_actions: `[B]` last executed actions; the no-op on the first step of an episode.

        Returns:
            `[B]` integer actions.
        """

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities | None:
        """Returns `[B, A]` probabilities (column `a` belongs to action `start + a`), or None if they are unknown."""


@dataclass(frozen=True)
class Mixture:
    """Chooses between two default policies on every step.

    Attributes:
        first: A default policy in any form.
        second: A default policy in any form.
        weight: Probability of the first, in `[0, 1]`.
    """

    first: Any
    second: Any
    weight: float

    def __post_init__(self) -> None:
        check_probability(self.weight, "weight")


class Examples(NamedTuple):
    """Observations on which callables are tried; `takes_batches` says how many there must be."""

    observations: Any  # [B, ...]
    number: int  # B


class BadDefault(ValueError):
    """The default policy raised an error or returned something invalid.

    The message names the step and the value. The original error is the `__cause__`.
    """


def make_default(
    default_policy: Any,
    action_space: spaces.Discrete,
    observation_space: gym.Space[Any],
    noop: int,
    *,
    batched: bool | Callable[[], Examples],
) -> DefaultPolicy:
    """Turns any accepted form (see the module) into a `DefaultPolicy`.

    Args:
        default_policy: The default policy in any form.
        action_space: The action space of one environment, without the lazy action.
        observation_space: The observation space of one environment.
        noop: The action that `"noop"` stands for; see `noop_action`.
        batched: Whether callables take batches of observations (vector environments) or one observation. If this is a
            function that returns examples, each callable is tried on them to find out.
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
    if callable(getattr(default_policy, "as_default", None)):  # a deep agent, whose `predict` may be lazy itself
        raise TypeError("default_policy is an Agent: give agent.as_default().")
    if is_stable_baselines(default_policy):
        return from_stable_baselines(default_policy, action_space)
    if callable(getattr(default_policy, "predict", None)):
        return FromPredict(default_policy, action_space)
    if callable(default_policy):
        if not isinstance(batched, bool):
            batched = takes_batches(default_policy, action_space, observation_space, *batched())
        return FromFunction(default_policy, action_space, None if batched else observation_space)
    raise TypeError(
        f"default_policy is {reprlib.repr(default_policy)}, expected 'uniform', 'noop', 'repeat', an action, an "
        "[S, A] table, a callable, a Stable-Baselines3 model or its path, an object with predict, a Mixture or a "
        "DefaultPolicy."
    )


class _Mixed:
    """A `Mixture` of two default policies; each step draws from both and keeps one of the actions."""

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
    """Returns the action that `get_action_meanings()` calls NOOP, or the first action if there is none.

    Args:
        action_space: The action space, without the lazy action.
        meanings: The names of the actions; None if the environment does not have `get_action_meanings()`.
    """
    if meanings is not None and len(meanings) == action_space.n and "NOOP" in meanings:
        return int(action_space.start) + list(meanings).index("NOOP")
    return int(action_space.start)


def noop_of(env: gym.Env[Any, Any]) -> int:
    """Returns the action that `"noop"` stands for in an environment with a `Discrete` action space."""
    named = env.has_wrapper_attr("get_action_meanings")
    space: Any = env.action_space
    return noop_action(space, env.get_wrapper_attr("get_action_meanings")() if named else None)


def ask(
    default_policy: DefaultPolicy,
    observations: Any,
    rng: np.random.Generator,
    last_actions: Actions,
    action_space: spaces.Discrete,
    steps: NDArray[np.int64],
    environments: NDArray[np.int64] | None = None,
) -> Actions:
    """Samples from the default policy and checks every action that it returns.

    Args:
        default_policy: The default policy.
        observations: `[B, ...]` observations.
        rng: The generator of the wrapper.
        last_actions: `[B]` last executed actions.
        action_space: The action space of one environment, without the lazy action.
        steps: `[B]` steps since the start of each episode, for the error message.
        environments: `[B]` indices of the sub-environments, for the error message; None for a single environment.

    Raises:
        BadDefault: The default policy raised an error, or returned something that is not an action.
    """
    try:
        return check_actions(default_policy.sample(observations, rng, last_actions), last_actions.size, action_space)
    except Exception as error:
        # An error raised by the default policy itself does not tell which row caused it: it concerns the whole batch.
        row = error.row if isinstance(error, BadAnswer) else None
        at = slice(None) if row is None else slice(row, row + 1)
        where = f"step {_listed(steps[at])} of the episode (counted from 0)"
        if environments is not None:
            where += f", environment {_listed(environments[at])}"
        found = (
            str(error) if isinstance(error, BadAnswer) else f"{safe_repr(error)}, given {reprlib.repr(observations)}"
        )
        raise BadDefault(f"default_policy failed at {where}: {found}") from error


def _listed(numbers: NDArray[np.int64]) -> str:
    return str(numbers[0]) if numbers.size == 1 else reprlib.repr(numbers.tolist())
