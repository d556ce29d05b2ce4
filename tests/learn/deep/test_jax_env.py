"""Compiled environments: finite models, transition tables, MinAtar."""

import gymnasium as gym
import numpy as np
import pytest
from small_runs import chain

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import lazymdp as lz  # noqa: E402
from lazymdp.envs.toy_text import read_table  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp, from_table, minatar, restart_where  # noqa: E402


def test_a_model_as_an_environment_follows_its_probabilities():
    generator = np.random.default_rng(3)
    transitions = generator.dirichlet(np.ones(4), size=(4, 2))
    mdp = lz.MDP(transitions, generator.normal(size=(4, 2)), 0.9, start=[0.5, 0.5, 0.0, 0.0])
    env = from_mdp(mdp)
    keys = jax.random.split(jax.random.key(0), 20_000)
    starts = np.asarray(jax.vmap(env.reset)(keys))[:, 0]
    assert abs((starts == 0).mean() - 0.5) < 0.02 and starts.max() == 1
    states = jnp.tile(jnp.array([2, 0]), (20_000, 1))
    after, reward, terminated, truncated = jax.vmap(env.step)(states, jnp.ones(20_000, int), keys)
    np.testing.assert_allclose(np.bincount(np.asarray(after)[:, 0], minlength=4) / 20_000, transitions[2, 1], atol=0.02)
    np.testing.assert_allclose(reward, mdp.rewards[2, 1], rtol=1e-6)
    assert not terminated.any() and not truncated.any()
    np.testing.assert_array_equal(jax.vmap(env.observe)(after), np.eye(4)[np.asarray(after)[:, 0]])
    assert (env.shape, env.frame_shape, env.dtype, env.n_actions) == ((4,), (4,), jnp.float32, 2)


def test_the_last_step_before_the_limit_is_truncated_even_if_it_reaches_the_goal():
    env, key = from_mdp(chain(), max_steps=6), jax.random.key(0)
    assert env.max_steps == 6
    for steps, terminates in ((4, True), (5, False)):
        state, reward, terminated, truncated = env.step(jnp.array([5, steps]), jnp.int32(1), key)
        assert state.tolist() == [6, steps + 1] and reward == 1.0  # the step does not restart the episode
        assert (bool(terminated), bool(truncated)) == (terminates, not terminates)


def test_a_table_gives_the_reward_of_the_transition_drawn():
    made = gym.make("FrozenLake-v1", is_slippery=True)
    env = from_table(read_table(made.unwrapped), 100)
    states = jnp.tile(jnp.array([14, 0]), (20_000, 1))  # beside the goal: every direction may slip into it
    keys = jax.random.split(jax.random.key(0), 20_000)
    after, reward, terminated, _ = jax.vmap(env.step)(states, jnp.full(20_000, 2), keys)
    goal = np.asarray(after)[:, 0] == 15
    np.testing.assert_array_equal(reward, goal)
    np.testing.assert_array_equal(terminated, goal)
    assert abs(goal.mean() - 1.0 / 3.0) < 0.02
    expected = from_mdp(lz.MDP.from_gymnasium(made, 0.9), 100)
    np.testing.assert_allclose(jax.vmap(expected.step)(states, jnp.full(20_000, 2), keys)[1], 1.0 / 3.0, rtol=1e-5)
    table = read_table(gym.make("Taxi-v4").unwrapped)  # has one state more than the environment
    taxi, mdp = from_table(table), lz.MDP.from_gymnasium(gym.make("Taxi-v4"), 0.9)
    assert taxi.shape == (mdp.n_states,)
    np.testing.assert_allclose(table.gains.sum(axis=1).reshape(mdp.rewards.shape), mdp.rewards, atol=1e-12)


def test_minatar_games_restart_and_an_unknown_game_is_named():
    pytest.importorskip("pgx")
    with pytest.raises(ValueError, match="no MinAtar game 'pong'; the games are asterix"):
        minatar("pong")
    env = minatar("breakout")

    @jax.jit
    @jax.vmap
    def step(state, key):
        step_key, start_key = jax.random.split(key)
        after, _, terminated, truncated = env.step(state, 0, step_key)
        return restart_where(terminated | truncated, env.reset(start_key), after), terminated | truncated

    states, ended = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 8)), 0
    for number in range(60):
        states, now = step(states, jax.random.split(jax.random.key(number), 8))
        ended += int(now.sum())
    assert ended >= 8 and not bool(states.terminated.any())
    assert jax.vmap(env.observe)(states).shape == (8, *env.shape)
