"""Copies of the environment of an agent, in which episodes are played side by side.

A deep copy comes first, because it keeps changes that were made to the environment after it was made, and needs no
spec. It has to be made before the first frame is drawn: windows and surfaces of pygame cannot be copied. Otherwise the
environment is made again from its spec. Either copy is tested: it must behave like the environment for some steps. The
environment takes steps in between, which shows whether the two share their state.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
from gymnasium.utils.env_checker import data_equivalence

from lazymdp.defaults.protocol import noop_of
from lazymdp.explain.players import Player, TrainedPlayer
from lazymdp.wrappers.lazy_action import LazyAction

Factory = Callable[[], gym.Env[Any, Any]]

_STEPS = 100
"""Number of steps in which a copy must behave like the environment."""


class CannotCopy(ValueError):
    """The environment cannot be copied."""


def copies_of(player: Player) -> Factory:
    """Returns a function that makes copies of an agent's environment, without the lazy action.

    Raises:
        CannotCopy: No copy can be made, or none repeats what the environment does.
    """
    choices, reasons = _choices(player), []
    for prepare in _ways(player):
        try:
            make = prepare()
            if _repeats(player.env, make(), choices):
                return make
            reasons.append("a copy does not repeat its episodes")
        except Exception as error:  # environments fail in many ways
            reasons.append(" ".join(str(error).split()).rstrip(".") or type(error).__name__)
    raise CannotCopy(f"the environment cannot be copied: {'; '.join(dict.fromkeys(reasons))}.")


def _ways(player: Player) -> Iterator[Callable[[], Factory]]:
    """Yields the ways to make copies; each is a function that may fail."""
    env = player.env.env
    if isinstance(player, TrainedPlayer) and player.in_training_env:
        yield lambda: lambda: player.trained.make_env(player.eta).env
    if env.render_mode != "human":  # each copy would open a window
        yield lambda: _deep_copies(env)
    yield lambda: _from_spec(env)


def _deep_copies(env: gym.Env[Any, Any]) -> Factory:
    template = copy.deepcopy(env)
    return lambda: copy.deepcopy(template)


def _from_spec(env: gym.Env[Any, Any]) -> Factory:
    if env.spec is None:
        raise ValueError("it has no spec from which gymnasium.make could make it again")
    spec = copy.deepcopy(env.spec)
    spec.kwargs.pop("render_mode", None)
    return lambda: gym.make(spec)


def _choices(player: Player) -> list[int]:
    """Returns what the agent chooses in the first steps of an episode."""
    env = player.env
    choices: list[int] = []
    observation, last, over = env.reset(seed=0)[0], noop_of(env.env), False
    while not over and len(choices) < _STEPS:
        choices.append(player.choose(observation, last))
        observation, _, terminated, truncated, info = env.step(choices[-1])
        last, over = info["base_action"], terminated or truncated
    return choices


def _repeats(env: LazyAction[Any], copied: gym.Env[Any, Any], choices: list[int]) -> bool:
    """Returns whether a copy does the same as the environment, which takes its steps in between."""
    other = LazyAction(copied, env.default_policy, env.eta)
    try:
        if not data_equivalence(env.reset(seed=0)[0], other.reset(seed=0)[0], exact=True):
            return False
        return all(data_equivalence(env.step(each)[:4], other.step(each)[:4], exact=True) for each in choices)
    finally:
        other.close()
