"""Stable-Baselines3 evaluates an agent like one of its own models (`make test-interop`)."""

import gymnasium as gym
import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from small_runs import untrained_agent

pytest.importorskip("jax")
pytest.importorskip("torch")
pytest.importorskip("stable_baselines3")
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("eta", [0.0, 0.02, 0.5])
def test_it_finds_the_net_return_that_the_agent_finds_itself(eta):
    agent = untrained_agent("CartPole-v1")
    env = make_vec_env(lambda: agent.wrap(gym.make("CartPole-v1"), eta), seed=0)  # seeded, so the test is not random
    returns, _ = evaluate_policy(agent.at(eta), env, 100, return_episode_rewards=True)
    ours = agent.evaluate([eta], episodes=400).net_returns[0]
    spread = np.hypot(np.std(returns) / 10.0, np.std(ours) / 20.0)
    assert abs(np.mean(returns) - ours.mean()) < 3.0 * spread + 1e-6


@pytest.mark.parametrize("env", ["lazymdp-tests/Chain-v0", "lazymdp-tests/Dict-v0"])
def test_it_evaluates_in_several_environments_at_once(env):
    agent = untrained_agent(env, "repeat")
    venv = make_vec_env(lambda: agent.make_env(0.1), n_envs=3, seed=0)
    mean, _ = evaluate_policy(agent.at(0.1), venv, 12, deterministic=False)
    ours = agent.evaluate([0.1], episodes=200, epsilon=agent.algorithm.config.final_epsilon).net_returns[0]
    assert abs(mean - ours.mean()) < 4.0 * ours.std() / np.sqrt(12) + 1e-6


def test_it_evaluates_with_images():
    pytest.importorskip("pgx")
    agent = untrained_agent("minatar/breakout")
    mean, _ = evaluate_policy(agent.at(0.1), Monitor(agent.make_env(0.1)), 3)  # a single environment, not seeded
    assert np.isfinite(mean)
