"""The environments that are recorded: making them by name, their frames, and the names of their actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from numpy.typing import NDArray

from lazymdp.envs.grid import GridWorld
from lazymdp.envs.loading import name_toy_text
from lazymdp.envs.model_world import ModelWorld
from lazymdp.wrappers.lazy_action import LazyAction

FRAMES_PER_SECOND = 15.0
"""Speed of environments that do not declare one."""
_LONGEST_OBSERVATION = 64
"""Longest observation, as a number of values, that is recorded beside a frame."""
_MOST_STATES = 10_000
"""Largest number of states whose names are recorded."""
_ACTIONS = {
    "CartPoleEnv": ("push left", "push right"),
    "MountainCarEnv": ("push left", "coast", "push right"),
    "AcrobotEnv": ("torque -1", "no torque", "torque +1"),
    "LunarLander": ("coast", "left engine", "main engine", "right engine"),
}
"""Names of the actions of Gymnasium's environments, which do not declare them, by class."""


def open_env(env: str | gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Makes an environment that draws images, if it can, from its id; an environment is returned as it is.

    Args:
        env: An environment, the id of one in Gymnasium, or `minatar/GAME`.
    """
    if isinstance(env, GridWorld) and env.render_mode is None:
        env.render_mode = "rgb_array"
    if isinstance(env, gym.Env):
        return env
    if not isinstance(env, str):
        raise TypeError(f"env is {env!r}, expected a Gymnasium environment or the id of one.")
    if env.startswith("minatar/"):
        return _minatar(env)
    if env.startswith("ALE/"):
        try:
            import ale_py
        except ImportError as error:
            raise ImportError("Atari games need ale-py: pip install 'lazymdp[atari]'") from error
        gym.register_envs(ale_py)
    try:
        made: gym.Env[Any, Any] = gym.make(env)
        if "rgb_array" in made.metadata.get("render_modes", ()):
            made.close()
            made = gym.make(env, render_mode="rgb_array")
    except gym.error.Error as error:
        raise ValueError(f"env is {env!r}, which Gymnasium cannot make: {error}") from error
    return made


def _minatar(env: str) -> gym.Env[Any, Any]:
    try:
        from lazymdp.learn.deep.jax_env import minatar
        from lazymdp.learn.deep.single_env import make_single
    except ImportError as error:
        raise ImportError(f"MinAtar needs JAX ({error}): pip install 'lazymdp[minatar]'") from error
    return make_single(minatar(env.removeprefix("minatar/")), "rgb_array")


def action_names(env: LazyAction[Any], names: Sequence[str] | None = None) -> list[str]:
    """Returns the names of the actions of an environment, without the lazy one.

    Args:
        env: The environment.
        names: Names that the agent knows, for an environment that has none.
    """
    base, count = env.unwrapped, env.lazy_action - first_action(env)
    name_toy_text(base)
    meanings = env.get_wrapper_attr("get_action_meanings")() if env.has_wrapper_attr("get_action_meanings") else None
    known: Any
    for known in (getattr(base, "action_names", None), meanings, names, _ACTIONS.get(type(base).__name__)):
        if known is not None and len(known) == count:
            return [str(name).lower() if known is meanings else str(name) for name in known]
    return [f"action {action}" for action in range(count)]


def state_names(env: LazyAction[Any]) -> list[str] | None:
    """Returns the names of the states of an environment whose observations are states, or None if it has none.

    The states of a model without names are numbered, because it has no frames that would tell them apart.
    """
    base, space = env.unwrapped, env.observation_space
    if not isinstance(space, spaces.Discrete) or space.start != 0 or space.n > _MOST_STATES:
        return None
    name_toy_text(base)
    names = getattr(base, "state_names", None)
    if names is None and isinstance(base, ModelWorld):
        names = [f"state {state}" for state in range(int(space.n))]
    return None if names is None or len(names) != space.n else [str(name) for name in names]


def first_action(env: LazyAction[Any]) -> int:
    """Returns the environment's own number of its first action."""
    space: Any = env.action_space
    return int(space.start)


def frames_per_second(env: gym.Env[Any, Any]) -> float:
    """Returns the number of steps per second at which an environment is usually watched."""
    return float(env.metadata.get("render_fps") or FRAMES_PER_SECOND)


def frame_of(env: gym.Env[Any, Any]) -> NDArray[np.uint8]:
    """Renders the current state as an image `[h, w, 3]`; raises an error if the environment cannot do that."""
    pixels = np.asarray(env.render())
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        raise ValueError(f"render() returned {pixels.dtype} of shape {pixels.shape}, expected an image [h, w, 3]")
    return pixels


def batched(space: gym.Space[Any], observations: Sequence[Any]) -> Any:
    """Returns observations as one batch, in the layout of Gymnasium's vector environments."""
    empty: Any = create_empty_array(space, len(observations))
    return concatenate(space, observations, empty)


def unbatched(space: gym.Space[Any], observations: Any) -> Iterator[Any]:
    """Returns the observations of a batch one by one.

    Args:
        space: The space of one observation.
        observations: The batch, in the layout of Gymnasium's vector environments.
    """
    leaf = observations
    while isinstance(leaf, dict | tuple):
        leaf = next(iter(leaf.values())) if isinstance(leaf, dict) else leaf[0]
    return iterate(batch_space(space, len(leaf)), observations)


def flat_size(space: gym.Space[Any], has_frames: bool) -> int | None:
    """Returns the number of values of a recorded observation, or None if observations are not recorded.

    They are left out beside frames if they are long, such as the stacked images of an Atari game, and if they are not
    numbers.

    Args:
        space: The observation space.
        has_frames: Whether frames are recorded.
    """
    size = _numbers(space)
    return None if size is None or (has_frames and size > _LONGEST_OBSERVATION) else size


def flattened(space: gym.Space[Any], observation: Any) -> NDArray[np.float64]:
    """Returns an observation as an array of numbers; the state of a `Discrete` space is one number."""
    if isinstance(space, spaces.Dict):
        return np.concatenate([flattened(part, observation[key]) for key, part in space.items()])
    if isinstance(space, spaces.Tuple):
        return np.concatenate([flattened(part, given) for part, given in zip(space, observation, strict=True)])
    return np.asarray(observation, dtype=np.float64).ravel()


def _numbers(space: gym.Space[Any]) -> int | None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = list(space.values() if isinstance(space, spaces.Dict) else space)
        sizes = [_numbers(part) for part in parts]
        return None if not sizes or None in sizes else sum(size or 0 for size in sizes)
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        return int(np.prod(space.shape or (), dtype=int))
    return None
