"""What environments return, checked before it is converted.

A conversion can turn a mistake into data: `[nan, 300]` into the bytes `[0, 44]`, state -1 into the last one, the text
"no" into True, and "1.5" or 1.5+2j into the number 1.5. Nothing is repaired here, but numbers may be rounded to another
floating-point type.
"""

from __future__ import annotations

from numbers import Real
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp._arguments import LARGEST, shown


class BadOutcome(ValueError):
    """An environment returned something that its spaces or the interface of Gymnasium do not allow."""


def env_name(env: gym.Env[Any, Any]) -> str:
    """Returns the id of an environment, or the name of its class if it has none."""
    name = getattr(env.unwrapped, "name", None)  # compiled environments have a name but no spec
    if env.spec is not None:
        return str(env.spec.id)
    return name if isinstance(name, str) else type(env.unwrapped).__name__


def reward_of(given: Any, largest: float | None = LARGEST) -> float:
    """Returns a reward as a float.

    Args:
        given: What the environment returned.
        largest: Largest absolute value allowed; with None, infinity and nan are allowed, too.
    """
    reward = given if type(given) is float else float(given) if isinstance(given, Real) else _single(given)
    if reward is None:
        raise BadOutcome(f"it returned the reward {shown(given)}, expected a number")
    if largest is not None and not -largest <= reward <= largest:  # also if it is nan
        raise BadOutcome(
            f"it returned the reward {reward}, expected a finite number between -{largest:g} and {largest:g}"
        )
    return reward


def flag_of(given: Any, name: str) -> bool:
    """Returns whether an episode ended; 0 and 1 are accepted as well."""
    if given is True or given is False:
        return given
    if given not in (0, 1):  # also NumPy's flags
        raise BadOutcome(f"it returned {name} = {shown(given)}, expected True or False")
    return bool(given)


def exact_array(values: Any, dtype: np.dtype[Any], name: str = "observation") -> NDArray[Any]:
    """Returns values as an array of a type; only rounding to another floating-point type may change them.

    An array that has this type already is returned as it is. Numbers of floating-point types need not be finite
    afterwards: the caller refuses them.

    Args:
        values: What the environment returned.
        dtype: The type.
        name: Name of the values in error messages.
    """
    if type(values) is np.ndarray and values.dtype == dtype:  # nearly always: this must be fast
        return values
    given = np.asarray(values)
    if isinstance(values, np.ma.MaskedArray):
        raise BadOutcome(f"{name} is a masked array, expected one without a mask")
    if given.dtype == dtype:
        return given
    if given.dtype.kind not in "biuf":
        raise BadOutcome(f"{name} is {shown(values)}, expected numbers")
    if dtype.kind == "f":
        with np.errstate(over="ignore"):  # what becomes infinite is refused by the caller
            array = given.astype(dtype)
        if given.dtype.kind in "iu":  # beyond `most`, two different states could become the same number
            most = 2 ** (np.finfo(dtype).nmant + 1)
            outside = (given > most) | (given < -most)
            if outside.any():
                raise _bad(given, outside, name, f"an integer from {-most} to {most}, which {dtype} holds exactly")
        return array
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    numbers = given.astype(np.float64) if given.dtype.kind == "f" else given  # half precision ends at 65504
    outside = ~((numbers >= low) & (numbers < high + 1))  # also if it is nan; `high` itself may not be a double
    if given.dtype.kind == "f":
        outside |= numbers != np.floor(numbers)
    if outside.any():
        raise _bad(given, outside, name, f"a whole number from {low} to {high}")
    return given.astype(dtype)


def checked_observation(space: spaces.Space[Any], given: Any, name: str = "observation") -> Any:
    """Returns an observation with arrays of the types of its space.

    Numbers must be finite, and those of discrete spaces inside the space. The bounds of a `Box` are not checked,
    because the observations of many environments exceed them; neither are spaces without numbers, such as `Text`.

    Args:
        space: Observation space of the environment, or a part of it.
        given: What the environment returned.
        name: Name of the observation in error messages.
    """
    if isinstance(space, spaces.Discrete):
        first, last = int(space.start), int(space.start) + int(space.n) - 1
        if isinstance(given, int | np.integer) and first <= given <= last:
            return given
        state = np.asarray(given)
        if state.size != 1 or state.dtype.kind not in "biu" or not first <= state.item() <= last:
            raise BadOutcome(f"{name} is {shown(given)}, expected an integer from {first} to {last}: {space}")
        return given
    if isinstance(space, spaces.Dict):
        return {key: checked_observation(part, given[key], f"{name}[{key!r}]") for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        pairs = enumerate(zip(space, given, strict=True))
        return tuple(checked_observation(part, one, f"{name}[{place}]") for place, (part, one) in pairs)
    if not isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return given
    array = exact_array(given, np.dtype(space.dtype), name)
    if array.size != np.prod(space.shape, dtype=int):
        raise BadOutcome(f"{name} has shape {array.shape}, expected {space.shape}")
    if isinstance(space, spaces.Box):
        if array.dtype.kind == "f" and not (finite := np.isfinite(array)).all():
            most = np.finfo(array.dtype).max
            raise _bad(np.asarray(given), ~finite, name, f"a finite number of at most {most:.3g}")
        return array
    low = space.start if isinstance(space, spaces.MultiDiscrete) else 0
    count = space.nvec if isinstance(space, spaces.MultiDiscrete) else 2
    outside = (array.reshape(space.shape) < low) | (array.reshape(space.shape) >= low + count)
    if outside.any():
        raise _bad(array.reshape(space.shape), outside, name, f"an entry of {space}")
    return array


def check_seen(env: gym.Env[Any, Any], observation: Any, step: int) -> None:
    """Raises an error that names environment and step if an observation is not what `checked_observation` expects.

    Args:
        env: The environment.
        observation: What it returned.
        step: Number of the step in its episode, 0 for a reset.
    """
    try:
        checked_observation(env.observation_space, observation)
    except BadOutcome as error:
        raise _at(env, step, error) from None


def checked_reward(env: gym.Env[Any, Any], given: Any, terminated: Any, truncated: Any, step: int) -> float:
    """Returns the reward of a step; if the reward or a flag is not valid, the error names environment and step."""
    try:
        flag_of(terminated, "terminated"), flag_of(truncated, "truncated")
        return reward_of(given)
    except BadOutcome as error:
        raise _at(env, step, error) from None


def _at(env: gym.Env[Any, Any], step: int, error: BadOutcome) -> BadOutcome:
    when = f"step {step} of the episode" if step else "reset at the start of the episode"
    return BadOutcome(f"{env_name(env)}, {when}: {error}.")


def _single(given: Any) -> float | None:
    """Returns the number that an array holds, or None if it holds no number or several."""
    array = np.asarray(given)
    if isinstance(given, np.ma.MaskedArray) or array.size != 1 or array.dtype.kind not in "biuf":
        return None
    return float(array.item())


def _bad(array: NDArray[Any], bad: NDArray[np.bool_], name: str, expected: str) -> BadOutcome:
    """Returns an error that shows the first bad entry."""
    place = tuple(int(one) for one in np.argwhere(bad)[0])
    at = f"{name}[{', '.join(map(str, place))}]" if place else name
    return BadOutcome(f"{at} is {array[place]}, expected {expected}")
