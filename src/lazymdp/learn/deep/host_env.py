"""Environments that step on the host while the network works on the device.

A host environment is N copies of an environment, in one or more groups. `send` hands a group its actions and returns
immediately; `receive` waits for the outcome. Other work can be done between the two, and one group can step while
another waits for its actions. When an episode ends, the next one starts automatically. `arrays` and `restore` save and
restore the state of the environments.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp._env_outcomes import BadOutcome, checked_observation, exact_array, flag_of, reward_of
from lazymdp.defaults.protocol import noop_of
from lazymdp.learn.deep.env_failures import LARGEST_REWARD, EnvironmentFailed, busy, said_by
from lazymdp.learn.deep.gymnasium_env import (
    EnvFactory,
    actions_of,
    close_env,
    make_gymnasium_env,
    name_of,
    time_limit,
)


class Outcome(NamedTuple):
    """Outcome of the last actions of a group; fields are `[M]` unless noted."""

    frame: NDArray[Any]  # [M, ...] newest frame; the first frame of the next episode if one has just ended
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    lost: NDArray[np.bool_]  # a new episode began because the run started or an emulator was replaced

    @property
    def restarted(self) -> Any:
        """`[M]` whether a new episode has begun."""
        return self.terminated | self.truncated | self.lost


class HostEnv(Protocol):
    """N environments that step on the host.

    Attributes:
        shape: Shape of an observation: the shape of a frame, followed by the number of frames if they are stacked.
        frame_shape: Shape of a frame.
        dtype: Data type of a frame, `uint8` or `float32`.
        n_frames: Number of frames stacked into an observation.
        n_actions: Number of actions, A.
        first_action: The environment's own number of its first action. Here, actions are numbered from 0.
        noop: Action that stands for the last action when an episode begins.
        space: Observation space of the environment, before observations are flattened.
        groups: The environments of each group; all groups have the same size, M.
        max_steps: Time limit of an episode in steps, or None.
        repeats: Whether `restore` continues exactly the same episodes.
    """

    shape: tuple[int, ...]
    frame_shape: tuple[int, ...]
    dtype: type
    n_frames: int
    n_actions: int
    first_action: int
    noop: int
    space: spaces.Space[Any]
    groups: tuple[slice, ...]
    max_steps: int | None
    repeats: bool

    def like(self, n_envs: int) -> HostEnv:
        """Returns another host environment with `n_envs` copies of the same environment."""

    def start(self, seed: int) -> None:
        """Begins an episode in every copy; `receive` then returns the first frames."""

    def send(self, group: int, actions: NDArray[Any]) -> None:
        """Hands `[M]` actions, numbered from 0, to a group."""

    def receive(self, group: int) -> Outcome:
        """Waits for the outcome of the last actions; the arrays are valid until the next `send`."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the state of the environments, for `restore`."""

    def restore(self, seed: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Continues from the `arrays` of a host environment that was started with the same seed."""

    def close(self) -> None:
        """Closes the environments."""


class GymnasiumHost:
    """Copies of a Gymnasium environment with `Discrete` actions, stepped one after the other.

    Every episode has its own seed, derived from the run's seed, the index of the environment and the number of the
    episode. The state of an environment is therefore the number of its episode and the actions taken in it. It is
    restored by replaying these actions.

    Args:
        env: Id of the environment, or a factory.
        n_envs: Number of copies.
        env_kwargs: Keyword arguments of `gymnasium.make`.
    """

    n_frames, repeats = 1, True

    def __init__(self, env: str | EnvFactory, n_envs: int, env_kwargs: Mapping[str, Any] | None = None) -> None:
        self.env, self.env_kwargs, self.name = env, dict(env_kwargs or {}), name_of(env)
        self._envs = [make_gymnasium_env(env, self.env_kwargs) for _ in range(n_envs)]
        first = self._envs[0]
        if len({id(one) for one in self._envs}) < n_envs:
            raise ValueError(
                f"{self.name} returned the same environment twice: a factory must make a new one each time."
            )
        self.max_steps = time_limit(first)
        self.space: spaces.Space[Any] = first.observation_space
        self.first_action, self.n_actions = actions_of(first, self.name)
        self.noop = noop_of(first) - self.first_action
        if not self.space.is_np_flattenable:
            raise ValueError(
                f"{self.name} has the observation space {self.space}, which cannot be flattened to a vector: wrap the "
                "environment in gymnasium.wrappers.TransformObservation."
            )
        self._is_box = isinstance(self.space, spaces.Box)
        seen: Any = self.space if self._is_box else spaces.flatten_space(self.space)
        self.shape: tuple[int, ...] = tuple(seen.shape or ())
        self.frame_shape = self.shape
        self.dtype: type = np.uint8 if seen.dtype == np.uint8 else np.float32
        self._dtype, self._given_dtype = np.dtype(self.dtype), np.dtype(seen.dtype)
        # Integers of a `Box`, alone or in a `Dict`; those of one-hot vectors are small.
        has_box = isinstance(self.space, spaces.Box | spaces.Dict | spaces.Tuple)
        self._may_round = has_box and self._given_dtype.kind in "iu" and self._given_dtype.itemsize > 2
        self.groups: tuple[slice, ...] = (slice(0, n_envs),)
        self._age = [0] * n_envs  # steps since the last reset

    def like(self, n_envs: int) -> GymnasiumHost:
        """Returns another host environment with `n_envs` copies of the same environment."""
        return GymnasiumHost(self.env, n_envs, self.env_kwargs)

    def first_frames(self, count: int) -> NDArray[Any]:
        """Returns `[count, ...]` first frames of episodes. Only for use before `start`, because it resets a copy."""
        return self.checked(np.stack([self.begin(0, seed) for seed in range(count)]), np.zeros(count, dtype=int))

    def start(self, seed: int) -> None:
        """Begins an episode in every copy."""
        n_envs = len(self._envs)
        self._seed = seed
        self._episode = np.zeros(n_envs, dtype=np.int64)
        self._taken: list[list[int]] = [[] for _ in range(n_envs)]
        self._actions: NDArray[Any] | None = None
        frames = self.checked(np.stack([self._begin(place) for place in range(n_envs)]))
        zeros, never = np.zeros(n_envs, dtype=np.float32), np.zeros(n_envs, dtype=bool)
        self._outcome = Outcome(frames, zeros, never, never, ~never)

    def send(self, group: int, actions: NDArray[Any]) -> None:
        """Stores the actions; `receive` executes them."""
        self._actions = actions

    def receive(self, group: int) -> Outcome:
        """Executes the stored actions, if any, and returns their outcome."""
        if self._actions is not None:
            steps = [self._step(place, int(action)) for place, action in enumerate(self._actions)]
            frames, rewards, terminated, truncated = zip(*steps, strict=True)
            reward, lost = np.array(rewards, dtype=np.float32), np.zeros(len(frames), dtype=bool)
            frame = self.checked(np.stack(frames))
            self._outcome = Outcome(frame, reward, np.array(terminated), np.array(truncated), lost)
            self._actions = None
        return self._outcome

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the last outcome, and for each environment the number of its episode and the actions taken in it."""
        outcome = self.receive(0)
        lengths = np.array([len(taken) for taken in self._taken])
        actions = np.array([action for taken in self._taken for action in taken], dtype=np.int32)
        return {**outcome._asdict(), "episode": self._episode.copy(), "lengths": lengths, "actions": actions}

    def restore(self, seed: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Begins the same episodes and replays their actions."""
        self._seed, self._actions = seed, None
        self._episode = arrays["episode"].copy()
        self._taken = [[] for _ in self._envs]
        ends = np.cumsum(arrays["lengths"])
        for place, taken in enumerate(np.split(arrays["actions"], ends[:-1])):
            frame = self._begin(place)
            for action in taken:
                frame = self._step(place, int(action))[0]
            if not np.array_equal(frame, arrays["frame"][place]):
                warnings.warn(
                    f"{self.name} (environment {place}) does not repeat an episode from its seed: the run continues, "
                    "but not exactly as it would have without the interruption.",
                    stacklevel=2,
                )
        self._outcome = Outcome(*(arrays[name] for name in Outcome._fields))

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs:
            close_env(env, self.name)

    def begin(self, place: int, seed: int) -> NDArray[Any]:
        """Begins an episode in one copy and returns its first frame, instead of `start` and `receive`."""
        self._age[place] = 0
        busy[self] = place, time.monotonic()
        try:
            return self._frame(self._envs[place].reset(seed=seed)[0])
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(place, error) from error
        finally:
            del busy[self]

    def step(self, place: int, action: int) -> tuple[NDArray[Any], float, bool, bool]:
        """Makes a step in one copy, without restarting it; returns frame, reward, terminated and truncated."""
        self._age[place] += 1
        busy[self] = place, time.monotonic()
        try:
            observation, given, terminated, truncated, _ = self._envs[place].step(self.first_action + action)
            frame, reward = self._frame(observation), reward_of(given, LARGEST_REWARD)
            ended, cut = flag_of(terminated, "terminated"), flag_of(truncated, "truncated")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(place, error) from error
        finally:
            del busy[self]
        return frame, reward, ended, cut and not ended

    def checked(self, frames: NDArray[Any], places: NDArray[np.intp] | None = None) -> NDArray[Any]:
        """Returns `[M, ...]` frames; raises `EnvironmentFailed` if one is not finite.

        Args:
            frames: The frames. They are checked together, because this is faster than one by one.
            places: `[M]` copies that they belong to; by default all, in their order.
        """
        if self.dtype == np.float32 and not np.isfinite(frames).all():
            row, *entry = (int(one) for one in np.argwhere(~np.isfinite(frames))[0])
            where = f"observation[{', '.join(map(str, entry))}]" if entry else "the observation"
            place = row if places is None else int(places[row])
            found = frames[(row, *entry)]
            raise EnvironmentFailed(f"{self.place_of(place)}: {where} is {found}, expected a finite number.")
        return frames

    def place_of(self, index: int) -> str:
        """Returns the name of the environment, the index of a copy, and its step, for messages."""
        when = f"step {self._age[index]} of an episode" if self._age[index] else "reset at the start of an episode"
        return f"{self.name}, environment {index} of {len(self._envs)} (from 0), {when}"

    def _failed(self, place: int, error: BaseException) -> EnvironmentFailed:
        return EnvironmentFailed(f"{self.place_of(place)}: {said_by(error)}.")

    @staticmethod
    def episode_seed(seed: int, place: int, episode: int) -> int:
        """Returns the seed of an episode, given the run's seed, the copy, and the number of the episode in it."""
        return int(np.random.SeedSequence(seed, spawn_key=(place, episode)).generate_state(1)[0])

    def _begin(self, place: int) -> NDArray[Any]:
        self._taken[place].clear()
        return self.begin(place, self.episode_seed(self._seed, place, int(self._episode[place])))

    def _step(self, place: int, action: int) -> tuple[NDArray[Any], float, bool, bool]:
        frame, reward, terminated, truncated = self.step(place, action)
        self._taken[place].append(action)
        if terminated or truncated:
            self._episode[place] += 1
            frame = self._begin(place)
        return frame, reward, terminated, truncated

    def _frame(self, observation: Any) -> NDArray[Any]:
        """Returns a copy of an observation as a frame; numbers that are not finite are refused by `checked` only."""
        given: Any
        if self._is_box:
            given = exact_array(observation, self._given_dtype)
        else:
            given = spaces.flatten(self.space, checked_observation(self.space, observation))
        if given.shape != self.frame_shape:
            raise BadOutcome(f"it returned an observation of shape {given.shape}, expected {self.frame_shape}")
        if self._may_round:
            return exact_array(given, self._dtype)
        return given.astype(self._dtype)
