"""Every theorem and property of the paper, on random models, against the brute force."""

import gymnasium as gym
import numpy as np
import pytest
from brute_force import augment, optimum, policy_value
from hypothesis import assume, given
from hypothesis import strategies as st
from random_models import Model, models, random_model

import lazymdp as lz

prices = st.sampled_from([-0.3, 0.0, 0.01, 0.1, 0.5, 2.0])


def close(found, expected, model, tolerance=1e-9):
    scale = (1.0 + np.abs(np.asarray(expected)).max(initial=0.0)) / (1.0 - model.gamma)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


def random_policy_plus(model, seed):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(model.rewards.shape[1] + 1), len(model.start))


@given(models(), prices, st.integers(0, 100))
def test_theorem_1_value_splits_into_base_value_and_control_cost(model, eta, seed):
    plus = random_policy_plus(model, seed)
    lazy = lz.LazyMDP(model.mdp, model.default, eta)
    found = lz.evaluate(lazy, plus)
    transitions, rewards = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    close(found.value, policy_value(transitions, rewards, model.gamma, model.absorbing, plus), model)
    policy = plus[:, :-1] + plus[:, -1:] * model.default
    close(found.base_value, policy_value(*model.base, policy), model)
    close(found.value, found.base_value + found.control_cost, model)
    close(found.control_cost, -eta * found.control_count, model)
    # The theorem's Bellman equation of the cost, C = -eta (1 - lazy) + gamma P C.
    step = np.einsum("sa,sat->st", policy, model.transitions)
    right = -eta * (1.0 - plus[:, -1]) + model.gamma * step @ found.control_cost
    close(found.control_cost, np.where(model.absorbing, 0.0, right), model)


def test_never_lazy_without_absorption_costs_eta_over_one_minus_gamma():
    model = random_model(3, n_absorbing=0, gamma=0.9)
    found = lz.evaluate(lz.LazyMDP(model.mdp, model.default, 0.5), np.zeros(6, dtype=int))
    np.testing.assert_allclose(found.control_cost, -0.5 / 0.1)


@given(models(), prices, st.integers(0, 100))
def test_properties_1_and_2_value_and_lazy_value_from_q(model, eta, seed):
    plus = random_policy_plus(model, seed)
    value = lz.evaluate(lz.LazyMDP(model.mdp, model.default, eta), plus).value
    q = model.rewards - eta + model.gamma * model.transitions @ value
    lazy_value = (model.default * q).sum(axis=1) + eta
    transitions, rewards = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    explicit = rewards + model.gamma * transitions @ value
    alive = ~model.absorbing
    close(lazy_value[alive], explicit[alive, -1], model)  # Property 2
    mixed = (plus[:, :-1] * q).sum(axis=1) + plus[:, -1] * lazy_value
    close(mixed[alive], value[alive], model)  # Property 1


@given(models(), prices)
def test_property_3_and_the_corrected_corollary_control_iff_gap_exceeds_eta(model, eta):
    lazy = lz.LazyMDP(model.mdp, model.default, eta)
    solution = lz.solve(lazy, tol=1e-6, method="policy_iteration")
    plus = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    value, q = optimum(*plus, model.gamma, model.absorbing)
    gap = q[:, :-1].max(axis=1) - (model.default * q[:, :-1]).sum(axis=1)
    close(solution.value, value, model)
    alive = ~model.absorbing
    close(solution.lazy_gap[alive], gap[alive], model)
    clear = alive & (np.abs(gap - eta) > 1e-6)  # where it is no tie
    np.testing.assert_array_equal(solution.control[clear], (gap > eta)[clear])
    np.testing.assert_array_equal((q[:, :-1].max(axis=1) > q[:, -1])[clear], (gap > eta)[clear])
    assert not solution.control[model.absorbing].any()
    # The greedy policy is optimal: its own value is the optimum.
    close(lz.evaluate(lazy, solution.action).value, value, model)


@given(models(), prices, st.integers(0, 100))
def test_theorem_2_the_operator_contracts_to_the_optimum(model, eta, seed):
    rng = np.random.default_rng(seed)

    def operator(q):  # with the correction: the lazy value is E_default q + eta
        value = np.maximum(q.max(axis=1), (model.default * q).sum(axis=1) + eta)
        value[model.absorbing] = 0.0
        return model.rewards - eta + model.gamma * model.transitions @ value

    first, second = rng.normal(size=(2, *model.rewards.shape))
    distance = np.abs(operator(first) - operator(second)).max()
    assert distance <= model.gamma * np.abs(first - second).max() + 1e-12
    solution = lz.solve(lz.LazyMDP(model.mdp, model.default, eta), tol=1e-7)
    alive = ~model.absorbing
    fixed = np.where(alive[:, None], solution.q, model.rewards - eta)
    close(operator(fixed)[alive], solution.q[alive], model, 1e-6)


@given(models())
def test_theorem_3_eta_max_is_where_control_ends(model):
    top = lz.eta_max(model.mdp, model.default)
    lazy = lz.LazyMDP(model.mdp, model.default, top * (1 + 1e-6) + 1e-9)
    assert not lz.solve(lazy, tol=1e-7, method="policy_iteration").control.any()
    assume(top > 1e-3)  # else the default policy is optimal, and there is no price below
    below = lazy.with_eta(top * (1 - 1e-4))
    plus = augment(model.transitions, model.rewards, model.absorbing, model.default, below.eta)
    _, q = optimum(*plus, model.gamma, model.absorbing)
    assert (q[:, :-1].max(axis=1) > q[:, -1])[~model.absorbing].any()


def lazy_somewhere(model, eta):
    plus = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    _, q = optimum(*plus, model.gamma, model.absorbing)
    return (q[:, -1] > q[:, :-1].max(axis=1) + 1e-11)[~model.absorbing].any()


@given(models(gammas=(0.0, 0.5, 0.9, 0.99)))
def test_eta_min_is_where_laziness_begins(model):
    bottom = lz.eta_min(model.mdp, model.default)
    assert 0.0 <= bottom <= lz.eta_max(model.mdp, model.default) + 1e-9
    assert lazy_somewhere(model, bottom * (1 + 1e-3) + 1e-6)
    assume(bottom > 1e-6)
    for part in (0.05, 0.5, 0.9, 0.999):
        assert not lazy_somewhere(model, bottom * part)


@given(models(gammas=(0.0, 0.5, 0.9, 0.99)))
def test_theorem_4_holds_where_its_assumption_does(model):
    formula = lz.eta_min_theorem(model.mdp, model.default)
    assume(formula.holds)
    exact = lz.eta_min(model.mdp, model.default)
    assert formula.value == pytest.approx(exact, rel=1e-6, abs=1e-9)


@given(models(gammas=(0.5, 0.9, 0.99)))
def test_theorem_4_always_holds_without_absorbing_states(model):
    assume(not model.absorbing.any())
    assert lz.eta_min_theorem(model.mdp, model.default).holds


def test_theorem_4_fails_on_frozen_lake():
    """The paper's formula gives 0.00464; no state is lazy before 0.01169: a price per step favors short episodes."""
    mdp = lz.MDP.from_gymnasium(gym.make("FrozenLake-v1"), gamma=0.99)
    default = lz.policies.uniform(mdp)
    formula, exact = lz.eta_min_theorem(mdp, default), lz.eta_min(mdp, default)
    assert not formula.holds
    assert formula.value == pytest.approx(0.0046424, abs=1e-7)
    assert exact == pytest.approx(0.0116914, abs=1e-7)
    dense = mdp.transitions.toarray().reshape(16, 4, 16)
    model = Model(dense, mdp.rewards, 0.99, mdp.absorbing, mdp.start, default)
    assert not lazy_somewhere(model, formula.value * 1.01)
    assert not lazy_somewhere(model, exact * 0.999)
    assert lazy_somewhere(model, exact * 1.001)


def test_how_often_theorem_4_fails():
    """It fails in about four of ten random models with an absorbing state and three actions."""
    wrong = 0
    for seed in range(100):
        model = random_model(seed, n_states=4, n_actions=3, gamma=0.95, default="uniform", successors=2)
        formula = lz.eta_min_theorem(model.mdp, model.default)
        missed = abs(formula.value - lz.eta_min(model.mdp, model.default)) > 1e-6
        assert not (missed and formula.holds)
        wrong += missed
    assert 25 <= wrong <= 55


@given(models(), st.integers(0, 100))
def test_the_value_is_convex_and_piecewise_linear_in_eta_with_slope_minus_k(model, seed):
    mdp = model.mdp
    etas = np.sort(np.random.default_rng(seed).uniform(0, 1.2 * lz.eta_max(mdp, model.default) + 0.1, 3))
    plus = [augment(model.transitions, model.rewards, model.absorbing, model.default, eta) for eta in etas]
    low, middle, high = (optimum(*p, model.gamma, model.absorbing)[0] for p in plus)
    weight = (etas[2] - etas[1]) / (etas[2] - etas[0])
    assert (middle <= weight * low + (1 - weight) * high + 1e-8 / (1 - model.gamma)).all()
    # The optimal policy's line touches at its own price and lies below at the others.
    lazy = lz.LazyMDP(mdp, model.default, etas[1])
    found = lz.evaluate(lazy, lz.solve(lazy, tol=1e-7, method="policy_iteration").action)
    for eta, value in ((etas[0], low), (etas[2], high)):
        line = found.value - (eta - etas[1]) * found.control_count
        assert (line <= value + 1e-7 / (1 - model.gamma)).all()


@given(models(), prices)
def test_the_explicit_model_and_the_effective_policy(model, eta):
    lazy = lz.LazyMDP(model.mdp, model.default, eta)
    explicit = lazy.to_mdp()
    transitions, rewards = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    found = explicit.transitions.toarray().reshape(transitions.shape)
    np.testing.assert_allclose(found, transitions, atol=1e-15)
    np.testing.assert_allclose(explicit.rewards, rewards, atol=1e-12)
    np.testing.assert_array_equal(explicit.absorbing, model.absorbing)
    plus = random_policy_plus(model, 0)
    policy = lazy.effective_policy(plus)
    np.testing.assert_allclose(policy.sum(axis=1), 1.0)
    np.testing.assert_allclose(
        np.einsum("sa,sat->st", policy, model.transitions), np.einsum("sa,sat->st", plus, transitions), atol=1e-15
    )
