"""The exact eta-path, by parametric policy iteration from the always-lazy policy down to price 0.

Let `B = I - gamma P_pi` be the matrix of a policy on the states that are not absorbing. Every other choice `(s, a)` has
a row `n = e_s - gamma P(. | s, a)` and, compared with the policy, a gain that is a line in the price:

    gain(eta) = alpha - eta beta,    alpha = r(s, a) - n . V,    beta = [a is not lazy] - n . K.

As the price falls, the next choice to become better is the one with the largest `alpha / beta` among those with
`beta > 0`. It changes one row of `B`, so everything else is updated by a rank-one step on the *tableau* `T = N B^-1` of
the rows of all other choices. The steps are collected and applied in blocks, as matrix products, for speed.

Sparse models are walked without a tableau: see `path_sparse`.

*Ties.* Several choices may become better at the same price, or at prices that rounding errors cannot tell apart: those
at which the gain is 0 up to `NO_GAIN` times the largest value. Each step has `beta > 0` and thus strictly raises K, so
no policy occurs twice at one price, and the steps at this price end with the policy that is optimal just below it.
Choices that tie on a whole interval (`alpha = beta = 0`) are left as they are, except that being lazy is preferred. A
choice whose `alpha` is 0 up to rounding gains nothing at any price and is ignored.

*Stopping rule and guarantee.* The walk ends when no choice becomes better above price 0. As in the simplex method, the
result is exact up to rounding errors; `eta_path` certifies the policy at price 0, where accumulated errors would show.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import scipy.linalg
import scipy.linalg.blas
import scipy.sparse as sp
from numpy.typing import NDArray

from lazymdp.exact.linear import TOO_LONG, DenseFactors, policy_line, policy_transitions
from lazymdp.exact.path_sparse import SparseWalk, no_gain
from lazymdp.lazy import LazyMDP

Progress = Callable[[int, float], None]
"""Callback that receives the number of steps so far and the price reached."""

Policies = list[tuple[NDArray[np.int32], NDArray[np.float64]]]
"""Policies `[S]`, and for each the gains of being lazy for one step, `[2, states that are not absorbing]`."""

_BLOCK = 64
"""Number of steps that are collected before they are applied to the tableau."""

_TOGETHER = 50_000
"""Entries of right-hand sides from which threads, which LAPACK starts to solve them together, pay off."""

_LARGEST_TABLEAU = 150_000_000
"""Largest number of entries in a tableau: 1.2 GB, and as much again while it is filled."""

_SMALL = 100
"""Largest number of states for which a tableau is always used."""

_DENSE = 0.1
"""Share of transitions with a probability above 0 from which on a tableau is used."""

_NO_SLOPE = 1e-12
"""Relative size below which a slope counts as 0."""

_SAME_PRICE = 1e-11
"""Distance, relative to the largest breakpoint, below which two breakpoints count as one, or one counts as 0."""


@dataclass
class Trace:
    """A record of the policies found, from the largest price down.

    Attributes:
        breakpoints: Prices at which the policy changes, decreasing.
        switches: `(index of the breakpoint, state, action below it, action above it)`.
        start_base_values: Base value of each policy from the start distribution: one more than breakpoints.
        start_control_counts: Expected discounted number of controls of each policy from the start distribution.
        last_value: `[S]` base value of the policy at price 0, as the walk has it; None if not known.
    """

    breakpoints: list[float] = field(default_factory=list)
    switches: list[tuple[int, int, int, int]] = field(default_factory=list)
    start_base_values: list[float] = field(default_factory=list)
    start_control_counts: list[float] = field(default_factory=list)
    last_value: NDArray[np.float64] | None = None

    def add(self, eta: float, before: NDArray[np.int64], after: NDArray[np.int64], value: float, count: float) -> None:
        """Records a change of the policy at `eta` from `before` to `after`, both `[S]` actions."""
        changed = np.flatnonzero(before != after)
        index = len(self.breakpoints)
        self.breakpoints.append(eta)
        self.switches += [(index, int(s), int(after[s]), int(before[s])) for s in changed]
        self.start_base_values.append(value)
        self.start_control_counts.append(count)


def always_lazy(lazy: LazyMDP) -> Trace:
    """Returns the trace of a model whose default policy is optimal: one policy for all prices."""
    value, _ = policy_line(lazy.mdp, lazy.default_policy, np.full(lazy.mdp.n_states, lazy.lazy_action))
    return Trace(start_base_values=[lazy.mdp.start_average(value)], start_control_counts=[0.0])


def exact_trace(lazy: LazyMDP, factors: DenseFactors | None = None, progress: Progress | None = None) -> Trace:
    """Follows the optimal policy from the always-lazy one down to price 0, breakpoint by breakpoint.

    Args:
        lazy: The lazy-MDP; its price does not matter.
        factors: Dense factors of the always-lazy policy's matrix, if there are any.
        progress: Called with the number of steps so far and the price reached.
    """
    return follow(SparseWalk(lazy) if is_sparse(lazy) else Tableau(lazy, factors), progress)


def follow(walk: SparseWalk | Tableau, progress: Progress | None = None, policies: Policies | None = None) -> Trace:
    """Records the policies of a walk that begins with the always-lazy policy; `policies` receives them in full."""

    def keep() -> None:
        if policies is not None and isinstance(walk, Tableau):
            policies.append((walk.action.astype(np.int32), walk.lazy_gains()))

    trace = Trace()
    keep()
    trace.start_base_values.append(walk.start_base_value)
    trace.start_control_counts.append(0.0)
    eta = np.inf
    before = walk.action.copy()
    scale = 0.0
    met = {hash(before.tobytes())}  # the policies met at this price
    while True:
        choices, crossing = walk.next_gains(eta)
        scale = max(scale, crossing)
        same = max(_SAME_PRICE * scale, walk.level)
        if not choices or crossing < eta - same:  # no further tie at this price
            for tied in walk.lazy_ties():
                walk.step(tied)
            if not np.array_equal(before, walk.action):
                trace.add(eta, before, walk.action, walk.start_base_value, walk.start_control_count)
                keep()
                before = walk.action.copy()
            if not choices or crossing <= same:
                trace.last_value = walk.base_value()
                return trace
            eta = crossing
            met = {hash(walk.action.tobytes())}
        walk.step(choices[0])
        for choice in choices[1:]:
            if walk.still_gains(choice, crossing):
                walk.step(choice)
        policy = hash(walk.action.tobytes())
        if policy in met:  # every step raises K, so that only rounding errors can lead in a circle
            raise ValueError(TOO_LONG)
        met.add(policy)
        if progress is not None:
            progress(walk.steps, eta)


def is_sparse(lazy: LazyMDP) -> bool:
    """Returns whether a walk with `V` and `K` and sweeps over the transitions is faster than one with a tableau."""
    n_states, n_actions = lazy.mdp.rewards.shape
    return n_states > _SMALL and lazy.mdp.transitions.nnz < _DENSE * n_states * n_states * n_actions


class Tableau:
    """The rows of the choices that the current policy does not take, `table - left @ right`, and their gains.

    A *slot* holds one such choice. When it enters the policy, the choice that it replaces takes its slot.

    Attributes:
        action: `[S]` the policy; `A` is lazy.
        steps: Number of steps made.
        level: Size below which a gain, or a price, is rounding error.
    """

    def __init__(self, lazy: LazyMDP, factors: DenseFactors | None = None) -> None:
        mdp = lazy.mdp
        self.lazy_action = mdp.n_actions
        self.action = np.full(mdp.n_states, mdp.n_actions)
        self.alive = np.flatnonzero(~mdp.absorbing)
        n = self.alive.size
        # Control with an action that the default policy is certain to take never pays at a price above 0.
        default = lazy.default_policy
        certain = (default == 1.0) & (np.count_nonzero(default, axis=1)[:, None] == 1)
        states, self.slot_action = np.nonzero(~certain & ~mdp.absorbing[:, None])
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
        self.level = no_gain(mdp, value)
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
        slot, price = _next_gain(self._alpha, self._beta, eta, self._flat(), self.level)
        return ([slot] if slot >= 0 else []), price

    def lazy_ties(self) -> list[int]:
        """Returns the slots of lazy actions that tie with the policy's choices at every price."""
        return _lazy_ties(
            self._alpha, self._beta, self.slot_action == self.lazy_action, self._flat(), self.level
        ).tolist()

    def _flat(self) -> float:
        """Returns the size below which a slope counts as 0."""
        flat = _NO_SLOPE * (1.0 + _largest(self._beta))
        if not flat < 1e-3:  # a single control would be lost in rounding
            raise ValueError(TOO_LONG)
        return flat

    def base_value(self) -> NDArray[np.float64]:
        """Returns the base value of the policy, `[S]`."""
        return self.lines(self.lazy_gains()[None])[0, 0]

    def lazy_gains(self) -> NDArray[np.float64]:
        """Returns `alpha` and `beta` of being lazy for one step in each state, `[2, states that are not absorbing]`."""
        gains = np.zeros((2, self.alive.size))
        lazy = np.flatnonzero(self.slot_action == self.lazy_action)
        gains[:, self.slot_state[lazy]] = self._alpha[lazy], self._beta[lazy]
        return gains

    def lines(self, gains: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the base values and control counts of `n` policies, `[n, 2, S]`, from the gains of being lazy."""
        right = -gains  # [n, 2, states]
        right[:, 0] += self._lazy_rewards
        lines = np.zeros((len(gains), 2, self.action.size))
        flat = right.reshape(-1, self.alive.size)
        if flat.size >= _TOGETHER:
            found = scipy.linalg.lapack.dgetrs(*self._lazy_factors, flat.T)[0].T
        else:  # one right-hand side at a time: see `Factorized`
            found = np.array([scipy.linalg.lapack.dgetrs(*self._lazy_factors, b)[0] for b in flat])
        lines[:, :, self.alive] = found.reshape(right.shape)
        return lines

    def still_gains(self, slot: int, eta: float) -> bool:
        """Returns whether the choice in `slot` is better than the policy just below `eta`."""
        return bool(self._beta[slot] > self._flat() and self._alpha[slot] >= eta * self._beta[slot] - self.level)

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


@numba.njit(cache=True, nogil=True)
def _next_gain(alphas: Any, betas: Any, eta: float, flat: float, level: float) -> Any:
    """Finds the largest `alpha / beta` over all slots with `beta > flat` and `alpha > level`, or a tie at `eta`."""
    best, slot = 0.0, -1
    for i in range(alphas.size - 1):
        alpha, beta = alphas[i], betas[i]
        if beta > flat and alpha > level:
            crossing = eta if alpha >= eta * beta - level else alpha / beta
            if crossing > best:
                best, slot = crossing, i
    return slot, best


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
    """Returns the largest `|x|`; nan if there is one."""
    largest = 0.0
    for i in range(x.size):
        if not abs(x[i]) <= largest:
            largest = abs(x[i])
    return largest
