"""Plans: the best return under a limit on control, against a linear program over occupancies."""

import csv

import numpy as np
import pytest
import scipy.sparse as sp
from brute_force import augment, limited_optimum, optimum
from hypothesis import assume, given
from hypothesis import strategies as st
from random_models import models, random_model

import lazymdp as lz


def tolerance(model):
    return 1e-9 / (1.0 - model.gamma) if model.gamma < 1 else 1e-8


def played(model, plan):
    """Return, controls and steps lived of the mixture from the start, by evaluating both policies."""
    mdp = model.mdp
    lazy = lz.LazyMDP(mdp, model.default, 0.0)
    total = np.zeros(3)
    for weight, action in zip((plan.weight, 1.0 - plan.weight), plan.actions, strict=True):
        found = lz.evaluate(lazy, action)
        steps = lz.steps_to_absorption(mdp, lazy.effective_policy(action))
        total += weight * np.array([mdp.start_average(x) for x in (found.base_value, found.control_count, steps)])
    return total


def check_consistent(model, plan):
    base_value, count, steps = played(model, plan)
    assert base_value == pytest.approx(plan.base_value, abs=tolerance(model))
    assert count == pytest.approx(plan.control_count, abs=tolerance(model))
    assert (count / steps if steps else 0.0) == pytest.approx(plan.control_rate, abs=1e-9)
    assert 0.0 <= plan.weight <= 1.0
    assert plan.eta >= 0.0
    assert plan.lazy_action == model.rewards.shape[1]


# -- a number of controls --------------------------------------------------------------------------------------------


@given(models(max_states=6), st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0, 2.0]))
def test_the_best_count_is_the_linear_programs_optimum(model, part):
    path = lz.eta_path(model.mdp, model.default)
    count = part * path.start_control_counts[0]
    plan = path.for_control_count(count)
    expected = limited_optimum(*model.base, model.start, model.default, count=count)
    assert plan.base_value == pytest.approx(expected, abs=1e-6 / (1 - model.gamma))
    assert plan.control_count <= count + 1e-9
    check_consistent(model, plan)


# -- a share of the steps --------------------------------------------------------------------------------------------

KINDS = {
    "endless": dict(gamma=(0.5, 0.9, 0.99), n_absorbing=(0,)),
    "may end": dict(gamma=(0.0, 0.5, 0.9, 0.99, 0.999), n_absorbing=(1, 2)),
    "sparse": dict(gamma=(0.5, 0.9, 0.99), n_absorbing=(0, 1, 2), successors=(1, 2)),
    "sure to end": dict(gamma=(1.0,), n_absorbing=(1, 2)),
}


def model_of(kind, seed):
    rng = np.random.default_rng([seed, sorted(KINDS).index(kind)])
    choice = {name: rng.choice(values) for name, values in KINDS[kind].items()}
    default = str(rng.choice(["uniform", "deterministic", "random"]))
    sizes = dict(n_states=int(rng.integers(3, 8)), n_actions=int(rng.integers(1, 5)))
    return random_model(seed, **sizes, **choice, default=default, whole=bool(rng.integers(2)))


def dual_bound(model, share, eta):
    """`max V - eta (K - share N)` from the start: no plan within the share can have a larger return."""
    alive = ~model.absorbing
    plus, rewards = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    value, _ = optimum(plus, rewards + eta * share * alive[:, None], model.gamma, model.absorbing)
    return model.start @ value


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_rate_is_the_linear_programs_optimum(kind):
    """50 models of each of four kinds. The bound by duality shows that the plan is exact to rounding."""
    mixed = 0
    for seed in range(50):
        model = model_of(kind, seed)
        path = lz.eta_path(model.mdp, model.default)
        for share in (0.0, *np.random.default_rng(seed).uniform(0, 1, 3) ** 2, 1.0):
            plan = path.for_control_rate(share)
            scale = 1.0 + abs(plan.base_value) + plan.eta
            expected = limited_optimum(*model.base, model.start, model.default, share=share)
            assert plan.base_value == pytest.approx(expected, abs=1e-6 * scale), (seed, share)
            assert plan.base_value == pytest.approx(dual_bound(model, share, plan.eta), abs=1e-9 * scale), (seed, share)
            assert plan.control_rate <= share + 1e-12
            if plan.eta > 0.0:
                assert plan.control_rate == pytest.approx(share, abs=1e-12)
            check_consistent(model, plan)
            mixed += 0.0 < plan.weight < 1.0
    assert mixed > 10


@pytest.mark.parametrize("kind", KINDS)
def test_no_control_and_no_limit(kind):
    for seed in range(20):
        model = model_of(kind, seed)
        path = lz.eta_path(model.mdp, model.default)
        none, free = path.for_control_rate(0), path.for_control_rate(1)
        assert none.control_count == none.control_rate == 0.0
        assert (none.sample_policy(np.random.default_rng(0)) == path.mdp.n_actions).all()
        assert (free.eta, free.weight) == (0.0, 1.0)
        np.testing.assert_array_equal(free.actions[0], path.action_at(0.0))  # a tie is lazy
        assert free.base_value == pytest.approx(path.start_base_values[0], abs=tolerance(model))


@given(models(gammas=(0.5, 0.9, 0.99)), st.floats(0, 1))
def test_where_no_episode_ends_a_rate_is_a_count(model, share):
    assume(not model.absorbing.any())
    path = lz.eta_path(model.mdp, model.default)
    rate, count = path.for_control_rate(share), path.for_control_count(share / (1.0 - model.gamma))
    assert rate.base_value == pytest.approx(count.base_value, abs=tolerance(model))
    assert rate.control_count == pytest.approx(count.control_count, abs=tolerance(model))
    assert rate.control_rate == pytest.approx(count.control_rate, abs=1e-12)


def test_a_rate_can_be_met_by_living_longer():
    """One control in state 0 leads to state 1, which earns 1 a step for ever. Being lazy in state 0 ends the episode.

    The policy that takes control in state 0 only is in control in 1 of 10 discounted steps, so a limit of 0.5 does not
    bind. A limit of 0.05 needs a mixture with the always-lazy policy, which lives for one step.
    """
    transitions = np.zeros((3, 2, 3))
    transitions[0, 0, 2] = transitions[0, 1, 1] = transitions[1, :, 1] = transitions[2, :, 2] = 1.0
    mdp = lz.MDP(transitions, [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], 0.9, start=0)
    path = lz.eta_path(mdp, [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    plan = path.for_control_rate(0.5)
    assert (plan.eta, plan.control_count) == (0.0, pytest.approx(1.0))
    assert plan.control_rate == pytest.approx(0.1)
    # At a rate of 5 %: w / (10 w + 1 - w) = 0.05.
    plan = path.for_control_rate(0.05)
    assert plan.weight == pytest.approx(1 / 11)
    assert plan.base_value == pytest.approx(9 / 11)


def test_the_rate_on_a_path_with_a_tolerance_is_exact_all_the_same():
    model = random_model(3, n_states=8, gamma=0.95)
    exact = lz.eta_path(model.mdp, model.default).for_control_rate(0.2)
    rough = lz.eta_path(model.mdp, model.default, tol=1.0).for_control_rate(0.2)
    assert rough.base_value == pytest.approx(exact.base_value, abs=1e-10)
    assert rough.eta == pytest.approx(exact.eta, abs=1e-10)


def test_nothing_is_lived():
    mdp = lz.MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[1.0], [0.0]], 0.9, start=1)
    path = lz.eta_path(mdp, [[1.0], [1.0]])
    for plan in (path.for_control_rate(0.5), path.for_control_count(0.5)):
        assert plan.control_rate == plan.control_count == plan.base_value == 0.0


def test_a_large_model_gets_its_plan():
    """A ring of 6,000 states: large enough for the iterative solver."""
    n = 6_000
    rng = np.random.default_rng(0)
    ahead = (np.arange(n)[:, None] + [1, 2]) % n
    rows = sp.csr_array((np.ones(2 * n), ahead.ravel(), np.arange(2 * n + 1)), shape=(2 * n, n))
    mdp = lz.MDP(rows, rng.random((n, 2)), 0.95)
    path = lz.eta_path(mdp, lz.policies.uniform(mdp), tol=0.1)
    plan = path.for_control_rate(0.3)
    assert plan.control_rate == pytest.approx(0.3, abs=1e-10)
    assert plan.base_value <= path.for_control_rate(0.4).base_value


# -- playing and showing ---------------------------------------------------------------------------------------------


def test_sample_policy_draws_the_mixture():
    model = model_of("may end", 1)
    path = lz.eta_path(model.mdp, model.default)
    plan = path.for_control_count(0.5 * path.start_control_counts[:2].sum())
    assert plan.weight == pytest.approx(0.5)
    rng = np.random.default_rng(0)
    draws = [plan.sample_policy(rng) for _ in range(2000)]
    first = np.mean([np.array_equal(draw, plan.actions[0]) for draw in draws])
    assert first == pytest.approx(plan.weight, abs=0.05)
    assert all(any(np.array_equal(draw, action) for action in plan.actions) for draw in draws)
    draws[0][:] = -1  # the caller's own
    assert min(action.min() for action in plan.actions) >= 0


def test_a_plan_prints_in_a_few_lines_and_is_written_as_a_table(tmp_path):
    model = random_model(0, n_states=300, successors=3)
    path = lz.eta_path(model.mdp, model.default)
    mixed, single = path.for_control_rate(0.1), path.for_control_rate(1)
    text = str(mixed)
    assert len(text.splitlines()) == 3
    assert max(map(len, text.splitlines())) < 120
    assert "in 10.0% of steps" in text
    assert f"in {mixed.weight:.1%} of episodes: control in" in text
    assert "in every episode: control in" in str(single)
    for plan, policies in ((mixed, 2), (single, 1)):
        plan.to_csv(tmp_path / "plan.csv")
        with open(tmp_path / "plan.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == ["probability", "state", "action", "control"]
        assert len(rows) == policies * 300
        assert float(rows[0]["probability"]) == plan.weight
        np.testing.assert_array_equal([int(row["action"]) for row in rows[:300]], plan.actions[0])
        assert all((row["control"] == "1") == (int(row["action"]) < 3) for row in rows)


@pytest.mark.parametrize("share", [-0.1, 1.5, np.nan, np.inf])
def test_a_share_is_between_0_and_1(share):
    model = random_model(0)
    with pytest.raises(ValueError, match=f"share is {share}, expected a share of steps between 0 and 1"):
        lz.eta_path(model.mdp, model.default).for_control_rate(share)


@pytest.mark.parametrize("count", [-1.0, np.nan])
def test_a_count_is_not_negative(count):
    model = random_model(0)
    with pytest.raises(ValueError, match=f"control_count is {count}, expected a number of controls, at least 0"):
        lz.eta_path(model.mdp, model.default).for_control_count(count)
