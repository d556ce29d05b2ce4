"""The exact eta-path of a dense model, with a check that its values are within a tolerance of the optimum.

Where many prices would have to be solved one by one, the exact path is faster. Its rounding errors are small, but not
proven to be. A proof from the values of all its policies would take nearly as long as the path itself. The walk claims,
however, to know every gain over every policy: `r(s, a) - n . V - alpha` and `1 - n . K - beta` are 0 up to rounding,
for each choice `(s, a)` with row `n` of `I - gamma P`. Where they are at most `e` together, and no gain is claimed to
be above `g`, all values are within `(g + e + e) / (1 - gamma)` of the optimum. A gain is a line in the price, so it is
enough to look at both ends of the interval in which a policy is optimal.

*The check.* All claims are checked together, as in Freivalds' check of a matrix product. Let `E` be the vector of the
errors of one choice, two for each policy. The claims are linear, so `E . g` is known for a vector `g` of independent
standard normal numbers once the gains of each choice and the values of each state are added up with weights `g`. It is
normally distributed with standard deviation `|E|`, so its size is below `|E| / 100` with a probability of 0.008. With 6
such vectors, the largest result times 100 bounds `|E|`, except with a probability of `0.008 ** 6 < 3e-13` for each
choice. The vectors are always the same and do not depend on the model. The rounding errors of the
sums themselves are estimated, not bounded, and added.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from lazymdp.exact.error_bound import Certificate
from lazymdp.exact.linear import EPS, DenseFactors
from lazymdp.exact.path_dense import Tableau
from lazymdp.exact.path_exact import Progress, Trace, follow
from lazymdp.lazy import LazyMDP

_VECTORS, _FACTOR = 6, 100.0
"""Number of random vectors, and the factor between the largest result and the bound."""

_BLOCK = 64
"""Number of policies for which weights are drawn at once."""


def checked_trace(
    lazy: LazyMDP, tol: float, top: float, factors: DenseFactors | None, progress: Progress | None
) -> Trace | None:
    """Follows the exact path and checks that its values are within `tol` in every state at every price.

    Args:
        lazy: The lazy-MDP, with a discount below 1; its price does not matter.
        tol: The tolerance.
        top: The largest price at which control is optimal.
        factors: Dense factors of the always-lazy policy's matrix, if there are any.
        progress: Called with the number of steps of the exact path so far and the price reached.

    Returns:
        The exact path; None if rounding errors are too large for the check, or if the model is too large.
    """
    try:
        walk = CheckedWalk(lazy, factors, top)
        trace = follow(walk, progress, walk.add)
    except ValueError:  # too large, or too long-lived
        return None
    error = walk.error()
    largest = np.array([lazy.mdp.max_reward / (1.0 - lazy.mdp.gamma)])
    _, width = Certificate(lazy.with_eta(top))(-error, walk.largest_gain + error, largest)
    return trace if 2.0 * width <= tol else None


class CheckedWalk(Tableau):
    """A tableau that adds up the gains over its policies with random weights.

    Attributes:
        largest_gain: The largest gain claimed for any choice over any policy, at a price at which that is optimal.
    """

    def __init__(self, lazy: LazyMDP, factors: DenseFactors | None, top: float) -> None:
        super().__init__(lazy, factors)
        self._top, self._random = top, np.random.default_rng(0)
        self._drawn: list[NDArray[np.float64]] = []  # weights, drawn in blocks for speed
        self._rows = self.alive[self.slot_state], self.slot_action.copy()  # the choices of the tableau, all control
        self._sums = np.zeros((self.alive.size, self.lazy_action + 1, _VECTORS))
        self._weights = np.zeros((2, _VECTORS))
        self.largest_gain = 0.0

    def add(self, high: float, low: float) -> None:
        """Adds the gains over the present policy, which is optimal from the price `high` down to `low`."""
        if not self._drawn:
            self._drawn = list(self._random.standard_normal((_BLOCK, 2, _VECTORS)) * [[1.0], [self._top]])
        weights = self._drawn.pop()
        self._weights += weights
        high = min(high, self._top)  # above all breakpoints, nothing gains more than there
        gain = _add(self._sums, weights, self._alpha, self._beta, self.slot_state, self.slot_action, high, low)
        self.largest_gain = max(self.largest_gain, gain)

    def settle(self) -> bool:
        """Does not look for gains hidden by rounding errors, because the check bounds both."""
        return False

    def error(self) -> float:
        """Bounds the error of the gain of every choice over every policy, at every price."""
        mdp, sums = self._mdp, self._sums
        # The gains of being lazy define the values; the weighted sums of both are related in the same way.
        right = self._lazy_rewards[:, None] * self._weights[0] - sums[:, -1]
        values = np.zeros((mdp.n_states, _VECTORS))
        values[self.alive] = scipy.linalg.lu_solve(self._lazy_factors, right, check_finite=False)
        gains = mdp.gamma * (mdp.transitions @ values).reshape(*mdp.rewards.shape, -1) - values[:, None]
        gains += mdp.rewards[:, :, None] * self._weights[0]
        lazy = np.einsum("sa,sak->sk", self._lazy.default_policy, gains)[self.alive] - sums[:, -1]
        gains += self._weights[1]
        states, actions = self._rows
        found = np.abs(gains[states, actions] - sums[np.searchsorted(self.alive, states), actions])
        largest = max(float(np.abs(values).max()), float(np.abs(sums).max(initial=0.0)))
        rounding = EPS * np.sqrt(self.steps + mdp.max_successors) * largest  # typical of sums as long as these
        wrong = max(found.max(initial=0.0), np.abs(lazy).max(initial=0.0))  # there may be no choice or state to check
        return float(np.sqrt(2.0) * _FACTOR * (wrong + rounding))


@numba.njit(cache=True, nogil=True)
def _add(
    sums: Any, weights: Any, alpha: Any, beta: Any, slot_state: Any, slot_action: Any, high: float, low: float
) -> float:
    """Adds `weights [2, k]` times the gains of each slot to `sums [states, A+1, k]`; returns the largest gain."""
    largest = 0.0
    for slot in range(slot_action.size):
        a, b = alpha[slot], beta[slot]
        gain = a - (high if b < 0.0 else low) * b
        if gain > largest:
            largest = gain
        into = sums[slot_state[slot], slot_action[slot]]
        for k in range(_VECTORS):
            into[k] += weights[0, k] * a + weights[1, k] * b
    return largest
