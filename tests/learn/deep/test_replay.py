"""The replay buffer: what is sampled from it, how frames are stacked, and how it is saved."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from small_runs import same  # noqa: E402

from lazymdp.learn.deep import replay  # noqa: E402
from lazymdp.learn.deep.acting import Choice, Group  # noqa: E402
from lazymdp.learn.deep.host_env import Outcome  # noqa: E402

ROWS, ENVS = 5, 3


@pytest.fixture(scope="module")
def recorded():
    """17 steps (observation, taught, reward, terminated, truncated, `[3]` each), and the buffer after each of them."""
    generator, record, steps, buffers = np.random.default_rng(0), jax.jit(replay.record), [], []
    buffer = replay.empty(ROWS, ENVS, (2,), jnp.float32)
    zeros, never = np.zeros(ENVS, np.float32), np.zeros(ENVS, bool)
    before = (zeros, zeros, zeros, never, never)
    for now in range(17):
        seen = np.array([[now, env] for env in range(ENVS)], dtype=np.float32)
        flags = generator.random((2, ENVS)) < 0.3
        taught, reward = generator.integers(3, size=ENVS), generator.normal(size=ENVS).astype(np.float32)
        steps.append((seen, taught, reward, flags[0], flags[1] & ~flags[0]))
        lost = before[4] & (generator.random(ENVS) < 0.5)  # an emulator was replaced: counts as truncated
        outcome = Outcome(seen, before[2], before[3], before[4] & ~lost, lost)
        choice = Choice(taught, taught, never, never, never, zeros, zeros)
        # Group after group, as environments on the host act.
        for group, part in ((Group(0, 2), slice(0, 2)), (Group(2, 1), slice(2, 3))):
            mine = Outcome(*(column[part] for column in outcome))
            buffer = record(
                buffer, group, jnp.int32(now), mine, before[2][part], Choice(*(column[part] for column in choice))
            )
        before = steps[-1]
        buffers.append(buffer)
    return steps, buffers


def test_a_sample_is_a_step_and_the_next_one_of_the_same_environment(recorded):
    steps, buffers = recorded
    assert buffers[0].observation.shape == (ROWS, ENVS, 2)
    sample = jax.jit(replay.sample, static_argnums=(2, 3))
    for now in range(1, 17):
        batch = jax.tree.map(np.asarray, sample(buffers[now], jnp.int32(now + 1), 256, 1, jax.random.key(now)))
        times = range(max(0, now - ROWS + 1), now)  # all but the newest
        drawn = {(int(time), int(env)) for time, env in batch.observation}
        assert drawn == {(time, env) for time in times for env in range(ENVS)}
        for i, (time, env) in enumerate(batch.observation.astype(int)):
            _, taught, reward, terminated, truncated = (x[env] for x in steps[time])
            assert tuple(batch.next_observation[i]) == (time + 1, env)
            assert (batch.taught[i], batch.terminated[i], batch.weight[i]) == (taught, terminated, not truncated)
            np.testing.assert_allclose(batch.reward[i], reward, rtol=1e-6)


def test_frames_are_stacked_within_their_episode(recorded):
    steps, buffers = recorded
    sample = jax.jit(replay.sample, static_argnums=(2, 3))
    for now in (3, 9, 16):
        batch = jax.tree.map(np.asarray, sample(buffers[now], jnp.int32(now + 1), 256, 3, jax.random.key(now)))
        newest = {int(time) for time in batch.observation[:, 0, 2]}
        assert newest == set(range(max(0, now - ROWS + 3), now))  # old enough frames are no longer there
        for seen, when in ((batch.observation, 0), (batch.next_observation, 1)):
            for i, (time, env) in enumerate(batch.observation[:, :, 2].astype(int)):
                known = True
                for back in range(3):
                    at = time + when - back
                    known = known and at >= 0 and not (back > 0 and (steps[at][3][env] or steps[at][4][env]))
                    np.testing.assert_array_equal(seen[i, :, 2 - back], (at, env) if known else (0, 0))


def test_the_buffer_is_saved_and_restored_in_parts(recorded):
    _, buffers = recorded
    whole, empty = buffers[16], replay.empty(ROWS, ENVS, (2,), jnp.float32)
    parts = [(first, replay.to_arrays(whole, first, last)) for first, last in ((12, 13), (13, 15), (15, 16))]
    for first, arrays in parts:
        empty = replay.from_arrays(empty, first, arrays)
    same(empty._asdict(), whole._asdict())
