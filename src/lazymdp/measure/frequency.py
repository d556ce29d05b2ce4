"""How often an agent is lazy: over states, over discounted steps from the start, and in the long run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csgraph

from lazymdp.exact.evaluate import evaluate as evaluate_policy
from lazymdp.exact.evaluate import steps_to_absorption
from lazymdp.exact.linear import policy_transitions, proves_lifetimes, solve_linear
from lazymdp.lazy import LazyMDP, check_lazy


@dataclass(frozen=True)
class LazyFrequency:
    """Fractions of lazy actions. Absorbing states are left out.

    Attributes:
        states: Fraction of the states that are lazy.
        discounted: Fraction of the steps of an episode from the start distribution, each weighted by its discount.
            `EtaPath.for_control_rate` limits 1 minus this fraction.
        long_run: Fraction of the steps of endless play without a discount, where a new episode starts whenever one is
            absorbed: the fraction that a counter would show.
    """

    states: float
    discounted: float
    long_run: float


def lazy_frequency(lazy: LazyMDP, policy_plus: ArrayLike) -> LazyFrequency:
    """Computes how often an augmented policy is lazy.

    Args:
        lazy: The lazy-MDP.
        policy_plus: `[S, A+1]` probabilities with the lazy action last, or `[S]` actions.
    """
    mdp = check_lazy(lazy).mdp
    plus = lazy.check_policy_plus(policy_plus)
    if not mdp.start[~mdp.absorbing].any():
        raise ValueError("every start state is absorbing, so no step is ever taken and the frequency is undefined.")
    policy = lazy.effective_policy(plus)
    steps = mdp.start_average(steps_to_absorption(mdp, policy))
    controls = mdp.start_average(evaluate_policy(lazy, plus).control_count)
    return LazyFrequency(mdp.state_average(plus[:, -1]), 1.0 - controls / steps, _long_run(lazy, policy, plus[:, -1]))


def _long_run(lazy: LazyMDP, policy: NDArray[np.float64], lazy_probability: NDArray[np.float64]) -> float:
    """Averages `lazy_probability [S]` over the steps of endless play.

    Episodes follow each other until one enters a set of states that it never leaves (a recurrent class). If there is no
    such set, the average is the expected number of lazy steps divided by the expected number of steps of an episode
    (renewal reward theorem). Otherwise it is the mean of the stationary averages of these sets, weighted by their
    probability of being entered first.
    """
    mdp = lazy.mdp
    start = np.where(mdp.absorbing, 0.0, mdp.start)
    moves = policy_transitions(mdp, policy)
    moves.eliminate_zeros()
    reached = np.sort(_reachable(moves, start, mdp.absorbing))
    inside = sp.csr_array(moves[reached][:, reached])
    share, start = lazy_probability[reached], start[reached] / start.sum()
    _, part = csgraph.connected_components(inside, connection="strong")
    leaving = inside.tocoo()
    escapes = np.zeros(part.max() + 1, dtype=bool)
    escapes[part[leaving.row[part[leaving.row] != part[leaving.col]]]] = True
    escapes[part[(moves[reached] @ mdp.absorbing.astype(float)) > 0.0]] = True
    transient = np.flatnonzero(escapes[part])
    caught = np.flatnonzero(~escapes[part])
    among = sp.csr_array(inside[transient][:, transient])
    if not caught.size:
        steps = _steps_inside(among, mdp.n_actions)
        lazy_steps = solve_linear(among, share[None])[0]
        return float(lazy_steps @ start / (steps @ start))
    for group in np.unique(part[caught]):
        members = np.flatnonzero(part == group)
        share[members] = _stationary(inside[members][:, members], mdp.n_actions) @ share[members]
    weight = start[caught]
    if transient.size:
        _steps_inside(among, mdp.n_actions)
        visits = solve_linear(sp.csr_array(among.T), start[transient][None])[0]
        weight = weight + visits @ inside[transient][:, caught]
    return float(weight @ share[caught] / weight.sum())


def _reachable(moves: sp.csr_array, start: NDArray[np.float64], absorbing: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns the states that can be reached from `start`, without the absorbing ones."""
    seen = start > 0.0
    frontier = np.flatnonzero(seen)
    while frontier.size:
        following = np.unique(moves[frontier].indices)
        frontier = following[~seen[following] & ~absorbing[following]]
        seen[frontier] = True
    return np.flatnonzero(seen)


def _steps_inside(moves: sp.csr_array, n_actions: int) -> NDArray[np.float64]:
    """Returns the expected number of steps, without a discount, until a chain leaves the states of `moves [n, n]`.

    Raises:
        ValueError: It stays so long that the steps cannot be computed.
    """
    try:
        steps = solve_linear(moves, np.ones((1, moves.shape[0])))[0]
        proven = proves_lifetimes(moves, steps, n_actions)
    except ValueError:  # the matrix is singular up to rounding
        proven = False
    if not proven:
        raise ValueError(
            "the long-run frequency cannot be computed in double precision: without a discount, the chain leaves some "
            "states too rarely. Set transition probabilities that hardly ever matter to 0, or compute the discounted "
            "frequency alone, from `evaluate(lazy, policy_plus).control_count` and `steps_to_absorption`."
        )
    return steps


def _stationary(moves: sp.csr_array, n_actions: int) -> NDArray[np.float64]:
    """Returns the stationary distribution of an irreducible chain: its expected visits between returns to state 0."""
    n = moves.shape[0]
    if n == 1:
        return np.ones(1)
    away = sp.csr_array(moves[1:][:, 1:])
    _steps_inside(away, n_actions)
    visits = np.append(1.0, solve_linear(sp.csr_array(away.T), moves[[0]][:, 1:].toarray())[0])
    return visits / visits.sum()
