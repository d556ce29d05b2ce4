"""The bounds on eta where double precision ends; their theorems are in test_solve_theorems."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import models
from rational import Rational

import lazymdp as lz

ALMOST_STUCK = np.array(
    [[[1.0, 1e-308, 1e-308]], [[0.9999999777492623, 1.1125368921214497e-08, 1.1125368921214497e-08]], [[0.0, 0.0, 1.0]]]
)
"""Absorption has a probability that a factorization does not see: it finds a pivot that is pure rounding error."""

QUESTIONS = (lz.eta_max, lz.eta_min, lz.eta_min_theorem, lz.eta_path, lz.steps_to_absorption)


@pytest.mark.parametrize("question", QUESTIONS)
def test_absorption_that_only_rounding_shows_is_refused(question):
    mdp = lz.MDP(ALMOST_STUCK, np.zeros((3, 1)), 1.0)
    with pytest.raises(ValueError, match="cannot be told from infinite"):
        question(mdp, lz.policies.uniform(mdp))


@pytest.mark.parametrize("power", [14, 20, 100, 245, 300])
@pytest.mark.parametrize("seed", range(5))
def test_no_bound_is_made_of_rounding_errors(power, seed):
    """Values of about 10**power, of which a lazy-gap of about 1 would have to be left."""
    rng = np.random.default_rng(seed)
    transitions = np.zeros((4, 2, 4))
    transitions[:3, :, :3] = rng.dirichlet(np.ones(3), (3, 2)) * (1.0 - 10.0**-power)
    transitions[:3, :, 3] = 10.0**-power
    transitions[3, :, 3] = 1.0
    rewards = rng.normal(size=(4, 2))
    rewards[3] = 0.0
    mdp = lz.MDP(transitions, rewards, 1.0)
    for question in (lz.eta_max, lz.eta_min):
        with pytest.raises(ValueError, match="cannot be told from infinite"):
            question(mdp, lz.policies.uniform(mdp))


def test_slow_absorption_that_can_be_seen_is_answered():
    """Both actions are absorbed with probability 1e-8 a step and differ by 1 in reward: the gap is 1/2."""
    mdp = lz.MDP([[[1 - 1e-8, 1e-8]] * 2, [[0.0, 1.0]] * 2], [[1.0, 0.0], [0.0, 0.0]], 1.0)
    assert lz.eta_max(mdp, lz.policies.uniform(mdp)) == pytest.approx(0.5, rel=1e-6)


# -- against rational arithmetic ---------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(models(max_states=4, gammas=(0.0, 0.5, 0.9, 0.99)), st.sampled_from([1e-12, 1e-8, 1.0, 1e9]))
def test_bounds_are_those_of_rational_arithmetic_at_any_scale(model, scale):
    """Issue 14: with rewards of order 1e-8, absolute margins gave an eta_min of 0 and a formula that did not hold."""
    mdp = lz.MDP(model.transitions, scale * model.rewards, model.gamma)
    exact = Rational(model.transitions, mdp.rewards, model.gamma, model.absorbing, model.default)
    allowed = dict(rel=1e-9, abs=1e-13 * mdp.max_reward / (1.0 - model.gamma))
    assert lz.eta_max(mdp, model.default) == pytest.approx(float(exact.eta_max), **allowed)
    bottom = float(exact.eta_min)
    assert lz.eta_min(mdp, model.default) == pytest.approx(bottom, **allowed)
    formula = lz.eta_min_theorem(mdp, model.default)
    assert not formula.holds or formula.value == pytest.approx(bottom, **allowed)


def test_no_infinite_price_where_a_default_policy_hardly_ever_ends():
    """The best policy ends soon, but the default policy ends with probability 1e-245 per step: refused, not inf."""
    transitions = np.array([[[1.0, 1e-245], [0.5, 0.5]], [[0.0, 1.0], [0.0, 1.0]]])
    mdp = lz.MDP(transitions, [[-0.5, 1.0], [0.0, 0.0]], 1.0)
    default = np.array([[1.0, 0.0], [1.0, 0.0]])
    for question in (lz.eta_max, lz.eta_min, lz.eta_min_theorem, lz.eta_path):
        with pytest.raises(ValueError, match="cannot be told from infinite"):
            question(mdp, default)
