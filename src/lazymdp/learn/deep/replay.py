"""The replay buffer of DQN: the last steps of all environments, in a ring buffer on the device.

Each step stores only its own observation. The next observation is that of the next step of the same environment, so the
newest step cannot be used for learning yet, and a step at which an episode is truncated can never be used. Frames are
stored once and stacked when a step is sampled.
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
    """The last T steps of N environments; fields are `[T, N]` unless noted. Step `t` is in row `t % T`."""

    observation: Array  # [T, N, ...] the newest frame, if observations are stacks
    taught: Array  # index of the network output that the step trains
    reward: Array  # used for learning, clipped if the settings say so
    terminated: Array
    truncated: Array  # by a time limit, or because the emulator was replaced


class Batch(NamedTuple):
    """Replayed steps; fields are `[B]` unless noted."""

    observation: Array  # [B, ...]
    taught: Array
    reward: Array
    terminated: Array
    next_observation: Array  # [B, ...]
    weight: Array  # 0 where the episode was truncated, so that the next observation is unknown; otherwise 1


def empty(n_rows: int, n_envs: int, shape: tuple[int, ...], dtype: type) -> Replay:
    """Returns an empty buffer for frames of the given shape."""
    size = (n_rows, n_envs)
    return Replay(
        jnp.zeros((*size, *shape), dtype),
        jnp.zeros(size, jnp.int32),
        jnp.zeros(size),
        jnp.zeros(size, bool),
        jnp.zeros(size, bool),
    )


def record(replay: Replay, group: Group, time: Array, outcome: Outcome, reward: Array, choice: Choice) -> Replay:
    """Records the outcome of a group's choices at `time - 1`, and its observations and choices at `time`."""
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
    """Draws steps uniformly from all environments and from all steps but the newest.

    Args:
        replay: The buffer.
        n_recorded: Steps recorded so far per environment, at least 2.
        batch_size: Number of steps to draw.
        n_frames: Number of frames in an observation.
        key: Random key.
    """
    n_rows, n_envs = replay.reward.shape
    oldest = jnp.minimum(n_recorded, n_rows - n_frames + 1)  # exclusive bound: all frames must still be stored
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
    """Returns `[B, ...]` observations at the given times; frames before the start of an episode are black."""
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
    """Returns steps `first` to `last` of every environment, by name."""
    rows = jnp.arange(first, last + 1) % replay.reward.shape[0]
    return {name: np.asarray(buffer[rows]) for name, buffer in replay._asdict().items()}


def from_arrays(replay: Replay, first: int, arrays: dict[str, NDArray[Any]]) -> Replay:
    """Returns the buffer with saved steps restored, from step `first` on; the buffer passed in is donated."""
    rows = (first + np.arange(len(arrays["reward"]))) % replay.reward.shape[0]
    return _put_rows(replay, rows, Replay(**{name: arrays[name] for name in Replay._fields}))


@functools.partial(jax.jit, donate_argnums=0)  # in place, because there may be no room for two buffers
def _put_rows(replay: Replay, rows: NDArray[np.int64], steps: Replay) -> Replay:
    return jax.tree.map(lambda buffer, new: buffer.at[rows].set(new), replay, steps)
