"""`make_default` and `ask`: every form of default policy, good and bad, in one environment and in many."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
from echo_env import EchoEnv, MaskedEchoEnv
from some_defaults import LAZY, Own, Predictor, Recurrent, ids, raising, table

from lazymdp.defaults.protocol import BadDefault, Mixture
from lazymdp.wrappers.lazy_action import LazyAction
from lazymdp.wrappers.lazy_vector_action import LazyVectorAction

# -- what each form executes: choices of the agent, actions executed -----------------------------------------------

ALL_LAZY = [LAZY] * 5
TABLE = [
    ("noop", "vector", ALL_LAZY, [2, 2, 2, 2, 2]),
    (4, "vector", ALL_LAZY, [4, 4, 4, 4, 4]),
    (np.int64(3), "vector", ALL_LAZY, [3, 3, 3, 3, 3]),
    ("repeat", "vector", [LAZY, LAZY, 4, LAZY, LAZY], [2, 2, 4, 4, 4]),
    (table([2, 3, 4, 3, 2, 2]), "discrete", ALL_LAZY, [2, 3, 4, 3, 2]),
    (table([2, 3, 4, 3, 2, 2]).tolist(), "discrete", [4, LAZY, LAZY, 2, LAZY], [4, 3, 4, 2, 2]),
    (Predictor(), "vector", ALL_LAZY, [2, 4, 2, 4, 2]),
    (Own(), "vector", ALL_LAZY, [3, 4, 4, 4, 4]),
    (Mixture(3, 4, 1.0), "vector", ALL_LAZY, [3] * 5),
    (Mixture(3, Mixture("noop", 4, 0.0), 0.0), "vector", ALL_LAZY, [4] * 5),
    ("uniform", "vector", [3, 4, 2, 3, 4], [3, 4, 2, 3, 4]),
]


@pytest.mark.parametrize("row", TABLE, ids=ids)
def test_each_form_executes_what_it_says(row):
    form, observations, choices, executed = row
    env = LazyAction(EchoEnv(observations=observations), form)
    env.reset(seed=0)
    assert [env.step(choice)[-1]["echo"] for choice in choices] == executed


@pytest.mark.parametrize("row", TABLE, ids=ids)
def test_each_form_executes_the_same_in_a_vector_environment(row):
    form, observations, choices, executed = row
    venv = LazyVectorAction(gym.vector.SyncVectorEnv([lambda: EchoEnv(observations=observations)] * 3), form)
    venv.reset(seed=0)
    assert [venv.step(np.full(3, choice))[-1]["echo"].tolist() for choice in choices] == [[a] * 3 for a in executed]


def test_noop_is_where_the_environment_says_it_is():
    env = LazyAction(MaskedEchoEnv(), "noop")
    env.reset()
    assert env.step(LAZY)[-1]["echo"] == 3
    venv = LazyVectorAction(gym.vector.SyncVectorEnv([MaskedEchoEnv] * 2), "repeat")
    venv.reset()
    assert venv.step(np.array([LAZY, 4]))[-1]["echo"].tolist() == [3, 4]
    assert venv.step(np.array([LAZY, LAZY]))[-1]["echo"].tolist() == [3, 4]
    odd = EchoEnv(n=4)
    odd.get_action_meanings = lambda: ["FIRE", "NOOP", "LEFT"]  # three meanings for four actions: of something else
    env = LazyAction(odd, "noop")
    env.reset()
    assert env.step(6)[-1]["echo"] == 2


# -- bad forms -----------------------------------------------------------------------------------------------------


BAD_FORMS = [
    (7, ValueError, r"action 7, expected 2 to 4"),
    (1, ValueError, r"action 1, expected 2 to 4"),
    (True, TypeError, r"default_policy is True, expected 'uniform'"),
    (None, TypeError, r"default_policy is None, expected 'uniform'"),
    (2.0, TypeError, r"default_policy is 2.0"),
    ("unifrom", ValueError, r"'unifrom', expected 'uniform', 'noop', 'repeat', or the path of"),
    (np.ones((4, 3)) / 3, ValueError, r"shape \(4, 3\), expected \(6, 3\): one row per observation"),
    (np.ones((7, 3)) / 3, ValueError, r"shape \(7, 3\), expected \(6, 3\).*and not one for the added state 'terminal'"),
    (np.ones((6, 3)) / 2, ValueError, r"observation 0: its probabilities \[0.5, 0.5, 0.5\] sum to 1.5, not 1"),
    (table([2, 2, 2, 2, 2, 2]) * np.nan, ValueError, r"observation 0: it gives action 2 probability nan"),
    ([[1.0, 0, 0]] * 5 + [[0, -0.5, 1.5]], ValueError, r"observation 5: it gives action 3 probability -0.5"),
    (Mixture("uniform", 9, 0.5), ValueError, r"action 9, expected 2 to 4"),
]


@pytest.mark.parametrize("row", BAD_FORMS, ids=ids)
def test_a_bad_form_is_refused_when_it_is_given(row):
    form, kind, message = row
    with pytest.raises(kind, match=message):
        LazyAction(EchoEnv(observations="discrete"), form)
    with pytest.raises(kind, match=message):
        LazyVectorAction(gym.vector.SyncVectorEnv([lambda: EchoEnv(observations="discrete")]), form)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_mixture_needs_a_probability(weight):
    with pytest.raises(ValueError, match=f"weight is {weight}"):
        Mixture("uniform", "noop", weight)


BAD_ANSWERS = [
    (lambda obs: 7, r"7 \(int64, shape \(\)\)|chose action 7, expected 2 to 4"),
    (lambda obs: 1, r"chose action 1, expected 2 to 4"),
    (lambda obs: 2.0, r"it returned 2.0 \(float64, shape \(\)\), expected an integer or a vector of 3 floats"),
    (lambda obs: True, r"chose action 1, expected 2 to 4"),
    (lambda obs: None, r"it returned None \(object, shape \(\)\)"),
    (lambda obs: [1, 0, 0], r"it returned \[1, 0, 0\] \(int64, shape \(3,\)\)"),
    (lambda obs: [0.5, 0.5], r"it returned \[0.5, 0.5\] \(float64, shape \(2,\)\)"),
    (lambda obs: [0.5, 0.5, 0.1], r"probabilities \[0.5, 0.5, 0.1\] sum to 1.1, not 1"),
    (lambda obs: [0.5, float("nan"), 0.5], r"gives action 3 probability nan"),
    (lambda obs: [0.5, 1.5, -1.0], r"gives action 4 probability -1.0"),
    (raising, r"KeyError\('no such state'\), given array\(\[\["),
    (Recurrent(), r"keeps a recurrent state"),
]


@pytest.mark.parametrize("row", BAD_ANSWERS, ids=lambda row: row[1][:25])
def test_a_bad_answer_names_the_step_and_the_value(row):
    form, message = row
    env = LazyAction(EchoEnv(), form)
    env.reset(seed=0)
    env.step(3)
    env.step(3)
    with pytest.raises(
        BadDefault, match=rf"failed at step 2 of the episode \(counted from 0\): .*({message})"
    ) as caught:
        env.step(LAZY)
    assert caught.value.__cause__ is not None
    if form is raising:
        assert isinstance(caught.value.__cause__, KeyError)


def rows_with(bad):
    """Returns a callable whose result is invalid for environments that have made 2 steps or more."""
    return lambda obs: [bad if steps >= 2 else good_like(bad) for steps in obs[:, 1]]


def good_like(bad):
    return [1.0, 0.0, 0.0] if isinstance(bad, list) else 2


BAD_ROWS = [
    (rows_with(7), r"environment 1: it chose action 7, expected 2 to 4"),
    (rows_with([0.5, 0.5, 0.1]), r"environment 1: its probabilities \[0.5, 0.5, 0.1\] sum to 1.1"),
    (rows_with([0.5, float("nan"), 0.5]), r"environment 1: it gives action 3 probability nan"),
]


@pytest.mark.parametrize("row", BAD_ROWS, ids=lambda row: row[1][:40])
def test_a_bad_answer_in_a_batch_names_the_environment(row):
    form, message = row
    venv = LazyVectorAction(gym.vector.SyncVectorEnv([partial(EchoEnv, length=n) for n in (2, 9, 1)]), form)
    venv.reset(seed=0)
    for _ in range(3):
        venv.step(np.full(3, 3))
    # Environment 0 has been reset by the third step, environment 1 made three, environment 2 is about to be reset.
    with pytest.raises(BadDefault, match=rf"failed at step 3 of the episode \(counted from 0\), {message}") as caught:
        venv.step(np.array([LAZY, LAZY, LAZY]))
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("form", "message"),
    [
        (raising, r"step \[0, 0\] of the episode .*, environment \[0, 2\]: KeyError\('no such state'\)"),
        (lambda obs: 2, r"environment \[0, 2\]: it returned 2 .*integers of shape \(2,\) or floats of shape \(2, 3\)"),
        (lambda obs: [1.0, 0.0, 0.0], r"shape \(3,\)\), expected integers of shape \(2,\)"),
        (Recurrent(), r"environment \[0, 2\]: it keeps a recurrent state"),
    ],
)
def test_a_batch_that_fails_as_a_whole_names_all_its_environments(form, message):
    venv = LazyVectorAction(gym.vector.SyncVectorEnv([EchoEnv] * 3), form)
    venv.reset(seed=0)
    with pytest.raises(BadDefault, match=message):
        venv.step(np.array([LAZY, 3, LAZY]))
