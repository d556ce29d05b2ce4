"""The two worlds: exact numbers that were computed independently for this project, and distances in them."""

import numpy as np
import pytest

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure, RiversAndBridges
from lazymdp.experiments import paper_worlds


@pytest.fixture(scope="module")
def treasure():
    mdp = lz.MDP.from_gymnasium(KeyDoorTreasure(), 0.99)
    return mdp, lz.policies.uniform(mdp)


def test_key_door_treasure_counts(treasure):
    mdp, default = treasure
    assert mdp.n_states == 206
    assert (~mdp.absorbing).sum() == 204
    for eta, count in ((1e-9, 204), (0.008, 195), (0.02, 130), (0.05, 43), (0.1, 16)):
        assert lz.solve(lz.LazyMDP(mdp, default, eta), tol=1e-10).control.sum() == count


def test_key_door_treasure_bounds(treasure):
    mdp, default = treasure
    assert lz.eta_max(mdp, default) == pytest.approx(0.3112, abs=5e-5)
    assert lz.eta_min(mdp, default) == pytest.approx(0.00583, abs=5e-6)
    formula = lz.eta_min_theorem(mdp, default)
    assert formula.holds
    assert formula.value == pytest.approx(lz.eta_min(mdp, default))


def test_key_door_treasure_path(treasure):
    """150 optimal policies, nested: no state takes control again once it is lazy."""
    mdp, default = treasure
    path = lz.eta_path(mdp, default)
    assert path.breakpoints.size == 149
    assert path.start_base_values.size == 150
    assert path.is_indexable
    assert len(path.switches) == 204  # each state once
    assert path.breakpoints[0] == pytest.approx(lz.eta_min(mdp, default))
    assert path.breakpoints[-1] == pytest.approx(lz.eta_max(mdp, default))
    np.testing.assert_allclose(path.critical_eta.max(), lz.eta_max(mdp, default))
    for eta in (0.008, 0.02, 0.05):
        solution = lz.solve(lz.LazyMDP(mdp, default, eta))
        np.testing.assert_array_equal(solution.control, path.action_at(eta) < 4)
        np.testing.assert_array_equal(solution.control, path.critical_eta > eta)
        np.testing.assert_allclose(solution.value, path.value_at(eta), atol=1e-8)


def bridges():
    world = RiversAndBridges()
    mdp = lz.MDP.from_gymnasium(world, 0.99)
    on_bridge = np.array([world.layout[row][column] == "=" for row, column in world.cells])
    return mdp, on_bridge, np.where(on_bridge[:, None], 0.25, lz.policies.optimal(mdp))


def test_rivers_and_bridges():
    mdp, on_bridge, default = bridges()
    assert on_bridge.sum() == 3
    top = lz.eta_max(mdp, default)
    assert top == pytest.approx(66.863, abs=5e-4)
    for eta in (1e-3, 0.1, 0.28):  # cheap enough for every bridge to be held: nothing else matters at all
        solution = lz.solve(lz.LazyMDP(mdp, default, eta))
        np.testing.assert_array_equal(solution.control, on_bridge)
        assert solution.lazy_gap[~on_bridge].max() <= 1e-9
    for eta in (1.0, 10.0, 40.0, 60.0, 0.999 * top):  # dearer: still no control anywhere else
        control = lz.solve(lz.LazyMDP(mdp, default, eta), tol=1e-7).control
        assert control.any()
        assert not control[~on_bridge].any()
    assert not lz.solve(lz.LazyMDP(mdp, default, 1.001 * top)).control.any()


@pytest.mark.parametrize("make_default", [lz.policies.uniform, lz.policies.second_best])
@pytest.mark.parametrize("world", [KeyDoorTreasure, RiversAndBridges])
def test_frequency_is_0_below_eta_min_and_1_above_eta_max(world, make_default):
    """App. Fig. 10."""
    mdp = lz.MDP.from_gymnasium(world(), 0.99)
    default = make_default(mdp)
    low, high = lz.eta_min(mdp, default), lz.eta_max(mdp, default)
    for eta, expected in ((0.99 * low, 0.0), (1.01 * high, 1.0)):
        if eta > 0:
            lazy = lz.LazyMDP(mdp, default, eta)
            found = lz.lazy_frequency(lazy, lz.solve(lazy, tol=1e-7).action)
            assert (found.states, found.discounted, found.long_run) == pytest.approx((expected,) * 3, abs=1e-9)


def test_moves_to_a_key_action():
    world, mdp = paper_worlds.key_door_treasure()
    moves = paper_worlds.moves_to_key_action(world, mdp)
    name = {text: state for state, text in enumerate(world.state_names)}
    at = {(int(row), int(column), bool(key)): state for state, ((row, column), key) in
          enumerate(zip(world.cells, world.has_key, strict=True))}  # fmt: skip
    assert len(name) == mdp.n_states
    assert moves[at[5, 6, False]] == 0  # in the gap
    assert moves[at[5, 4, False]] == 1  # above the gap below
    assert moves[at[10, 4, False]] == 1  # beside the key
    assert moves[at[1, 1, True]] == 8  # to the gap in (6, 4): 5 down and 3 right
    assert moves.max() == 9


def test_reachable_states_are_those_an_episode_can_visit():
    _, mdp = paper_worlds.key_door_treasure()
    reached = paper_worlds.reachable(mdp)
    generator, state, seen = np.random.default_rng(0), int(mdp.start.argmax()), set()
    for _ in range(40_000):
        seen.add(state)
        state = int(mdp.transitions.indices[state * 4 + generator.integers(4)])
        state = int(mdp.start.argmax()) if mdp.absorbing[state] else state
    assert seen <= set(np.flatnonzero(reached))
    assert len(seen) > 0.95 * reached.sum()
