"""Runs depend on their seed and on nothing else, and errors in a run are raised."""

import gymnasium as gym
import numpy as np
import pytest
from tabular_models import KINDS, small

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure
from lazymdp.learn import q_learning

ARRAYS = ("q", "visits", "action", "mean_return", "control_rate", "episode_length", "occupancy")


def test_a_run_depends_on_its_seed_and_on_nothing_else():
    mdp, default_policy = small()
    options = dict(episodes=500, max_steps=100)
    one = q_learning(mdp, default_policy, [0.1, 0.3], seed=[7, 8, 9], workers=1, **options)
    many = q_learning(mdp, default_policy, [0.1, 0.3], seed=[7, 8, 9], workers=4, **options)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))
    alone = q_learning(mdp, default_policy, 0.3, seed=8, **options)
    np.testing.assert_array_equal(alone.q[0, 0], one.q[1, 1])
    assert not np.array_equal(one.q[0, 0], one.q[0, 1])
    coarse = q_learning(mdp, default_policy, 0.3, seed=8, points=7, **options)
    np.testing.assert_array_equal(alone.q, coarse.q)  # the number of points changes nothing


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_among_others_is_the_same_as_alone(kind):
    mdp = lz.MDP.from_gymnasium(KeyDoorTreasure(apple=True), 0.99)
    options = dict(eta=[0.03, 0.05], seed=range(3), episodes=3_000, max_steps=200, **KINDS[kind])
    one = q_learning(mdp, points=1, workers=1, **options)
    many = q_learning(mdp, points=1, workers=2, **options)
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))
    assert one.visits.sum() == one.steps
    alone = q_learning(mdp, points=7, **options | dict(eta=0.05, seed=1))
    np.testing.assert_array_equal(alone.q[0, 0], one.q[1, 1])


def test_curves_and_occupancy_add_up():
    mdp, default_policy = small()
    whole = q_learning(mdp, default_policy, 0.1, episodes=600, points=1)
    fine = q_learning(mdp, default_policy, 0.1, episodes=600, points=6)
    for name in ("mean_return", "episode_length"):
        assert getattr(fine, name).mean() == pytest.approx(getattr(whole, name).mean())
    steps = fine.episode_length[0, 0] * 100
    assert steps.sum() == pytest.approx(whole.steps) and fine.steps == whole.steps
    assert (fine.control_rate[0, 0] * steps).sum() == pytest.approx(whole.control_rate.sum() * whole.steps)
    np.testing.assert_allclose(whole.occupancy[0, 0], whole.visits[0, 0].sum(axis=1) / whole.steps)
    assert fine.occupancy.sum() == pytest.approx(1.0) and not np.array_equal(fine.occupancy, whole.occupancy)


def test_global_random_numbers_are_left_alone():
    mdp, default_policy = small()
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    q_learning(mdp, default_policy, 0.1, episodes=50)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_progress_counts_the_episodes_of_all_runs():
    mdp, default_policy = small()
    seen = []
    q_learning(
        mdp, default_policy, [0.1, 0.2], seed=[0, 1], episodes=40, points=4, progress=lambda *at: seen.append(at)
    )
    assert seen[-1] == (160, 160)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_error_in_the_environment_is_raised():
    class Broken(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            raise RuntimeError("the robot fell over")

    with pytest.raises(RuntimeError, match="the robot fell over"):
        q_learning(Broken(), seed=range(5), episodes=3)
