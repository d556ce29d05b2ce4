"""Advantages: exact to the last digit, also where they are tiny differences of huge values."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from random_models import models, random_model
from rational import Rational

import lazymdp as lz
from lazymdp.exact.advantages import advantages


def near_tie(p, d):
    """Issue 14: one state that lives 1/p steps, two actions that differ in that by d."""
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0], transitions[0, 1] = [1 - p, p], [1 - p * (1 - d), p * (1 - d)]
    transitions[1, :, 1] = 1.0
    return lz.MDP(transitions, [[1.0, 1.0], [0.0, 0.0]], 1.0)


def exact_of(mdp, default):
    dense = mdp.transitions.toarray().reshape(mdp.n_states, mdp.n_actions, mdp.n_states)
    return Rational(dense, mdp.rewards, mdp.gamma, mdp.absorbing, default)


def check_margins(mdp, policy):
    """Every advantage is within its margin of the exact one."""
    [found] = advantages(mdp, policy, mdp.rewards)
    exact = exact_of(mdp, policy)
    value = exact.lines([mdp.n_actions] * len(exact.alive))[0]
    for i, s in enumerate(exact.alive):
        for a in range(mdp.n_actions):
            truth = exact.gains[i][a] + sum(p * v for p, v in zip(exact.rows[i][a], value, strict=True)) - value[i]
            assert abs(Fraction(float(found.advantage[s, a])) - truth) <= Fraction(float(found.margin[s, a]))
    return found


@settings(max_examples=40)
@given(models(max_states=4, gammas=(0.0, 0.5, 0.99, 1.0 - 1e-9)))
def test_advantages_are_within_their_margins(model):
    found = check_margins(model.mdp, model.default)
    assert found.margin.max() <= 1e-14 * (1.0 + np.abs(found.value).max())


@pytest.mark.parametrize("p", [1e-2, 1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("d", [0.5, 5e-6])
def test_near_ties_of_models_that_live_long_are_decided(p, d):
    mdp = near_tie(p, d)
    default = lz.policies.uniform(mdp)
    found = check_margins(mdp, default)
    assert (found.margin[0] < np.abs(found.advantage[0])).all()
    exact = exact_of(mdp, default)
    assert lz.eta_max(mdp, default) == pytest.approx(float(exact.eta_max), rel=1e-12)
    assert lz.eta_min(mdp, default) == pytest.approx(float(exact.eta_min), rel=1e-9)
    np.testing.assert_array_equal(lz.policies.optimal(mdp)[0], [0.0, 1.0])


def test_actions_that_tie_on_paper_tie():
    """Being lazy with probabilities of 0.1, 0.2 and 0.7, which do not sum to 1 exactly, between equal actions."""
    mdp = lz.MDP(np.full((2, 3, 2), 0.5), np.full((2, 3), 0.1), 0.999)
    default = np.tile([0.1, 0.2, 0.7], (2, 1))
    assert sum(map(Fraction, default[0])) != 1
    assert lz.eta_max(mdp, default) == lz.eta_min(mdp, default) == 0.0
    np.testing.assert_array_equal(lz.policies.optimal(mdp), 1 / 3)


@pytest.mark.parametrize("question", [lz.eta_max, lz.eta_min, lz.eta_path])
def test_what_only_rounding_of_the_data_decides_is_refused(question):
    mdp = near_tie(1e-10, 5e-6)
    with pytest.raises(ValueError, match="cannot be told from infinite"):
        question(mdp, lz.policies.uniform(mdp))


def test_a_large_model_is_as_exact_as_a_small_one():
    model = random_model(0, n_states=6, gamma=0.9, n_absorbing=0)
    copies = 900
    rows = sp.kron(sp.eye_array(copies), sp.csr_array(model.transitions.reshape(18, 6)), format="csr")
    large = lz.MDP(rows, np.tile(model.rewards, (copies, 1)), 0.9)
    [found] = advantages(large, np.tile(model.default, (copies, 1)), large.rewards)
    [small] = advantages(model.mdp, model.default, model.rewards)
    assert large.n_states > 5_000
    np.testing.assert_allclose(found.advantage, np.tile(small.advantage, (copies, 1)), atol=1e-11)
    assert found.margin.max() < 1e-9
