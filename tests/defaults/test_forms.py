"""The forms of default policies: what a callable may return, and the probabilities behind the samples."""

import gymnasium as gym
import numpy as np
import pytest
from echo_env import EchoEnv
from some_defaults import LAZY, Own, ids

from lazymdp.defaults.forms import draw
from lazymdp.defaults.protocol import DefaultPolicy, Mixture, make_default
from lazymdp.wrappers.lazy_action import LazyAction
from lazymdp.wrappers.lazy_vector_action import LazyVectorAction

FUNCTIONS = [
    ("a Python integer", lambda obs: 3, lambda obs: np.full(len(obs), 3)),
    ("a numpy integer", lambda obs: np.int32(3), lambda obs: [3] * len(obs)),
    ("a 0-d array", lambda obs: np.array(3), lambda obs: np.full(len(obs), 3, dtype=np.uint8)),
    ("a list of floats", lambda obs: [0.0, 1.0, 0.0], lambda obs: [[0.0, 1.0, 0.0]] * len(obs)),
    ("float32", lambda obs: np.float32([0, 1, 0]), lambda obs: np.float32([[0, 1, 0]] * len(obs))),
]


@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row[0])
def test_a_callable_answers_an_action_or_probabilities(row):
    _, single, batched = row
    env = LazyAction(EchoEnv(), single)
    env.reset(seed=0)
    assert env.step(LAZY)[-1]["echo"] == 3
    venv = LazyVectorAction(gym.vector.SyncVectorEnv([EchoEnv] * 2), batched)
    venv.reset(seed=0)
    assert venv.step(np.array([LAZY, LAZY]))[-1]["echo"].tolist() == [3, 3]


@pytest.mark.parametrize(
    ("observations", "first"),
    [
        ("vector", lambda seen: seen.shape == (3,) and seen[1] == 0),
        ("discrete", lambda seen: seen == 0 and np.ndim(seen) == 0),
        ("dict", lambda seen: seen["vector"].shape == (3,) and seen["both"] == (0, "")),
    ],
)
def test_a_callable_is_given_one_observation(observations, first):
    seen = []
    env = LazyAction(EchoEnv(observations=observations), lambda obs: seen.append(obs) or 2)
    env.reset(seed=0)
    env.step(LAZY)
    assert first(seen[0])


def test_a_table_needs_discrete_observations():
    with pytest.raises(TypeError, match=r"needs Discrete observations, not Box\(-inf, inf, \(3,\)"):
        LazyAction(EchoEnv(), np.ones((6, 3)) / 3)


# -- probabilities -------------------------------------------------------------------------------------------------

STOCHASTIC = [
    ("uniform", [1 / 3, 1 / 3, 1 / 3]),
    (np.tile([0.5, 0.0, 0.5], (6, 1)), [0.5, 0.0, 0.5]),
    (lambda obs: np.tile([0.1, 0.2, 0.7], (len(obs), 1)), [0.1, 0.2, 0.7]),
    (Mixture("uniform", 4, 0.3), [0.1, 0.1, 0.8]),
    ("repeat", [0.0, 1.0, 0.0]),
    (2, [1.0, 0.0, 0.0]),
]


@pytest.mark.parametrize("row", STOCHASTIC, ids=ids)
def test_samples_follow_the_probabilities(row):
    form, expected = row
    space = EchoEnv(observations="discrete")
    default = make_default(form, space.action_space, space.observation_space, 2, batched=True)
    assert isinstance(default, DefaultPolicy)
    observations, last = np.arange(20_000) % 6, np.full(20_000, 3)
    np.testing.assert_allclose(default.probabilities(observations, last), np.tile(expected, (20_000, 1)))
    found = np.bincount(default.sample(observations, np.random.default_rng(0), last) - 2, minlength=3) / 20_000
    error = np.sqrt(np.array(expected) * (1 - np.array(expected)) / 20_000)
    assert (np.abs(found - expected) <= 4 * error).all(), found


@pytest.mark.parametrize(
    "form", [lambda obs: np.full(len(obs), 2), Mixture(lambda obs: np.full(len(obs), 2), 3, 0.5), Own()]
)
def test_probabilities_are_none_where_nobody_knows_them(form):
    space = EchoEnv()
    default = make_default(form, space.action_space, space.observation_space, 2, batched=True)
    assert default.probabilities(np.zeros((4, 3)), np.full(4, 2)) is None


def test_an_action_of_probability_zero_is_never_drawn():
    class Extreme:
        def random(self, size):
            return np.array([0.0, np.nextafter(1.0, 0.0)])[:size]

    for row in ([0.0, 0.3, 0.0], [0.1, 0.2, 0.0], [0.0, 0.0, 1.0], [1 / 3] * 3):
        rows = np.tile(np.array(row) / sum(row), (2, 1))
        chosen = draw(rows, Extreme(), gym.spaces.Discrete(3))
        assert (rows[[0, 1], chosen] > 0).all(), row
