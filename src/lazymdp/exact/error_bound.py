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

With gamma = 1 or next to it, and a model that is sure to be absorbed, `V*` lies within `w max |T v - v|` of `v`, for
any `w > 0` with `w >= 1 + gamma max_a P w`: a bound on the expected (discounted) time to absorption under every policy.
The rows of `P` are taken as they are, also where they sum to slightly more than 1, and the check allows for rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact.linear import EPS, action_values, backup_error, policy_values, rounding_terms, too_long
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP

_NEAR_ONE = 1e-6
"""Distance of the contraction from 1 below which times to absorption give a better bound, where there is absorption."""

_ENOUGH = 1e-3
"""Gain in expected steps, from one change of the policy, below which the longest-lived policy counts as found."""


_MOST_ROUNDS = 200
"""Limit on the rounds of policy iteration, which rounding errors could keep from ending."""


class Certificate:
    """Turns the smallest and largest `T v - v` into a proven bound on `V* - v`."""

    def __init__(self, lazy: LazyMDP) -> None:
        mdp = lazy.mdp
        # Largest distance from 1 of the row sums of a step, lazy or in control: as measured, plus its rounding error.
        hidden = EPS * (mdp.max_successors + mdp.n_actions + 4)
        defect = mdp.row_defect + lazy.default_defect + mdp.row_defect * lazy.default_defect + hidden
        self._lazy = lazy
        self._contraction = mdp.gamma * (1.0 + defect)
        self._least = 0.0 if mdp.absorbing.any() else mdp.gamma * (1.0 - defect)
        self._terms = rounding_terms(mdp)
        self._max_steps = np.inf
        if mdp.gamma == 1.0 or (self._contraction > 1.0 - _NEAR_ONE and mdp.absorbing.any()):
            self._max_steps = max_steps_to_absorption(mdp, lazy.default_defect + hidden)
        if mdp.gamma == 1.0 and self._max_steps == np.inf:
            raise ValueError(too_long(mdp))
        steps = min(1.0 / (1.0 - self._contraction) if self._contraction < 1.0 else np.inf, self._max_steps)
        # Above the price that all rewards together are worth, control is never optimal, so the rounding of its value
        # does not matter.
        dearest = 2.0 * mdp.max_reward * steps if mdp.max_reward > 0.0 else 0.0
        self._scale = mdp.max_reward + min(abs(lazy.eta), dearest if lazy.eta > 0.0 else np.inf)

    def rounding(self, value: NDArray[np.float64]) -> float:
        """Bounds the rounding error of each computed `T v`."""
        largest = max(float(value.max()), -float(value.min()))
        return backup_error(self._terms, self._scale + largest)

    def __call__(self, low: float, high: float, value: NDArray[np.float64]) -> tuple[float, float]:
        """Returns the middle and half the width of an interval that contains `V* - v`, if `low <= T v - v <= high`."""
        slack = self.rounding(value)
        low, high = low - slack, high + slack
        if not np.isfinite(high - low):
            return 0.0, np.inf
        by_steps = max(-low, high, 0.0) * self._max_steps if self._max_steps < np.inf else np.inf
        if self._contraction >= 1.0:
            return 0.0, by_steps
        upper = high / (1.0 - (self._contraction if high > 0.0 else self._least))
        lower = low / (1.0 - (self._contraction if low < 0.0 else self._least))
        middle = 0.5 * (lower + upper)
        error = 0.5 * (upper - lower) + 4.0 * EPS * abs(middle)
        return (middle, error) if error + abs(middle) <= by_steps else (0.0, by_steps)

    def gap_margin(self, value: NDArray[np.float64], error: float) -> float:
        """Bounds the error of lazy-gaps computed from `value`, if that is within `error` of the optimum.

        Both terms of a gap have the error of the values and of a backup. The price is subtracted and added again, and a
        default policy that does not quite sum to 1 leaves a part of the value.
        """
        lazy = self._lazy
        largest = lazy.mdp.max_reward + max(float(value.max()), -float(value.min()))
        rounding = 4.0 * self.rounding(value) + 4.0 * EPS * abs(lazy.eta)
        return 2.0 * self._contraction * error + rounding + 2.0 * lazy.default_defect * largest

    def limit(self, low: float, high: float, value: NDArray[np.float64]) -> float:
        """Returns the bound that double precision allows: the one for the same `T v - v` in every state."""
        middle = 0.5 * (low + high) if self._least > 0.0 else 0.0
        return self(middle, middle, value)[1]


def check_lifetimes(mdp: MDP, default_defect: float = 0.0) -> None:
    """Raises an error if some policy of the model is not proven to have finite values.

    Args:
        mdp: The base model.
        default_defect: Largest difference from 1 of the row sums of the default policy, if lazy steps count as well.
    """
    hidden = default_defect + EPS * (mdp.max_successors + mdp.n_actions + 4)
    if mdp.gamma * (1.0 + mdp.row_defect + hidden) >= 1.0 and max_steps_to_absorption(mdp, hidden) == np.inf:
        raise ValueError(too_long(mdp))


def max_steps_to_absorption(mdp: MDP, defect: float) -> float:
    """Bounds the expected discounted steps to absorption under any policy, with lazy steps or without.

    For any `w > 0`, the bound is `max w / c` if `w - gamma (1 + defect) max_a P w >= c > 0`. Such a `w` is found by
    policy iteration, which need not converge for that, and the inequality is checked with a margin for rounding errors.

    Args:
        mdp: The base model.
        defect: Bound on what a lazy step may add to the row sums of the model: the default policy's row sums minus 1,
            and rounding.

    Returns:
        The proven bound, or inf if there is no proof.
    """
    alive = ~mdp.absorbing
    if not alive.any():
        return 1.0
    ones = np.where(mdp.absorbing[:, None], 0.0, np.ones((mdp.n_states, mdp.n_actions)))
    policy = np.full(ones.shape, 1.0 / mdp.n_actions)
    for _ in range(_MOST_ROUNDS):
        try:
            steps = policy_values(mdp, policy, ones[:, :1].T)[0]
        except ValueError:  # there is no proof even for this policy
            return np.inf
        longer = action_values(mdp, ones, steps)
        better = longer.max(axis=1) - steps > _ENOUGH
        if not better.any():
            break
        policy[better] = np.eye(mdp.n_actions)[longer.argmax(axis=1)[better]]
    following = (longer.max(axis=1)[alive] - 1.0) * (1.0 + defect + EPS * (mdp.max_successors + 8))
    margin = float((steps[alive] - following).min()) - 4.0 * EPS * float(steps.max())
    return float(steps.max()) / margin * (1.0 + 4.0 * EPS) if margin > 0.0 else np.inf
