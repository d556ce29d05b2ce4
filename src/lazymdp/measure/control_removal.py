"""The exact loss of return if control is taken away: the ground truth of an importance measure.

A policy acts everywhere except in a set of states, where the default policy acts on *every* visit. The loss is the
expected discounted return of the policy minus that of the changed policy, from the start distribution. A positive loss
means that control was worth something there.

Let `G(s)` be the value of the policy minus the value of one step of the default policy followed by the policy; for an
optimal policy this is the lazy-gap at price 0. Let `N = (I - gamma P_pi)^-1` and `W = (I - gamma P_default) N`. The
changed policy differs from the policy in the rows of the set `C` only, so by Woodbury's identity

    loss(C) = (start . N)_C  W_CC^-1  G_C,        for a single state   loss(s) = G(s) (start . N)_s / W_ss.

One factorization of `I - gamma P_pi` serves all states and sets. For a single state, the fraction is the expected
discounted number of visits of `s` under the *changed* policy:

    loss(s) = G(s) * visits(s).

So if a single visit is handed over, the loss is the lazy-gap. Over all visits it also depends on how often the state is
visited, which no measure that looks at the action values of one state can know.
"""

from __future__ import annotations

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import plain_array
from lazymdp.exact.error_bound import max_steps_to_absorption
from lazymdp.exact.linear import EPS, PolicySystem, action_values, policy_transitions, rounding_terms, solve_linear
from lazymdp.lazy import check_mdp, check_policy
from lazymdp.mdp import MDP


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
    gap, visits, changed = _influence(mdp, policy, default_policy, None)
    return gap * visits / changed.diagonal()


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
    members = plain_array(sets, "sets is")
    if members.dtype != np.bool_ or members.ndim != 2 or members.shape[1] != check_mdp(mdp).n_states:
        raise ValueError(
            f"sets has shape {members.shape} and type {members.dtype}, expected bool [N, S] with S = {mdp.n_states}."
        )
    gap, visits, changed = _influence(mdp, policy, default_policy, members)
    return _losses(gap, visits, changed, members)


@numba.njit(cache=True, nogil=True)
def _losses(
    gap: NDArray[np.float64], visits: NDArray[np.float64], changed: NDArray[np.float64], members: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Returns `visits_C W_CC^-1 G_C` for every set, by Gaussian elimination with partial pivoting.

    The systems are small and many. LAPACK would start threads for each of them, which takes much longer on a busy
    machine.
    """
    losses = np.zeros(len(members))
    for row in range(len(members)):
        states = np.flatnonzero(members[row])
        size = states.size
        matrix = np.empty((size, size + 1))
        for i in range(size):
            for j in range(size):
                matrix[i, j] = changed[states[i], states[j]]
            matrix[i, size] = gap[states[i]]
        for pivot in range(size):
            best = pivot + np.argmax(np.abs(matrix[pivot:, pivot]))
            for j in range(pivot, size + 1):
                matrix[pivot, j], matrix[best, j] = matrix[best, j], matrix[pivot, j]
            for i in range(pivot + 1, size):
                factor = matrix[i, pivot] / matrix[pivot, pivot]
                if factor != 0.0:
                    for j in range(pivot + 1, size + 1):
                        matrix[i, j] -= factor * matrix[pivot, j]
        for i in range(size - 1, -1, -1):
            for j in range(i + 1, size):
                matrix[i, size] -= matrix[i, j] * matrix[j, size]
            matrix[i, size] /= matrix[i, i]
            losses[row] += visits[states[i]] * matrix[i, size]
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
    PolicySystem(mdp, table)  # refuses a policy whose lifetimes cannot be proven
    alive = np.flatnonzero(~mdp.absorbing)
    visits = np.zeros(mdp.n_states)
    if alive.size:
        moves = mdp.gamma * policy_transitions(mdp, table)[alive][:, alive]
        visits[alive] = solve_linear(sp.csr_array(moves.T), mdp.start[alive][None])[0]
    return visits


def _influence(
    mdp: MDP, policy: ArrayLike, default_policy: ArrayLike, sets: NDArray[np.bool_] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Returns `G [S]`, the visits `start . N [S]` of the policy, and `W [S, S]`; absorbing states have gap 0.

    A policy that is changed in one of the `sets [N, S]`, by default in any single state, is refused if its lifetimes
    cannot be proven.
    """
    check_mdp(mdp).check_infinite_horizon()
    acting = check_policy(mdp, policy, mdp.n_actions, "policy")
    default = check_policy(mdp, default_policy, mdp.n_actions, "default_policy")
    system = PolicySystem(mdp, acting)
    _check_changed(mdp, acting, default, np.eye(mdp.n_states, dtype=bool) if sets is None else sets)
    value = system.solve(np.einsum("sa,sa->s", acting, mdp.rewards)[None])[0]
    gap = np.einsum("sa,sa->s", acting - default, action_values(mdp, mdp.rewards, value))
    columns = system.solve(np.diag((~mdp.absorbing).astype(float)))  # row s is N[:, s]
    changed = columns.T - mdp.gamma * (policy_transitions(mdp, default) @ columns.T)
    changed[mdp.absorbing] = np.eye(mdp.n_states)[mdp.absorbing]
    return np.where(mdp.absorbing, 0.0, gap), columns @ mdp.start, changed


def _check_changed(
    mdp: MDP, acting: NDArray[np.float64], default: NDArray[np.float64], sets: NDArray[np.bool_]
) -> None:
    """Raises an error if a policy changed in one of the `sets [N, S]` is not proven to have finite values."""
    defect = max(0.0, *(float(table.sum(axis=1).max()) - 1.0 for table in (acting, default)))
    defect += EPS * rounding_terms(mdp)
    if mdp.gamma * (1.0 + mdp.row_defect + defect) < 1.0 or max_steps_to_absorption(mdp, defect) < np.inf:
        return  # every policy has finite values
    for members in sets:
        PolicySystem(mdp, np.where(members[:, None], default, acting))
