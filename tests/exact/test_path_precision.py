"""Paths of models that live long, in which gains and prices that seem tiny are worth much: against rational numbers."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
from model_kinds import KINDS
from rational import Rational
from soak.exact_models import EPS, lifetime, noise, path, path_by

import lazymdp as lz
from lazymdp.exact import path as path_module

WALKS = ["tableau", "factors", "inverse"]


def near_tie(p, d, order=(0, 1, 2)):
    """Control ends the episode with probability p or p (1 - d) a step; the default policy takes the third action."""
    transitions = np.zeros((2, 3, 2))
    transitions[0] = [1 - p, p], [1 - p * (1 - d), p * (1 - d)], [0.5, 0.5]
    transitions[1, :, 1] = 1.0
    rewards, default = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), np.tile([0.0, 0.0, 1.0], (2, 1))
    order = list(order)
    return [transitions[:, order], rewards[:, order], 1.0, np.array([False, True]), default[:, order]]


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
@pytest.mark.parametrize(("p", "d"), [(1e-2, 3e-11), (1e-4, 5e-10), (1e-5, 1e-7), (1e-6, 1e-7)])
def test_the_better_of_two_near_ties_is_taken(walk, order, p, d):
    """The better action gains 1e-7 a step, a slope of 1e-12 of the control count, and 0.01 to 0.1 over a lifetime."""
    model = near_tie(p, d, order)
    found = path_by(walk, lz.MDP(*model[:3]), model[4])
    exact = Rational(*model)
    for eta in (0.0, 0.5):
        value, _, action = exact.optimum(Fraction(eta))
        assert found.action_at(eta)[0] == action[0] == order.index(1)
        assert abs(found.value_at(eta)[0] - float(value[0])) <= noise(exact, model, value)
    assert found.breakpoints.size == 1


@pytest.mark.parametrize("walk", WALKS)
def test_a_small_breakpoint_that_costs_much_is_kept(walk):
    """1.8e-6 is 6e-13 of the largest breakpoint; below it, one more state takes control, which is worth 1."""
    following = np.array([[1, 0, 3], [2, 1, 0], [0, 3, 1], [0, 3, 0], [4, 4, 4]])
    rewards = np.array([[0, -3, 2], [-3, 2, 1], [3, 3, -3], [1, 2, 1], [0, 0, 0]], dtype=float)
    model = [np.eye(5)[following], rewards, 0.9999982230514635, np.arange(5) == 4, np.eye(3)[[1, 0, 1, 1, 2]]]
    found = path_by(walk, lz.MDP(*model[:3]), model[4])
    assert found.breakpoints == pytest.approx([1.77696e-06, 1.5000022, 2.8138125e06], rel=1e-4)
    exact = Rational(*model)
    for eta in (0.0, 1e-6, 2e-6, 1.0, 1e6):
        value, q, _ = exact.optimum(Fraction(eta))
        assert np.abs(found.value_at(eta)[:4] - np.array(value, dtype=float)).max() <= noise(exact, model, value)
        assert max(float(value[s] - q[s][found.action_at(eta)[s]]) for s in range(4)) <= 1e-8


@pytest.mark.parametrize("kind", ["near_ties_of_control", "integers", "twins"])
@pytest.mark.parametrize("seed", range(15))
def test_no_walk_is_wrong_or_warns(kind, seed):
    model = KINDS[kind](np.random.default_rng([11, seed]))
    problems = []
    path(model, Rational(*model), np.random.default_rng(seed), problems)
    assert not problems


@pytest.mark.parametrize("walk", WALKS)
def test_many_such_models_in_one_are_solved_as_well(walk):
    """More than 100 states: the rounding errors of many steps accumulate before gains are computed anew."""
    rng, models = np.random.default_rng(3), []
    while len(models) < 30:
        transitions, rewards, _, absorbing, default = KINDS["integers"](rng)
        if rewards.shape[1] == 3:
            models.append([transitions, rewards, 1.0 - 1e-5, absorbing, default])
    mdp = lz.MDP(
        np.stack([scipy.linalg.block_diag(*(model[0][:, a] for model in models)) for a in range(3)], axis=1),
        np.concatenate([model[1] for model in models]),
        1.0 - 1e-5,
    )
    assert mdp.n_states > 100
    found = path_by(walk, mdp, np.concatenate([model[4] for model in models]), steps=80)
    parts, first = [], np.cumsum([0, *(len(model[1]) for model in models)])
    for model, offset in zip(models, first[:-1], strict=True):
        exact = Rational(*model)
        parts.append((exact, [offset + s for s in exact.alive]))
    for eta in (0.0, *(0.999 * found.breakpoints[[0, 20, 60]])):
        got, action = found.value_at(eta), found.action_at(eta)
        for exact, states in parts:
            value, q, _ = exact.optimum(Fraction(float(eta)))
            allowed = 64.0 * EPS * max(3.0, *(abs(float(v)) for v in value), *np.abs(got)) * lifetime(exact)
            for i, s in enumerate(states):
                assert abs(got[s] - float(value[i])) <= allowed
                assert float(value[i] - q[i][action[s]]) <= allowed


def test_a_policy_that_loses_more_than_rounding_is_not_passed_over():
    """1e-7 of the value was once no reason for a warning."""
    model = near_tie(1e-5, 1e-7)
    lazy = lz.LazyMDP(lz.MDP(*model[:3]), model[4], 0.0)
    path_module._check_bottom(lazy, np.array([1, 3]), None)
    with pytest.warns(lz.NotConverged, match="the policy at price 0"):
        path_module._check_bottom(lazy, np.array([0, 3]), None)
