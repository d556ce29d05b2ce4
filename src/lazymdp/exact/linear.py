"""Linear systems on sparse models: `(I - gamma P_pi) x = b` on the states that are not absorbing.

Small systems are factorized. Large ones are first solved by BiCGSTAB, preconditioned with one forward and one backward
Gauss-Seidel sweep and restarted on the residual until that is down to rounding error. If BiCGSTAB fails, they are
factorized too.

Rounding errors grow with the expected number of steps to absorption, `h = (I - gamma P_pi)^-1 1`, which only a
discount near 1 allows to be large. There a policy is evaluated only if its lifetimes are *proven* to be positive and
finite: any `h > 0` with `h - gamma P_pi h >= 1/2` proves that the matrix has an inverse, that the inverse has no
negative entry, and that its rows sum to at most `2 h`. The proof uses the rows as they are, also where they sum to
slightly more than 1, and allows for rounding errors. Where it fails, or where lifetimes exceed `_MOST_STEPS`, the
evaluation is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg.lapack
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

_SURELY_SHORT = 1e-6
"""Probability of ending (by absorption or discount) per step that proves short lifetimes without computing them."""

_MOST_STEPS = 2e12
"""Expected steps to absorption above which values have lost their last correct digits (1 / machine epsilon is 4e15)."""

TOO_LONG = (
    "the values cannot be told from infinite ones in double precision: absorption is too unlikely and gamma is too "
    "close to 1. Use a smaller gamma or a finite horizon."
)

EPS = float(np.finfo(float).eps)

TINY = float(np.finfo(float).tiny)
"""Rounding error of a product that underflows, far more than counted."""

DenseFactors = tuple[NDArray[np.float64], NDArray[np.int32]]
"""LU factors and pivots of a dense matrix, as LAPACK has them."""


def rounding_terms(mdp: MDP) -> int:
    """Returns n such that the rounding error of one backup is at most `n * EPS` times the sizes of what is summed.

    The error of a sum of n products is at most n/2 eps times the sum of their sizes; this counts generously.
    """
    return mdp.max_successors + mdp.n_actions + 8


def backup_error(terms: int, size: float) -> float:
    """Bounds the rounding error of one backup of `terms` terms, underflow included, of numbers of this size."""
    return terms * (EPS * size + TINY) if size > 0.0 else 0.0


def action_values(mdp: MDP, rewards: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Computes `rewards + gamma P values`: `[S, A]` from rewards `[S, A]` and values `[S]`."""
    return rewards + mdp.gamma * (mdp.transitions @ values).reshape(mdp.n_states, mdp.n_actions)


def policy_transitions(mdp: MDP, policy: NDArray[np.float64]) -> sp.csr_array:
    """Returns `P_pi(s' | s) = sum_a pi(a|s) P(s' | s, a)`, sparse `[S, S]`, for a policy `[S, A]`."""
    states, actions = np.nonzero(policy)
    certain = np.array_equal(states, np.arange(mdp.n_states)) and bool((policy[states, actions] == 1.0).all())
    if certain:  # one action in every state: its row
        return mdp.transitions[states * mdp.n_actions + actions]
    shape = (mdp.n_states, mdp.n_states * mdp.n_actions)
    blend = sp.csr_array((policy[states, actions], (states, states * mdp.n_actions + actions)), shape=shape)
    return sp.csr_array(blend @ mdp.transitions)


class PolicySystem:
    """The system `x = b + gamma P_pi x` of a policy `[S, A]`, factorized once; solutions are 0 in absorbing states.

    Attributes:
        lifetimes: `[N]` proven bound on the expected discounted steps to absorption from the states that are not
            absorbing; no solution exceeds it times the largest `|b|`.

    Raises:
        ValueError: The policy takes so long to be absorbed that the solutions would be dominated by rounding errors.
    """

    def __init__(self, mdp: MDP, policy: NDArray[np.float64]) -> None:
        self._alive = np.flatnonzero(~mdp.absorbing)
        step = mdp.gamma * policy_transitions(mdp, policy)
        if self._alive.size < mdp.n_states:
            step = step[self._alive][:, self._alive]
        self._step = sp.csr_array(step)
        ones = self.lifetimes = np.ones(self._alive.size)
        if not self._alive.size:
            return
        self._solve = Factorized(self._step)
        largest = float((self._step @ ones).max())
        if largest <= 1.0 - _SURELY_SHORT:
            self.lifetimes = ones / (1.0 - largest) * (1.0 + 1e-8)  # for the rounding of the largest row sum
            return
        steps = self._solve(ones[None])[0]
        if not proves_lifetimes(self._step, steps, mdp.n_actions):
            raise ValueError(too_long(mdp))
        self.lifetimes = 2.0 * steps

    def solve(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solves for each row `b` of `rewards [k, S]`."""
        values = np.zeros_like(rewards)
        if self._alive.size:
            values[:, self._alive] = self._solve(rewards[:, self._alive])
        return values

    @property
    def dense_factors(self) -> DenseFactors | None:
        """Dense factors of `I - gamma P_pi` on the states that are not absorbing; None if there are none."""
        return self._solve.dense if self._alive.size else None

    def residual(self, rewards: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Computes `b + gamma P_pi x - x` for each row `b` of `rewards [k, S]` and `x` of `values [k, S]`."""
        left = np.zeros_like(rewards)
        at = values[:, self._alive]
        left[:, self._alive] = rewards[:, self._alive] + (self._step @ at.T).T - at
        return left


def policy_values(mdp: MDP, policy: NDArray[np.float64], rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solves `x = rewards + gamma P_pi x` for each row of `rewards [k, S]`, as `PolicySystem` does."""
    return PolicySystem(mdp, policy).solve(rewards)


def proves_lifetimes(step: sp.csr_array, steps: NDArray[np.float64], n_actions: int) -> bool:
    """Returns whether `steps [n]` proves that `(I - step) x = b` has solutions, of at most `2 steps max|b|` in size.

    Args:
        step: Sparse `[n, n]`, not negative.
        steps: Computed solution of `(I - step) h = 1`.
        n_actions: Number of products that an entry of `step` sums up, for its rounding error.
    """
    if not (steps.min() > 0.0 and steps.max() < _MOST_STEPS):  # also catches nan
        return False
    terms = int(np.diff(step.indptr).max()) + n_actions + 8
    left = steps - step @ steps
    return bool(left.min() - 2.0 * EPS * terms * steps.max() >= 0.5)


def too_long(mdp: MDP) -> str:
    """Returns the message of a refusal, which names row sums that differ from 1 by more than rounding."""
    if mdp.row_defect <= 1e-14 * mdp.max_successors:
        return TOO_LONG
    return (
        f"{TOO_LONG} Rows of the transitions sum to 1 only up to {mdp.row_defect:.1e}, which matters over so many "
        "steps: divide each row by its sum."
    )


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
    """Solves `(I - step) x = b` for each row `b` of `rewards [k, n]`, as `Factorized` does."""
    return Factorized(step)(rewards)


class Factorized:
    """Solves `(I - step) x = b`, up to rounding. Factors are computed when they are first needed, and kept.

    `step` must be non-negative with spectral radius below 1: `gamma P` on the states that are not absorbing.

    Attributes:
        dense: Factors of the dense matrix; None if there are none.
    """

    def __init__(self, step: sp.csr_array) -> None:
        self._step = step
        self._sparse: Any = None  # the factors of SuperLU
        self.dense: DenseFactors | None = None

    def __call__(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solves for each row `b` of `rewards [k, n]`."""
        if self._sparse is None and self.dense is None:
            if self._step.shape[0] > _DIRECT_UP_TO:
                iterated = _iterate(self._step, rewards)
                if iterated is not None:
                    return iterated
            self._factorize()
        if self.dense is not None:
            # One right-hand side at a time: for several, LAPACK starts threads, which takes a thousand times as long.
            return np.array([scipy.linalg.lapack.dgetrs(*self.dense, b)[0] for b in rewards])
        return np.array([self._sparse.solve(b) for b in rewards])

    def _factorize(self) -> None:
        n = self._step.shape[0]
        if n <= _DENSE_UP_TO or self._step.nnz > 0.05 * n * n:
            *factors, singular = scipy.linalg.lapack.dgetrf(np.eye(n) - self._step.toarray())
            if singular:
                raise ValueError(TOO_LONG)
            self.dense = tuple(factors)
            return
        try:
            self._sparse = scipy.sparse.linalg.splu(sp.csc_matrix(sp.eye_array(n) - self._step))
        except RuntimeError as error:  # raised by SuperLU for a singular matrix
            raise ValueError(TOO_LONG) from error


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
