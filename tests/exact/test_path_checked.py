"""The check of the exact path: what is wrong with a walk is noticed, wherever it is."""

import numpy as np
import pytest
from random_models import random_model

import lazymdp as lz
from lazymdp.exact import path_checked
from lazymdp.exact.linear import policy_line
from lazymdp.exact.path_checked import CheckedWalk, checked_trace
from lazymdp.exact.path_exact import follow


def walk(model, spoil=None):
    """Follows the path; before policy `i` is looked at, `spoil(walk, i)` may change what the walk claims about it."""
    lazy = lz.LazyMDP(model.mdp, model.default, 0.0)
    checked = CheckedWalk(lazy, None, lz.eta_max(model.mdp, model.default))
    segments = []

    def segment(high, low):
        kept = checked._alpha.copy(), checked._beta.copy(), checked.slot_action.copy()
        if spoil is not None:
            spoil(checked, len(segments))
        checked.add(high, low)
        checked._alpha, checked._beta, checked.slot_action = kept
        segments.append((checked.action.copy(), min(high, checked._top), low))

    follow(checked, None, segment)
    return checked, segments


@pytest.mark.parametrize(("gamma", "n_absorbing"), [(0.9, 0), (0.99, 3)])
def test_gains_are_claimed_as_they_are(gamma, n_absorbing):
    """The largest gain over any policy, from its own linear system, is at most the one claimed plus the error."""
    model = random_model(4, n_states=60, n_actions=3, gamma=gamma, n_absorbing=n_absorbing)
    checked, segments = walk(model)
    assert checked.error() + checked.largest_gain < 1e-9
    mdp = model.mdp
    for action, high, low in segments[::7]:
        base, count = policy_line(mdp, model.default, action)
        for eta in (high, low):
            value = base - eta * count
            control = mdp.rewards + gamma * (mdp.transitions @ value).reshape(mdp.rewards.shape)
            best = np.maximum((model.default * control).sum(axis=1), control.max(axis=1) - eta)
            assert ((best - value)[~mdp.absorbing] <= checked.largest_gain + checked.error()).all()


@pytest.mark.parametrize("line", ["_alpha", "_beta"])
@pytest.mark.parametrize("place", [0, 17, 59])
@pytest.mark.parametrize("size", [1e-6, -1e-2])
def test_one_wrong_gain_over_one_policy_is_noticed(line, place, size):
    """Its size is bounded, and not by far too much."""
    model = random_model(4, n_states=60, n_actions=3, gamma=0.9)

    def spoil(checked, number):
        if number == place:
            getattr(checked, line)[-7] += size

    checked, _ = walk(model, spoil)
    weight = checked._top if line == "_beta" else 1.0
    assert weight * abs(size) <= checked.error() <= 1e4 * weight * abs(size)


@pytest.mark.parametrize("place", [1, 17, 59])
def test_a_policy_that_is_not_the_one_of_the_gains_is_noticed(place):
    model = random_model(4, n_states=60, n_actions=3, gamma=0.9)

    def spoil(checked, number):
        if number == place:
            checked.slot_action[20] = (checked.slot_action[20] + 1) % (checked.lazy_action + 1)

    checked, _ = walk(model, spoil)
    assert checked.error() > 1e-3


def test_a_gain_that_the_walk_has_passed_over_is_noticed():
    model = random_model(4, n_states=60, n_actions=3, gamma=0.9)
    checked, segments = walk(model)
    lazy = lz.LazyMDP(model.mdp, model.default, 0.0)
    late = CheckedWalk(lazy, None, checked._top)
    late.add(np.inf, segments[5][2])  # the always-lazy policy is not optimal down to this price
    assert late.error() < 1e-9
    assert late.largest_gain > 1e-3


@pytest.mark.parametrize("wrong", ["_alpha", "_beta", "_table"])
def test_a_path_is_not_returned_if_it_may_be_wrong(monkeypatch, wrong):
    model = random_model(4, n_states=60, n_actions=3, gamma=0.9)
    lazy = lz.LazyMDP(model.mdp, model.default, 0.0)
    given = lazy, 1e-6, lz.eta_max(model.mdp, model.default), None, None
    assert checked_trace(*given) is not None

    class Wrong(CheckedWalk):
        def step(self, slot):
            super().step(slot)
            if self.steps == 5:
                getattr(self, wrong)[20] *= 1.0 + 1e-4

    monkeypatch.setattr(path_checked, "CheckedWalk", Wrong)
    assert checked_trace(*given) is None


def test_a_tolerance_below_rounding_errors_gets_the_exact_path_and_a_warning():
    model = random_model(5, n_states=130, n_actions=2, gamma=0.9999)
    with pytest.warns(lz.NotConverged, match="tol = 1e-09 is too small to be proven here.*the exact path"):
        found = lz.eta_path(model.mdp, model.default, tol=1e-9)
    exact = lz.eta_path(model.mdp, model.default)
    assert found.tol == 0.0
    np.testing.assert_array_equal(found.breakpoints, exact.breakpoints)
    assert lz.eta_path(model.mdp, model.default, tol=1.0).tol == 1.0


@pytest.mark.parametrize("gamma", [0.9, 1.0 - 1.5e-11])
def test_a_model_without_a_choice_has_nothing_to_check(gamma):
    """Next to a discount of 1, rounding errors look like a lazy-gap."""
    steps = np.array(
        [[0.11, 0.26, 0.01, 0.62], [0.04, 0.14, 0.26, 0.56], [0.02, 0.04, 0.47, 0.47], [0.0, 0.0, 0.0, 1.0]]
    )
    mdp = lz.MDP(steps[:, None], np.array([[-0.5], [1.37], [2.0], [0.0]]), gamma)
    for tol in (1e-9, 1e-6, 1e-3, 1.0):
        assert lz.eta_path(mdp, np.ones((4, 1)), tol=tol).breakpoints.size == 0
