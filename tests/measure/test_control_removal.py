"""The exact loss if control is taken away, against a brute force that evaluates every changed policy by itself."""

import brute_force
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import models, random_model

import lazymdp as lz
from lazymdp.measure.control_removal import removal_loss, removal_loss_of_sets, visit_frequency


def changed_return(model, policy, states):
    """The return from the start if the default policy acts in `states`."""
    changed = np.array(policy)
    changed[states] = model.default[states]
    return model.start @ brute_force.policy_value(*model.base, changed)


@settings(max_examples=50)
@given(models(gammas=(0.0, 0.5, 0.9, 0.99)))
def test_the_loss_of_a_state_is_that_of_the_changed_policy(model):
    policy = lz.policies.optimal(model.mdp)
    best = model.start @ brute_force.policy_value(*model.base, policy)
    expected = [best - changed_return(model, policy, [s]) for s in range(len(model.start))]
    scale = 1.0 + np.abs(model.rewards).max() / (1.0 - model.gamma)
    np.testing.assert_allclose(removal_loss(model.mdp, policy, model.default), expected, atol=1e-9 * scale)


@settings(max_examples=50)
@given(models(gammas=(0.0, 0.5, 0.9, 0.99)), st.integers(0, 1000))
def test_the_loss_of_a_set_is_that_of_the_changed_policy(model, seed):
    rng = np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(model.rewards.shape[1]), len(model.start))  # any policy, not only the optimum
    sets = rng.random((5, len(model.start))) < 0.4
    best = model.start @ brute_force.policy_value(*model.base, policy)
    expected = [best - changed_return(model, policy, members) for members in sets]
    scale = 1.0 + np.abs(model.rewards).max() / (1.0 - model.gamma)
    found = removal_loss_of_sets(model.mdp, policy, model.default, sets)
    np.testing.assert_allclose(found, expected, atol=1e-9 * scale)
    single = removal_loss_of_sets(model.mdp, policy, model.default, np.eye(len(model.start), dtype=bool))
    np.testing.assert_allclose(single, removal_loss(model.mdp, policy, model.default), atol=1e-9 * scale)


@settings(max_examples=50)
@given(models(gammas=(0.0, 0.5, 0.9, 0.99)))
def test_the_loss_of_a_single_visit_is_the_lazy_gap(model):
    """The default policy acts for one step from each state, and the optimum afterwards. A check, not evidence."""
    value, _ = brute_force.optimum(*model.base)
    one_step = (model.default * model.rewards).sum(axis=1)
    one_step = one_step + model.gamma * np.einsum("sa,sat,t->s", model.default, model.transitions, value)
    expected = np.where(model.absorbing, 0.0, value - one_step)
    solution = lz.solve(lz.LazyMDP(model.mdp, model.default, 0.0))
    scale = 1.0 + np.abs(model.rewards).max() / (1.0 - model.gamma)
    np.testing.assert_allclose(np.where(model.absorbing, 0.0, solution.lazy_gap), expected, atol=1e-7 * scale)
    assert np.all(expected >= -1e-9 * scale)


def test_a_loss_by_hand():
    """State 0 stays with reward 1 (action 0), or ends (action 1), each with probability 1/2 by default; gamma 1/2.

    The optimum stays: return 2. If the default acts in 0: x = 1/2 (1 + x / 2), so x = 2/3 and the loss is 4/3. The
    lazy-gap is 2 - 1/2 (1 + 1) = 1, and the visits with the default policy are 1 / (1 - 1/4) = 4/3.
    """
    transitions = np.array([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    mdp = lz.MDP(transitions, [[1.0, 0.0], [0.0, 0.0]], 0.5, start=0)
    policy, default = lz.policies.optimal(mdp), lz.policies.uniform(mdp)
    np.testing.assert_allclose(removal_loss(mdp, policy, default), [4 / 3, 0.0])
    np.testing.assert_allclose(removal_loss_of_sets(mdp, policy, default, [[False, True], [True, True]]), [0.0, 4 / 3])
    np.testing.assert_allclose(visit_frequency(mdp, policy), [2.0, 0.0])


def test_visits_add_up_to_the_steps_lived():
    model = random_model(3, n_states=7)
    policy = lz.policies.optimal(model.mdp)
    steps = model.mdp.start_average(lz.steps_to_absorption(model.mdp, policy))
    assert visit_frequency(model.mdp, policy).sum() == pytest.approx(steps)


def test_sets_that_are_not_flags_are_refused():
    model = random_model(0)
    policy = lz.policies.optimal(model.mdp)
    with pytest.raises(ValueError, match=r"sets has shape \(1, 6\) and type int64, expected bool \[N, S\] with S = 6"):
        removal_loss_of_sets(model.mdp, policy, model.default, [[0, 1, 0, 0, 0, 0]])


def endless(gamma, slowly):
    """States 0 and 1 end at once with action 1; with action 0 they lead to each other, and hardly ever end."""
    transitions = np.zeros((3, 2, 3))
    transitions[0, 0], transitions[1, 0] = slowly
    transitions[:, 1, 2] = transitions[2, :, 2] = 1.0
    return lz.MDP(transitions, [[1.0, 2.0], [1.0, 3.0], [0.0, 0.0]], gamma)


@pytest.mark.parametrize("gamma", [1.0, 1.0 - 1e-15])
@pytest.mark.parametrize(
    "slowly", [([0.05, 0.95, 0.0], [0.1, 0.9, 1e-17]), ([0.05, 0.95 + 4e-9, 1e-10], [0.1, 0.9 + 4e-9, 1e-10])]
)
def test_visits_and_losses_that_cannot_be_proven_are_refused(gamma, slowly):
    """Issue 14: these were counted as -7e16 visits, and a gain of 1e17 as a loss of 4e16."""
    mdp = endless(gamma, slowly)
    slow, fast = (np.eye(2)[[action] * 3] for action in (0, 1))
    both = np.array([[True, True, False]])
    for question in (
        lambda: visit_frequency(mdp, slow),
        lambda: removal_loss(mdp, slow, fast),
        lambda: removal_loss_of_sets(mdp, fast, slow, both),
    ):
        with pytest.raises(ValueError, match="cannot be told from infinite"):
            question()
    np.testing.assert_allclose(visit_frequency(mdp, fast), [0.5, 0.5, 0.0])
    # Lazy in 0 only: V(0) = 1 + 0.05 V(0) + 0.95 * 3, instead of 2. Lazy in 1 only: V(1) = 1 + 0.1 * 2 + 0.9 V(1).
    loss = removal_loss(mdp, fast, slow)
    np.testing.assert_allclose(loss, [(2.0 - 3.85 / 0.95) / 2.0, (3.0 - 12.0) / 2.0, 0.0], rtol=1e-6)
    np.testing.assert_allclose(removal_loss_of_sets(mdp, fast, slow, np.eye(3, dtype=bool)), loss)


def test_losses_next_to_one_are_answered_where_lifetimes_are_proven():
    mdp = endless(1.0, ([0.05, 0.949, 0.001], [0.1, 0.899, 0.001]))
    slow, fast = (np.eye(2)[[action] * 3] for action in (0, 1))
    steps = mdp.start_average(lz.steps_to_absorption(mdp, slow))
    assert visit_frequency(mdp, slow).sum() == pytest.approx(steps)
    best = mdp.start_average(lz.evaluate(lz.LazyMDP(mdp, slow, 0.0), [1, 1, 1]).base_value)
    worst = mdp.start_average(lz.evaluate(lz.LazyMDP(mdp, slow, 0.0), [2, 2, 2]).base_value)
    assert removal_loss_of_sets(mdp, fast, slow, [[True, True, False]])[0] == pytest.approx(best - worst)
