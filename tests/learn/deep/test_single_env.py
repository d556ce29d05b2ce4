"""The environment of training as a single Gymnasium environment: the same observations, rewards and ends."""

import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
import small_envs
from gymnasium.utils.env_checker import check_env
from small_runs import chain, untrained_agent

jax = pytest.importorskip("jax")

from lazymdp.learn.deep.jax_env import from_mdp, minatar  # noqa: E402
from lazymdp.learn.deep.single_env import CompiledEnv, make_single  # noqa: E402


def played(env, seed, steps=60):
    """Observations and rewards of random steps."""
    generator, seen = np.random.default_rng(0), [env.reset(seed=seed)[0]]
    rewards = []
    for _ in range(steps):
        observation, reward, terminated, truncated, _ = env.step(generator.integers(env.action_space.n))
        assert env.observation_space.contains(observation) and not (terminated and truncated)
        seen.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            seen.append(env.reset()[0])
    return np.array(seen), np.array(rewards)


def test_a_minatar_game_is_an_environment_that_can_be_drawn():
    pytest.importorskip("pgx")
    agent = untrained_agent("minatar/breakout")
    env = agent.make_env(0.1, render_mode="rgb_array")
    assert env.action_space.n == agent.algorithm.env.n_actions + 1 and env.observation_space.shape == (10, 10, 4)
    first, rewards = played(env, 0)
    again, _ = played(env, 0)
    np.testing.assert_array_equal(first, again)
    assert len(first) > 60 and first.dtype == bool and rewards.min() == -0.1
    other, _ = played(env, 1)
    assert first.shape != other.shape or (first != other).any()
    image = env.render()
    assert image.shape == (240, 240, 3) and image.dtype == np.uint8 and len(np.unique(image.reshape(-1, 3), axis=0)) > 2
    actions, _ = agent.predict(first, eta=0.1)
    assert actions.shape == (len(first),)
    assert agent.make_env(0.1).render() is None
    check_env(env.unwrapped, skip_render_check=True)
    with pytest.raises(ValueError, match="render_mode is 'human', expected rgb_array or None"):
        agent.make_env(0.1, render_mode="human")


def test_a_compiled_game_makes_the_steps_of_training():
    """With the same keys, the environment shows what the compiled functions show."""
    pytest.importorskip("pgx")
    game = minatar("breakout")
    env, generator = CompiledEnv(game), np.random.default_rng(5)
    reset, step = jax.jit(game.reset), jax.jit(game.step)
    env.np_random = np.random.default_rng(5)
    keys = [jax.random.key(int(generator.integers(2**31))) for _ in range(21)]
    seen, _ = env.reset()
    state = reset(keys[0])
    np.testing.assert_array_equal(seen, game.observe(state))
    for number in range(1, 21):
        seen, reward, *_ = env.step(number % 3)
        state, expected, *_ = step(state, number % 3, keys[number])
        np.testing.assert_array_equal(seen, game.observe(state))
        assert reward == expected


def test_a_table_is_the_environment_that_it_was_read_from():
    env = untrained_agent("FrozenLake-v1").make_env(0.1, render_mode="ansi")
    assert (
        isinstance(env.unwrapped, gym.make("FrozenLake-v1").unwrapped.__class__) and env.spec.max_episode_steps == 100
    )
    assert env.reset(seed=0)[0] == 0 and "S" in env.render()


def test_a_finite_model_shows_its_states_as_numbers():
    env = CompiledEnv(from_mdp(chain(), max_steps=20))
    seen, _ = played(env, 0)
    assert set(seen.tolist()) <= set(range(7)) and len(set(seen.tolist())) > 3
    with pytest.raises(ValueError, match="render_mode is 'rgb_array', expected None"):
        CompiledEnv(from_mdp(chain()), "rgb_array")


def test_environments_that_cannot_be_made_alone_say_what_to_do():
    with pytest.raises(TypeError, match=r"CountingHost cannot be made .*agent\.wrap\(env, eta\)"):
        make_single(small_envs.CountingHost())


ATARI = """
import os
import ale_py
import numpy as np
from lazymdp.learn.deep import atari
from lazymdp.learn.deep.single_env import make_atari

game, count = atari._game("ALE/Breakout-v5")
env, training = make_atari("ALE/Breakout-v5", render_mode="rgb_array"), atari.vector_env(game, 1, 1)
assert env.action_space.n == count
first, _ = env.reset(seed=1)
assert env.observation_space.contains(first) and not first[..., :3].any() and first[..., 3].any()  # black before
env.unwrapped.ale.setInt("random_seed", 7)  # the seed of training, so that sticky actions agree
env.unwrapped.ale.loadROM(ale_py.roms.get_rom_path(game))
frames, _ = training.reset(seed=7)
env.env.reset()
ended, generator = 0, np.random.default_rng(0)
for _ in range(400):
    action = int(generator.integers(count))
    frames, rewards, terminated, truncated, _ = training.step(np.array([action]))
    seen, reward, over, cut, _ = env.step(action)
    assert (reward, over, cut) == (rewards[0], terminated[0], truncated[0])
    if over:
        ended += 1
        break
    assert (seen[..., -1] == frames[0, 0]).all()
assert ended == 1 and env.render().shape == (210, 160, 3)
again, _ = env.reset(seed=1)
assert (again == first).all()
print("as in training", flush=True)
os._exit(0)
"""


def test_an_atari_game_shows_what_the_agent_saw_in_training():
    pytest.importorskip("ale_py")
    found = subprocess.run([sys.executable, "-c", ATARI], capture_output=True, text=True, timeout=300)
    assert "as in training" in found.stdout, found.stderr


def test_an_agent_acts_in_an_atari_game():
    pytest.importorskip("ale_py")
    agent = untrained_agent("ALE/Pong-v5", "noop", network="mlp")
    env = agent.make_env(0.1)
    seen, _ = env.reset(seed=0)
    assert agent.predict(seen, eta=0.0)[0] in range(7)
    seen, reward, *_, info = env.step(env.lazy_action)
    assert seen.shape == (84, 84, 4) and info["base_action"] == 0 and reward == 0.0
    again = gym.make(env.spec)  # as Gymnasium's environment checker does
    assert (again.observation_space, again.action_space) == (env.observation_space, env.action_space)
    env.close()
