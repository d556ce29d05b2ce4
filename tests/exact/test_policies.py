"""Default policies as tables: ties, values of any size, and mixtures."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from random_models import models
from rational import Rational

import lazymdp as lz


def chain(length, gamma):
    """Left or right; the right end pays 1 and is absorbing."""
    states = np.arange(length)
    transitions = np.eye(length)[np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, length - 1)], axis=1)]
    transitions[-1] = np.eye(length)[-1]
    rewards = np.zeros((length, 2))
    rewards[-2, 1] = 1.0
    return lz.MDP(transitions, rewards, gamma)


@pytest.mark.parametrize("length, gamma", [(80, 0.5), (120, 0.1), (80, 0.99)])
def test_small_values_are_not_tied_away(length, gamma):
    """Issue 14: at the far end of the chain, values are as small as gamma**length, and right is still better."""
    mdp = chain(length, gamma)
    np.testing.assert_array_equal(lz.policies.optimal(mdp)[:-1], np.eye(2)[[1] * (length - 1)])
    np.testing.assert_array_equal(lz.policies.second_best(mdp)[:-1], np.eye(2)[[0] * (length - 1)])
    q_end = gamma ** (length - 2) - gamma**length  # state 0: right against left, which stays
    assert lz.eta_min(mdp, lz.policies.uniform(mdp)) <= q_end


@settings(max_examples=60)
@given(models(max_states=4, gammas=(0.0, 0.5, 0.99)))
def test_optimal_and_second_best_by_rational_arithmetic(model):
    """Actions that tie exactly share; actions that are clearly worse are left out."""
    exact = Rational(*model.base, model.default)
    value, q, _ = exact.optimum(Fraction(0), lazy=False)
    best, second = lz.policies.optimal(model.mdp), lz.policies.second_best(model.mdp)
    scale = 1e-12 * (np.abs(model.rewards).max() + max([abs(float(v)) for v in value], default=0.0))
    for i, s in enumerate(exact.alive):
        lost = [value[i] - x for x in q[i][:-1]]
        assert all(best[s, a] > 0.0 for a, x in enumerate(lost) if x == 0)
        assert all(best[s, a] == 0.0 for a, x in enumerate(lost) if float(x) > scale)
        worse = [x for x in lost if float(x) > scale]
        if worse:
            assert second[s, lost.index(min(worse))] > 0.0
            assert all(float(x - min(worse)) <= scale for a, x in enumerate(lost) if second[s, a] > 0.0)


def test_a_damaged_table_is_named(tmp_path):
    """Issue 14: an empty file ended the command with an EOFError."""
    mdp = lz.MDP([[[1.0]]], [[1.0]], 0.5)
    path = tmp_path / "table.npy"
    for content in (b"", b"text", b"\x93NUMPY\x01\x00v\x00"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"table\.npy is not a table saved by numpy\.save, or is damaged"):
            lz.policies.named(mdp, str(path))


def test_a_mixture_is_a_policy():
    np.testing.assert_allclose(lz.policies.mixture([[1.0, 0.0]], [[0.5, 0.5]], 0.5), [[0.75, 0.25]])
    with pytest.raises(ValueError, match="policy in state 0 sums to 1.2, not 1"):
        lz.policies.mixture([[0.6, 0.6]], [[0.5, 0.5]], 0.5)
    with pytest.raises(ValueError, match="other gives action 1 in state 0 probability -0.5"):
        lz.policies.mixture([[0.5, 0.5]], [[1.5, -0.5]], 0.5)
