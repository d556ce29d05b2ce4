"""The eta-path: every breakpoint, against the brute force at prices between and at them."""

import csv
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from brute_force import augment, optimum
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import NOT_INDEXABLE, Model, models, random_model

import lazymdp as lz
from lazymdp.exact import path_within_tol


def brute(model, eta):
    """Optimal value, and where control is strictly better, strictly worse."""
    value, q = optimum(
        *augment(model.transitions, model.rewards, model.absorbing, model.default, eta), model.gamma, model.absorbing
    )
    margin = q[:, :-1].max(axis=1) - q[:, -1]
    alive = ~model.absorbing
    return value, alive & (margin > 1e-9), alive & (margin < -1e-9)


def tolerance(model):
    return 1e-9 / (1.0 - model.gamma) if model.gamma < 1 else 1e-9


@given(models(), st.integers(0, 1000))
def test_the_path_is_optimal_at_every_price(model, seed):
    path = lz.eta_path(model.mdp, model.default)
    top = lz.eta_max(model.mdp, model.default)
    lazy_action = path.mdp.n_actions
    if path.breakpoints.size:
        assert path.breakpoints[-1] == pytest.approx(top, rel=1e-9)
        assert (np.diff(path.breakpoints) > 0).all()
        assert path.breakpoints[0] > 0
    middles = 0.5 * (path.breakpoints[1:] + path.breakpoints[:-1])
    anywhere = np.random.default_rng(seed).uniform(0, 1.2 * top + 0.1, 5)
    for eta in [0.0, *middles, *anywhere, *path.breakpoints]:
        value, control, lazy = brute(model, eta)
        np.testing.assert_allclose(path.value_at(eta), value, atol=tolerance(model))
        action = path.action_at(eta)
        assert (action[control] < lazy_action).all()
        assert (action[lazy] == lazy_action).all()
        assert (action[model.absorbing] == lazy_action).all()
        # The policy named is itself optimal, and the count is its count.
        found = lz.evaluate(lz.LazyMDP(path.mdp, model.default, eta), action)
        np.testing.assert_allclose(found.value, value, atol=tolerance(model))
        if eta not in path.breakpoints:
            np.testing.assert_allclose(path.control_count_at(eta), found.control_count, atol=tolerance(model))


@given(models())
def test_no_breakpoint_is_missing_or_idle(model):
    """Between two breakpoints the value is linear; across one the policy changes."""
    path = lz.eta_path(model.mdp, model.default)
    edges = np.concatenate([[0.0], path.breakpoints, [1.1 * path.breakpoints[-1:].sum() + 0.1]])
    for low, high in pairwise(edges):
        ends, middle = [brute(model, low)[0], brute(model, high)[0]], brute(model, 0.5 * (low + high))[0]
        np.testing.assert_allclose(middle, 0.5 * (ends[0] + ends[1]), atol=tolerance(model))
    for index in range(path.breakpoints.size):
        here = path.switches[path.switches[:, 0] == index]
        assert len(here)
        assert (here[:, 2] != here[:, 3]).all()
        assert len(np.unique(here[:, 1])) == len(here)


@given(models())
def test_total_control_falls_and_the_start_lines_are_right(model):
    path = lz.eta_path(model.mdp, model.default)
    assert (np.diff(path.start_control_counts) <= 1e-9).all()
    assert path.start_control_counts[-1] == 0.0
    edges = np.concatenate([[0.0], path.breakpoints, [2 * path.breakpoints[-1:].sum() + 1.0]])
    for index, eta in enumerate(0.5 * (edges[1:] + edges[:-1])):
        line = path.start_base_values[index] - eta * path.start_control_counts[index]
        assert line == pytest.approx(path.mdp.start_average(path.value_at(eta)), abs=tolerance(model))


@given(models())
def test_intervals_and_critical_eta_agree_with_the_actions(model):
    path = lz.eta_path(model.mdp, model.default)
    edges = np.concatenate([[0.0], path.breakpoints, [2 * path.breakpoints[-1:].sum() + 1.0]])
    for state in range(path.mdp.n_states):
        intervals = path.control_intervals(state)
        for eta in 0.5 * (edges[1:] + edges[:-1]):
            inside = any(low < eta < high for low, high in intervals)
            assert inside == (path.action_at(eta)[state] < path.mdp.n_actions)
        assert path.critical_eta[state] == (intervals[-1][1] if intervals else 0.0)
        simple = not intervals or (len(intervals) == 1 and intervals[0][0] == 0.0)
        assert simple == (state not in path.non_indexable_states)
    assert path.is_indexable == (not path.non_indexable_states.size)


@given(models(gammas=(0.0, 0.5, 0.9, 0.99)))
def test_laziness_begins_at_eta_min(model):
    path = lz.eta_path(model.mdp, model.default)
    exact = lz.eta_min(model.mdp, model.default)
    lazy_below = path.action_at(0.5 * path.breakpoints[0])[~model.absorbing] if path.breakpoints.size else np.zeros(0)
    if path.breakpoints.size and (lazy_below < path.mdp.n_actions).all():
        turning = path.switches[path.switches[:, 3] == path.mdp.n_actions, 0]
        assert exact == pytest.approx(path.breakpoints[turning.min()], rel=1e-7)
    else:
        assert exact == pytest.approx(0.0, abs=1e-9)


def test_a_committed_model_that_is_not_indexable():
    path = lz.eta_path(NOT_INDEXABLE.mdp, NOT_INDEXABLE.default)
    assert not path.is_indexable
    np.testing.assert_array_equal(path.non_indexable_states, [1])
    assert "1 state not indexable" in repr(path)
    (zero, first), (second, third) = path.control_intervals(1)
    assert (zero, first, second, third) == pytest.approx((0.0, 0.174378, 1.086822, 1.348549), abs=1e-6)
    assert path.critical_eta[1] == third
    # The brute force sees the same: control, lazy, control, lazy.
    for eta, expected in ((0.1, True), (0.6, False), (1.2, True), (1.5, False)):
        _, control, lazy = brute(NOT_INDEXABLE, eta)
        assert (control[1], lazy[1]) == (expected, not expected)


def test_ties_of_symmetric_states_are_one_breakpoint():
    """Two copies of the same state: both change at the same price, once."""
    transitions = np.zeros((3, 2, 3))
    transitions[:2, 0, 2] = 1.0
    transitions[0, 1, 1] = transitions[1, 1, 0] = 1.0
    transitions[2, :, 2] = 1.0
    mdp = lz.MDP(transitions, [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], 0.9)
    path = lz.eta_path(mdp, lz.policies.uniform(mdp))
    assert path.breakpoints.size == 1
    np.testing.assert_array_equal(np.sort(path.switches[:, 1]), [0, 1])
    np.testing.assert_array_equal(path.action_at(path.breakpoints[0])[:2], 2)  # a tie is lazy
    assert path.critical_eta[0] == path.critical_eta[1] == path.breakpoints[0]


# -- where the default policy is optimal, there is no breakpoint -------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_identical_actions_give_no_breakpoint(seed):
    """Issue 14: whatever the default policy, eta_max is 0, and rounding errors are not prices."""
    rng = np.random.default_rng(seed)
    gamma = float(rng.choice([0.5, 0.9, 0.99, 0.999, 1.0]))
    model = random_model(seed, n_states=int(rng.integers(2, 8)), n_actions=2, gamma=gamma)
    transitions, rewards = model.transitions, model.rewards
    transitions[:, 1], rewards[:, 1] = transitions[:, 0], rewards[:, 0]
    path = lz.eta_path(model.mdp, model.default)
    assert lz.eta_max(model.mdp, model.default) == 0.0
    assert path.breakpoints.size == 0
    assert (path.action_at(0.0) == 2).all()
    assert path.for_control_count(1.0).control_count == path.for_control_rate(0.5).control_count == 0.0
    assert lz.eta_path(model.mdp, model.default, tol=0.1).breakpoints.size == 0


def slippery_grid(side, slip, gamma):
    """A grid whose moves slip sideways with probability `slip`; the last corner is the goal."""
    cells, moves = np.arange(side * side), [(0, 1), (1, 0), (0, -1), (-1, 0)]
    transitions = np.zeros((cells.size, 4, cells.size))
    for cell in cells[:-1]:
        for action in range(4):
            for turn, probability in ((0, 1.0 - slip), (1, slip / 2), (3, slip / 2)):
                step = moves[(action + turn) % 4]
                row, column = (min(max(x + d, 0), side - 1) for x, d in zip(divmod(cell, side), step, strict=True))
                transitions[cell, action, row * side + column] += probability
    rewards = transitions[:, :, -1].copy()
    transitions[-1], rewards[-1] = np.eye(cells.size)[-1], 0.0
    return lz.MDP(transitions, rewards, gamma)


@pytest.mark.parametrize("slip", [0.0, 0.2, 0.5])
@pytest.mark.parametrize("gamma", [0.9, 0.95, 0.999])
def test_an_optimal_default_policy_gives_no_breakpoint(slip, gamma):
    """Issue 14: path and solver agree at price 0 that nothing is to be done, in a grid full of ties."""
    mdp = slippery_grid(10, slip, gamma)
    default = lz.policies.optimal(mdp)
    path = lz.eta_path(mdp, default)
    assert lz.eta_max(mdp, default) == 0.0
    assert path.breakpoints.size == 0
    solution = lz.solve(lz.LazyMDP(mdp, default, 0.0))
    np.testing.assert_array_equal(path.action_at(0.0), solution.action)


def test_a_default_policy_that_sums_to_little_more_than_one_has_its_own_breakpoint():
    """Being lazy is then not quite the same as its only action, and worth a price where values are negative."""
    transitions = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    default = np.array([[1.0 + 8e-9], [1.0]])
    model = Model(transitions, np.array([[-1.0], [0.0]]), 0.9, np.array([False, True]), np.array([1.0, 0.0]), default)
    path = lz.eta_path(model.mdp, default)
    assert path.breakpoints == pytest.approx([lz.eta_max(model.mdp, default)], rel=1e-6)
    np.testing.assert_allclose(path.value_at(0.0), brute(model, 0.0)[0], rtol=1e-14)


def certain_end():
    """Models without discount in which every state may end the episode at every step."""
    return st.integers(0, 1000).map(lambda seed: random_model(seed, n_states=5, gamma=1.0, n_absorbing=1))


@settings(max_examples=25)
@given(models(gammas=(0.5, 0.9, 0.99)) | certain_end(), st.sampled_from([0.3, 0.01]))
def test_a_path_with_a_tolerance_is_within_it_everywhere(model, tol):
    path = lz.eta_path(model.mdp, model.default, tol=tol)
    exact = lz.eta_path(model.mdp, model.default)
    assert path.tol == tol
    for eta in np.linspace(0, 1.2 * lz.eta_max(model.mdp, model.default) + 0.1, 25):
        missing = exact.value_at(eta) - path.value_at(eta)
        assert missing.max() <= tol
        assert missing.min() >= -tolerance(model)


def test_a_large_model_needs_a_tolerance_and_gets_its_path():
    n = 40_000
    steps = np.arange(n)
    transitions = np.stack([np.maximum(steps - 1, 0), np.minimum(steps + 1, n - 1)], axis=1)
    transitions[n - 1] = n - 1
    matrix = sp.csr_array((np.ones(2 * n), transitions.ravel(), np.arange(2 * n + 1)), shape=(2 * n, n))
    rewards = np.zeros((n, 2))
    rewards[n - 2, 1] = 1.0
    mdp = lz.MDP(matrix, rewards, 0.95)
    default = lz.policies.uniform(mdp)
    with pytest.raises(ValueError, match="Pass tol="):
        lz.eta_path(mdp, default)
    path = lz.eta_path(mdp, default, tol=1e-3)
    for eta in (0.0, 0.02, 0.1):
        exact = lz.solve(lz.LazyMDP(mdp, default, eta), tol=1e-8).value
        assert np.abs(path.value_at(eta) - exact).max() <= 1e-3
    assert path.switches.nbytes < 50 * path.mdp.n_states  # grows with switches, not breakpoints x states


def test_bad_questions():
    model = random_model(0)
    path = lz.eta_path(model.mdp, model.default)
    with pytest.raises(ValueError, match=r"eta is -0\.1, but the path covers prices from 0 up. Use `solve`"):
        path.action_at(-0.1)
    with pytest.raises(ValueError, match="eta is nan"):
        path.value_at(np.nan)
    with pytest.raises(ValueError, match="state is 17"):
        path.control_intervals(17)
    with pytest.raises(ValueError, match="tol is 0"):
        lz.eta_path(model.mdp, model.default, tol=0)
    with pytest.raises(ValueError, match="default_policy has shape"):
        lz.eta_path(model.mdp, model.default[:, :1])


def test_absorption_too_unlikely_to_be_seen_is_said():
    stuck = lz.MDP([[[1.0, 1e-300]], [[0.0, 1.0]]], [[1.0], [0.0]], 1.0)
    default = lz.policies.uniform(stuck)
    for question in (lz.eta_path, lz.eta_max, lz.eta_min, lz.steps_to_absorption):
        with pytest.raises(ValueError, match="cannot be told from infinite"):
            question(stuck, default)


def test_slow_absorption_is_still_seen():
    """Absorption has probability 1e-8 a step, at gamma 0.999: a breakpoint with a slope of about 1e-2."""
    rare, gamma = 1e-8, 0.999
    transitions = np.zeros((2, 3, 2))
    transitions[0, 0, 0] = transitions[0, 1, 0] = transitions[1, :, 1] = 1.0
    transitions[0, 2] = 1 - rare, rare
    gain = 0.5 * gamma * rare / (1 - gamma)
    model = Model(
        transitions,
        np.array([[0.0, 1.0, 1.0 + gain], [0.0, 0.0, 0.0]]),
        gamma,
        np.array([False, True]),
        np.array([1.0, 0.0]),
        np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]]),
    )
    path = lz.eta_path(model.mdp, model.default)
    assert path.breakpoints.size == 2
    np.testing.assert_allclose(path.value_at(0.0), brute(model, 0.0)[0], rtol=1e-12)


def test_a_path_is_written_as_a_table_of_its_policies(tmp_path):
    model = random_model(0)
    path = lz.eta_path(model.mdp, model.default)
    path.to_csv(tmp_path / "path.csv")
    with open(tmp_path / "path.csv", newline="") as file:
        names, *rows = csv.reader(file)
    assert names == ["from_eta", "base_value", "control_count"]
    table = np.array(rows, dtype=float).T
    expected = [np.append(0.0, path.breakpoints), path.start_base_values, path.start_control_counts]
    np.testing.assert_array_equal(table, expected)


def test_progress_falls_towards_zero():
    model = random_model(0)
    prices = []
    lz.eta_path(model.mdp, model.default, progress=lambda steps, eta: prices.append(eta))
    assert prices == sorted(prices, reverse=True)
    assert len(prices) >= 3


def test_long_paths_do_not_lose_accuracy():
    """After hundreds of rank-one steps, across several blocks, errors are still at rounding."""
    model = random_model(9, n_states=150, n_actions=4, gamma=0.99, successors=3, n_absorbing=1)
    path = lz.eta_path(model.mdp, model.default)
    assert len(path.switches) > 130
    for eta in np.quantile(path.breakpoints, [0.0, 0.1, 0.5]) * 0.9999:
        value, _, _ = brute(model, eta)
        np.testing.assert_allclose(path.value_at(eta), value, atol=1e-10)


@pytest.mark.parametrize(("n_states", "gamma", "n_absorbing"), [(30, 0.9, 0), (40, 0.99, 2), (120, 0.95, 1)])
def test_a_tolerance_takes_the_exact_path_of_a_dense_model(monkeypatch, n_states, gamma, n_absorbing):
    """Solving one price after another would take several times as long as the exact path itself."""
    model = random_model(3, n_states=n_states, n_actions=3, gamma=gamma, n_absorbing=n_absorbing)
    exact = lz.eta_path(model.mdp, model.default)
    monkeypatch.setattr(path_within_tol, "_between", None)  # an error if called
    monkeypatch.setattr(path_within_tol, "_solve_at", None)
    for tol in (0.2, 1e-3, 1e-7):
        path = lz.eta_path(model.mdp, model.default, tol=tol)
        np.testing.assert_allclose(path.breakpoints, exact.breakpoints, rtol=1e-10)
        np.testing.assert_array_equal(path.switches, exact.switches)
        for eta in np.concatenate([[0.0], 0.99 * exact.breakpoints[::10], 1.01 * exact.breakpoints[::10]]):
            value, _, _ = brute(model, eta)
            assert np.abs(path.value_at(eta) - value).max() <= 1e-9


def test_a_tolerance_holds_at_price_0_where_only_the_last_policy_has_a_large_error():
    """Without a price, values reach 1e9 and can be proven to some 1e3; at eta_max, they are small."""
    rare = 1.3075885726932438e-11
    mdp = lz.MDP([[[0.0, 1.0], [1.0 - rare, rare]], [[0.0, 1.0], [0.0, 1.0]]], [[-1.0, 1.0], [0.0, 0.0]], 1.0 - 1e-9)
    default = [[0.6767790234471253, 0.32322097655287474], [0.5, 0.5]]
    with pytest.raises(ValueError, match=r"tol = 0\.0001 cannot be proven at eta = 0"):
        lz.eta_path(mdp, default, tol=1e-4)
    path = lz.eta_path(mdp, default, tol=1e4)
    assert abs(path.value_at(0.0)[0] - 1.0 / (1.0 - (1.0 - rare) * (1.0 - 1e-9))) <= 1e4


def test_a_policy_that_rows_above_1_keep_alive_forever_is_refused():
    """The default policy ends in both models, and so does every policy on the way down from eta_max."""
    first = [[0.4, 0.6 + 5e-9], [0.77, 0.23 - 9e-9]]
    mdp = lz.MDP([first, [[0.93, 0.07 - 3e-9], [0.84, 0.16 - 5e-9]]], [[-1.0, -0.2], [0.5, 0.3]], 1.0 - 1e-9)
    default = [[0.4, 0.6], [0.93, 0.07]]
    assert lz.eta_max(mdp, default) > 0.0  # a question about the default policy alone
    with pytest.raises(ValueError, match="cannot be told from infinite"):
        lz.eta_path(mdp, default)
    mdp = lz.MDP([[[0.06, 0.94], [0.23, 0.77]], [[0.54, 0.46], [0.13, 0.87]]], [[0.0, 0.4], [0.1, -0.3]], 1.0 - 1e-9)
    default = [[0.75, 0.25 - 4e-9], [0.17, 0.83 + 2e-9]]
    for question in (lz.eta_min, lz.eta_min_theorem, lz.eta_path):
        with pytest.raises(ValueError, match="cannot be told from infinite"):
            question(mdp, default)
