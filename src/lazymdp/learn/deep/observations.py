"""Observations in the form that the network of an agent expects, from the forms in which environments return them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray

from lazymdp._arguments import plain_array, shown
from lazymdp._env_outcomes import BadOutcome, checked_observation, exact_array
from lazymdp.learn.deep.host_env import HostEnv
from lazymdp.learn.deep.jax_env import JaxEnv

_EMPTY = "observations are an empty batch, expected at least one observation."


def to_batch(env: JaxEnv | HostEnv, observations: Any) -> tuple[NDArray[Any], bool]:
    """Converts one observation or a batch to the form in which the network was trained.

    States of a `Discrete` space become one-hot vectors; observations of `Dict`, `Tuple`, `MultiDiscrete` and
    `MultiBinary` spaces are flattened, as in training; the channels of an image may come first. Observations that
    have the shape of the network's input already are not changed.

    Args:
        env: The environment that the agent was trained in.
        observations: One observation, or a batch in the layout of Gymnasium's and Stable-Baselines3's vector
            environments: arrays `[N, ...]`, in dicts or tuples for `Dict` and `Tuple` spaces.

    Returns:
        `[N, ...]` observations, and whether a single observation was given; N is then 1.
    """
    space, shape = env.space, env.shape
    if isinstance(space, spaces.Dict | spaces.Tuple) and isinstance(observations, Mapping | tuple):
        return _flattened(space, observations)
    seen = plain_array(observations, "observations are")
    if seen.dtype.kind not in "biuf":
        raise ValueError(f"observations are {shown(observations)}, expected numbers of shape [N, {_words(shape)}].")
    if not seen.size:
        raise ValueError(_EMPTY)
    if seen.dtype.kind == "f" and not np.isfinite(seen).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(seen))[0])
        raise ValueError(f"observations have {seen[place]} at {place}, expected finite numbers.")
    if isinstance(space, spaces.Discrete) and seen.ndim < 2 and np.issubdtype(seen.dtype, np.integer):
        return _one_hot(np.atleast_1d(seen), int(space.start), shape[0]), seen.ndim == 0
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary) and _ends_in(seen, space.shape):
        return _flattened(space, seen)
    if len(shape) == 3 and _ends_in(seen, (shape[-1], *shape[:-1])) and not _ends_in(seen, shape):
        seen = np.moveaxis(seen, -3, -1)
    if not _ends_in(seen, shape):
        also = f", or observations of {space}" if isinstance(space, spaces.Dict | spaces.Tuple) else ""
        raise ValueError(f"observations have shape {seen.shape}, expected [N, {_words(shape)}], as in training{also}.")
    if seen.dtype.kind in "iu" and seen.dtype != np.uint8 and env.dtype == np.uint8:
        seen = exact_array(seen, np.dtype(np.uint8), "observations")  # the network recognizes pixels by their type
    single = seen.ndim == len(shape)
    return seen[None] if single else seen, single


def _words(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def _ends_in(seen: NDArray[Any], shape: tuple[int, ...]) -> bool:
    """Returns whether an array has this shape, or this shape with one more axis in front."""
    return shape in (seen.shape, seen.shape[1:])


def _one_hot(states: NDArray[Any], first: int, count: int) -> NDArray[np.float32]:
    places = states - first
    if not 0 <= places.min() <= places.max() < count:
        wrong = places[(places < 0) | (places >= count)][0] + first
        raise ValueError(f"observations have the state {wrong}, expected states from {first} to {first + count - 1}.")
    return np.eye(count, dtype=np.float32)[places]


def _flattened(space: spaces.Space[Any], observations: Any) -> tuple[NDArray[np.float32], bool]:
    """Flattens one observation or a batch; returns `[N, F]`, and whether it was a single one."""
    try:
        part, leaf = space, observations
        while isinstance(part, spaces.Dict | spaces.Tuple):
            key: Any = next(iter(part)) if isinstance(part, spaces.Dict) else 0
            part, leaf = part[key], leaf[key]
        single = np.ndim(leaf) == len(part.shape or ())
        rows = [observations] if single else iterate(batch_space(space, len(leaf)), observations)
        flat: list[Any] = [spaces.flatten(space, checked_observation(space, row)) for row in rows]
    except BadOutcome as error:
        raise ValueError(f"the observations do not fit {space}: {error}.") from error
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"the observations do not fit {space}: {error!r}") from error
    if not flat:
        raise ValueError(_EMPTY)
    return np.stack(flat).astype(np.float32), single
