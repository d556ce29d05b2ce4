"""Bad arguments: every public function says which argument is wrong, shows its value, and says what it expects."""

import json
import re
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
import scipy.sparse as sp

import lazymdp as lz
from lazymdp._arguments import check_eta, check_integer, check_number, check_seed, check_seeds

MDP = lz.MDP([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]], [[0.0, 1.0], [0.0, 0.0]], 0.9)
DEFAULT = lz.policies.uniform(MDP)
LAZY = lz.LazyMDP(MDP, DEFAULT, 0.1)
PATH = lz.eta_path(MDP, DEFAULT)

TEXT, NOTHING, FLAG, LIST = "0.5", None, True, [0.5]
NOT_NUMBERS = [TEXT, b"0.5", NOTHING, FLAG, LIST, np.nan, 0.5j, {}, np.array([0.5, 0.5]), Ellipsis]
NOT_INTEGERS = [*NOT_NUMBERS, 2.5, 1.0, np.float64(3.0), np.inf, -1, 10**30]
NOT_SEEDS = [bad for bad in NOT_INTEGERS if not isinstance(bad, list)] + [2**63, 2**64, 1.5, [], [1, 1.5], [[1]], [-1]]

NUMBERS = {
    "gamma": lambda bad: lz.MDP(MDP.transitions, MDP.rewards, bad),
    "eta of LazyMDP": lambda bad: lz.LazyMDP(MDP, DEFAULT, bad),
    "eta of with_eta": LAZY.with_eta,
    "eta of action_at": PATH.action_at,
    "eta of value_at": PATH.value_at,
    "eta of control_count_at": PATH.control_count_at,
    "eta of LazyAction": lambda bad: lz.LazyAction(gym.make("FrozenLake-v1"), eta=bad),
    "control_count": PATH.for_control_count,
    "share": PATH.for_control_rate,
    "weight": lambda bad: lz.policies.mixture(DEFAULT, DEFAULT, bad),
    "weight of Mixture": lambda bad: lz.Mixture("uniform", "noop", bad),
    "confidence": lambda bad: lz.measure.mean_interval([1.0], confidence=bad),
    "alpha": lambda bad: learn(alpha=bad),
    "alpha_power": lambda bad: learn(alpha_power=bad),
    "epsilon": lambda bad: learn(epsilon=bad),
    "final_epsilon": lambda bad: learn(final_epsilon=bad),
    "gamma of q_learning": lambda bad: learn(gamma=bad),
    "epsilon of estimate_eta_max": lambda bad: lz.learn.estimate_eta_max(MDP, epsilon=bad, episodes=2),
    "alpha of estimate_eta_min": lambda bad: lz.learn.estimate_eta_min(MDP, alpha=bad, episodes=2),
}
INTEGERS = {
    "horizon": lambda bad: lz.solve(LAZY, horizon=0 if bad is None else bad),
    "max_iterations": lambda bad: lz.solve(LAZY, max_iterations=bad),
    "state": PATH.control_intervals,
    "episodes": lambda bad: learn(episodes=bad),
    "max_steps": lambda bad: learn(max_steps=bad),
    "points": lambda bad: learn(points=bad),
    "workers": lambda bad: learn(workers=0 if bad is None else bad),
    "episodes of estimate_eta_max": lambda bad: lz.learn.estimate_eta_max(MDP, episodes=bad),
    "max_steps of estimate_eta_min": lambda bad: lz.learn.estimate_eta_min(MDP, max_steps=bad),
    "resamples": lambda bad: lz.measure.mean_interval([1.0], resamples=bad),
}
SEEDS = {
    "seed": lambda bad: learn(seed=bad),
    "seed of sarsa": lambda bad: lz.learn.sarsa(MDP, episodes=2, max_steps=2, seed=bad),
}


def learn(**settings):
    return lz.learn.q_learning(MDP, **{"episodes": 2, "max_steps": 2, **settings})


def check_message(error, name):
    message = str(error.value)
    assert re.match(rf"{name.split(' of ')[0]} is .*, expected .+\.$", message, re.DOTALL), message


def cases(functions, values):
    return [pytest.param(name, value, id=f"{name}: {value!r:.30}") for name in functions for value in values]


@pytest.mark.parametrize("name, bad", cases(NUMBERS, NOT_NUMBERS))
def test_not_a_number(name, bad):
    with pytest.raises(ValueError) as error:
        NUMBERS[name](bad)
    check_message(error, name)


@pytest.mark.parametrize("name, bad", cases(INTEGERS, NOT_INTEGERS))
def test_not_an_integer(name, bad):
    with pytest.raises(ValueError) as error:
        INTEGERS[name](bad)
    check_message(error, name)


@pytest.mark.parametrize("name, bad", cases(SEEDS, NOT_SEEDS))
def test_not_a_seed(name, bad):
    with pytest.raises(ValueError) as error:
        SEEDS[name](bad)
    check_message(error, name)


@pytest.mark.parametrize("bad", [[], "0.1", ["0.1"], [[0.1]], [np.nan], [0.1, None]], ids=repr)
def test_not_prices(bad):
    with pytest.raises(ValueError, match="^eta is .*, expected"):
        learn(eta=bad)


@pytest.mark.parametrize("bad", ["1e-8", 0.0, -1.0, np.nan, [1e-8], True], ids=repr)
def test_not_a_tolerance(bad):
    for question in (lambda: lz.solve(LAZY, bad), lambda: lz.eta_path(MDP, DEFAULT, tol=bad)):
        with pytest.raises(ValueError, match="^tol is .*, expected a positive number"):
            question()


OBJECTS = {
    "solve": lambda bad: lz.solve(bad),
    "solve with a horizon": lambda bad: lz.solve(bad, horizon=3),
    "evaluate": lambda bad: lz.evaluate(bad, [0, 0]),
    "lazy_frequency": lambda bad: lz.lazy_frequency(bad, [0, 0]),
    "LazyMDP": lambda bad: lz.LazyMDP(bad, DEFAULT, 0.1),
    "eta_max": lambda bad: lz.eta_max(bad, DEFAULT),
    "eta_min": lambda bad: lz.eta_min(bad, DEFAULT),
    "eta_min_theorem": lambda bad: lz.eta_min_theorem(bad, DEFAULT),
    "eta_path": lambda bad: lz.eta_path(bad, DEFAULT),
    "steps_to_absorption": lambda bad: lz.steps_to_absorption(bad, DEFAULT),
    "uniform": lz.policies.uniform,
    "optimal": lz.policies.optimal,
    "second_best": lz.policies.second_best,
    "named": lambda bad: lz.policies.named(bad, "uniform"),
    "from_gymnasium": lambda bad: lz.MDP.from_gymnasium(bad, 0.9),
    "q_learning": lambda bad: lz.learn.q_learning(bad),
}


@pytest.mark.parametrize("name", OBJECTS)
@pytest.mark.parametrize("bad", ["x", None, 3, DEFAULT], ids=["text", "None", "int", "array"])
def test_not_a_model(name, bad):
    with pytest.raises(TypeError, match=r"^(lazy|mdp|env|source) is .*, expected (an MDP|a LazyMDP|a Gymnasium)"):
        OBJECTS[name](bad)


def test_a_model_is_not_a_lazy_model():
    for question in (lz.solve, lambda mdp: lz.evaluate(mdp, [0, 0])):
        with pytest.raises(TypeError, match=r"lazy is MDP\(2 states.*expected a LazyMDP: make one with `LazyMDP\(mdp"):
            question(MDP)


Q = {"lazy_gap": lambda q: lz.lazy_gap(q, [0.5, 0.5]), "action_gap": lz.action_gap, "advice": lz.importance_advice}


@pytest.mark.parametrize("measure", Q)
@pytest.mark.parametrize("bad", [[-np.inf, 0.0], [1e308, 0.0], [np.nan, 0.0], ["a", "b"], [], 1.0], ids=repr)
def test_values_of_actions_are_finite_numbers(measure, bad):
    with pytest.raises(ValueError, match=r"^q (is|has shape) .*, expected"):
        Q[measure](bad)


def test_a_horizon_says_what_it_cannot_do():
    with pytest.raises(ValueError, match=r"horizon is 1000000000000, for which .* would need 8e\+04 GB of memory"):
        lz.solve(LAZY, horizon=10**12)
    with pytest.raises(ValueError, match=r"tol is array\(\[1\., 1\.\]\), but with horizon = 3"):
        lz.solve(LAZY, np.ones(2), horizon=3)


def test_rewards_so_small_that_products_underflow_are_refused():
    with pytest.raises(ValueError, match="rewards are at most 1e-310 in size, expected a reward of at least 1e-100"):
        lz.MDP([[[1.0]]], [[-1e-310]], 0.9)
    zero = lz.MDP([[[0.5, 0.5]], [[0.5, 0.5]]], [[0.0], [0.0]], 0.9)
    bonus = lz.LazyMDP(zero, [[1.0], [1.0]], -1e-320)  # a value of 1e-319, up to a relative error of 1e-4
    with pytest.warns(lz.NotConverged):
        found = lz.solve(bonus)
    assert 1e-319 < found.error_bound < 1e-300
    assert lz.solve(bonus, horizon=2).error_bound > 0.0


def test_a_sparse_array_with_one_axis_is_no_model():
    with pytest.raises(ValueError, match=r"transitions are a sparse array of shape \(2,\), expected \[S\*A, S\]"):
        lz.MDP(sp.coo_array(np.ones(2)), [[0.0]], 0.9)


@pytest.mark.parametrize("bad", [[0.5, 0.6], [1.5, -0.5], [1.0], [np.nan, 1.0], ["a", "b"], 0.5], ids=repr)
def test_default_policies_are_distributions(bad):
    with pytest.raises(ValueError, match=r"^default_policy (is|has shape) .*, expected"):
        lz.lazy_gap([0.0, 1.0], bad)


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ("uniform", r"is 'uniform', expected .*lz\.policies\.uniform\(mdp\)"),
        (lambda state: 0, r"is <function .*, expected .*lz\.policies\.uniform\(mdp\)"),
        (
            [0],
            r"has shape \(1,\), expected \(1, 2\): one row per state\. From actions, make numpy\.eye\(2\)\[actions\]",
        ),
    ],
    ids=["name", "callable", "actions"],
)
def test_other_forms_of_a_default_policy_name_the_table_to_give(given, remedy):
    mdp = lz.MDP([[[1.0], [1.0]]], [[0.0, 1.0]], 0.9)
    with pytest.raises(ValueError, match=f"default_policy {remedy}"):
        lz.LazyMDP(mdp, given, 0.1)


@pytest.mark.parametrize("bad", [[[0.5, 0.6]], [[1.5, -0.5]], [[np.nan, 1.0]], [["a", "b"]], [0.5, 0.5]], ids=repr)
def test_a_mixture_is_of_distributions(bad):
    for policies in ((bad, [[0.5, 0.5]]), ([[0.5, 0.5]], bad)):
        with pytest.raises(ValueError, match="policy|other|policies"):
            lz.policies.mixture(*policies, 0.5)


def test_flags_and_names():
    with pytest.raises(ValueError, match="lazy is 'no', expected True or False"):
        learn(lazy="no")
    with pytest.raises(ValueError, match="form is None, expected one of 'structured', 'augmented'"):
        learn(form=None)
    with pytest.raises(TypeError, match="name is 3, expected the name of a default policy"):
        lz.policies.named(MDP, 3)
    with pytest.raises(ValueError, match="state_names is 5, expected a list of 2 names"):
        lz.MDP(MDP.transitions, MDP.rewards, 0.9, state_names=5)
    with pytest.raises(ValueError, match="start probabilities are of type <U1, expected real numbers"):
        lz.MDP(MDP.transitions, MDP.rewards, 0.9, start=["a", "b"])


def test_numbers_of_every_library_reach_the_compiled_loops():
    """Issue 14: they passed the checks, and numba could not read them."""
    plain = learn(alpha=0.5, alpha_power=0.5, epsilon=0.25, final_epsilon=0.0, episodes=3, max_steps=4, points=2)
    other = learn(
        alpha=Fraction(1, 2), alpha_power=np.array(0.5), epsilon=np.float32(0.25), final_epsilon=Fraction(0),
        episodes=np.array(3), max_steps=np.uint8(4), points=np.int64(2), workers=np.int32(1),
    )  # fmt: skip
    np.testing.assert_array_equal(plain.q, other.q)
    np.testing.assert_array_equal(plain.mean_return, other.mean_return)


def test_settings_are_numbers_that_can_be_saved():
    config = lz.learn.DQNConfig(
        steps=np.int64(5000), eta=(Fraction(1, 100), np.float32(0.5)), gamma=np.float64(0.5), hidden=(np.int64(3),),
        learning_rate=Fraction(1, 1000),
    )  # fmt: skip
    assert json.loads(json.dumps(vars(config))) == {**vars(config), "eta": [0.01, 0.5], "hidden": [3]}
    for name, bad in (("steps", 10**20), ("rollout", 10**20), ("learning_rate", Fraction(10**400)), ("eta", 10**400)):
        with pytest.raises(ValueError, match=f"^{name} is .*, expected"):
            lz.learn.PQNConfig(**{name: bad})


def test_names_are_a_sequence():
    for bad in ({"a", "b"}, {"a": 1, "b": 2}, np.array(0.5)):
        with pytest.raises(ValueError, match="state_names is .*, expected a list of 2 names"):
            lz.MDP(MDP.transitions, MDP.rewards, 0.9, state_names=bad)
    assert lz.MDP(MDP.transitions, MDP.rewards, 0.9, state_names=np.array(["a", "b"])).state_names == ("a", "b")


def test_numbers_of_every_library_are_numbers():
    for half in (0.5, np.float32(0.5), np.array(0.5), Fraction(1, 2)):
        assert check_number(half, "half", 0, 1, "a number") == check_eta(half) == 0.5
    for three in (3, np.int8(3), np.uint64(3), np.array(3)):
        assert check_integer(three, "three", 0, 5, "an integer") == check_seed(three) == 3
    np.testing.assert_array_equal(check_seeds(range(3)), [0, 1, 2])
    np.testing.assert_array_equal(check_seeds(np.arange(3)), [0, 1, 2])
    with pytest.raises(ValueError, match="^eta is inf, expected"):
        check_eta(10**400)


def test_the_frequency_does_not_blame_the_discount():
    """Issue 14: at gamma = 0.1 nothing is too long; it is the long run, which has no discount, that has no answer."""
    transitions = np.array([[[1.0 - 1e-13, 1e-13]], [[0.0, 1.0]]])
    mdp = lz.MDP(transitions, [[1.0], [0.0]], 0.1)
    lazy = lz.LazyMDP(mdp, [[1.0], [1.0]], 0.1)
    assert lz.evaluate(lazy, [0, 1]).control_count[0] == pytest.approx(1 / 0.9)
    with pytest.raises(ValueError, match="the long-run frequency cannot be computed") as error:
        lz.lazy_frequency(lazy, [0, 1])
    assert "gamma" not in str(error.value)
