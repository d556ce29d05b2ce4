"""The masks of the experiment `fidelity-truth`: a learned one is learned again, and the optimal one is the best."""

import itertools

import numpy as np
import pytest

import lazymdp as lz
from lazymdp.experiments import fidelity_masks, fidelity_worlds
from lazymdp.experiments.fidelity_masks import Masks, effect, fitted, optimal_mask
from lazymdp.explain.mask import BONUS_RANGE, TOLERANCE

COMMITTED = {"seed": 0, "masks": 5, "mask_steps": 50_000}


@pytest.fixture(scope="module")
def lake():
    mdp = fidelity_worlds.model("FrozenLake 4x4")
    return mdp, fidelity_worlds.optimum(mdp)


def test_a_committed_mask_is_learned_again():
    """Bit by bit on the same machine; elsewhere up to rounding. Masks of different seeds have at most 0.86."""
    mdp = fidelity_worlds.model("Rivers & Bridges")
    best, alive = fidelity_worlds.optimum(mdp), ~mdp.absorbing
    committed = Masks(**COMMITTED).of("Rivers & Bridges", "own", mdp, best)
    assert committed.shape == (5, mdp.n_states) and (committed[:, mdp.absorbing] == 0.0).all()
    again = fitted(mdp, best.policy, best.default_policy, 50_000, np.random.default_rng([0, 3, 2]))
    assert lz.measure.rank_correlation(again[alive], committed[2, alive]) > 0.95


def test_masks_with_other_settings_or_without_committed_data_are_learned(lake, tmp_path, monkeypatch):
    short = {"seed": 0, "masks": 2, "mask_steps": 300}
    masks = Masks(**short).of("FrozenLake 4x4", "own", *lake)
    assert masks.shape == (2, 16) and not np.array_equal(masks[0], masks[1])
    np.testing.assert_array_equal(masks, Masks(**short).of("FrozenLake 4x4", "own", *lake))
    monkeypatch.setattr(fidelity_masks, "_FOLDER", tmp_path)
    learned = []
    monkeypatch.setattr(fidelity_masks, "fitted", lambda *args: learned.append(args[3]) or np.zeros(16))
    Masks(**COMMITTED).of("FrozenLake 4x4", "own", *lake)
    assert learned == [50_000] * 5


def test_the_effect_of_masks_that_keep_everything_nothing_and_half(lake):
    mdp, best = lake
    found = effect(mdp, best, np.array([np.ones(16), np.zeros(16), np.full(16, 0.5)]))
    assert found["gain_kept"][:2] == pytest.approx([1.0, 0.0]) and 0.0 < found["gain_kept"][2] < 1.0
    assert found["blinded"] == pytest.approx([0.0, 1.0, 0.5])


def returns_and_blinded(mdp, best, keep):
    """The mean return and discounted number of blinded steps of a mask, by the evaluation of the library."""
    plus = np.hstack([best.policy, np.zeros((mdp.n_states, 1))])
    plus[~keep] = np.eye(mdp.n_actions + 1)[-1]
    found = lz.evaluate(lz.LazyMDP(mdp, best.default_policy, 0.0), plus)
    steps = lz.measure.visit_frequency(mdp, np.where(keep[:, None], best.policy, best.default_policy)).sum()
    return mdp.start_average(found.base_value), steps - mdp.start_average(found.control_count)


@pytest.mark.parametrize("seed", range(5))
def test_the_optimal_mask_against_all_masks(seed):
    """It blinds the most, weighed against the return, of all masks that keep nine tenths of the gain."""
    mdp = fidelity_worlds.from_everywhere(fidelity_worlds.random_model(np.random.default_rng(seed), 8, 3, 3, 0.9))
    best = fidelity_worlds.optimum(mdp)
    advantage = optimal_mask(mdp, best)
    assert (advantage[:7] != 0.0).all() and advantage[7] == pytest.approx(0.0)
    masks = np.array([(*bits, True) for bits in itertools.product((False, True), repeat=7)])
    returns, blinded = np.array([returns_and_blinded(mdp, best, keep) for keep in masks]).T
    kept = (returns - returns[0]) / (returns[-1] - returns[0])
    limit = BONUS_RANGE[1] * (returns[-1] - returns[0]) / lz.measure.visit_frequency(mdp, best.policy).sum()
    # The largest bonus for which the best mask keeps enough; the best mask of a bonus changes only at few of them.
    bonuses = np.linspace(0.0, limit, 20_001)
    winners = (returns[:, None] + bonuses * blinded[:, None]).argmax(axis=0)
    chosen = winners[np.flatnonzero(kept[winners] >= 1.0 - TOLERANCE).max()]
    np.testing.assert_array_equal(advantage[:7] > 0.0, masks[chosen, :7])
