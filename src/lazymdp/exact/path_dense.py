"""The walk along the exact eta-path on dense models, with a tableau of the rows of all choices that are not taken.

Let `B = I - gamma P_pi` be the matrix of the policy on the states that are not absorbing. When a choice enters the
policy, one row of `B` changes, and everything else is updated by a rank-one step on the tableau `T = N B^-1` of the
rows of all other choices. The steps are collected and applied in blocks, as matrix products, for speed. `path_exact`
explains gains and ties.

The rounding errors of the steps accumulate in the gains. Gains are therefore computed anew, from values refined to
twice the precision of a double, where a decision depends on such errors. Long-lived models, in which a single step may
multiply the errors, have them computed anew after every step, or every block of steps if the model is large.
"""

from __future__ import annotations

import warnings
from typing import Any

import numba
import numpy as np
import scipy.linalg
import scipy.linalg.blas
import scipy.sparse as sp
from numpy.typing import NDArray

from lazymdp.exact.advantages import line_gains
from lazymdp.exact.linear import TOO_LONG, DenseFactors, policy_transitions
from lazymdp.exact.path_sparse import TRUSTED, is_long_lived, no_gain, no_slope
from lazymdp.lazy import LazyMDP

_BLOCK = 64
"""Number of steps that are collected before they are applied to the tableau."""

_LARGEST_TABLEAU = 150_000_000
"""Largest number of entries in a tableau: 1.2 GB, and as much again while it is filled."""

_SMALL = 100
"""Largest number of states for which gains are computed anew after every step if the model lives long."""

_QUICK = 1_000_000
"""Largest number of transitions for which gains are computed anew at the end of the path even if lives are short."""

_NO_SLOPE = 1e-12
"""Size, relative to the largest slope, below which a slope is only trusted if it is computed anew."""


class Tableau:
    """The rows of the choices that the current policy does not take, `table - left @ right`, and their gains.

    A *slot* holds one such choice. When it enters the policy, the choice that it replaces takes its slot.

    Attributes:
        action: `[S]` the policy; `A` is lazy.
        steps: Number of steps made.
        is_fresh: Whether the gains have been computed anew since the last step.
    """

    def __init__(self, lazy: LazyMDP, factors: DenseFactors | None = None) -> None:
        mdp = self._mdp = lazy.mdp
        self._lazy = lazy
        self.lazy_action = mdp.n_actions
        self.action = np.full(mdp.n_states, mdp.n_actions)
        self.alive = np.flatnonzero(~mdp.absorbing)
        n = self.alive.size
        # Control with an action that the default policy is certain to take never pays at a price above 0.
        default = lazy.default_policy
        certain = (default == 1.0) & (np.count_nonzero(default, axis=1)[:, None] == 1)
        states, self.slot_action = np.nonzero(~certain & ~mdp.absorbing[:, None])
        self._interval = 0 if not is_long_lived(mdp) else 1 if self.alive.size <= _SMALL else _BLOCK
        place = np.zeros(mdp.n_states, dtype=np.int64)
        place[self.alive] = np.arange(n)
        self.slot_state = place[states]
        self.steps = self._pending = 0
        if (self.slot_state.size + 1) * n > _LARGEST_TABLEAU:
            raise ValueError(
                f"the exact path of {n} states and {self.slot_state.size} choices needs "
                f"{8e-9 * self.slot_state.size * n:.1f} GB of memory. Pass tol= for a path within a proven tolerance."
            )
        self._start_tableau(lazy, states, factors or self._factorize(lazy))

    def _factorize(self, lazy: LazyMDP) -> DenseFactors:
        """Factorizes the matrix of the always-lazy policy."""
        mdp = lazy.mdp
        step = self._among_alive(policy_transitions(mdp, lazy.default_policy)[self.alive]).toarray()
        step *= -mdp.gamma
        step[np.diag_indices(self.alive.size)] += 1.0
        with warnings.catch_warnings():
            warnings.simplefilter("error", scipy.linalg.LinAlgWarning)
            try:
                return scipy.linalg.lu_factor(step, overwrite_a=True, check_finite=False)
            except scipy.linalg.LinAlgWarning as error:
                raise ValueError(TOO_LONG) from error

    def _start_tableau(self, lazy: LazyMDP, states: NDArray[np.int64], factors: DenseFactors) -> None:
        """Fills the tableau of the always-lazy policy, `T = N B^-1`, from the factors of `B`."""
        mdp, default = lazy.mdp, lazy.default_policy
        n, n_slots = self.alive.size, self.slot_state.size
        self._lazy_factors, self._lazy_rewards = factors, np.einsum("sa,sa->s", default, mdp.rewards)[self.alive]
        value = scipy.linalg.lu_solve(factors, self._lazy_rewards)
        self._level, self._largest_count, self.is_fresh = no_gain(mdp, value), 0.0, False
        chosen = self._among_alive(mdp.transitions[states * mdp.n_actions + self.slot_action])
        # The start distribution is one more row, so that its value and count are updated with the others.
        rows = np.zeros((n_slots + 1, n))
        rows[:-1] = chosen.toarray()
        rows *= -mdp.gamma
        rows[np.arange(n_slots), self.slot_state] += 1.0
        rows[-1] = mdp.start[self.alive]
        self._table = scipy.linalg.lu_solve(factors, rows.T, trans=1, overwrite_b=True, check_finite=False).T
        gain = mdp.rewards[states, self.slot_action] + mdp.gamma * (chosen @ value) - value[self.slot_state]
        self._alpha = np.append(gain, -mdp.start[self.alive] @ value)
        self._beta = np.append(np.ones(n_slots), 0.0)
        self._left = np.zeros((n_slots + 1, _BLOCK))
        self._right = np.zeros((_BLOCK, n))

    def _among_alive(self, matrix: sp.csr_array) -> sp.csr_array:
        """Returns the columns of the states that are not absorbing; selecting all of them would take a while."""
        return matrix if self.alive.size == matrix.shape[1] else matrix[:, self.alive]

    @property
    def start_base_value(self) -> float:
        """Base value of the policy from the start distribution, without the price."""
        return float(-self._alpha[-1])

    @property
    def start_control_count(self) -> float:
        """Expected discounted number of controls of the policy from the start distribution."""
        return max(0.0, float(-self._beta[-1]))

    def next_gains(self, eta: float) -> tuple[list[int], float]:
        """Returns the next slot to become better as the price falls from `eta`, and that price; ([], 0) if none."""
        slot, price, hidden = _next_gain(self._alpha, self._beta, eta, *self._margins())
        if hidden:
            self.refresh()
            return self.next_gains(eta)
        return ([slot] if slot >= 0 else []), price

    def lazy_ties(self) -> list[int]:
        """Returns the slots of lazy actions that tie with the policy's choices at every price."""
        lazy = self.slot_action == self.lazy_action
        firm, _, _, level = self._margins()
        return _lazy_ties(self._alpha, self._beta, lazy, firm, level).tolist()

    def _margins(self) -> tuple[float, float, float, float]:
        """Returns the sizes from which a slope and a gain are trusted, and those below which they are rounding."""
        level, most = self._level, max(self._largest_count, _largest(self._beta))
        flat = no_slope(self._mdp, most)
        if self.is_fresh:
            return flat, level, flat, level
        return max(flat, _NO_SLOPE * (1.0 + most)), TRUSTED * level, flat, level

    def refresh(self) -> None:
        """Computes the gains anew, from values and counts to twice the precision of a double."""
        line, gains = line_gains(self._lazy, self.action, self)
        slots = self.alive[self.slot_state], self.slot_action
        starts = -(line @ self._mdp.start)
        self._alpha, self._beta = (np.append(gains[k][slots], starts[k]) for k in range(2))
        self._level, self._largest_count = no_gain(self._mdp, line[0]), float(line[1].max())
        self.is_fresh, self._value = True, line[0]

    def settle(self) -> bool:
        """Computes the gains anew if that may change the end of the path; returns whether it was done."""
        if self.is_fresh or (self._mdp.transitions.nnz > _QUICK and not is_long_lived(self._mdp)):
            return False
        self.refresh()
        return True

    def solve(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solves `x = b + gamma P_pi x` for each row `b` of `rewards [k, S]`."""
        # If B_0 is the matrix of the always-lazy policy, a row of B_0 B^-1 is that of the lazy choice in the tableau,
        # or a row of the identity where the policy is lazy.
        right, k = rewards[:, self.alive], self._pending
        rows = self._table @ right.T - self._left[:, :k] @ (self._right[:k] @ right.T)
        lazy = np.flatnonzero(self.slot_action == self.lazy_action)
        right[:, self.slot_state[lazy]] = rows[lazy].T
        found = np.zeros_like(rewards)
        found[:, self.alive] = [scipy.linalg.lapack.dgetrs(*self._lazy_factors, b)[0] for b in right]
        return found

    def base_value(self) -> NDArray[np.float64]:
        """Returns the base value of the policy, `[S]`."""
        if self.is_fresh:
            return self._value
        right = self._lazy_rewards.copy()  # of the always-lazy policy, less the gain of being lazy for one step
        lazy = np.flatnonzero(self.slot_action == self.lazy_action)
        right[self.slot_state[lazy]] -= self._alpha[lazy]
        value = np.zeros(self.action.size)
        value[self.alive] = scipy.linalg.lapack.dgetrs(*self._lazy_factors, right)[0]
        return value

    def still_gains(self, slot: int, eta: float) -> bool:
        """Returns whether the choice in `slot` is better than the policy just below `eta`."""
        alpha, beta = self._alpha[slot], self._beta[slot]
        firm, sure, flat, level = self._margins()
        return bool(beta > firm and alpha > sure and alpha >= eta * (beta - flat) - level)

    def step(self, slot: int) -> None:
        """Lets the choice in `slot` enter the policy."""
        k, place = self._pending, self.slot_state[slot]
        column = self._table[:, place] - self._left[:, :k] @ self._right[:k, place]
        row = self._table[slot] - self._left[slot, :k] @ self._right[:k]
        pivot = column[slot]
        row[place] -= 1.0
        scaled = column / pivot
        alpha, beta = self._alpha[slot], self._beta[slot]
        self._alpha -= alpha * scaled
        self._beta -= beta * scaled
        self._left[:, k] = scaled
        self._right[k] = row
        # The choice that leaves takes the slot. Its gain over the new policy is the gain of the step, reversed.
        self._left[slot, : k + 1] = 0.0
        self._table[slot] = row / -pivot
        self._table[slot, place] += 1.0
        self._alpha[slot], self._beta[slot] = -alpha / pivot, -beta / pivot
        state = self.alive[place]
        self.action[state], self.slot_action[slot] = self.slot_action[slot], self.action[state]
        self.steps += 1
        self._pending += 1
        if self._pending == _BLOCK:
            # In place and on the transposes, because BLAS stores matrices by columns.
            update = scipy.linalg.blas.dgemm(-1.0, self._right.T, self._left.T, 1.0, self._table.T, overwrite_c=True)
            self._table = update.T
            self._left[:] = 0.0
            self._pending = 0
        self.is_fresh = False
        if self._interval and self.steps % self._interval == 0:
            self.refresh()


@numba.njit(cache=True, nogil=True)
def _next_gain(alphas: Any, betas: Any, eta: float, firm: float, sure: float, flat: float, level: float) -> Any:
    """Finds the largest `alpha / beta` over all slots with `beta > firm` and `alpha > sure`, or a tie at `eta`.

    Returns:
        The slot, the price, and whether another choice, with `beta > flat` and `alpha > level`, becomes better before.
    """
    best, slot = 0.0, -1
    slack = level + (eta * flat if eta < np.inf else 0.0)
    for i in range(alphas.size - 1):
        alpha, beta = alphas[i], betas[i]
        if beta > firm and alpha > sure:
            crossing = eta if alpha >= eta * beta - slack else alpha / beta
            if crossing > best:
                best, slot = crossing, i
    for i in range(alphas.size - 1):
        alpha, beta = alphas[i], betas[i]
        if (beta <= firm or alpha <= sure) and beta > flat and alpha > level + best * (beta + flat):
            return slot, best, True
    return slot, best, False


@numba.njit(cache=True, nogil=True)
def _lazy_ties(alphas: Any, betas: Any, lazy: Any, flat: float, level: float) -> Any:
    """Lists the slots in which `lazy` is set and both `alpha` and `beta` are 0 up to rounding."""
    ties = np.empty(lazy.size, dtype=np.int64)
    found = 0
    for i in range(lazy.size):
        if lazy[i] and abs(betas[i]) <= flat and abs(alphas[i]) <= level:
            ties[found] = i
            found += 1
    return ties[:found].copy()


@numba.njit(cache=True, nogil=True)
def _largest(x: Any) -> float:
    """Returns the largest `|x|`, or nan if an entry is nan."""
    largest = 0.0
    for i in range(x.size):
        if not abs(x[i]) <= largest:
            largest = abs(x[i])
    return largest
