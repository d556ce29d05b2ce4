"""The walk on sparse models: the same path as with a tableau, and the optimum at prices between breakpoints."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from random_models import models, random_model

import lazymdp as lz
from lazymdp.exact import path_exact, path_sparse, policy_inverse


def path_by(walk, mdp, default_policy, steps=3):
    """Computes the path with a given walk; few steps between factorizations, so that short paths have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(path_exact, "is_sparse", lambda lazy: walk != "tableau")
        patch.setattr(path_sparse, "stays_sparse", lambda matrix: walk == "factors")
        patch.setattr(path_sparse, "_STEPS", steps)
        return lz.eta_path(mdp, default_policy)


def grid(n, gamma=0.99, slip=0.1):
    """An n x n grid with a goal in the last corner."""
    cells = np.arange(n * n)
    row, column = np.divmod(cells, n)
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    reached = np.stack([np.clip(row + a, 0, n - 1) * n + np.clip(column + b, 0, n - 1) for a, b in moves], axis=1)
    reached[-1] = n * n - 1
    transitions = np.zeros((n * n, 4, n * n))
    for a in range(4):
        for move, chance in ((a, 1 - slip), ((a + 1) % 4, slip / 2), ((a + 3) % 4, slip / 2)):
            np.add.at(transitions, (cells, a, reached[:, move]), chance)
    rewards = transitions[:, :, -1].copy()
    rewards[-1] = 0.0
    return lz.MDP(transitions, rewards, gamma)


def random_sparse(n, seed, n_actions=3, successors=2, gamma=0.95):
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, n, n * n_actions * successors)
    ends = np.arange(0, columns.size + 1, successors)
    weights = rng.dirichlet(np.ones(successors), n * n_actions).ravel()
    return lz.MDP(sp.csr_array((weights, columns, ends), shape=(n * n_actions, n)), rng.random((n, n_actions)), gamma)


@pytest.mark.parametrize("walk", ["factors", "inverse"])
@given(model=models())
def test_every_walk_finds_the_same_path(walk, model):
    path = path_by(walk, model.mdp, model.default)
    expected = path_by("tableau", model.mdp, model.default)
    np.testing.assert_allclose(path.breakpoints, expected.breakpoints, rtol=1e-7, atol=1e-12)
    scale = 1e-9 * (1.0 + np.abs(expected.start_base_values).max())
    np.testing.assert_allclose(path.start_base_values, expected.start_base_values, atol=scale)
    np.testing.assert_allclose(path.critical_eta, expected.critical_eta, rtol=1e-7, atol=1e-12)
    np.testing.assert_array_equal(path.non_indexable_states, expected.non_indexable_states)


@pytest.mark.parametrize("walk", ["factors", "inverse"])
@pytest.mark.parametrize("steps", [7, 80])
@pytest.mark.parametrize("model", ["grid", "random"])
def test_the_path_is_optimal_at_random_prices(walk, steps, model):
    """Against fresh solutions, and against the policy's own line."""
    mdp = grid(12) if model == "grid" else random_sparse(200, 1)
    default = lz.policies.uniform(mdp)
    path = path_by(walk, mdp, default, steps)
    expected = path_by("tableau", mdp, default)
    assert path.breakpoints.size == expected.breakpoints.size > 80
    np.testing.assert_allclose(path.breakpoints, expected.breakpoints, rtol=1e-6)
    for eta in np.random.default_rng(0).uniform(0, path.breakpoints[-1], 12):
        found = lz.solve(lz.LazyMDP(mdp, default, eta), 1e-10, method="policy_iteration")
        np.testing.assert_allclose(path.value_at(eta), found.value, atol=2e-10)
        own = lz.evaluate(lz.LazyMDP(mdp, default, eta), path.action_at(eta))
        np.testing.assert_allclose(own.value, found.value, atol=2e-10)


def test_symmetric_states_of_a_grid_switch_together():
    """Mirrored cells have breakpoints with slopes of 1e-10, whose prices are accurate to few digits only."""
    n = 20
    mdp = grid(n)
    path = path_by("factors", mdp, lz.policies.uniform(mdp), 80)
    mirror = np.arange(n * n).reshape(n, n).T.ravel()
    np.testing.assert_allclose(path.critical_eta, path.critical_eta[mirror], rtol=1e-12)
    for index in range(path.breakpoints.size):
        lazy = path.switches[(path.switches[:, 0] == index) & (path.switches[:, 3] == mdp.n_actions), 1]
        np.testing.assert_array_equal(np.sort(lazy), np.sort(mirror[lazy]))


@pytest.mark.parametrize("walk", ["tableau", "factors", "inverse"])
def test_identical_actions_have_no_breakpoints(walk):
    for seed in range(20):
        model = random_model(seed, n_states=8, n_actions=2)
        same = lz.MDP(model.transitions[:, [0, 0]], model.rewards[:, [0, 0]], model.gamma, absorbing=model.absorbing)
        assert path_by(walk, same, model.default).breakpoints.size == 0


@pytest.mark.parametrize("walk", ["tableau", "factors", "inverse"])
def test_an_optimal_default_policy_has_no_breakpoints(walk):
    mdp = grid(10)
    path = path_by(walk, mdp, lz.policies.optimal(mdp))
    assert path.breakpoints.size == 0
    assert (path.action_at(0.0) == mdp.n_actions).all()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("walk", ["tableau", "factors", "inverse"])
def test_prices_scale_with_the_rewards(walk, scale):
    mdp = random_sparse(60, 2)
    scaled = lz.MDP(mdp.transitions, scale * mdp.rewards, mdp.gamma)
    default = lz.policies.uniform(mdp)
    path, other = path_by(walk, mdp, default), path_by(walk, scaled, default)
    np.testing.assert_allclose(other.breakpoints, scale * path.breakpoints, rtol=1e-9)
    np.testing.assert_array_equal(other.switches, path.switches)


def test_the_structure_of_a_model_decides_how_its_matrix_is_kept():
    def of(mdp):
        return path_sparse.SparseWalk(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.0))._base

    assert isinstance(of(grid(20)), policy_inverse.Factors)
    assert isinstance(of(random_sparse(300, 0, successors=4)), policy_inverse.Inverse)
    chain = np.zeros((400, 2, 400))
    states = np.arange(400)
    chain[states, 0, np.minimum(states + 1, 399)] = 1.0
    chain[states, 1, 0] = 1.0  # a start state that every state leads to does not fill the factors
    assert isinstance(of(lz.MDP(chain, np.arange(800.0).reshape(400, 2), 0.9)), policy_inverse.Factors)


def test_a_tolerance_that_needs_many_prices_is_met_by_the_exact_path():
    """With a proof: the gains of all choices at both ends of every interval bound the error."""
    mdp = random_sparse(300, 3)
    default = lz.policies.uniform(mdp)
    exact = lz.eta_path(mdp, default)
    path = lz.eta_path(mdp, default, tol=1e-6)
    assert path.tol == 1e-6
    np.testing.assert_array_equal(path.breakpoints, exact.breakpoints)
    coarse = lz.eta_path(mdp, default, tol=1.0)
    assert coarse.breakpoints.size < 0.2 * exact.breakpoints.size
    for eta in np.random.default_rng(0).uniform(0, exact.breakpoints[-1], 20):
        missing = exact.value_at(eta) - coarse.value_at(eta)
        assert -1e-9 <= missing.min() <= missing.max() <= 1.0
