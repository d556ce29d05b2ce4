"""Linear systems on sparse models: `(I - gamma P_pi) x = b` on the states that are not absorbing.

Small systems are factorized. Large ones are first solved by BiCGSTAB, preconditioned with one forward and one backward
Gauss-Seidel sweep and restarted on the residual until that is down to rounding error. If BiCGSTAB fails, they are
factorized too.

Rounding errors grow with the expected number of steps to absorption, which only a discount near 1 allows to be large.
Beyond `_MOST_STEPS` the solutions would be noise, and the evaluation of a policy is refused.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import NDArray

from lazymdp.exact.krylov import bicgstab
from lazymdp.mdp import MDP

_DENSE_UP_TO = 400
"""Largest number of states for which a dense matrix is always used."""

_DIRECT_UP_TO = 5_000
"""Largest number of states for which a system is factorized without trying BiCGSTAB first."""

_RELATIVE_RESIDUAL = 1e-13

_MOST_STEPS = 2e12
"""Expected steps to absorption above which values have lost their last correct digits (1 / machine epsilon is 4e15)."""

TOO_LONG = (
    "the values cannot be told from infinite ones in double precision: absorption is too unlikely and gamma is too "
    "close to 1. Use a smaller gamma or a finite horizon."
)


def action_values(mdp: MDP, rewards: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Computes `rewards + gamma P values`: `[S, A]` from rewards `[S, A]` and values `[S]`."""
    return rewards + mdp.gamma * (mdp.transitions @ values).reshape(mdp.n_states, mdp.n_actions)


def policy_transitions(mdp: MDP, policy: NDArray[np.float64]) -> sp.csr_array:
    """Returns `P_pi(s' | s) = sum_a pi(a|s) P(s' | s, a)`, sparse `[S, S]`, for a policy `[S, A]`."""
    states, actions = np.nonzero(policy)
    shape = (mdp.n_states, mdp.n_states * mdp.n_actions)
    blend = sp.csr_array((policy[states, actions], (states, states * mdp.n_actions + actions)), shape=shape)
    return sp.csr_array(blend @ mdp.transitions)


def policy_values(mdp: MDP, policy: NDArray[np.float64], rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solves `x = rewards + gamma P_pi x` for each row of `rewards [k, S]`; solutions are 0 in absorbing states.

    Raises:
        ValueError: The policy takes so long to be absorbed that the solutions would be dominated by rounding errors.
    """
    alive = np.flatnonzero(~mdp.absorbing)
    values = np.zeros_like(rewards)
    if not alive.size:
        return values
    step = mdp.gamma * policy_transitions(mdp, policy)
    if alive.size < mdp.n_states:
        step = step[alive][:, alive]
    right = rewards[:, alive]
    if 1.0 - mdp.gamma > 1.0 / _MOST_STEPS:
        values[:, alive] = solve_linear(sp.csr_array(step), right)
        return values
    # The steps themselves solve the same system with reward 1. A matrix that is singular but for rounding shows in
    # them as a huge, negative or infinite number.
    *solved, steps = solve_linear(sp.csr_array(step), np.vstack([right, np.ones(alive.size)]))
    if not (steps.min() > 0.5 and steps.max() < _MOST_STEPS):
        raise ValueError(TOO_LONG)
    values[:, alive] = solved
    return values


def effective_policy(
    mdp: MDP, default_policy: NDArray[np.float64], action: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Returns the base policy `[S, A]` of `action [S]`, where `A` is lazy, and the states `[S]` that take control."""
    control = (action < mdp.n_actions) & ~mdp.absorbing
    policy = default_policy.copy()
    policy[control] = np.eye(mdp.n_actions)[action[control]]
    return policy, control


def policy_line(mdp: MDP, default_policy: NDArray[np.float64], action: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns `[2, S]`: the base value `V` and the control count `K` of the policy `action [S]`, where `A` is lazy."""
    policy, control = effective_policy(mdp, default_policy, action)
    rewards = np.einsum("sa,sa->s", policy, mdp.rewards)
    return policy_values(mdp, policy, np.stack([rewards, control.astype(float)]))


def solve_linear(step: sp.csr_array, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solves `(I - step) x = b` for each row `b` of `rewards [k, n]`, up to rounding errors.

    `step` must be non-negative with spectral radius below 1: `gamma P` on the states that are not absorbing.
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
    except (np.linalg.LinAlgError, RuntimeError) as error:  # raised by NumPy and SuperLU for a singular matrix
        raise ValueError(TOO_LONG) from error
    return np.array([factors.solve(b) for b in rewards])


def _iterate(step: sp.csr_array, rewards: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Solves by BiCGSTAB, restarted on the residual until that is at rounding; returns None if it does not converge."""
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
