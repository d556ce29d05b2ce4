"""The forms of default policies: what a callable may return, and the probabilities behind the samples."""

import gymnasium as gym
import numpy as np
import pytest
from echo_env import EchoEnv
from some_defaults import LAZY, Own, ids

from lazymdp.defaults.forms import BadAnswer, Table, draw, takes_batches
from lazymdp.defaults.protocol import DefaultPolicy, Examples, Mixture, make_default
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


def test_a_callable_may_answer_a_boolean():
    env = LazyAction(EchoEnv(n=2, start=0), lambda obs: obs[1] >= 1)
    env.reset(seed=0)
    assert [env.step(2)[-1]["echo"] for _ in range(3)] == [0, 1, 1]
    venv = LazyVectorAction(gym.vector.SyncVectorEnv([lambda: EchoEnv(n=2, start=0)] * 2), lambda obs: obs[:, 1] >= 1)
    venv.reset(seed=0)
    assert [venv.step(np.array([2, 2]))[-1]["echo"].tolist() for _ in range(2)] == [[0, 0], [1, 1]]


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


@pytest.mark.parametrize("form", [Own(), Mixture(Own(), 3, 0.5)])
def test_probabilities_are_none_where_nobody_knows_them(form):
    space = EchoEnv()
    default = make_default(form, space.action_space, space.observation_space, 2, batched=True)
    assert default.probabilities(np.zeros((4, 3)), np.full(4, 2)) is None


@pytest.mark.parametrize("batched", [True, False])
def test_an_action_that_a_callable_returns_is_certain(batched):
    space = EchoEnv()
    form = (lambda obs: np.where(obs[:, 1] > 0, 3, 2)) if batched else (lambda obs: 3 if obs[1] > 0 else 2)
    seen, last = np.array([[0, 0, 0], [0, 1, 0]]), np.full(2, 2)
    default = make_default(form, space.action_space, space.observation_space, 2, batched=batched)
    assert default.probabilities(seen, last).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert default.sample(seen, np.random.default_rng(0), last).tolist() == [2, 3]
    mixed = make_default(Mixture(form, 4, 0.5), space.action_space, space.observation_space, 2, batched=batched)
    assert mixed.probabilities(seen, last).tolist() == [[0.5, 0, 0.5], [0, 0.5, 0.5]]


# -- callables for single observations or for batches ----------------------------------------------------------------

VECTORS = np.array([[0, 0, 0.5], [0, 1, 0.5], [0, 2, 0.5], [0, 3, 0.5]])
SINGLE = {
    "an integer": lambda obs: int(obs[1] > 0),
    "a constant": lambda obs: 1,
    "a NumPy boolean": lambda obs: obs[1] > 0,
    "probabilities": lambda obs: [0.5, 0.5, 0.0] if obs[1] > 0 else [0.0, 0.0, 1.0],
    "sometimes one, sometimes the other": lambda obs: 0 if obs[1] > 0 else [0.0, 0.0, 1.0],
    "a softmax of one vector": lambda obs: np.exp(obs) / np.exp(obs).sum(),
}
BATCHES = {
    "integers": lambda obs: (obs[:, 1] > 0).astype(int),
    "a constant": lambda obs: np.zeros(len(obs), int),
    "booleans": lambda obs: obs[:, 1] > 0,
    "probabilities": lambda obs: np.tile([0.5, 0.5, 0.0], (len(obs), 1)),
    "the last axis": lambda obs: np.argmax(obs, axis=-1),  # takes both and answers alike
}


@pytest.mark.parametrize(("functions", "expected"), [(SINGLE, False), (BATCHES, True)], ids=["single", "batches"])
def test_callables_for_single_observations_and_for_batches_are_told_apart(functions, expected):
    space = EchoEnv(start=0)
    for name, function in functions.items():
        found = takes_batches(function, space.action_space, space.observation_space, VECTORS, 4)
        assert found == expected, name
        form = make_default(
            function, space.action_space, space.observation_space, 0, batched=lambda: Examples(VECTORS, 4)
        )
        one_by_one = np.concatenate([form.probabilities(VECTORS[[row]], np.zeros(1, int)) for row in range(4)])
        np.testing.assert_allclose(form.probabilities(VECTORS, np.zeros(4, int)), one_by_one, err_msg=name)


def test_a_callable_of_both_kinds_whose_answers_differ_takes_single_observations():
    space = EchoEnv(start=0)
    rest = np.random.default_rng(0)
    function = lambda obs: rest.integers(3, size=np.shape(obs)[:-1])  # noqa: E731
    assert not takes_batches(function, space.action_space, space.observation_space, VECTORS, 4)


def test_a_callable_of_neither_kind_is_refused_with_both_answers():
    space = EchoEnv(start=0)
    for function, message in (
        (lambda obs: 0.5, r"given one observation: it returned 0\.5 .* Given a batch of 4 observations: it returned 0"),
        (lambda obs: obs["no"], r"given one observation: IndexError.*\. Given a batch of 4 observations: IndexError"),
    ):
        with pytest.raises(BadAnswer, match=message):
            takes_batches(function, space.action_space, space.observation_space, VECTORS, 4)


def test_an_action_of_probability_zero_is_never_drawn():
    class Extreme:
        def random(self, size):
            return np.array([0.0, np.nextafter(1.0, 0.0)])[:size]

    for row in ([0.0, 0.3, 0.0], [0.1, 0.2, 0.0], [0.0, 0.0, 1.0], [1 / 3] * 3):
        rows = np.tile(np.array(row) / sum(row), (2, 1))
        chosen = draw(rows, Extreme(), gym.spaces.Discrete(3))
        assert (rows[[0, 1], chosen] > 0).all(), row


@pytest.mark.parametrize("state", [-1, 3, 5])
def test_a_table_is_not_read_outside_of_its_rows(state):
    table = Table([[1, 0], [0, 1], [1, 0]], gym.spaces.Discrete(2), gym.spaces.Discrete(3))
    with pytest.raises(BadAnswer, match=f"table for the observations 0 to 2, but observation {state} was given"):
        table.probabilities(np.array([0, state]), np.zeros(2, int))
