"""Environments and models give the same answers, and outcomes have their probabilities."""

import gymnasium as gym
import numpy as np
import pytest
from tabular_models import DECAYING

import lazymdp as lz
from lazymdp.learn import q_learning, sarsa
from lazymdp.learn.tabular.kernel import step
from lazymdp.learn.tabular.sampling import cumulative_bounds, world_of


class Hidden(gym.Env):
    """A walk through three states that has no transition table."""

    observation_space = gym.spaces.Discrete(3)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return 0, {}

    def step(self, action):
        self.state += 1 if action == 1 or self.np_random.random() < 0.3 else 0
        return self.state, float(self.state == 2), self.state == 2, False, {}


def known():
    """The model of `Hidden`."""
    transitions = np.zeros((3, 2, 3))
    for s in range(2):
        transitions[s, 0, s], transitions[s, 0, s + 1], transitions[s, 1, s + 1] = 0.7, 0.3, 1.0
    transitions[2, :, 2] = 1.0
    return lz.MDP(transitions, [[0, 0], [0.3, 1.0], [0, 0]], 0.9, start=0)


@pytest.mark.learning
@pytest.mark.parametrize("learner", [q_learning, sarsa])
@pytest.mark.parametrize("form", ["structured", "augmented"])
def test_any_environment_with_discrete_spaces_learns_the_same(learner, form, seed):
    options = dict(eta=0.05, gamma=0.9, episodes=3_000, max_steps=50, form=form, points=10, seed=seed, **DECAYING)
    slow, fast = learner(Hidden(), **options), learner(known(), **options)
    np.testing.assert_allclose(slow.q, fast.q, atol=0.1)
    assert slow.mean_return.shape == fast.mean_return.shape
    np.testing.assert_allclose(slow.occupancy, fast.occupancy, atol=0.1)
    again = learner(Hidden(), **options)
    np.testing.assert_array_equal(slow.q, again.q)


@pytest.mark.learning
def test_a_truncated_episode_is_not_an_end(seed):
    """With one step per episode, the value of the start state still includes what comes after the truncation."""

    class OneStep(Hidden):
        def step(self, action):
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, True, info

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state = int(self.np_random.integers(2))
            return self.state, {}

    exact = lz.solve(lz.LazyMDP(known(), lz.policies.uniform(known()), 0.05))
    found = q_learning(OneStep(), eta=0.05, gamma=0.9, episodes=6_000, seed=seed, **DECAYING)
    np.testing.assert_allclose(found.q[0, 0, :2], exact.q[:2], atol=0.05)
    assert found.steps == 6_000


def test_environments_with_a_table_are_sampled_as_models():
    env = gym.make("FrozenLake-v1")
    mdp = lz.MDP.from_gymnasium(env, 0.99)
    options = dict(eta=0.01, episodes=200)
    np.testing.assert_array_equal(q_learning(env, **options).q, q_learning(mdp, **options).q)


def test_rows_of_bounds_start_with_0_and_end_with_1():
    probabilities, ends = np.array([0.1, 0.2, 0.7 - 1e-9, 1.0, 0.5, 0.5 - 1e-9, 0.0]), np.array([0, 3, 4, 7])
    bounds = cumulative_bounds(probabilities, ends)
    np.testing.assert_allclose(bounds, [0, 0.1, 0.3, 1, 0, 1, 0, 0.5, 1, 1], atol=2e-9)
    for row in (bounds[:4], bounds[4:6], bounds[6:]):
        assert row[0] == 0.0 and row[-1] == 1.0
    assert bounds[8] == 1.0  # the last outcome has probability 0 and must never be drawn


def test_next_states_have_the_probabilities_of_the_model():
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.full(4, 0.5), size=(4, 2)) * (rng.random((4, 2, 4)) < 0.7)
    transitions[..., 0] += 0.1
    transitions /= transitions.sum(axis=-1, keepdims=True)
    mdp = lz.MDP(transitions, rng.random((4, 2)), 0.9)
    world, stream = world_of(mdp), np.array([1, 2], dtype=np.uint64)
    for state in np.arange(4, dtype=np.uint64):
        for action in np.arange(2, dtype=np.uint64):
            seen = np.zeros(4)
            for _ in range(4_000):
                next_state, reward = step(world, stream, state, action)
                seen[next_state] += 1 / 4_000
            np.testing.assert_allclose(seen, transitions[state, action], atol=0.05)
            assert (seen[transitions[state, action] == 0.0] == 0.0).all()
            assert reward == mdp.rewards[state, action]


def test_unsuitable_environments_are_refused():
    with pytest.raises(ValueError, match="Discrete observations that start at 0"):
        q_learning(gym.make("CartPole-v1"))
    with pytest.raises(TypeError, match="source is 3, expected an MDP or a Gymnasium environment"):
        q_learning(3)


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ((-1, 0.0, False), "step 1 of the episode: observation is -1, expected an integer from 0 to 3"),
        ((np.int64(-1), 0.0, False), "observation is -1"),
        ((4, 0.0, False), "observation is 4, expected an integer from 0 to 3"),
        ((float("nan"), 0.0, False), "observation is nan"),
        (("2", 0.0, False), "observation is '2'"),
        ((1, "1.5", False), "step 1 of the episode: it returned the reward '1.5', expected a number"),
        ((1, float("nan"), False), "it returned the reward nan, expected a finite number"),
        ((1, 0.0, "no"), "it returned terminated = 'no', expected True or False"),
    ],
)
def test_an_outcome_that_would_become_another_one_is_refused(outcome, message):
    """Compiled code does not check the bounds of arrays."""

    class Odd(gym.Env):
        observation_space, action_space = gym.spaces.Discrete(4), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return 0, {}

        def step(self, action):
            return *outcome, False, {}

    with pytest.raises(ValueError, match=f"Odd.*{message}"):
        q_learning(Odd(), None, eta=0.1, gamma=0.9, episodes=2, max_steps=3, seed=0)
