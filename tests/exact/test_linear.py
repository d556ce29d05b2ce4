"""Linear systems: lifetimes are proven to be positive and finite, or the question is refused."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from rational import Rational

import lazymdp as lz
from lazymdp.exact import linear
from lazymdp.exact.algorithms import METHODS

REFUSED = "cannot be told from infinite"


def chain(rows, gamma):
    """One action; the last state is absorbing, the others earn 1 a step."""
    n = len(rows) + 1
    transitions = np.zeros((n, 1, n))
    transitions[:-1, 0] = rows
    transitions[-1, 0, -1] = 1.0
    mdp = lz.MDP(transitions, [[1.0]] * (n - 1) + [[0.0]], gamma)
    return mdp, lz.policies.uniform(mdp)


ALMOST_CLOSED = [[0.05, 0.95, 1e-17], [0.1, 0.9, 1e-17]]
"""Issue 14: absorption that no double shows. A factorization finds lifetimes of about -8e16."""

OVERFULL = [[1.0 + 3e-9, 1e-9]]
"""Issue 14: a row that sums to 1 + 4e-9, within the tolerance. Its lifetime would be negative."""


def questions(mdp, default):
    lazy = lz.LazyMDP(mdp, default, 0.0)
    action = np.zeros(mdp.n_states, dtype=int)
    yield from (lambda method=method: lz.solve(lazy, method=method) for method in METHODS)
    yield lambda: lz.evaluate(lazy, action)
    yield lambda: lz.lazy_frequency(lazy, action)
    yield lambda: lz.steps_to_absorption(mdp, default)
    for question in (lz.eta_max, lz.eta_min, lz.eta_min_theorem, lz.eta_path):
        yield lambda question=question: question(mdp, default)
    yield lambda: lz.eta_path(mdp, default, tol=1.0)
    yield lambda: lz.policies.optimal(mdp)
    yield lambda: lz.policies.second_best(mdp)


@pytest.mark.parametrize("rows", [ALMOST_CLOSED, OVERFULL], ids=["almost closed", "overfull"])
def test_lifetimes_that_cannot_be_proven_are_refused(rows):
    for question in questions(*chain(rows, 1.0)):
        with pytest.raises(ValueError, match=REFUSED):
            question()


def test_rows_above_one_are_refused_next_to_one_and_the_message_says_why():
    mdp, default = chain(OVERFULL, 1.0 - 1e-9)
    lazy = lz.LazyMDP(mdp, default, 0.0)
    for question in (lambda: lz.evaluate(lazy, [0, 0]), lambda: lz.steps_to_absorption(mdp, default)):
        with pytest.raises(ValueError, match=r"sum to 1 only up to 4\.0e-09.*divide each row by its sum"):
            question()
    with pytest.warns(lz.NotConverged):
        assert lz.solve(lazy, method="value_iteration", max_iterations=10).error_bound == np.inf


@given(
    st.floats(1.0, 14.0), st.floats(-9e-9, 9e-9), st.sampled_from([1.0, 1.0 - 1e-12, 1.0 - 1e-9, 1.0 - 1e-6]),
    st.floats(0.01, 0.99),
)  # fmt: skip
def test_lifetimes_are_right_or_refused(power, excess, gamma, share):
    """Absorption with probability 10**-power, and rows that sum to 1 + excess."""
    p = 10.0**-power
    rows = np.array([[share * (1 - p), (1 - share) * (1 - p), p], [(1 - share) * (1 - p), share * (1 - p), p]])
    mdp, default = chain(rows * (1.0 + excess), gamma)
    dense = mdp.transitions.toarray().reshape(3, 1, 3)
    truth = Rational(dense, mdp.rewards, gamma, mdp.absorbing, default).lines([0, 0])
    try:
        steps = lz.steps_to_absorption(mdp, default)
        solved = lz.solve(lz.LazyMDP(mdp, default, 0.0), tol=np.inf, method="policy_iteration")
    except ValueError as error:
        assert REFUSED in str(error)
        assert truth is None or max(truth[2]) > 1e11
        return
    assert truth is not None
    exact = np.array([float(z) for z in truth[2]])
    assert (steps[:2] >= 1.0 - 1e-9).all()
    np.testing.assert_allclose(steps[:2], exact, rtol=1e-14 * exact.max() + 1e-12)
    assert np.abs(solved.value[:2] - exact).max() <= solved.error_bound


def test_short_lifetimes_are_answered_next_to_one_whatever_the_discount():
    """Near gamma = 1 the bound by times to absorption is much better than 1 / (1 - gamma)."""
    mdp, default = chain([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], 1.0 - 1e-12)
    solution = lz.solve(lz.LazyMDP(mdp, default, 0.0), tol=1e-9)
    assert solution.converged
    np.testing.assert_allclose(solution.value[:2], 4.0, rtol=1e-9)


@pytest.mark.parametrize("gamma", [0.9, 0.999, 1.0 - 1e-6])
@pytest.mark.parametrize("n_successors", [1, 2, 3])
@pytest.mark.parametrize("n_rewards", [1, 20])
def test_few_rewards_in_a_large_random_model_need_no_factorization(
    gamma: float, n_successors: int, n_rewards: int
) -> None:
    n, rng = 20_000, np.random.default_rng(n_successors)
    columns, chances = rng.integers(0, n, (n, n_successors)), rng.dirichlet(np.ones(n_successors), n)
    ends = np.arange(0, n * n_successors + 1, n_successors)
    step = gamma * sp.csr_array((chances.ravel(), columns.ravel(), ends), shape=(n, n))
    rewards = np.zeros((1, n))
    rewards[0, rng.choice(n, n_rewards, replace=False)] = 1.0
    values = linear._iterate(step, rewards)
    assert values is not None
    # No error exceeds the largest residual divided by 1 - gamma.
    np.testing.assert_allclose(values[0] - step @ values[0], rewards[0], atol=1e-12 * values.max())
