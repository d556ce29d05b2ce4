"""The config of a run: environment, algorithm settings, default policy and seed. This module does not need JAX."""

from __future__ import annotations

import dataclasses
import json
import operator
import os
from dataclasses import dataclass, replace
from typing import Any

from lazymdp.learn.deep.config import DQNConfig, PQNConfig
from lazymdp.learn.deep.config_checks import check_name, is_a

GIVEN_IN_PYTHON = "given in Python"
"""Placeholder in a config for an environment or a default policy that was given as a Python object."""
WORDS = ("uniform", "noop", "repeat")
"""Default policies that are given by a word."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that defines a run: environment, algorithm settings, default policy and seed."""

    env: str
    """`minatar/GAME`, `ALE/GAME-v5`, or the id of any Gymnasium environment with discrete actions (also
    `module:Id-v0`); `GIVEN_IN_PYTHON` if the environment was given as a factory."""
    settings: PQNConfig | DQNConfig
    """Settings of the algorithm."""
    default_policy: str = "uniform"
    """Policy that acts when the agent is lazy: `uniform`, `noop`, `repeat`, an action, the folder of a run (`RUN`,
    `RUN:epsilon=0.1` or `RUN:softmax=0.5`), the file of a Stable-Baselines3 model, or a function (`module:function`);
    `GIVEN_IN_PYTHON` if it was given as a Python object."""
    seed: int = 0
    """Random seed."""
    env_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Keyword arguments of `gymnasium.make`."""
    extended_to: tuple[int, ...] = ()
    """Total agent steps to which the run was extended, in this order; see `extended`."""

    def __post_init__(self) -> None:
        check_name(self.env)
        _check_env_kwargs(self.env, self.env_kwargs)
        if not isinstance(self.settings, PQNConfig | DQNConfig):
            raise TypeError(f"settings is {self.settings!r}, expected a PQNConfig or a DQNConfig.")
        if not isinstance(self.default_policy, str | os.PathLike):
            raise TypeError(f"default_policy is a {type(self.default_policy).__name__}, expected a name or a path.")
        object.__setattr__(self, "default_policy", os.fspath(self.default_policy))
        if not is_a(self.seed, int):
            raise TypeError(f"seed is {self.seed!r}, expected an integer.")
        object.__setattr__(self, "seed", operator.index(self.seed))
        object.__setattr__(self, "extended_to", tuple(self.extended_to))
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed is {self.seed}, expected an integer from 0 to {2**31 - 1}.")

    @property
    def algorithm(self) -> str:
        """Name of the algorithm."""
        return self.settings.name

    @property
    def ends(self) -> tuple[int, ...]:
        """Numbers of iterations after which the run was planned to end; the last one is the end of the run."""
        return (self.settings.iterations, *(steps // self.settings.steps_per_iteration for steps in self.extended_to))

    @property
    def total_steps(self) -> int:
        """Agent steps of the whole run, including its extensions."""
        return self.ends[-1] * self.settings.steps_per_iteration

    def extended(self, steps: int) -> TrainConfig:
        """Returns the config of the same run with a new total number of agent steps.

        `settings.steps` remains, so that the schedules (epsilon, learning rate) keep their final values.
        """
        if not is_a(steps, int):
            raise TypeError(f"steps is {steps!r}, expected an integer.")
        iterations = int(steps) // self.settings.steps_per_iteration
        if iterations < self.ends[-1]:
            raise ValueError(
                f"steps is {steps:,}, but the run is planned for {self.total_steps:,} steps already: give the new "
                "total, which must be larger."
            )
        if iterations == self.ends[-1]:
            return self
        if self.settings.final_learning_rate == 0.0:
            raise ValueError(
                "final_learning_rate of the run is 0, so that an extension would learn nothing: start a longer run."
            )
        return replace(self, extended_to=(*self.extended_to, int(steps)))


def _check_env_kwargs(env: str, env_kwargs: Any) -> None:
    """Raises an error if keyword arguments are given where none are taken, or if a file could not hold them."""
    if not isinstance(env_kwargs, dict) or not all(isinstance(name, str) for name in env_kwargs):
        raise TypeError(f"env_kwargs is {env_kwargs!r}, expected a dict of keyword arguments of gymnasium.make.")
    if env_kwargs and env == GIVEN_IN_PYTHON:
        raise ValueError(f"env_kwargs is {env_kwargs!r}, but env is a factory: let the factory pass these arguments.")
    if env_kwargs and env.startswith(("minatar/", "ALE/")):
        raise ValueError(f"env_kwargs is {env_kwargs!r}, but {env} always has the same settings and takes none.")
    for name, value in env_kwargs.items():
        try:
            same = json.loads(json.dumps(value)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise TypeError(
                f"env_kwargs has {name} = {value!r}, expected numbers, strings, True, False, None, lists and dicts of "
                "strings, which config.json can hold. For anything else, give a factory as env."
            )
