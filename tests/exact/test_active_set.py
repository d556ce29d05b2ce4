"""Large models whose blocks lead to few others: passes in two halves, and corrections where they matter."""

import numpy as np
import pytest
import scipy.sparse as sp

import lazymdp as lz
from lazymdp.exact import active_set, correction

LOCAL = ("gauss_seidel", "local_policy_iteration")


def slippery_grid(n, spacing, gamma=0.99):
    """An n x n grid with 4 moves that slip sideways, and a rewarded, absorbing goal every `spacing` cells."""
    row, column = np.divmod(np.arange(n * n), n)
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    reached = [np.clip(row + dr, 0, n - 1) * n + np.clip(column + dc, 0, n - 1) for dr, dc in moves]
    goal = (row % spacing == spacing - 1) & (column % spacing == spacing - 1)
    reached = np.where(goal[:, None], np.arange(n * n)[:, None], np.stack(reached, axis=1))
    turns = np.array([[a, (a + 1) % 4, (a + 3) % 4] for a in range(4)])
    successors, chances = reached[:, turns].reshape(-1, 3), np.tile([0.9, 0.05, 0.05], (4 * n * n, 1))
    rewards = np.where(goal[successors], chances, 0.0).sum(axis=1).reshape(n * n, 4)
    rewards[goal] = 0.0
    ends = np.arange(0, successors.size + 1, 3)
    mdp = lz.MDP(sp.csr_array((chances.ravel(), successors.ravel(), ends), shape=(4 * n * n, n * n)), rewards, gamma)
    return lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.01)


@pytest.fixture(scope="module")
def large():
    """A grid of more than `_MANY` blocks and its values to 1e-9."""
    lazy = slippery_grid(260, 50)
    return lazy, lz.solve(lazy, tol=1e-9, method="value_iteration")


@pytest.mark.parametrize("method", LOCAL)
def test_the_error_bound_holds_in_a_large_local_model(large, method):
    lazy, exact = large
    found = lz.solve(lazy, tol=1e-6, method=method)
    assert found.converged
    assert np.abs(found.value - exact.value).max() <= found.error_bound + exact.error_bound


@pytest.mark.parametrize("method", LOCAL)
def test_threads_do_not_change_the_result(large, method, monkeypatch):
    values = []
    for alone in (0, 10**9):  # another thread for every pass, or for none but the first
        monkeypatch.setattr(active_set, "_ALONE", alone)
        values.append(lz.solve(large[0], tol=1e-6, method=method).value)
    np.testing.assert_array_equal(*values)


def test_corrections_are_limited_to_the_states_that_change_most(monkeypatch):
    """Most states of this grid are near a goal, where sweeps alone are quicker."""
    lazy = slippery_grid(400, 40)
    sizes, solver = [], active_set.bicgstab

    def counting(ends, *arguments):
        sizes.append(ends.size - 1)
        return solver(ends, *arguments)

    monkeypatch.setattr(active_set, "bicgstab", counting)
    assert lz.solve(lazy, tol=1e-6, method="local_policy_iteration").converged
    assert sizes
    assert max(sizes) <= 0.3 * lazy.mdp.n_states


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", LOCAL)
def test_halves_agree_with_policy_iteration_on_random_local_models(seed, method, monkeypatch):
    """The rules for large models, in small ones: successors are near, but also lead from one half to the other."""
    monkeypatch.setattr(active_set, "_MANY", 2)
    monkeypatch.setattr(active_set, "_ALONE", 0)
    rng = np.random.default_rng(seed)
    n_states, n_actions = int(rng.integers(150, 900)), int(rng.integers(1, 4))
    reach = int(rng.choice([1, 5, n_states]))
    near = (np.arange(n_states)[:, None, None] + rng.integers(-reach, reach + 1, (n_states, n_actions, 3))) % n_states
    weights = rng.dirichlet(np.ones(3), (n_states, n_actions))
    rows = np.repeat(np.arange(n_states * n_actions), 3)
    matrix = sp.coo_array((weights.ravel(), (rows, near.ravel())), shape=(n_states * n_actions, n_states))
    rewards = np.where(rng.random((n_states, n_actions)) < 0.05, rng.normal(size=(n_states, n_actions)), 0.0)
    mdp = lz.MDP(sp.csr_array(matrix), rewards, float(rng.choice([0.9, 0.99, 0.999])))
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.02)
    exact = lz.solve(lazy, method="policy_iteration")
    found = lz.solve(lazy, tol=1e-7, method=method)
    assert found.converged
    assert np.abs(found.value - exact.value).max() <= found.error_bound + exact.error_bound


@pytest.mark.parametrize("seed", range(40))
def test_bands_are_solved_as_such(seed):
    """Chains and rings, also so small that a ring's band covers the whole matrix."""
    rng = np.random.default_rng(seed)
    n, width = int(rng.integers(1, 60)), int(rng.integers(0, 9))
    distance = np.abs(np.arange(n)[:, None] - np.arange(n))
    ring = np.minimum(distance, n - distance)
    step = np.where((ring if seed % 2 else distance) <= width, rng.random((n, n)), 0.0)
    step *= 0.999 / step.sum(axis=1, keepdims=True)
    change = rng.normal(size=n)
    packed = sp.csr_array(step)
    found = correction.solve_narrow(packed.indptr, packed.indices, packed.data, change)
    np.testing.assert_allclose(found, np.linalg.solve(np.eye(n) - step, change), rtol=1e-9, atol=1e-9)


def test_a_wide_matrix_is_no_band():
    step = sp.csr_array(np.full((40, 40), 0.02))
    assert correction.solve_narrow(step.indptr, step.indices, step.data, np.ones(40)) is None
