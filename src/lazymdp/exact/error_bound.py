"""How far values can be from the optimum: a bound that is proven, not hoped for.

Let `v` be any values and `low <= T v - v <= high` on the states that are not absorbing, where `T` is the operator of
Sec. 4.3. If rows sum to at most `rho` (1 up to rounding), then `T(v + c) <= T v + gamma rho c` for `c >= 0`. So `v + c`
with `c = high / (1 - gamma rho)` is mapped below itself, and lies above the fixed point; from below likewise:

    v + low / (1 - gamma rho)  <=  V*  <=  v + high / (1 - gamma rho)        for low <= 0 <= high.

Where `high < 0` (or `low > 0`) the same holds with `rho` replaced by the smallest probability of staying out of the
absorbing states: taken as 0 if there are any, else 1. The middle of the interval is returned as the value and half its
width, the rounding errors of the sweep added, as `error_bound`. This is MacQueen's bound; without absorbing states it
does not need the values to settle, only their differences.

With gamma = 1, and a model that is sure to be absorbed, `V*` lies within `max |T v - v|` times `w`, for any `w` with
`w >= 1 + max_a P w`: the largest expected time to absorption.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact.linear import action_values, policy_values
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP

_EPS = float(np.finfo(float).eps)


class Certificate:
    """Turns the range of `T v - v` into a proven bound on `V* - v`."""

    def __init__(self, lazy: LazyMDP) -> None:
        mdp = lazy.mdp
        # How far rows of a lazy or controlled step may sum from 1: what was measured, and what rounding hid from it.
        hidden = _EPS * (mdp.max_successors + mdp.n_actions + 4)
        defect = mdp.row_defect + lazy.default_defect + mdp.row_defect * lazy.default_defect + hidden
        self._contraction = mdp.gamma * (1.0 + defect)
        self._least = 0.0 if mdp.absorbing.any() else mdp.gamma * (1.0 - defect)
        self._terms = mdp.max_successors + mdp.n_actions + 8
        dearest = 2.0 * mdp.max_reward / (1.0 - mdp.gamma) if mdp.gamma < 1.0 else np.inf
        # Above that price control is never best, and its value never the one that counts.
        self._scale = mdp.max_reward + min(abs(lazy.eta), dearest if lazy.eta > 0.0 else np.inf)
        self._lifetime = longest_life(mdp) if mdp.gamma == 1.0 else None

    def rounding(self, value: NDArray[np.float64]) -> float:
        """What rounding can do to one sweep: a bound on the error of each computed `T v`.

        A sum of n products is off by at most n/2 eps times the sum of their sizes; `_terms` counts generously.
        """
        largest = max(float(value.max()), -float(value.min()))
        return _EPS * self._terms * (self._scale + largest)

    def __call__(self, low: float, high: float, value: NDArray[np.float64]) -> tuple[float, float]:
        """Middle, and half the width, of the interval that holds `V* - v` where `low <= T v - v <= high`."""
        slack = self.rounding(value)
        low, high = low - slack, high + slack
        if not np.isfinite(high - low):
            return 0.0, np.inf
        if self._lifetime is not None:
            return 0.0, max(-low, high) * self._lifetime
        if self._contraction >= 1.0:
            return 0.0, np.inf
        upper = high / (1.0 - (self._contraction if high > 0.0 else self._least))
        lower = low / (1.0 - (self._contraction if low < 0.0 else self._least))
        middle = 0.5 * (lower + upper)
        return middle, 0.5 * (upper - lower) + 4.0 * _EPS * abs(middle)

    def limit(self, low: float, high: float, value: NDArray[np.float64]) -> float:
        """The error that double precision leaves, were `T v - v` the same in every state."""
        middle = 0.5 * (low + high) if self._least > 0.0 else 0.0
        return self(middle, middle, value)[1]


def longest_life(mdp: MDP) -> float:
    """An upper bound on the expected steps to absorption under any policy: `max w` with `w >= 1 + max_a P w`.

    Found by policy iteration, then raised a little and checked, so that it is an upper bound and not an estimate.
    """
    ones = np.where(mdp.absorbing[:, None], 0.0, np.ones((mdp.n_states, mdp.n_actions)))
    policy = np.full(ones.shape, 1.0 / mdp.n_actions)
    for _ in range(1000):
        life = policy_values(mdp, policy, ones[:, :1].T)[0]
        remaining = action_values(mdp, ones, life)
        if (remaining.max(axis=1) - life).max() <= 1e-9 * life.max():
            break
        policy = np.eye(mdp.n_actions)[remaining.argmax(axis=1)]
    raised = life * (1.0 + 1e-6)
    above = raised - action_values(mdp, ones, raised).max(axis=1)
    return float(raised.max()) if above.min() >= 0.0 else np.inf
