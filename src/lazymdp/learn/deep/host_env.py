"""Environments that cannot be compiled: they step on the host, while the network works on the device.

A host has N environments, in one group or more. `send` hands a group its actions and returns; `receive` waits for what
came of them. Between the two there is time for other work, and one group can step while another waits for its actions.
A new episode starts by itself where one is over. `arrays` and `restore` put the environments down and pick them up.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp.defaults.protocol import noop_action


class Seen(NamedTuple):
    """What came of the last actions of a group, `[M]` each."""

    frame: NDArray[Any]  # [M, ...] what is shown now, of a new episode where one is over
    reward: NDArray[np.float32]
    ended: NDArray[np.bool_]
    cut: NDArray[np.bool_]  # a new episode began though this one could have gone on
    lost: NDArray[
        np.bool_
    ]  # a new episode began and nothing is known of the one before; so it is at the start of a run

    @property
    def over(self) -> Any:
        """Where a new episode began."""
        return self.ended | self.cut | self.lost


class Host(Protocol):
    """N environments that step on the host.

    Attributes:
        shape: Of an observation: of a frame, with the number of frames stacked behind it if there are several.
        dtype: Of a frame, `uint8` or `float32`.
        stack: Frames that make an observation.
        n_actions: Of one environment.
        noop: The action taken to have come before the first of an episode.
        space: Of the observations as the environment shows them, before they are flattened.
        groups: The environments of each group, of equal size.
        max_steps: After which an episode is cut off, None if never.
        repeats: Whether `restore` brings the very same episodes back.
    """

    shape: tuple[int, ...]
    dtype: type
    stack: int
    n_actions: int
    noop: int
    space: spaces.Space[Any]
    groups: tuple[slice, ...]
    max_steps: int | None
    repeats: bool

    def like(self, n_envs: int) -> Host:
        """Another host of the same environment."""

    def start(self, seed: int) -> None:
        """Begins an episode everywhere; `receive` then shows it."""

    def send(self, group: int, actions: NDArray[Any]) -> None:
        """Hands over `[M]` actions, numbered from 0."""

    def receive(self, group: int) -> Seen:
        """Waits for what came of them; the arrays hold until the next `send`."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The environments as they are, to go on from."""

    def restore(self, seed: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from `arrays` of a host started with the same seed."""

    def close(self) -> None:
        """Ends the environments."""


class GymnasiumHost:
    """Copies of a Gymnasium environment with `Discrete` actions, stepped one after the other.

    Every episode starts from a seed of its own, made of the run's seed, the environment and the episode's number. So an
    environment is put down as the number of its episode and the actions since, and picked up by taking them again.

    Args:
        env: Id of the environment.
        n_envs: Number of copies.
    """

    stack, repeats = 1, True

    def __init__(self, env: str, n_envs: int) -> None:
        self.name = env
        self._envs = [make_env(env) for _ in range(n_envs)]
        first = self._envs[0]
        self.max_steps = None if first.spec is None else first.spec.max_episode_steps
        self.space: spaces.Space[Any] = first.observation_space
        if not isinstance(first.action_space, spaces.Discrete):
            raise ValueError(f"{env} has actions {first.action_space}, expected Discrete.")
        if not isinstance(first.observation_space, spaces.Box):
            self._envs = [gym.wrappers.FlattenObservation(one) for one in self._envs]
        seen = self._envs[0].observation_space
        self.shape: tuple[int, ...] = tuple(seen.shape or ())
        self.dtype: type = np.uint8 if seen.dtype == np.uint8 else np.float32
        meanings = getattr(first.unwrapped, "get_action_meanings", None)
        self.first_action = int(first.action_space.start)
        self.n_actions = int(first.action_space.n)
        self.noop = noop_action(first.action_space, meanings() if meanings else None) - self.first_action
        self.groups: tuple[slice, ...] = (slice(0, n_envs),)

    def like(self, n_envs: int) -> GymnasiumHost:
        """Another host of the same environment."""
        return GymnasiumHost(self.name, n_envs)

    def start(self, seed: int) -> None:
        """Begins an episode everywhere."""
        n_envs = len(self._envs)
        self._seed = seed
        self._episode = np.zeros(n_envs, dtype=np.int64)
        self._taken: list[list[int]] = [[] for _ in range(n_envs)]
        self._actions: NDArray[Any] | None = None
        frames = np.stack([self._begin(place) for place in range(n_envs)])
        nothing, never = np.zeros(n_envs, dtype=np.float32), np.zeros(n_envs, dtype=bool)
        self._seen = Seen(frames, nothing, never, never, ~never)

    def send(self, group: int, actions: NDArray[Any]) -> None:
        """Notes the actions; they are taken when what comes of them is asked for."""
        self._actions = actions

    def receive(self, group: int) -> Seen:
        """Takes the actions noted, if there are any, and tells what came of them."""
        if self._actions is not None:
            steps = [self._step(place, int(action)) for place, action in enumerate(self._actions)]
            frames, rewards, ended, cut = zip(*steps, strict=True)
            reward, none_lost = np.array(rewards, dtype=np.float32), np.zeros(len(ended), dtype=bool)
            self._seen = Seen(np.stack(frames), reward, np.array(ended), np.array(cut), none_lost)
            self._actions = None
        return self._seen

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is seen now, and of every environment its episode's number and the actions since."""
        seen = self.receive(0)
        lengths = np.array([len(taken) for taken in self._taken])
        actions = np.array([action for taken in self._taken for action in taken], dtype=np.int32)
        return {**seen._asdict(), "episode": self._episode.copy(), "lengths": lengths, "actions": actions}

    def restore(self, seed: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Begins the same episodes and takes the same actions."""
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
                    f"{self.name} does not repeat itself from its seed (environment {place}): the run goes on, but "
                    "not as it would have.",
                    stacklevel=2,
                )
        self._seen = Seen(*(arrays[name] for name in Seen._fields))

    def close(self) -> None:
        """Ends the environments."""
        for env in self._envs:
            env.close()

    def _begin(self, place: int) -> NDArray[Any]:
        self._taken[place].clear()
        seed = self._seed_of(self._seed, place, int(self._episode[place]))
        return self._frame(self._envs[place].reset(seed=seed)[0])

    @staticmethod
    def _seed_of(seed: int, place: int, episode: int) -> int:
        return int(np.random.SeedSequence(seed, spawn_key=(place, episode)).generate_state(1)[0])

    def _step(self, place: int, action: int) -> tuple[NDArray[Any], float, bool, bool]:
        seen, reward, ended, cut, _ = self._envs[place].step(self.first_action + action)
        self._taken[place].append(action)
        if ended or cut:
            self._episode[place] += 1
            return self._begin(place), float(reward), bool(ended), bool(cut and not ended)
        return self._frame(seen), float(reward), False, False

    def _frame(self, seen: Any) -> NDArray[Any]:
        return np.array(seen, dtype=self.dtype)


def make_env(env: str) -> gym.Env[Any, Any]:
    """An environment by its id."""
    try:
        return gym.make(env)
    except gym.error.Error as error:
        raise ValueError(f"the environment {env!r} cannot be made: {error}") from error
