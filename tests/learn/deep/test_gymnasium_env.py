"""Gymnasium environments: what is refused when they are made, and the size of their rewards."""

import gymnasium as gym
import pytest
from echo_env import EchoEnv

from lazymdp.learn.deep.gymnasium_env import make_gymnasium_env, measure_reward_scale
from lazymdp.learn.deep.host_env import GymnasiumHost
from lazymdp.wrappers.lazy_action import LazyAction


def test_what_is_no_environment_is_refused():
    with pytest.raises(ValueError, match=r"env is 'nowhere-v0', which cannot be made: .* give module:Id-v0"):
        make_gymnasium_env("nowhere-v0")
    remedy = r"Run this in the folder that holds no_such_module\.py, or add that folder to PYTHONPATH\.$"
    for name in ("no_such_module:X-v0", "no_such_module.inner:X-v0"):
        with pytest.raises(ValueError, match=f"env is '{name}', which cannot be made: No module named .*{remedy}"):
            make_gymnasium_env(name)
    with pytest.raises(ValueError, match=r"The module echo_env was imported, but it does not register X-v0\.$"):
        make_gymnasium_env("echo_env:X-v0")
    with pytest.raises(ValueError, match=r"env is 'CartPole-v1' with {'wind': 3}, which cannot be made: .*'wind'"):
        make_gymnasium_env("CartPole-v1", {"wind": 3})
    with pytest.raises(TypeError, match=r"the factory .*<lambda> returned a int, expected a Gymnasium environment"):
        make_gymnasium_env(lambda: 3)
    with pytest.raises(ValueError, match="has a lazy action already: give the environment without LazyAction"):
        make_gymnasium_env(lambda: gym.wrappers.TimeLimit(LazyAction(EchoEnv()), 5))
    one = EchoEnv()
    with pytest.raises(ValueError, match="returned the same environment twice: a factory must make a new one"):
        GymnasiumHost(lambda: one, 2)

    class Listing(EchoEnv):
        def __init__(self):
            super().__init__()
            self.observation_space = gym.spaces.Sequence(gym.spaces.Discrete(3))

    with pytest.raises(ValueError, match=r"observation space Sequence.*, which cannot be flattened to a vector"):
        GymnasiumHost(Listing, 1)


def test_a_module_that_is_found_but_imports_one_that_is_missing_is_not_looked_for_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "needs_more.py").write_text("import no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"No module named 'no_such_module'\. .*can be imported\.$"):
        make_gymnasium_env("needs_more:X-v0")


def test_the_size_of_rewards_is_measured_before_training():
    assert measure_reward_scale("CartPole-v1") == 1.0
    assert measure_reward_scale("CartPole-v1") == measure_reward_scale("CartPole-v1", {})

    class Paid(gym.RewardWrapper):
        def reward(self, reward):
            return 300.0 * reward

    assert measure_reward_scale(lambda: Paid(gym.make("CartPole-v1"))) == 300.0
    assert measure_reward_scale("MountainCar-v0", {"max_episode_steps": 20}) == 1.0

    assert measure_reward_scale("FrozenLake-v1") == 1.0  # rewards are rare

    class Unpaid(gym.RewardWrapper):
        def reward(self, reward):
            return 0.0

    assert measure_reward_scale(lambda: Unpaid(gym.make("CartPole-v1"))) == 1.0
