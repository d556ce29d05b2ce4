"""How often an agent is lazy: over states, from the start, and in the long run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csgraph

from lazymdp.exact.evaluate import evaluate as evaluate_policy
from lazymdp.exact.evaluate import steps_to_absorption
from lazymdp.exact.linear import policy_transitions, solve_linear
from lazymdp.lazy import LazyMDP

_NEVER = 1e-14
"""Probability under which a move counts as impossible: it would be lost in rounding."""


@dataclass(frozen=True)
class LazyFrequency:
    """Fractions of lazy actions; absorbing states never count.

    Attributes:
        states: Over the states, each counted once.
        discounted: Over the steps of an episode from the start distribution, each step weighed with its discount.
        long_run: Over the steps of endless play, a new episode starting when one is absorbed; no discount. What a
            counter would show.
    """

    states: float
    discounted: float
    long_run: float


def lazy_frequency(lazy: LazyMDP, policy_plus: ArrayLike) -> LazyFrequency:
    """How often an augmented policy is lazy.

    Args:
        lazy: The lazy-MDP.
        policy_plus: `[S, A+1]` probabilities, the lazy action last, or `[S]` actions.
    """
    mdp = lazy.mdp
    plus = lazy.check_policy_plus(policy_plus)
    if not mdp.start[~mdp.absorbing].any():
        raise ValueError("every start state is absorbing: no step is ever taken, so there is no frequency.")
    policy = lazy.effective_policy(plus)
    steps = mdp.start_average(steps_to_absorption(mdp, policy))
    controls = mdp.start_average(evaluate_policy(lazy, plus).control_count)
    return LazyFrequency(mdp.state_average(plus[:, -1]), 1.0 - controls / steps, _long_run(lazy, policy, plus[:, -1]))


def _long_run(lazy: LazyMDP, policy: NDArray[np.float64], lazy_probability: NDArray[np.float64]) -> float:
    """Average of `lazy_probability` along endless play.

    Episodes follow each other until one is caught in a set of states it never leaves. If that cannot happen, the
    frequency is lazy steps over steps in an episode (renewal reward); if it can, it is that of the sets, weighted by
    how likely each is to catch an episode.
    """
    mdp = lazy.mdp
    start = np.where(mdp.absorbing, 0.0, mdp.start)
    moves = policy_transitions(mdp, policy)
    moves.data[moves.data < _NEVER] = 0.0
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
        lazy_steps, steps = solve_linear(among, np.stack([share, np.ones(share.size)])) @ start
        return float(lazy_steps / steps)
    for group in np.unique(part[caught]):
        members = np.flatnonzero(part == group)
        share[members] = _stationary(inside[members][:, members]) @ share[members]
    weight = start[caught]
    if transient.size:
        visits = solve_linear(sp.csr_array(among.T), start[transient][None])[0]
        weight = weight + visits @ inside[transient][:, caught]
    return float(weight @ share[caught] / weight.sum())


def _reachable(moves: sp.csr_array, start: NDArray[np.float64], absorbing: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The states, absorbing ones left out, that play from `start` can reach."""
    seen = start > 0.0
    frontier = np.flatnonzero(seen)
    while frontier.size:
        following = np.unique(moves[frontier].indices)
        frontier = following[~seen[following] & ~absorbing[following]]
        seen[frontier] = True
    return np.flatnonzero(seen)


def _stationary(moves: sp.csr_array) -> NDArray[np.float64]:
    """The stationary distribution of an irreducible chain: expected visits between two returns to its first state."""
    n = moves.shape[0]
    if n == 1:
        return np.ones(1)
    away = sp.csr_array(moves[1:][:, 1:].T)
    visits = np.append(1.0, solve_linear(away, moves[[0]][:, 1:].toarray())[0])
    return visits / visits.sum()
