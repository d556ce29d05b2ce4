"""The replay buffer of DQN: the last steps of all environments, as a ring on the device.

Single observations are stored, not pairs: what follows a step is the next one of the same environment. So the newest
step cannot be learned from yet, and a step at which an episode was truncated never can. Frames are stored once and
stacked when a step is sampled.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lazymdp.learn.deep.acting import Choice, Group
from lazymdp.learn.deep.host_env import Outcome


class Replay(NamedTuple):
    """The last T steps of N environments, `[T, N]` each; step `t` is in row `t % T`."""

    observation: Array  # [T, N, ...] the newest frame, where observations are stacks
    taught: Array  # network output that the step teaches
    reward: Array  # as learned from
    terminated: Array
    truncated: Array  # the episode was cut short, by a limit or because its emulator was replaced


class Batch(NamedTuple):
    """Replayed steps, `[B]` each."""

    observation: Array  # [B, ...]
    taught: Array
    reward: Array
    terminated: Array
    next_observation: Array  # [B, ...]
    weight: Array  # 0 where the next observation is unknown because the episode was truncated


def empty(n_rows: int, n_envs: int, shape: tuple[int, ...], dtype: type) -> Replay:
    """A buffer without steps, for frames of this shape."""
    size = (n_rows, n_envs)
    return Replay(
        jnp.zeros((*size, *shape), dtype),
        jnp.zeros(size, jnp.int32),
        jnp.zeros(size),
        jnp.zeros(size, bool),
        jnp.zeros(size, bool),
    )


def record(replay: Replay, group: Group, time: Array, outcome: Outcome, reward: Array, choice: Choice) -> Replay:
    """Records what came of a group's choices at `time - 1`, and what it saw and chose at `time`."""
    n_rows = replay.reward.shape[0]
    before, now = (time - 1) % n_rows, time % n_rows
    return Replay(
        group.put_row(replay.observation, now, outcome.frame),
        group.put_row(replay.taught, now, choice.taught),
        group.put_row(replay.reward, before, reward),
        group.put_row(replay.terminated, before, outcome.terminated),
        group.put_row(replay.truncated, before, outcome.truncated | outcome.lost),
    )


def sample(replay: Replay, n_recorded: Array, batch_size: int, n_frames: int, key: Array) -> Batch:
    """Draws steps uniformly from all but the newest.

    Args:
        replay: The buffer.
        n_recorded: Steps recorded so far per environment, at least 2.
        batch_size: Number of steps to draw.
        n_frames: Frames of an observation.
        key: Random key.
    """
    n_rows, n_envs = replay.reward.shape
    oldest = jnp.minimum(n_recorded, n_rows - n_frames + 1)  # the age at which all frames are still there
    low, high = jnp.array([[1], [0]]), jnp.stack([oldest, n_envs])
    age, env = jax.random.randint(key, (2, batch_size), low, high[:, None])
    time = n_recorded - 1 - age
    row = time % n_rows
    return Batch(
        _observation(replay, time, env, n_frames),
        replay.taught[row, env],
        replay.reward[row, env],
        replay.terminated[row, env],
        _observation(replay, time + 1, env, n_frames),
        1.0 - replay.truncated[row, env],
    )


def _observation(replay: Replay, time: Array, env: Array, n_frames: int) -> Array:
    """`[B, ...]` observations at these times; frames before an episode's start are black."""
    n_rows = replay.reward.shape[0]
    if n_frames == 1:
        return replay.observation[time % n_rows, env]
    frames, known = [], jnp.ones_like(time, dtype=bool)
    for back in range(n_frames):
        row = (time - back) % n_rows
        if back > 0:
            known &= (time >= back) & ~(replay.terminated[row, env] | replay.truncated[row, env])
        frame = replay.observation[row, env]
        frames.append(frame * known.reshape(-1, *(1 for _ in frame.shape[1:])))
    return jnp.stack(frames[::-1], -1)


def to_arrays(replay: Replay, first: int, last: int) -> dict[str, NDArray[Any]]:
    """Steps `first` to `last` of every environment, by name."""
    rows = jnp.arange(first, last + 1) % replay.reward.shape[0]
    return {name: np.asarray(buffer[rows]) for name, buffer in replay._asdict().items()}


def from_arrays(replay: Replay, first: int, arrays: dict[str, NDArray[Any]]) -> Replay:
    """The buffer with the steps from `first` on put back; it is donated."""
    rows = (first + np.arange(len(arrays["reward"]))) % replay.reward.shape[0]
    return _put_rows(replay, rows, Replay(**{name: arrays[name] for name in Replay._fields}))


@functools.partial(jax.jit, donate_argnums=0)  # in place: there may be no room for two buffers
def _put_rows(replay: Replay, rows: NDArray[np.int64], steps: Replay) -> Replay:
    return jax.tree.map(lambda buffer, new: buffer.at[rows].set(new), replay, steps)
