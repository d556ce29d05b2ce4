"""Estimates of the bounds on eta approach the exact bounds."""

import numpy as np
import pytest
from tabular_models import small, uniform_start

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure
from lazymdp.learn import estimate_eta_max, estimate_eta_min


@pytest.mark.learning
def test_estimates_of_the_bounds_approach_the_exact_ones(seed):
    mdp, default_policy = small()
    top = estimate_eta_max(mdp, default_policy, episodes=60_000, seed=seed)
    assert top.value == pytest.approx(lz.eta_max(mdp, default_policy), rel=0.05)
    assert top.visits > 100
    assert top.gaps[top.state] == top.value
    assert np.isnan(top.gaps[mdp.absorbing]).all()
    bottom = estimate_eta_min(mdp, default_policy, episodes=60_000, seed=seed)
    assert bottom.value == pytest.approx(lz.eta_min_theorem(mdp, default_policy).value, rel=0.1, abs=0.02)
    assert bottom.visits > 100
    assert "visits" in repr(top) and "visits" in repr(bottom)


@pytest.mark.learning
def test_estimates_on_key_door_treasure(seed):
    mdp = uniform_start(lz.MDP.from_gymnasium(KeyDoorTreasure(), 0.99))
    found = estimate_eta_max(mdp, episodes=50_000, seed=seed)
    assert found.value == pytest.approx(0.3112, rel=0.1)


@pytest.mark.parametrize("estimate", [estimate_eta_max, estimate_eta_min])
def test_estimates_need_every_action_executed(estimate):
    mdp, default_policy = small()
    with pytest.raises(ValueError, match="no state had all its actions executed in 1 episodes: increase episodes"):
        estimate(mdp, default_policy, episodes=1, max_steps=1)
