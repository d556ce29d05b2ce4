"""Rivers, rings and other lines of states at discounts near 1, where a change reaches the other end late."""

import numpy as np
import pytest

import lazymdp as lz


def line(n, moves, rewards, ring=False):
    """A line or ring of n states. `moves[action]` has the chances of moving by -1, 0, 1 and 2 states."""
    step = np.arange(n)[:, None] + [-1, 0, 1, 2]
    successors = step % n if ring else np.clip(step, 0, n - 1)
    transitions = np.zeros((n, len(moves), n))
    for action, chances in enumerate(moves):
        np.add.at(transitions, (np.arange(n)[:, None], action, successors), chances)
    table = np.zeros((n, len(moves)))
    for (state, action), reward in rewards.items():
        table[state, action] = reward
    return transitions, table


RIVER = ([1.0, 0.0, 0.0, 0.0], [0.05, 0.6, 0.35, 0.0])
"""RiverSwim: the current takes the swimmer left, and swimming right does not always succeed."""


@pytest.mark.parametrize("method", ["auto", "local_policy_iteration"])
@pytest.mark.parametrize(("n", "gamma", "most"), [(30, 0.99999, 60), (300, 0.9999, 60), (1000, 0.9999, 150)])
def test_a_river_is_swum_in_few_sweeps(n, gamma, most, method):
    """Corrections ended after 60 rounds, and 34,599 sweeps followed; with 30 states, loose ones went in a circle."""
    mdp = lz.MDP(*line(n, RIVER, {(0, 0): 0.005, (n - 1, 1): 1.0}), gamma)
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.05)
    solution = lz.solve(lazy, 1e-4, method=method)
    assert solution.converged
    assert solution.iterations <= most
    exact = lz.solve(lazy, 1e-4, method="policy_iteration")
    assert np.abs(solution.value - exact.value).max() <= solution.error_bound + exact.error_bound


def test_a_change_is_not_followed_around_a_ring_lap_after_lap():
    """Local corrections did so until none were left, and 20,000 sweeps followed."""
    mdp = lz.MDP(*line(1000, ([0, 0.5, 0.5, 0], [0, 0.6, 0, 0.4]), {(0, 0): 1.0, (0, 1): 1.0}, ring=True), 0.9999)
    solution = lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.05), 1e-4)
    assert solution.converged
    assert solution.iterations <= 60


@pytest.mark.parametrize("seed", range(30))
def test_random_lines_and_rings_agree_with_policy_iteration(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 150))
    moves = [rng.dirichlet(np.full(4, 0.3)) for _ in range(3)]
    rewards = {(int(rng.integers(n)), int(rng.integers(3))): float(rng.normal()) for _ in range(4)}
    mdp = lz.MDP(*line(n, moves, rewards, ring=bool(seed % 2)), 1.0 - 10.0 ** -rng.uniform(0.5, 5.0))
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.02)
    exact = lz.solve(lazy, 1e-4, method="policy_iteration")
    for method in ("auto", "local_policy_iteration"):
        solution = lz.solve(lazy, 1e-4, method=method)
        assert solution.converged
        assert solution.iterations <= 200
        assert np.abs(solution.value - exact.value).max() <= solution.error_bound + exact.error_bound
