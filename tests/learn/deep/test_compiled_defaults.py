"""Default policies of deep agents: every form knows its probabilities, Python objects act like compiled ones."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from small_runs import DQN_SMALL, SMALL, same

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep import compiled_defaults  # noqa: E402
from lazymdp.learn.deep.config import PQNConfig, TrainConfig  # noqa: E402
from lazymdp.learn.deep.factory import make_default_policy, make_env  # noqa: E402
from lazymdp.learn.deep.trainer import Training  # noqa: E402


def probabilities(form, env):
    """Probabilities of a default policy after the actions 0 and 1."""
    return np.asarray(make_default_policy(form, env)(np.zeros((2, *env.shape), np.float32), np.array([0, 1])))


def test_every_form_of_default_policy_knows_its_probabilities():
    env = make_env("CartPole-v1", 2)
    assert probabilities("uniform", env).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert probabilities("1", env).tolist() == [[0, 1], [0, 1]]
    assert probabilities("noop", env).tolist() == [[1, 0], [1, 0]]
    assert probabilities("repeat", env).tolist() == [[1, 0], [0, 1]]
    rows = [[0.25, 0.75]] * 2
    np.testing.assert_allclose(probabilities(lambda seen: np.tile([0.25, 0.75], (len(seen), 1)), env), rows)
    np.testing.assert_allclose(probabilities(lz.Mixture("uniform", 1, 0.5), env), rows)
    for wrong, message in (
        (lambda seen: np.zeros(len(seen), int), "actions but no probabilities, which the structured form needs"),
        (lambda seen: np.tile([0.2, 0.2], (len(seen), 1)), r"sum to 0\.4, not 1"),
        (lambda seen: np.ones((len(seen), 3)) / 3.0, r"shape \(1, 3\)"),
        (lambda seen: seen[:, 99], "out of bounds"),
    ):
        with pytest.raises(ValueError, match=f"the default policy failed on an observation of zeros: .*{message}"):
            make_default_policy(wrong, env)
    lake = make_env("FrozenLake-v1", 2)
    rows = np.random.default_rng(0).dirichlet(np.ones(4), 16)
    found = make_default_policy(rows, lake)(np.eye(16, dtype=np.float32), np.zeros(16, int))
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    shown = []  # states are shown as numbers, as the environment does it

    def by_number(seen):
        shown.append(seen.tolist())
        return rows[seen]

    found = make_default_policy(by_number, lake)(np.eye(16, dtype=np.float32), np.zeros(16, int))
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    assert shown[-1] == list(range(16))


def test_a_table_for_an_environment_serves_its_model_with_an_added_state():
    name = next(name for name in ("Taxi-v3", "Taxi-v4") if name in gym.registry)
    taxi = make_env(name, 1)
    assert taxi.shape == (501,)
    rows, seen, last = np.random.default_rng(0).dirichlet(np.ones(6), 500), np.eye(501, dtype=np.float32), np.zeros(501)
    found = np.asarray(make_default_policy(rows, taxi)(seen, last.astype(int)))
    np.testing.assert_allclose(found[:500], rows, rtol=1e-5)
    np.testing.assert_allclose(found[500], 1 / 6, rtol=1e-5)
    called = np.asarray(make_default_policy(lambda states: rows[states], taxi)(seen, last.astype(int)))
    np.testing.assert_allclose(called[:500], rows, rtol=1e-5)


def test_networks_as_default_policies():
    q = np.array([[1.0, 3.0, 2.0], [0.5, 0.0, -1.0]], dtype=np.float32)
    last = np.zeros(2, int)
    np.testing.assert_array_equal(compiled_defaults.greedy(lambda seen: q)(q, last), [[0, 1, 0], [1, 0, 0]])
    some = compiled_defaults.greedy(lambda seen: q, 0.3)(q, last)
    np.testing.assert_allclose(some, [[0.1, 0.8, 0.1], [0.8, 0.1, 0.1]], rtol=1e-5)
    soft = compiled_defaults.softmax(lambda seen: q, 0.5)(q, last)
    np.testing.assert_allclose(soft, np.exp(2 * q) / np.exp(2 * q).sum(1, keepdims=True), rtol=1e-5)


def test_a_python_default_policy_acts_like_the_same_one_compiled():
    config = TrainConfig("FrozenLake-v1", PQNConfig(steps=2000, n_envs=4, rollout=8, hidden=(16,)))
    compiled, called = Training(config), Training(config, default_policy=lambda seen: np.full((len(seen), 4), 0.25))
    for run in (compiled, called):
        run.advance()
    for name, array in compiled.arrays().items():
        np.testing.assert_allclose(array, called.arrays()[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_augmented_form_learns_over_a_default_policy_that_returns_actions():
    config = TrainConfig("FrozenLake-v1", replace(DQN_SMALL, control_budget=None), "2")
    compiled, called = Training(config), Training(config, default_policy=lambda seen: np.full(len(seen), 2))
    for run in (compiled, called):
        for _ in range(5):
            run.advance()
    same(compiled.arrays(), called.arrays())
    with pytest.raises(ValueError, match="it chose action 7, expected 0 to 3"):
        Training(config, default_policy=lambda seen: np.full(len(seen), 7))
    with pytest.raises(ValueError, match="give a policy with probabilities, or use form='augmented'"):
        Training(TrainConfig("FrozenLake-v1", SMALL), default_policy=lambda seen: np.full(len(seen), 2))
