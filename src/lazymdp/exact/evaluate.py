"""What a given policy is worth: Theorem 1 of the paper, by linear systems.

For an augmented policy `pi_+` with effective policy `pi`, the value splits into what the base model pays and what
control costs, `V_+ = V + C` with `C = -eta K`, and `K`, the expected discounted number of control steps, satisfies

    K(s) = 1 - pi_+(lazy|s) + gamma E_{a ~ pi, s'} K(s').

All of them are solutions of `(I - gamma P_pi) x = b` on the states that are not absorbing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from lazymdp.exact.active_set import bicgstab
from lazymdp.lazy import LazyMDP, check_policy
from lazymdp.mdp import MDP

_DENSE_UP_TO = 400
_DIRECT_UP_TO = 5_000
"""States up to which a linear system is factorised; larger ones are first tried with BiCGSTAB."""

_RELATIVE_RESIDUAL = 1e-13

TOO_LONG = (
    "the values cannot be told from infinite ones in double precision: absorption is too unlikely to be seen, "
    "and gamma too close to 1. Use a smaller gamma or a finite horizon."
)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Values of an augmented policy, each `[S]` and 0 in absorbing states.

    Attributes:
        value: `V_+ = base_value + control_cost`, the value with the price.
        base_value: `V`, what the base model pays.
        control_cost: `C = -eta K`, what control costs.
        control_count: `K`, expected discounted number of control steps.
    """

    value: NDArray[np.float64]
    base_value: NDArray[np.float64]
    control_cost: NDArray[np.float64]
    control_count: NDArray[np.float64]


def evaluate(lazy: LazyMDP, policy_plus: ArrayLike) -> Evaluation:
    """Values of an augmented policy (Theorem 1).

    Args:
        lazy: The lazy-MDP.
        policy_plus: `[S, A+1]` probabilities, the lazy action last, or `[S]` actions.
    """
    lazy.mdp.check_infinite_horizon()
    plus = lazy.check_policy_plus(policy_plus)
    policy = lazy.effective_policy(plus)
    rewards = np.einsum("sa,sa->s", policy, lazy.mdp.rewards)
    control = 1.0 - plus[:, -1]
    base_value, count = policy_values(lazy.mdp, policy, np.stack([rewards, control]))
    cost = -lazy.eta * count
    return Evaluation(base_value + cost, base_value, cost, count)


def steps_to_absorption(mdp: MDP, policy: ArrayLike) -> NDArray[np.float64]:
    """Expected discounted number of steps before absorption under a base policy (`E_pi[Z^pi(s, .)]`).

    Args:
        mdp: The base model.
        policy: `[S, A]` probabilities.

    Returns:
        `[S]`; 0 in absorbing states.
    """
    mdp.check_infinite_horizon()
    table = check_policy(mdp, policy, mdp.n_actions, "policy")
    return policy_values(mdp, table, np.ones((1, mdp.n_states)))[0]


def action_values(mdp: MDP, rewards: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`rewards + gamma P values`: `[S, A]` from rewards `[S, A]` and values `[S]`."""
    return rewards + mdp.gamma * (mdp.transitions @ values).reshape(mdp.n_states, mdp.n_actions)


def policy_transitions(mdp: MDP, policy: NDArray[np.float64]) -> sp.csr_array:
    """`P_pi(s' | s) = sum_a pi(a|s) P(s' | s, a)`, sparse `[S, S]`."""
    states, actions = np.nonzero(policy)
    shape = (mdp.n_states, mdp.n_states * mdp.n_actions)
    blend = sp.csr_array((policy[states, actions], (states, states * mdp.n_actions + actions)), shape=shape)
    return sp.csr_array(blend @ mdp.transitions)


def policy_values(mdp: MDP, policy: NDArray[np.float64], rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solves `x = rewards + gamma P_pi x` for each row of `rewards [k, S]`; 0 in absorbing states."""
    alive = np.flatnonzero(~mdp.absorbing)
    values = np.zeros_like(rewards)
    if not alive.size:
        return values
    step = mdp.gamma * policy_transitions(mdp, policy)
    if alive.size < mdp.n_states:
        step = step[alive][:, alive]
    values[:, alive] = solve_linear(sp.csr_array(step), rewards[:, alive])
    return values


def policy_line(mdp: MDP, default_policy: NDArray[np.float64], action: NDArray[np.int64]) -> NDArray[np.float64]:
    """`[2, S]` the values `V` and `K` of the policy that takes `action [S]`, `A` being lazy."""
    control = (action < mdp.n_actions) & ~mdp.absorbing
    policy = default_policy.copy()
    policy[control] = np.eye(mdp.n_actions)[action[control]]
    rewards = np.einsum("sa,sa->s", policy, mdp.rewards)
    return policy_values(mdp, policy, np.stack([rewards, control.astype(float)]))


def solve_linear(step: sp.csr_array, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solves `(I - step) x = b` for each row `b` of `rewards [k, n]`, to rounding.

    `step` is non-negative with spectral radius below 1: `gamma P` on states that are not absorbing.
    """
    n = step.shape[0]
    if n > _DIRECT_UP_TO:
        iterated = _iterate(step, rewards)
        if iterated is not None:
            return iterated
    try:
        if n <= _DENSE_UP_TO or step.nnz > 0.05 * n * n:
            return np.linalg.solve(np.eye(n) - step.toarray(), rewards.T).T
        factors = scipy.sparse.linalg.splu(sp.csc_matrix(sp.eye_array(n) - step))
    except (np.linalg.LinAlgError, RuntimeError) as error:  # numpy and SuperLU on a singular matrix
        raise ValueError(TOO_LONG) from error
    return np.array([factors.solve(b) for b in rewards])


def _iterate(step: sp.csr_array, rewards: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """BiCGSTAB, restarted on what is left until the residual is at rounding; None where it does not get there."""
    if step.nnz >= np.iinfo(np.int32).max:
        return None
    ends, columns = step.indptr.astype(np.int32), step.indices.astype(np.int32)
    solutions = []
    for b in rewards:
        x = np.zeros_like(b)
        for _ in range(8):
            residual = b + step @ x - x
            scale = np.abs(b).max() + np.abs(x).max()
            if np.abs(residual).max() <= _RELATIVE_RESIDUAL * scale:
                break
            correction, done = bicgstab(ends, columns, step.data, residual, 1e-8, 0.0, 500)
            if not done:
                return None
            x = x + correction
        else:
            return None
        solutions.append(x)
    return np.array(solutions)
