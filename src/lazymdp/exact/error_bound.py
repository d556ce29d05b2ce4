"""A proven bound on the distance of values from the optimum.

Let `v` be any values and `low <= T v - v <= high` on the states that are not absorbing, where `T` is the operator of
Sec. 4.3. If rows sum to at most `rho` (1 up to rounding), then `T(v + c) <= T v + gamma rho c` for `c >= 0`. So `v + c`
with `c = high / (1 - gamma rho)` is mapped below itself and lies above the fixed point. The same argument from below
gives

    v + low / (1 - gamma rho)  <=  V*  <=  v + high / (1 - gamma rho)        for low <= 0 <= high.

Where `high < 0` (or `low > 0`), `rho` is replaced by the smallest probability of not being absorbed in one step: 0 if
there are absorbing states, otherwise 1. The middle of the interval becomes the value. Half its width, plus the rounding
errors of the sweep, becomes the `error_bound`. This is MacQueen's bound. Without absorbing states it converges as soon
as the differences between states do, before the values themselves.

With gamma = 1, and a model that is sure to be absorbed, `V*` lies within `w max |T v - v|` of `v`, for any `w` with
`w >= 1 + max_a P w`: a bound on the expected time to absorption.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact.linear import action_values, policy_values
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP

_EPS = float(np.finfo(float).eps)


class Certificate:
    """Turns the smallest and largest `T v - v` into a proven bound on `V* - v`."""

    def __init__(self, lazy: LazyMDP) -> None:
        mdp = lazy.mdp
        # Largest distance from 1 of the row sums of a step, lazy or in control: as measured, plus its rounding error.
        hidden = _EPS * (mdp.max_successors + mdp.n_actions + 4)
        defect = mdp.row_defect + lazy.default_defect + mdp.row_defect * lazy.default_defect + hidden
        self._contraction = mdp.gamma * (1.0 + defect)
        self._least = 0.0 if mdp.absorbing.any() else mdp.gamma * (1.0 - defect)
        self._terms = mdp.max_successors + mdp.n_actions + 8
        dearest = 2.0 * mdp.max_reward / (1.0 - mdp.gamma) if mdp.gamma < 1.0 else np.inf
        # Above this price control is never optimal, so the rounding of its value does not matter.
        self._scale = mdp.max_reward + min(abs(lazy.eta), dearest if lazy.eta > 0.0 else np.inf)
        self._max_steps = max_steps_to_absorption(mdp) if mdp.gamma == 1.0 else None

    def rounding(self, value: NDArray[np.float64]) -> float:
        """Bounds the rounding error of each computed `T v`.

        The error of a sum of n products is at most n/2 eps times the sum of their sizes; `_terms` counts generously.
        """
        largest = max(float(value.max()), -float(value.min()))
        return _EPS * self._terms * (self._scale + largest)

    def __call__(self, low: float, high: float, value: NDArray[np.float64]) -> tuple[float, float]:
        """Returns the middle and half the width of an interval that contains `V* - v`, if `low <= T v - v <= high`."""
        slack = self.rounding(value)
        low, high = low - slack, high + slack
        if not np.isfinite(high - low):
            return 0.0, np.inf
        if self._max_steps is not None:
            return 0.0, max(-low, high) * self._max_steps
        if self._contraction >= 1.0:
            return 0.0, np.inf
        upper = high / (1.0 - (self._contraction if high > 0.0 else self._least))
        lower = low / (1.0 - (self._contraction if low < 0.0 else self._least))
        middle = 0.5 * (lower + upper)
        return middle, 0.5 * (upper - lower) + 4.0 * _EPS * abs(middle)

    def limit(self, low: float, high: float, value: NDArray[np.float64]) -> float:
        """Returns the bound that double precision allows: the one for the same `T v - v` in every state."""
        middle = 0.5 * (low + high) if self._least > 0.0 else 0.0
        return self(middle, middle, value)[1]


def max_steps_to_absorption(mdp: MDP) -> float:
    """Bounds the expected steps to absorption under any policy: `max w` for a `w` with `w >= 1 + max_a P w`.

    Found by policy iteration, then raised slightly and checked, so that it is a proven bound and not an estimate; inf
    if the check fails.
    """
    ones = np.where(mdp.absorbing[:, None], 0.0, np.ones((mdp.n_states, mdp.n_actions)))
    policy = np.full(ones.shape, 1.0 / mdp.n_actions)
    for _ in range(1000):
        steps = policy_values(mdp, policy, ones[:, :1].T)[0]
        remaining = action_values(mdp, ones, steps)
        if (remaining.max(axis=1) - steps).max() <= 1e-9 * steps.max():
            break
        policy = np.eye(mdp.n_actions)[remaining.argmax(axis=1)]
    raised = steps * (1.0 + 1e-6)
    above = raised - action_values(mdp, ones, raised).max(axis=1)
    return float(raised.max()) if above.min() >= 0.0 else np.inf
