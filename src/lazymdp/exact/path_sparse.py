"""The walk along the exact eta-path on sparse models: values, counts and a factorized matrix instead of a tableau.

Let `B = I - gamma P_pi` be the matrix of the policy, with identity rows for absorbing states. When state `s` switches
to another choice, one row of `B` changes, and by Sherman and Morrison's formula the base values `V` and control counts
`K` change along a single column `c = B^-1 e_s`:

    V += c alpha / p,    K += c beta / p,    p = 1 + d . c,

where `d` is the change of the row, and `alpha` and `beta` are the gain of the choice as in `path_exact`. The gains of
all other choices follow from `V` and `K` by one sweep over the transitions. Columns come from a factorization of an
earlier policy's matrix `B_0` and the steps made since (the *product form* of the inverse):

    B^-1 b = y - sum_i w_i c_i,    y = B_0^-1 b,    w_i = (d_i . y - sum_{j < i} (d_i . c_j) w_j) / p_i.

After `_STEPS` steps, `B_0` is replaced, and `V` and `K` are computed anew, so that rounding errors do not accumulate.
Where states are connected as in a grid or a chain, `B_0` is kept as a sparse LU factorization. It needs no pivoting,
because `B` is diagonally dominant by rows. Otherwise the factors would fill up, and `B_0^-1` is kept as a dense matrix
that is updated by matrix products.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lazymdp.exact.advantages import line_gains
from lazymdp.exact.bellman import PolicyRows, Rows, pack, rows_of
from lazymdp.exact.linear import EPS, TOO_LONG, rounding_terms
from lazymdp.exact.policy_inverse import Factors, Inverse, expected, row_change
from lazymdp.exact.sparsity import stays_sparse
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP

_STEPS = 80
"""Number of steps between two factorizations: about where applying the steps takes as long as a factorization."""

_NO_SLOPE = 1e-13
"""Size, relative to the largest control count, below which a slope is only trusted if it is computed anew."""

TRUSTED = 32.0
"""Multiple of its rounding error in exact values above which a gain is trusted without computing it anew."""

_LONG = 1e3
"""Number of steps that makes a model long-lived: rounding errors may grow by as much in a single step of the walk."""

_ONE = np.uint64(1)


def no_gain(mdp: MDP, value: NDArray[np.float64]) -> float:
    """Returns the size below which the gain of a choice over a policy with this value is rounding error."""
    return 4.0 * EPS * rounding_terms(mdp) * (mdp.max_reward + float(np.abs(value).max(initial=0.0)))


def is_long_lived(mdp: MDP) -> bool:
    """Returns whether the rounding errors of a step of the walk may be so large that gains are computed anew often."""
    return mdp.gamma > 1.0 - 1.0 / _LONG


def no_slope(mdp: MDP, largest: float) -> float:
    """Returns the size below which a slope is rounding error, if control counts are at most `largest`."""
    flat = 4.0 * EPS * rounding_terms(mdp) * (1.0 + largest)
    if not flat < 1e-3:  # a single control would be lost in rounding
        raise ValueError(TOO_LONG)
    return flat


class SparseWalk:
    """The policy, its values and counts, and the matrix of the policy in product form.

    Attributes:
        action: `[S]` the policy; `A` is lazy.
        steps: Number of steps made.
        largest_gain: Largest gain of any choice over the policies at the ends of the intervals in which they are
            optimal, up to rounding; it bounds the error of the path.
        largest_value: Largest base value and cost of control met.
        is_fresh: Whether values and counts have been refined since the last step.
    """

    def __init__(self, lazy: LazyMDP) -> None:
        mdp = lazy.mdp
        self._lazy, self._mdp = lazy, mdp
        self._rows: Rows = rows_of(lazy.with_eta(0.0))
        self.action = np.full(mdp.n_states, mdp.n_actions)
        self.steps = self._pending = 0
        self.is_fresh = False
        self.largest_gain = self.largest_value = 0.0
        self._packed: PolicyRows | None = None
        matrix = self._matrix()
        self._base: Factors | Inverse = Factors() if stays_sparse(matrix) else Inverse()
        if mdp.n_states > self._base.largest:
            raise ValueError(
                f"the exact path of {mdp.n_states} states needs too much {self._base.scarce}: at most "
                f"{self._base.largest} states are possible for a model of this structure. Pass tol= for a path within "
                "a proven tolerance."
            )
        self._gains = np.empty((2, mdp.n_states, mdp.n_actions + 1))
        self._columns = np.empty((_STEPS, mdp.n_states))
        self._pivots = np.empty(_STEPS)
        self._cross = np.zeros((_STEPS, _STEPS))  # d_i . c_j for j < i
        self._changes = np.empty((_STEPS, 3), dtype=np.int64)  # state, choice before, choice after
        self._base.factorize(matrix)
        self._line = self._solve_line(matrix)

    @property
    def start_base_value(self) -> float:
        """Base value of the policy from the start distribution, without the price."""
        return self._mdp.start_average(self._line[0])

    @property
    def start_control_count(self) -> float:
        """Expected discounted number of controls of the policy from the start distribution."""
        return max(0.0, self._mdp.start_average(self._line[1]))

    def next_gains(self, eta: float) -> tuple[list[int], float]:
        """Returns the next choices to become better as the price falls from `eta`, and that price; ([], 0) if none."""
        value, count = self._line
        found, price, self._ties, gain, hidden = _next_gains(
            self._rows, self.action, value, count, self._gains, eta, *self._margins()
        )
        if hidden:
            self.refresh()
            return self.next_gains(eta)
        self.largest_gain = max(self.largest_gain, gain)
        self.largest_value = max(self.largest_value, float(np.abs(value).max()), price * float(count.max()))
        return found.tolist(), price

    def lazy_ties(self) -> list[int]:
        """Returns the lazy choices that tie with the policy's choices at every price.

        They are found by `next_gains`, and no step may be made in between.
        """
        return self._ties.tolist()

    def base_value(self) -> NDArray[np.float64]:
        """Returns the base value of the policy, `[S]`."""
        return self._line[0]

    def still_gains(self, choice: int, eta: float) -> bool:
        """Returns whether a choice is better than the policy just below `eta`, after other steps at that price."""
        firm, sure, flat, level = self._margins()
        alpha, beta = _gain(self._rows, self._line[0], self._line[1], *divmod(choice, self._mdp.n_actions + 1))
        return beta > firm and alpha > sure and alpha >= eta * (beta - flat) - level

    def step(self, choice: int) -> None:
        """Lets a choice (`state * (A + 1) + action`) enter the policy."""
        state, action = divmod(choice, self._mdp.n_actions + 1)
        alpha, beta = _gain(self._rows, self._line[0], self._line[1], state, action)
        k = self._pending
        self._changes[k] = state, self.action[state], action
        pivot = _step(
            self._rows, self._base.column(state), self._columns, self._pivots, self._cross, self._changes, k,
            self._line[0], self._line[1], alpha, beta,
        )  # fmt: skip
        if not pivot > 1e-12:
            raise ValueError(TOO_LONG)
        self.action[state] = action
        self.steps += 1
        self._pending += 1
        self.is_fresh = False
        if self._pending == _STEPS:
            if is_long_lived(self._mdp):
                self.refresh()
            else:
                self._refactorize()

    def refresh(self) -> None:
        """Computes values and counts anew, from a new factorization and to twice the precision of a double."""
        self._refactorize()
        self._line, _ = line_gains(self._lazy, self.action, self)
        self.is_fresh = True

    def settle(self) -> bool:
        """Computes values and counts anew at the end of the path; returns whether it was done."""
        if self.is_fresh:
            return False
        self.refresh()
        return True

    def solve(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Solves for each row of `rewards [k, S]` with the policy's last factorization."""
        return self._base.solve(rewards)

    def _refactorize(self) -> None:
        """Applies the pending steps to the factorization, and computes values and counts anew."""
        matrix, k = self._matrix(), self._pending
        if k:
            steps = self._columns[:k], self._pivots[:k], self._cross[:k, :k], self._changes[:k]
            self._base.update(matrix, self._rows, *steps)
        self._line = self._solve_line(matrix)
        self._pending = 0

    def _margins(self) -> tuple[float, float, float, float]:
        """Returns the sizes from which a slope and a gain are trusted, and those below which they are rounding."""
        level, most = no_gain(self._mdp, self._line[0]), float(self._line[1].max())
        flat = no_slope(self._mdp, most)
        if self.is_fresh:
            return flat, level, flat, level
        return max(flat, _NO_SLOPE * (1.0 + most)), TRUSTED * level, flat, level

    def _matrix(self) -> sp.csr_array:
        """Returns `I - gamma P_pi`, sparse `[S, S]`."""
        n, n_actions = self._mdp.n_states, self._mdp.n_actions
        chosen = np.where(self.action < n_actions, np.arange(n) * n_actions + self.action, -1)
        self._packed = pack(self._rows, chosen, self._packed)
        ends, columns, weights, _ = self._packed
        step = sp.csr_array((weights[: ends[-1]], columns[: ends[-1]], ends.astype(np.int32)), shape=(n, n))
        return sp.csr_array(sp.eye_array(n, format="csr") - step)

    def _solve_line(self, matrix: sp.csr_array) -> NDArray[np.float64]:
        """Computes the base values and control counts of the policy, `[2, S]`, with one step of refinement."""
        assert self._packed is not None
        right = np.stack([self._packed.rewards, (self.action < self._mdp.n_actions).astype(float)])
        line = self._base.solve(right)
        return line + self._base.solve(right - (matrix @ line.T).T)


@numba.njit(cache=True, nogil=True)
def _next_gains(
    rows: Rows, action: Any, value: Any, count: Any, gains: Any, eta: float, firm: float, sure: float, flat: float,
    level: float,
) -> Any:  # fmt: skip
    """Finds the largest price up to `eta` at which a choice with `beta > flat` and `alpha > level` becomes better.

    A choice becomes better at a price if its gain there is within rounding error of 0, that is at least `-level`, and
    allowing for the rounding of `eta beta`. Symmetric states thus switch together, even if `alpha` and `beta` are so
    small that `alpha / beta` is inaccurate.

    Returns:
        The choices that become better at this price, the price, the lazy choices that equal the policy's own choice at
        every price, and the largest gain of any choice at both ends of the interval from this price to `eta`, plus the
        largest residual of `value` and `count` themselves. Last, whether a choice becomes better before that with
        `beta <= firm` or `alpha <= sure`; such choices are not among those found. `gains [2, S, A + 1]` is scratch
        space.
    """
    n_actions = np.uint64(rows.rewards.size // value.size)
    price, off = 0.0, 0.0
    slack = level + (eta * flat if eta < np.inf else 0.0)
    ties = np.empty(value.size, dtype=np.int64)
    n_ties = 0
    for state in range(np.uint64(value.size)):
        own = np.uint64(action[state])
        here, spent = value[state], count[state]
        lazy_value, lazy_count = 0.0, 0.0
        row = state * n_actions
        n_possible = 0
        for a in range(n_actions):
            n_possible += rows.default[row + a] != 0.0
        for a in range(n_actions):
            total, uses = 0.0, 0.0
            for j in range(np.uint64(rows.indptr[row]), np.uint64(rows.indptr[row + _ONE])):
                following = np.uint32(rows.indices[j])
                total += rows.data[j] * value[following]
                uses += rows.data[j] * count[following]
            total = rows.rewards[row] + rows.gamma * total
            uses = rows.gamma * uses
            lazy_value += rows.default[row] * total
            lazy_count += rows.default[row] * uses
            gains[0, state, a], gains[1, state, a] = total - here, 1.0 + uses - spent
            # Control with an action that the default policy is certain to take never pays at a price above 0.
            if rows.default[row] == 1.0 and n_possible == 1:
                gains[:, state, a] = 0.0
            row += _ONE
        alpha, beta = lazy_value - here, lazy_count - spent
        if own < n_actions and abs(alpha) <= level and abs(beta) <= flat:
            ties[n_ties] = state * (n_actions + _ONE) + n_actions
            n_ties += 1
        gains[0, state, n_actions], gains[1, state, n_actions] = alpha, beta
        if rows.absorbing[state]:
            gains[:, state] = 0.0
        alpha, beta = gains[0, state, own], gains[1, state, own]
        off = max(off, abs(alpha) + (eta if eta < np.inf else 0.0) * abs(beta))
        gains[:, state, own] = 0.0
        for a in range(n_actions + _ONE):
            alpha, beta = gains[0, state, a], gains[1, state, a]
            if beta > firm and alpha > sure and alpha > price * beta:
                price = eta if alpha >= eta * beta - slack else alpha / beta
    price = min(price, eta)
    top = eta if eta < np.inf else price
    alphas, betas = gains[0].reshape(-1), gains[1].reshape(-1)
    choices = np.empty(betas.size, dtype=np.int64)
    found, most, hidden = 0, 0.0, False
    slack = level + price * flat
    for i in range(betas.size):
        alpha, beta = alphas[i], betas[i]
        most = max(most, alpha - price * beta, alpha - top * beta)
        if beta > firm and alpha > sure:
            if alpha >= price * beta - slack:
                choices[found] = i
                found += 1
        elif beta > flat and alpha > level and alpha > price * beta + slack:
            hidden = True
    return choices[:found].copy(), price, ties[:n_ties].copy(), most + off, hidden


@numba.njit(cache=True, nogil=True)
def _gain(rows: Rows, value: Any, count: Any, state: int, action: int) -> Any:
    """Computes `alpha` and `beta` of a choice."""
    n_actions = np.uint64(rows.rewards.size // value.size)
    here, chosen = np.uint64(state), np.uint64(action)
    lazy = chosen == n_actions
    reward = 0.0
    for a in range(n_actions):
        share = rows.default[here * n_actions + a] if lazy else (1.0 if a == chosen else 0.0)
        reward += share * rows.rewards[here * n_actions + a]
    alpha = reward + expected(rows, value, here, chosen, n_actions) - value[here]
    beta = (0.0 if lazy else 1.0) + expected(rows, count, here, chosen, n_actions) - count[here]
    return alpha, beta


@numba.njit(cache=True, nogil=True, fastmath=True)
def _subtract(x: Any, weight: float, y: Any) -> None:
    """Computes `x -= weight * y`."""
    for i in range(np.uint64(x.size)):
        x[i] -= weight * y[i]


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _step(
    rows: Rows, column: Any, columns: Any, pivots: Any, cross: Any, changes: Any, k: int,
    value: Any, count: Any, alpha: float, beta: float,
) -> Any:  # fmt: skip
    """Makes the step `changes[k]`, given the column of its state in `B_0^-1`; adds it to the product form.

    Returns:
        The pivot. `value` and `count` are updated in place.
    """
    n_actions = np.uint64(rows.rewards.size // value.size)
    weights = np.empty(k)
    for i in range(k):
        weight = row_change(rows, column, changes[i], n_actions)
        for j in range(i):
            weight -= cross[i, j] * weights[j]
        weights[i] = weight / pivots[i]
    for i in range(k):
        _subtract(column, weights[i], columns[i])
    for j in range(k):
        cross[k, j] = row_change(rows, columns[j], changes[k], n_actions)
    pivot = 1.0 + row_change(rows, column, changes[k], n_actions)
    columns[k] = column
    pivots[k] = pivot
    _subtract(value, -alpha / pivot, column)
    _subtract(count, -beta / pivot, column)
    return pivot
