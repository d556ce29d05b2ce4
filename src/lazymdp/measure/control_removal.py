"""The exact loss of return if control is taken away: the ground truth of an importance measure.

A policy acts everywhere except in a set of states, where the default policy acts on *every* visit. The loss is the
expected discounted return of the policy minus that of the changed policy, from the start distribution. A positive loss
means that control was worth something there.

For a single state `s`, let `G(s)` be the value of the policy minus the value of one step of the default policy followed
by the policy; for an optimal policy this is the lazy-gap at price 0. Then

    loss(s) = G(s) * visits(s),

where `visits(s)` is the expected discounted number of visits of `s` under the *changed* policy. With `N = (I - gamma
P_pi)^-1` and the transitions `d_s` of the default policy, a rank-one update (Sherman-Morrison) gives the visits of all
states from one factorization:

    visits(s) = (start . N)_s / (N_ss - gamma d_s . N[:, s]).

So if only a single visit is handed over, from `s` itself, the loss is the lazy-gap. Over all visits it also depends on
how often the state is visited, which no measure that looks at the action values of one state can know.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.exact.linear import PolicySystem, action_values, policy_transitions
from lazymdp.lazy import check_mdp, check_policy
from lazymdp.mdp import MDP

_CHUNK = 8_000_000
"""Largest number of matrix entries that are solved for in one call, which bounds the memory."""


def removal_loss(mdp: MDP, policy: ArrayLike, default_policy: ArrayLike) -> NDArray[np.float64]:
    """Computes, for every state, the loss of return if the default policy acts there on every visit.

    A positive loss means that control is worth something in the state: larger is more important. The matrices are
    dense, so this is meant for models of up to a few thousand states.

    Args:
        mdp: The base model. The return is discounted with its `gamma` and averaged over its `start` distribution.
        policy: `[S, A]` probabilities of the policy that acts everywhere else, for example `policies.optimal(mdp)`.
        default_policy: `[S, A]` probabilities of the default policy.

    Returns:
        `[S]` losses; 0 in absorbing states and in states that the policy never visits.
    """
    acting, default = _checked(mdp, policy, default_policy)
    system = PolicySystem(mdp, acting)
    value = system.solve(np.einsum("sa,sa->s", acting, mdp.rewards)[None])[0]
    gap = np.einsum("sa,sa->s", acting - default, action_values(mdp, mdp.rewards, value))
    columns = system.solve(np.diag((~mdp.absorbing).astype(float)))  # row s is N[:, s]
    returning = mdp.gamma * np.einsum("st,st->s", policy_transitions(mdp, default).toarray(), columns)
    pivot = np.where(mdp.absorbing, 1.0, columns.diagonal() - returning)
    return np.where(mdp.absorbing, 0.0, gap) * (columns @ mdp.start) / pivot


def removal_loss_of_sets(
    mdp: MDP, policy: ArrayLike, default_policy: ArrayLike, sets: ArrayLike
) -> NDArray[np.float64]:
    """Computes the loss of return if the default policy acts on every visit of any state of a set.

    A positive loss means that control is worth something there.

    Args:
        mdp: The base model, as for `removal_loss`.
        policy: `[S, A]` probabilities of the policy that acts everywhere else.
        default_policy: `[S, A]` probabilities of the default policy.
        sets: `[N, S]` bool, the states of each set.

    Returns:
        `[N]` losses.
    """
    acting, default = _checked(mdp, policy, default_policy)
    members = np.asarray(sets)
    if members.dtype != np.bool_ or members.ndim != 2 or members.shape[1] != mdp.n_states:
        raise ValueError(
            f"sets has shape {members.shape} and type {members.dtype}, expected bool [N, S] with S = {mdp.n_states}."
        )
    alive = np.flatnonzero(~mdp.absorbing)
    steps, gains = [], []
    for table in (acting, default):
        transitions = policy_transitions(mdp, table)[alive][:, alive].toarray()
        steps.append(np.eye(alive.size) - mdp.gamma * transitions)
        gains.append(np.einsum("sa,sa->s", table, mdp.rewards)[alive])
    start = mdp.start[alive]
    best = float(start @ np.linalg.solve(steps[0], gains[0])) if alive.size else 0.0
    losses = np.zeros(len(members))
    size = max(1, _CHUNK // max(1, alive.size**2))
    for first in range(0, len(members) if alive.size else 0, size):
        chosen = members[first : first + size, alive]
        matrices = np.where(chosen[:, :, None], steps[1], steps[0])
        values = np.linalg.solve(matrices, np.where(chosen, gains[1], gains[0])[:, :, None])[:, :, 0]
        losses[first : first + size] = best - values @ start
    return losses


def visit_frequency(mdp: MDP, policy: ArrayLike) -> NDArray[np.float64]:
    """Computes the expected discounted number of visits of every state from the start distribution.

    Args:
        mdp: The model.
        policy: `[S, A]` probabilities.

    Returns:
        `[S]`; 0 in absorbing states.
    """
    check_mdp(mdp).check_infinite_horizon()
    table = check_policy(mdp, policy, mdp.n_actions, "policy")
    alive = np.flatnonzero(~mdp.absorbing)
    moves = policy_transitions(mdp, table)[alive][:, alive].toarray()
    visits = np.zeros(mdp.n_states)
    visits[alive] = np.linalg.solve((np.eye(alive.size) - mdp.gamma * moves).T, mdp.start[alive])
    return visits


def _checked(mdp: MDP, policy: ArrayLike, default_policy: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    check_mdp(mdp).check_infinite_horizon()
    return (
        check_policy(mdp, policy, mdp.n_actions, "policy"),
        check_policy(mdp, default_policy, mdp.n_actions, "default_policy"),
    )
