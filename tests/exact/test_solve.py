"""The solver: one analytic answer through every form and method, proven bounds, honest failures, finite horizons."""

import csv
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
import quantecon
import scipy.sparse as sp
from brute_force import augment, optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import models, random_model
from rational import Rational

import lazymdp as lz
from lazymdp.exact import algorithms, bellman
from lazymdp.exact.algorithms import METHODS

ITERATIVE = [name for name in METHODS if name != "policy_iteration"]


def two_states(gamma, form):
    """State 0: `go` ends the episode with reward 1, `wait` stays for nothing; state 1 is absorbing.

    With a uniform default and a price eta below 1 the optimum is, with k = gamma / 2,
    lazy: V = 0.5 / (1 - k) if 1 - eta <= that, else control: V = 1 - eta.
    """
    dense = np.array([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    forms = {
        "dense": dense,
        "per action": [sp.csr_array(dense[:, a]) for a in range(2)],
        "flat": sp.csr_array(dense.reshape(4, 2)),
    }
    return lz.MDP(forms[form], [[1.0, 0.0], [0.0, 0.0]], gamma)


@pytest.mark.parametrize("form", ["dense", "per action", "flat"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("eta", [-0.5, 0.0, 0.02, 0.3, 0.9, 2.0])
def test_two_states_analytically(form, method, gamma, eta):
    mdp = two_states(gamma, form)
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), eta)
    solution = lz.solve(lazy, tol=1e-8, method=method)
    act = 1.0 - eta
    wait = -eta / (1.0 - gamma) if gamma < 1 else -np.inf  # a bonus for acting can make waiting best
    defer = 0.5 / (1.0 - 0.5 * gamma)
    expected = max(act, wait, defer)
    assert solution.converged
    assert solution.error_bound <= 1e-8
    assert abs(solution.value[0] - expected) <= solution.error_bound
    assert solution.value[1] == 0.0
    gap = max(act, -eta + gamma * expected) - 0.5 * (act - eta + gamma * expected)
    assert solution.lazy_gap[0] == pytest.approx(gap, abs=1e-8)
    if abs(expected - defer) > 1e-6:
        assert solution.control[0]
        assert solution.action[0] == (0 if act > wait else 1)
    elif defer > max(act, wait) + 1e-6:
        assert not solution.control[0]
        assert solution.action[0] == lazy.lazy_action == 2
    assert solution.action[1] == 2
    np.testing.assert_array_equal(solution.q[1], 0.0)
    np.testing.assert_array_equal(solution.policy_plus.argmax(axis=1), solution.action)


@given(models(), st.sampled_from([-0.3, 0.0, 0.05, 0.4]), st.sampled_from(sorted(METHODS)))
def test_the_error_bound_holds_for_every_method(model, eta, method):
    lazy = lz.LazyMDP(model.mdp, model.default, eta)
    plus = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    value, _ = optimum(*plus, model.gamma, model.absorbing)
    exactness = 1e-12 * (1 + np.abs(value).max()) / (1 - model.gamma)  # of the brute force
    for tol in (1e-1, 1e-6):
        solution = lz.solve(lazy, tol=tol, method=method)
        assert solution.converged
        assert solution.error_bound <= tol
        assert np.abs(solution.value - value).max() <= solution.error_bound + exactness


def test_a_breakdown_of_the_linear_solver_does_no_harm():
    """On this model BiCGSTAB divides by zero: sweeps have to take over."""
    successors = [[2, 3], [3, 4], [2, 3], [3, 1], [0, 0], [5, 5]]
    rewards = [[1, 0], [0, -1], [-1, 0], [-1, -1], [0, 1], [0, 0]]
    mdp = lz.MDP(np.eye(6)[successors], rewards, 0.99)
    lazy = lz.LazyMDP(mdp, np.eye(2)[[1, 1, 0, 1, 1, 0]], 0.3)
    exact = lz.solve(lazy, method="policy_iteration").value
    for method in ("auto", "local_policy_iteration"):
        solution = lz.solve(lazy, method=method)
        assert solution.converged
        np.testing.assert_allclose(solution.value, exact, atol=1e-7)


def test_the_bound_covers_rows_that_do_not_quite_sum_to_one():
    """0.3 + 0.7 is 1 in floating point and not in truth; a default of 0.333333331 is off by more."""
    mdp = lz.MDP([[[0.3, 0.7]], [[0.7, 0.3]]], [[1.0], [1.0]], 0.999999)
    with pytest.warns(lz.NotConverged, match="Double precision can prove"):
        solution = lz.solve(lz.LazyMDP(mdp, [[1.0], [1.0]], 0.0))
    step = [Fraction(p) for p in (0.3, 0.7)]
    truth = 1 / (1 - Fraction(0.999999) * sum(step))
    assert abs(Fraction(float(solution.value[0])) - truth) <= Fraction(solution.error_bound)
    model = random_model(0, n_states=5, n_actions=3, gamma=0.99, n_absorbing=0)
    lazy = lz.LazyMDP(lz.MDP(model.transitions, 1.0 + np.abs(model.rewards), 0.99), np.full((5, 3), 0.333333331), 50.0)
    found = lz.solve(lazy, tol=1e-2)
    assert not found.control.any()
    assert np.abs(found.value - lz.evaluate(lazy, found.action).value).max() <= found.error_bound


@pytest.mark.parametrize("method", ITERATIVE)
def test_stopping_early_is_said_and_the_bound_still_holds(method):
    model = random_model(1, n_states=300, gamma=0.999, successors=2, n_absorbing=0)
    lazy = lz.LazyMDP(model.mdp, model.default, 0.1)
    with pytest.warns(lz.NotConverged, match="proven error of"):
        solution = lz.solve(lazy, tol=1e-12, method=method, max_iterations=2)
    assert not solution.converged
    exact = lz.solve(lazy, method="policy_iteration", tol=1e-6).value
    assert np.abs(solution.value - exact).max() <= solution.error_bound + 1e-6
    assert "NOT converged" in repr(solution)


@pytest.mark.parametrize("method", METHODS)
def test_a_tolerance_below_rounding_ends_and_is_said(method):
    model = random_model(2, n_states=40, gamma=0.99, n_absorbing=0)
    with pytest.warns(lz.NotConverged):
        solution = lz.solve(lz.LazyMDP(model.mdp, model.default, 0.1), tol=1e-300, method=method)
    assert 0 < solution.error_bound < 1e-9


@pytest.mark.parametrize("method", METHODS)
def test_large_models_agree(method):
    """Blocks, threads and linear solves only come into play in larger models."""
    rng = np.random.default_rng(5)
    n_states, n_actions = 3000, 3
    near = (np.arange(n_states)[:, None, None] + rng.integers(-40, 41, (n_states, n_actions, 3))) % n_states
    weights = rng.dirichlet(np.ones(3), (n_states, n_actions))
    rows = np.repeat(np.arange(n_states * n_actions), 3)
    matrix = sp.csr_array(sp.coo_array((weights.ravel(), (rows, near.ravel())), shape=(n_states * n_actions, n_states)))
    rewards = np.where(rng.random((n_states, n_actions)) < 0.01, rng.normal(size=(n_states, n_actions)), 0.0)
    mdp = lz.MDP(matrix, rewards, 0.98)
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.02)
    exact = lz.solve(lazy, tol=1e-9, method="policy_iteration")
    found = lz.solve(lazy, tol=1e-7, method=method)
    assert np.abs(found.value - exact.value).max() <= found.error_bound + exact.error_bound
    far_from_tie = np.abs(exact.lazy_gap - 0.02) > 1e-6
    np.testing.assert_array_equal(found.control[far_from_tie], exact.control[far_from_tie])


def test_the_sweep_that_ends_modified_policy_iteration_is_not_repeated(monkeypatch):
    """It computes `q`, too, so that no sweep follows it."""
    model = random_model(3, n_states=300, gamma=0.9)
    lazy = lz.LazyMDP(lz.MDP(model.transitions, model.rewards, 0.9), model.default, 0.05)
    exact = lz.solve(lazy, tol=1e-11, method="policy_iteration")
    sweeps, over_states = [], bellman.over_states
    for module in (algorithms, bellman):
        monkeypatch.setattr(
            module, "over_states", lambda sweep, *given: sweeps.append(sweep.__name__) or over_states(sweep, *given)
        )
    found = lz.solve(lazy, tol=1e-8, method="modified_policy_iteration")
    assert sweeps[-2:] == ["follow", "action_values"]
    assert found.error_bound <= 1e-8
    assert np.abs(found.value - exact.value).max() <= found.error_bound + exact.error_bound
    np.testing.assert_allclose(found.q, exact.q, rtol=0.0, atol=3e-8)


def test_a_tie_is_lazy():
    """The default already does the best: the gap is 0, and at price 0 the agent leaves it to the default."""
    mdp = two_states(0.9, "dense")
    for default in ([[1.0, 0.0], [1.0, 0.0]], lz.policies.optimal(mdp)):
        for method in METHODS:
            assert not lz.solve(lz.LazyMDP(mdp, default, 0.0), method=method).control.any()


def test_all_states_absorbing():
    mdp = lz.MDP(np.ones((1, 2, 1)), np.zeros((1, 2)), 0.9)
    default = lz.policies.uniform(mdp)
    for method in METHODS:
        assert lz.solve(lz.LazyMDP(mdp, default, 0.1), method=method).value[0] == 0.0
    assert lz.eta_max(mdp, default) == lz.eta_min(mdp, default) == 0.0
    assert lz.eta_path(mdp, default).breakpoints.size == 0


@pytest.mark.parametrize("method", METHODS)
@given(seed=st.integers(0, 50))
def test_gamma_one_where_absorption_is_certain(method, seed):
    model = random_model(seed, n_states=6, n_absorbing=2, gamma=1.0)
    lazy = lz.LazyMDP(model.mdp, model.default, 0.2)
    plus = augment(model.transitions, model.rewards, model.absorbing, model.default, 0.2)
    value, _ = optimum(*plus, 1.0, model.absorbing)
    solution = lz.solve(lazy, tol=1e-6, method=method)
    assert solution.converged
    assert np.abs(solution.value - value).max() <= solution.error_bound + 1e-10


# -- proven control ------------------------------------------------------------------------------------------------


def test_control_that_only_rounding_shows_is_not_taken():
    """Issue 14: the gap is 1.36, exactly the price, or less; a computed gap of 1.3600000000000003 proves nothing."""
    mdp = lz.MDP(np.ones((1, 3, 1)), [[0.4, 2.0, -0.4]], 0.0)
    lazy = lz.LazyMDP(mdp, [[0.1, 0.4, 0.5]], 1.36)
    for method in METHODS:
        assert not lz.solve(lazy, method=method).control.any()
    assert not lz.solve(lazy, horizon=3).control.any()


@settings(max_examples=200)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e-300, 1e-16, 1e-6, 1e-3, 0.5, 0.99]),
    st.sampled_from(sorted(METHODS)), st.integers(-3, 3),
)  # fmt: skip
def test_control_is_proven_by_rational_arithmetic(seed, gamma, method, steps):
    """The price is the gap of a state, up to a few rounding errors above or below."""
    model = random_model(seed, n_states=2, n_actions=3, gamma=gamma, n_absorbing=seed % 2, default="random")
    exact = Rational(*model.base, model.default)
    gaps = [max(row[:-1]) - row[-1] for row in exact.optimum(Fraction(0))[1]]
    eta = float(max(gaps))
    for _ in range(abs(steps)):
        eta = float(np.nextafter(eta, np.sign(steps) * np.inf))
    lazy = lz.LazyMDP(model.mdp, model.default, eta)
    _, q, _ = exact.optimum(Fraction(eta))
    control = lz.solve(lazy, method=method).control
    assert all(max(q[i][:-1]) > q[i][-1] for i, s in enumerate(exact.alive) if control[s])
    later = exact.backed_up([Fraction(0)] * len(exact.alive), Fraction(eta))
    now = exact.backed_up([max(row) for row in later], Fraction(eta))
    for t, choices in enumerate((now, later)):
        control = lz.solve(lazy, horizon=2).control[t]
        assert all(max(choices[i][:-1]) > choices[i][-1] for i, s in enumerate(exact.alive) if control[s])


def test_clear_control_is_still_taken_at_small_gamma():
    mdp = lz.MDP(np.ones((1, 3, 1)), [[0.4, 2.0, -0.4]], 1e-3)
    lazy = lz.LazyMDP(mdp, [[0.1, 0.4, 0.5]], 1.36 * (1.0 - 1e-13))
    assert lz.solve(lazy, tol=1e-13, method="policy_iteration").control.all()
    assert lz.solve(lazy, horizon=5).control.all()


# -- tolerances and arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("method", METHODS)
def test_the_default_tolerance_is_relative_to_the_rewards(scale, method):
    model = random_model(3, gamma=0.95)
    mdp = lz.MDP(model.transitions, scale * model.rewards, model.gamma)
    solution = lz.solve(lz.LazyMDP(mdp, model.default, 0.1 * scale), method=method)
    assert solution.converged
    assert solution.error_bound <= 1e-8 * mdp.max_reward
    bonus = lz.solve(lz.LazyMDP(mdp, model.default, -1e6 * scale), method=method)
    assert bonus.converged
    assert 1e-8 * mdp.max_reward < 1e-2 * scale


@pytest.mark.parametrize("p", [1e-3, 1e-4, 1e-6, 1e-8])
def test_near_ties_without_discount_have_an_error_bound(p):
    """Issue 14: actions whose lifetimes of 1/p steps differ by a factor of 1 + 5e-6 gave an infinite error."""
    d = 5e-6
    transitions = np.array([[[1 - p, p], [1 - p * (1 - d), p * (1 - d)]], [[0.0, 1.0], [0.0, 1.0]]])
    mdp = lz.MDP(transitions, [[1.0, 1.0], [0.0, 0.0]], 1.0)
    default = lz.policies.uniform(mdp)
    solution = lz.solve(lz.LazyMDP(mdp, default, 1e-6), tol=1e-5 / p)
    truth, _, _ = Rational(transitions, mdp.rewards, 1.0, mdp.absorbing, default).optimum(Fraction(1e-6))
    assert solution.converged
    assert abs(Fraction(float(solution.value[0])) - truth[0]) <= Fraction(solution.error_bound)
    assert lz.eta_path(mdp, default).breakpoints == pytest.approx([2.5e-6], rel=2e-2)


BAD = {
    "tol 0": (dict(tol=0.0), "tol is 0.0"),
    "tol nan": (dict(tol=np.nan), "tol is nan"),
    "no iterations": (dict(max_iterations=0), "max_iterations is 0"),
    "unknown method": (dict(method="magic"), "method is 'magic', expected one of 'auto', 'value_iteration'"),
    "tol text": (dict(tol="1e-8"), "tol is '1e-8', expected a positive number"),
    "iterations nan": (dict(max_iterations=np.nan), "max_iterations is nan, expected a number of sweeps"),
    "iterations 2.5": (dict(max_iterations=2.5), "max_iterations is 2.5"),
    "method 3": (dict(method=3), "method is 3, expected one of"),
    "horizon and method": (dict(horizon=3, method="magic"), "method is 'magic', but with horizon = 3"),
    "horizon and tol": (dict(horizon=3, tol=1e-3), "tol is 0.001, but with horizon = 3"),
    "horizon and iterations": (dict(horizon=3, max_iterations=7), "max_iterations is 7, but with horizon = 3"),
    "horizon 0": (dict(horizon=0), "horizon is 0"),
    "horizon 1.5": (dict(horizon=1.5), "horizon is 1.5"),
    "horizon True": (dict(horizon=True), "horizon is True"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments(case):
    wrong, message = BAD[case]
    mdp = two_states(0.9, "dense")
    with pytest.raises(ValueError, match=message):
        lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.1), **wrong)


def test_progress_is_reported():
    mdp = two_states(0.9, "dense")
    seen = []
    lz.solve(
        lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.1),
        method="value_iteration",
        progress=lambda iteration, error: seen.append((iteration, error)),
    )
    assert [i for i, _ in seen] == list(range(1, len(seen) + 1))
    assert seen[-1][1] <= 1e-8


def test_a_solution_prints_in_one_line_and_is_written_as_a_table(tmp_path):
    model = random_model(0, n_states=5, n_actions=2)
    lazy = lz.LazyMDP(model.mdp, model.default, 0.1)
    one, several = lz.solve(lazy), lz.solve(lazy, horizon=3)
    for solution, places in ((one, ["state"]), (several, ["step", "state"])):
        assert len(repr(solution)) < 120 and "\n" not in repr(solution)
        solution.to_csv(tmp_path / "solution.csv")
        with open(tmp_path / "solution.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        assert list(rows[0]) == [*places, "value", "lazy_gap", "control", "action", "q_0", "q_1"]
        value = solution.value if solution is one else solution.value[:-1]
        columns = {
            "value": value,
            "lazy_gap": solution.lazy_gap,
            "control": solution.control,
            "action": solution.action,
        }
        for name, column in {**columns, "q_1": solution.q[..., 1]}.items():
            np.testing.assert_array_equal([float(row[name]) for row in rows], column.ravel())
        assert [int(row["state"]) for row in rows] == [*range(5)] * (len(rows) // 5)
    assert [int(row["step"]) for row in rows] == [0] * 5 + [1] * 5 + [2] * 5


# -- finite horizons -----------------------------------------------------------------------------------------------


@given(models(gammas=(0.0, 0.9, 1.0)), st.sampled_from([0.0, 0.1, 0.6]), st.integers(1, 6))
def test_finite_horizon_against_backward_induction_on_the_explicit_model(model, eta, horizon):
    solution = lz.solve(lz.LazyMDP(model.mdp, model.default, eta), horizon=horizon)
    transitions, rewards = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    value = np.zeros(len(model.start))
    alive = ~model.absorbing
    for t in reversed(range(horizon)):
        q = rewards + model.gamma * transitions @ value
        np.testing.assert_allclose(solution.q[t][alive], q[alive, :-1], atol=1e-12)
        gap = q[:, :-1].max(axis=1) - (model.default * q[:, :-1]).sum(axis=1)
        np.testing.assert_allclose(solution.lazy_gap[t][alive], gap[alive], atol=1e-12)
        clear = alive & (np.abs(gap - eta) > 1e-9)
        np.testing.assert_array_equal(solution.control[t][clear], (gap > eta)[clear])
        value = q.max(axis=1)
        np.testing.assert_allclose(solution.value[t], value, atol=1e-12)
    assert not solution.control[:, model.absorbing].any()
    assert solution.error_bound < 1e-10


# -- peers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "Taxi-v4", "CliffWalking-v1"])
@pytest.mark.parametrize("eta", [0.0, 0.05, 1.0])
def test_toy_text_agrees_with_quantecon_on_the_explicit_model(env_id, eta):
    mdp = lz.MDP.from_gymnasium(gym.make(env_id), 0.95)
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), eta)
    explicit = lazy.to_mdp()
    states, actions = np.divmod(np.arange(explicit.n_states * explicit.n_actions), explicit.n_actions)
    peer = quantecon.markov.DiscreteDP(
        explicit.rewards.ravel(), sp.csr_matrix(explicit.transitions), 0.95, states, actions
    ).solve(method="policy_iteration")
    solution = lz.solve(lazy)
    np.testing.assert_allclose(solution.value, peer.v, atol=1e-7)
    gap = np.abs(solution.lazy_gap - eta)
    clear = ~mdp.absorbing & (gap > 1e-6)
    np.testing.assert_array_equal(solution.control[clear], (peer.sigma != mdp.n_actions)[clear])


@pytest.mark.parametrize("gamma", [0.999, 0.9999])
@pytest.mark.parametrize(("n_states", "n_models"), [(7, 60), (30, 20), (300, 3)])
def test_auto_is_never_held_up_by_slow_sweeps(n_states, n_models, gamma):
    """Absorption, cycles and rare transitions made it sweep thousands of times, where policy iteration is immediate."""
    for seed in range(n_models):
        successors = None if seed % 2 else 1 + seed // 2 % 3
        model = random_model(seed, n_states, 2, gamma, n_absorbing=seed // 3 % 2, successors=successors)
        solution = lz.solve(lz.LazyMDP(model.mdp, model.default, 0.1 * (seed % 3)), 1e-3)
        assert solution.converged
        assert solution.iterations < 100, (seed, solution)


def test_no_tolerance_is_suggested_where_nothing_can_be_proven():
    """Issue 14: the advice was to use tol >= inf."""
    transitions = np.zeros((3, 1, 3))
    transitions[0, 0], transitions[1, 0], transitions[2, 0, 2] = [0.05, 0.95 + 4e-9, 1e-9], [0.1, 0.9 + 4e-9, 1e-9], 1.0
    lazy = lz.LazyMDP(lz.MDP(transitions, [[1.0], [1.0], [0.0]], 1.0 - 1e-12), np.ones((3, 1)), 0.1)
    with pytest.warns(lz.NotConverged, match="without a proven error: .*Use a smaller gamma.*divide each row"):
        solution = lz.solve(lazy)
    assert solution.error_bound == np.inf
    assert not solution.control.any()
