"""The experiment `fidelity-truth`: its tables follow from each other, and its losses from single solutions."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import lazymdp as lz
from lazymdp.experiments import fidelity_truth, fidelity_worlds, results_io
from lazymdp.experiments.fidelity_figure import PLACES, STARTS, correlation

DATA = results_io.load(Path(__file__).parents[2] / "results" / "fidelity-truth")


def states(world, start):
    chosen = (DATA["states"]["world"] == world) & (DATA["states"]["start"] == start)
    return {name: column[chosen] for name, column in DATA["states"].items()}


def spearman(here, measure):
    rounded = (np.round(here[name] / np.abs(here[name]).max(), 9) for name in (measure, "loss"))
    return spearmanr(*rounded).statistic


@pytest.mark.parametrize("world", fidelity_worlds.WORLDS)
@pytest.mark.parametrize("start", STARTS)
def test_the_committed_correlations_are_those_of_the_committed_states(world, start):
    here = states(world, start)
    for measure in set(fidelity_worlds.MEASURES) - {"mask", "random"}:
        assert correlation(DATA, world, start, measure) == pytest.approx(spearman(here, measure), abs=1e-9)


def test_the_masks_have_a_row_in_every_world_that_is_the_mean_of_five():
    masks = DATA["masks"]
    for world in fidelity_worlds.WORLDS:
        for start in STARTS:
            here = states(world, start)
            found = [spearman(here, f"mask_{index}") for index in range(5)]
            assert correlation(DATA, world, start, "mask") == pytest.approx(np.mean(found), abs=1e-9)
            of_masks = masks["correlation"][(masks["world"] == world) & (masks["start"] == start)]
            assert of_masks == pytest.approx(found, abs=1e-9)
            assert np.isfinite(correlation(DATA, world, start, "mask_optimum"))
    assert "mask" not in DATA["agreement"]["measure"][DATA["agreement"]["world"] == fidelity_worlds.RANDOM_MODELS]


def test_the_committed_loss_of_a_single_state_is_lazy_gap_times_visits_of_the_changed_policy():
    mdp = fidelity_worlds.model("Taxi")
    here = states("Taxi", "own")
    policy, default = lz.policies.optimal(mdp), lz.policies.uniform(mdp)
    for row in np.argsort(-here["loss"])[:5]:
        changed = np.array(policy)
        changed[here["state"][row]] = default[here["state"][row]]
        visits = lz.measure.visit_frequency(mdp, changed)[here["state"][row]]
        assert here["loss"][row] == pytest.approx(here["lazy_gap"][row] * visits, rel=1e-6)


def test_losses_of_sets_are_fractions_of_the_whole_gain():
    sets = DATA["sets"]
    assert set(sets["world"]) == set(PLACES)
    for name in ("top", "bottom"):
        assert (sets[name] > -1e-9).all() and (sets[name] < 1.5).all()
        assert (sets[f"{name}_low"] <= sets[name] + 1e-12).all() and (sets[name] <= sets[f"{name}_high"] + 1e-12).all()
    chosen = (sets["world"] == fidelity_worlds.RANDOM_MODELS) & (sets["measure"] != "random")
    assert (sets["top"][chosen] > sets["bottom"][chosen]).all()


def test_sets_of_one_model_against_single_solutions():
    config = fidelity_truth.Config(shares=(0.2,), draws=3)
    mdp = fidelity_worlds.random_model(np.random.default_rng(1), 11, 3, 3, 0.9)
    best = fidelity_worlds.optimum(mdp)
    _, losses, _ = fidelity_truth._judge(mdp, best, config, np.random.default_rng(0))
    lazy = lz.LazyMDP(mdp, best.default_policy, 0.0)

    def value(handed):
        plus = np.hstack([best.policy, np.zeros((11, 1))])
        plus[handed] = np.eye(4)[3]
        return mdp.start_average(lz.evaluate(lazy, plus).base_value)

    top = np.argsort(-best.measures["lazy_gap"][:10])[:2]  # a fifth of the ten states that are not absorbing
    whole = value([]) - value(np.arange(10))
    assert losses[0, 0, 0] == pytest.approx((value([]) - value(top)) / whole)
