"""Copies of an environment keep what was changed in it, and none is used that does something else."""

import copy
import functools
import sys
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils import EzPickle

pytest.importorskip("pyarrow")
pytest.importorskip("imageio_ffmpeg")

import lazymdp as lz
from lazymdp.explain import critic
from lazymdp.explain import frontier as frontiers
from lazymdp.explain.env_copies import CannotCopy, copies_of
from lazymdp.explain.ranking_trust import player_trust
from lazymdp.explain.record import make_player


def upright(observation):
    return int(observation[2] + 0.3 * observation[3] > 0.0)


def right(observation):
    return 1


class Scale(gym.ObservationWrapper):
    """Does not record the arguments of its constructor, so that its spec cannot make it again."""

    def observation(self, observation):
        return 2.0 * observation


class Counter(gym.Env):
    """Counts its steps; `gain` is the reward of each."""

    observation_space, action_space = gym.spaces.Box(0, 99, (1,)), gym.spaces.Discrete(2)

    def __init__(self, gain=1.0):
        self.gain, self.count = gain, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.full(1, self.count, np.float32), self.gain, self.count == 7, False, {}


class Shared(Counter):
    """One counter that all copies share."""

    def __deepcopy__(self, memo):
        return copy.copy(self)

    count = property(lambda self: Shared.total, lambda self, count: setattr(Shared, "total", count))


class Pickled(Counter, EzPickle):
    """Is copied from the arguments of its constructor, and so loses changes, like environments of Box2D."""

    def __init__(self, gain=1.0):
        EzPickle.__init__(self, gain)
        super().__init__(gain)


def steps_of(env, agent):
    observation, _ = env.reset(seed=3)
    total, over = [], False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(agent(observation))
        total.append((*observation.tolist(), reward))
        over = terminated or truncated
    return total


def test_changes_made_to_an_environment_are_kept():
    env = gym.make("CartPole-v1", max_episode_steps=30)
    env.unwrapped.length = 0.1
    player = make_player(right, env, None, None)
    make = copies_of(player)
    first, second = make(), make()
    assert steps_of(first, right) == steps_of(env, right) == steps_of(second, right)
    assert steps_of(first, right) != steps_of(gym.make("CartPole-v1", max_episode_steps=30), right)


def test_an_environment_that_was_drawn_is_made_again_from_its_spec():
    env = gym.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=30)
    env.reset(seed=0), env.render()
    with pytest.raises(TypeError, match="cannot pickle"):
        copy.deepcopy(env)
    copied = copies_of(make_player(upright, env, None, None))()
    assert copied.render_mode is None and steps_of(copied, upright) == steps_of(env, upright)
    env.unwrapped.length = 0.1  # which its spec does not know
    with pytest.raises(CannotCopy, match=r"cannot pickle .*; a copy does not repeat its episodes\.$"):
        copies_of(make_player(upright, env, None, None))


@pytest.mark.parametrize("kind", [Shared, Pickled])
def test_a_copy_that_does_something_else_is_not_used(kind):
    env = kind()
    env.gain = 2.0
    with pytest.raises(CannotCopy, match="a copy does not repeat its episodes; it has no spec"):
        copies_of(make_player(right, env, None, None))
    assert copies_of(make_player(right, Pickled(2.0), None, None))().gain == 2.0


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(critic, "fit_critic", functools.partial(critic.fit_critic, steps=300, updates=20))
    monkeypatch.setattr(frontiers, "FEWER_EPISODES", 1)
    module = sys.modules["lazymdp.explain.explain"]  # the package has a function of this name
    monkeypatch.setattr(module, "player_trust", functools.partial(player_trust, episodes=2))


def explained(env, path, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without frames
        lz.explain.explain(
            upright, env, path=path, folder=folder, episodes=1, moments=1, max_steps=60, default_policy=0
        )
    return lz.explain.load(folder).about, path.read_text()


def test_a_wrapped_environment_that_cannot_be_made_again_is_explained(tmp_path, quick):
    env = Scale(gym.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=40))
    about, page = explained(env, tmp_path / "p.html", tmp_path / "r")
    assert len(about["fidelity"]) == 3 and "Steps in fact handed over" in page


def test_a_page_is_written_without_the_fidelity_if_no_copy_can_be_made(tmp_path, quick):
    env = Scale(gym.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=40))
    env.reset(seed=0), env.render()
    about, page = explained(env, tmp_path / "p.html", tmp_path / "r")
    assert "fidelity" not in about and "Scale wrapper" in about["no_fidelity"]
    assert "It is measured in copies of the environment, but the environment cannot be copied: cannot pickle" in page
    with pytest.raises(CannotCopy, match="the environment cannot be copied: .*Scale wrapper"):
        lz.explain.ranking_trust(upright, env, episodes=1)


def test_a_trained_agent_plays_copies_of_the_given_environment():
    pytest.importorskip("jax")
    from small_runs import untrained_agent

    agent = untrained_agent("CartPole-v1", eta=(0.001, 0.5))
    for env, steps in ((None, 500), (gym.make("CartPole-v1", max_episode_steps=5), 5)):
        copied = copies_of(make_player(agent, env, 0.01, None))()
        assert copied.get_wrapper_attr("_max_episode_steps") == steps
