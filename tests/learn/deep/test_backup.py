"""The backup of a lazy-MDP against the exact operator, and the two forms of a network's outputs."""

import gymnasium as gym
import numpy as np
import pytest

import lazymdp as lz
from lazymdp.experiments.theorem4 import random_model
from lazymdp.learn.deep.backup import FORMS, lazy_backup, lazy_value


@pytest.mark.parametrize("seed", range(20))
def test_the_mean_over_next_states_is_the_operator_T(seed):
    generator = np.random.default_rng(seed)
    mdp, default = random_model(generator, 6, 3, 0.9)
    q, eta = generator.normal(size=(6, 3)), float(generator.uniform(-0.5, 1.0))
    operator = np.empty((6, 3))
    dense = mdp.transitions.toarray().reshape(6, 3, 6)
    for state in range(6):
        for action in range(3):
            values = [max(max(q[s]), float(default[s] @ q[s]) + eta) for s in range(6)]
            operator[state, action] = mdp.rewards[state, action] - eta + 0.9 * dense[state, action] @ values
    # The targets that a learner computes from samples, averaged over the next state.
    backups = lazy_backup(q[None, None], default[None, None], mdp.rewards[:, :, None], 0.9, eta)
    np.testing.assert_allclose((dense * backups).sum(-1), operator, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_iterating_the_backup_converges_to_the_exact_solution(seed):
    generator = np.random.default_rng(seed)
    mdp, default = random_model(generator, 5, 3, 0.8)
    eta = float(generator.uniform(0.0, 0.5))
    exact = lz.solve(lz.LazyMDP(mdp, default, eta), tol=1e-10)
    dense, q = mdp.transitions.toarray().reshape(5, 3, 5), np.zeros((5, 3))
    discount = np.where(mdp.absorbing, 0.0, 0.8)  # an episode terminates in an absorbing state
    for _ in range(300):
        q = (dense * lazy_backup(q[None, None], default[None, None], mdp.rewards[:, :, None], discount, eta)).sum(-1)
    alive = ~mdp.absorbing
    np.testing.assert_allclose(q[alive], exact.q[alive], atol=1e-8)


def test_the_value_is_exactly_the_larger_of_the_two():
    best, lazy = np.array([1.0, 2.0, 0.3, np.nan]), np.array([1.0, 0.1, 0.2 + 0.1, 0.1])
    np.testing.assert_array_equal(lazy_value(best, lazy), np.maximum(best, lazy))
    assert lazy_value(0.5, 0.4 + 0.1) == 0.5 == lazy_value(0.4, 0.5)
    q = np.array([[1.0, 3.0], [0.0, 0.0]])
    half = np.full((2, 2), 0.5)
    np.testing.assert_allclose(lazy_backup(q, half, np.array([1.0, 1.0]), np.array([0.9, 0.0]), 0.25), [3.45, 0.75])


def test_the_structured_form_derives_the_lazy_value_and_teaches_the_executed_action():
    form, outputs, eta = FORMS["structured"], np.array([[1.0, 3.0], [0.0, 2.0]]), np.array([0.1, 0.2])
    default, lazy = np.array([[0.5, 0.5], [0.75, 0.25]]), np.array([True, False])
    control, idle = form.values(outputs, default, eta)
    np.testing.assert_array_equal(control, outputs)
    np.testing.assert_allclose(idle, [2.1, 0.7])
    assert form.extra_outputs == 0 and form.taught(choice=2, executed=1) == 1
    np.testing.assert_array_equal(form.paid(eta, lazy), eta)  # whoever chose the action, its value contains the price


def test_the_augmented_form_has_a_lazy_output_and_teaches_the_choice():
    form, outputs, eta = FORMS["augmented"], np.array([[1.0, 3.0, 9.0], [0.0, 2.0, 8.0]]), np.array([0.1, 0.2])
    control, idle = form.values(outputs, np.zeros((2, 2)), eta)
    np.testing.assert_array_equal(control, outputs[:, :2])
    np.testing.assert_array_equal(idle, [9.0, 8.0])
    assert form.extra_outputs == 1 and form.taught(choice=2, executed=1) == 2
    np.testing.assert_array_equal(form.paid(eta, np.array([True, False])), [0.0, 0.2])


def test_the_backup_is_the_same_in_jax():
    jax = pytest.importorskip("jax")
    generator = np.random.default_rng(0)
    q, default = generator.normal(size=(7, 3)), generator.dirichlet(np.ones(3), size=7)
    given = (q, default, generator.normal(size=7), np.full(7, 0.9), generator.uniform(size=7))
    found = jax.jit(lazy_backup)(*(np.asarray(x, dtype=np.float32) for x in given))
    np.testing.assert_allclose(found, lazy_backup(*given), rtol=1e-5, atol=1e-5)


class Recorded(gym.Env):
    """A random model as an environment that records every step, those of its copies, too."""

    steps = []  # noqa: RUF012

    def __init__(self, mdp):
        self.mdp = mdp
        self.observation_space, self.action_space = (
            gym.spaces.Discrete(mdp.n_states),
            gym.spaces.Discrete(mdp.n_actions),
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.integers(self.mdp.n_states))
        return self.state, {}

    def step(self, action):
        row = self.state * self.mdp.n_actions + action
        after = int(self.np_random.choice(self.mdp.n_states, p=self.mdp.transitions[[row]].toarray()[0]))
        reward, terminated = float(self.mdp.rewards.ravel()[row]), bool(self.np_random.random() < 0.1)
        self.steps.append((self.state, int(action), reward, after, terminated))
        self.state = after
        return after, reward, terminated, False, {}


@pytest.mark.parametrize("seed", range(5))
def test_the_tabular_learner_makes_this_backup_at_every_step(seed):
    """Its compiled loop keeps the value of each state, for speed; what it learns is the same."""
    generator = np.random.default_rng(seed)
    mdp, default = random_model(generator, 6, 3, 0.9)
    env, eta = Recorded(mdp), float(generator.uniform(0.0, 0.3))
    env.steps.clear()
    found = lz.learn.q_learning(
        env, default, eta, gamma=0.9, alpha=0.3, episodes=60, max_steps=40, seed=seed, workers=1
    )
    q = np.zeros((6, 3))
    for state, action, reward, after, terminated in env.steps:
        target = lazy_backup(q[after], default[after], reward, 0.9 * (not terminated), eta)
        q[state, action] += 0.3 * (target - q[state, action])
    assert len(env.steps) > 300
    np.testing.assert_allclose(found.q[0, 0], q, rtol=1e-10, atol=1e-12)
