"""The checks and small functions of the lazy-MDP."""

import numpy as np
import pytest
from random_models import random_model

import lazymdp as lz

MODEL = random_model(0, n_states=4, n_actions=3)


def lazy(eta=0.1):
    return lz.LazyMDP(MODEL.mdp, MODEL.default, eta)


def test_lazy_is_the_last_action():
    assert lazy().lazy_action == 3
    assert lazy().with_eta(0.7).eta == 0.7
    assert repr(lazy()).startswith("LazyMDP(eta=0.1, MDP(4 states, 3 actions")


@pytest.mark.parametrize("eta", [np.nan, np.inf, -np.inf])
def test_a_price_must_be_finite(eta):
    for make in (lazy, lazy().with_eta):
        with pytest.raises(ValueError, match=f"eta is {eta}"):
            make(eta)


def changed(row, values):
    table = MODEL.default.copy()
    table[row] = values
    return table


@pytest.mark.parametrize(
    ("default", "message"),
    [
        (changed(2, [0.5, 0.4, 0.0]), r"default_policy in state 2 sums to 0\.9"),
        (changed(1, [1.5, -0.5, 0.0]), r"gives action 1 in state 1 probability -0\.5"),
        (changed(3, [np.nan, 0.5, 0.5]), "gives action 0 in state 3 probability nan"),
        (MODEL.default[:, :2], r"shape \(4, 2\), expected \(4, 3\)"),
        (MODEL.default[0], r"shape \(3,\), expected \(4, 3\)"),
    ],
)
def test_a_default_must_be_a_distribution(default, message):
    with pytest.raises(ValueError, match=message):
        lz.LazyMDP(MODEL.mdp, default, 0.1)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (np.array([0, 1, 4, 3]), r"takes action 4 in state 2, expected 0 to 3 \(3 is lazy\)"),
        (np.array([0, -1, 2, 3]), "takes action -1 in state 1"),
        (np.array([0, 1]), "policy_plus has shape"),
        (MODEL.default, r"shape \(4, 3\), expected \(4, 4\)"),
        (np.full((4, 4), 0.3), "sums to 1.2"),
    ],
)
def test_an_augmented_policy_is_checked(policy, message):
    for question in (lz.evaluate, lz.lazy_frequency):
        with pytest.raises(ValueError, match=message):
            question(lazy(), policy)


def test_actions_and_one_hot_probabilities_are_the_same_policy():
    action = np.array([3, 0, 2, 3])
    first, second = lz.evaluate(lazy(), action), lz.evaluate(lazy(), np.eye(4)[action])
    np.testing.assert_array_equal(first.value, second.value)


def test_gaps_by_hand():
    q = [[1.0, 3.0, 2.0], [5.0, 5.0, 5.0]]
    np.testing.assert_allclose(lz.lazy_gap(q, [[0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]]), [1.0, 0.0])
    np.testing.assert_allclose(lz.action_gap(q), [1.0, 0.0])
    np.testing.assert_allclose(lz.importance_advice(q), [2.0, 0.0])
    np.testing.assert_allclose(lz.action_gap([[2.0]]), [0.0])
    for measure in (lz.action_gap, lz.importance_advice):
        with pytest.raises(ValueError, match="at least one action"):
            measure(np.zeros((3, 0)))


def test_a_gap_is_exactly_zero_where_the_default_is_best():
    q = np.array([[0.1 + 0.2, 0.3 - 1e-3, 0.1 + 0.2]])
    assert lz.lazy_gap(q, [[1 / 3 + 1 / 3, 0.0, 1 / 3]])[0] == 0.0


def test_default_policies():
    mdp = lz.MDP(
        [[[0.0, 1.0]] * 4, [[0.0, 1.0]] * 4], [[1.0, 1.0, 0.5, 0.2], [0.0, 0.0, 0.0, 0.0]], 0.9
    )  # one step; two actions tie for the best
    np.testing.assert_allclose(lz.policies.uniform(mdp), 0.25)
    np.testing.assert_allclose(lz.policies.optimal(mdp), [[0.5, 0.5, 0, 0], [0.25] * 4])
    np.testing.assert_allclose(lz.policies.second_best(mdp), [[0, 0, 1, 0], [0.25] * 4])
    mixed = lz.policies.mixture(lz.policies.optimal(mdp), lz.policies.uniform(mdp), 0.8)
    np.testing.assert_allclose(mixed[0], [0.45, 0.45, 0.05, 0.05])
    with pytest.raises(ValueError, match=r"weight is 1\.2"):
        lz.policies.mixture(mixed, mixed, 1.2)
    with pytest.raises(ValueError, match=r"shapes \(2, 4\) and \(2, 3\)"):
        lz.policies.mixture(mixed, mixed[:, :3], 0.5)


def test_steps_to_absorption_by_hand():
    """A state that is left with probability 1/2 per step has 1 / (1 - gamma / 2) discounted steps."""
    mdp = lz.MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[0.0], [0.0]], 0.8)
    np.testing.assert_allclose(lz.steps_to_absorption(mdp, [[1.0], [1.0]]), [1 / 0.6, 0.0])
    with pytest.raises(ValueError, match="policy in state 0 sums to 2"):
        lz.steps_to_absorption(mdp, [[2.0], [1.0]])


@pytest.mark.parametrize("shape", [(4, 2), (3, 3), (3, 1)])
def test_a_default_policy_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"default_policy has shape .*, expected \(3, 2\) like q, or \[A\] for all"):
        lz.lazy_gap(np.zeros((3, 2)), np.ones(shape) / shape[1])
