"""Bounds on eta (Section 5 of the paper): below `eta_min` no state is lazy, above `eta_max` every state is.

`eta_max` (Theorem 3) is the largest lazy-gap under the default policy. It is exact up to rounding errors.

`eta_min` is the smallest price, 0 or above, from which on some state is lazy. The paper's formula (Theorem 4) assumes
that the best never-lazy policy remains the base optimum `pi*` as the price rises. Where episodes can end this may fail,
because a price per step favors shorter episodes. The exact value is found by following the best never-lazy policies up
from price 0,

    q(s, a; eta) = x(s, a) - eta z(s, a),      x = r + gamma P V,  z = 1 + gamma P Z.

Each of them is optimal on an interval of prices. The walk ends when being lazy becomes better in some state. The result
is exact up to rounding errors; where these would dominate, both functions raise an error.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.exact.linear import TOO_LONG, action_values, policy_values
from lazymdp.exact.policies import optimal_q
from lazymdp.lazy import LazyMDP, lazy_gap
from lazymdp.mdp import MDP

_RELATIVE_MARGIN = 1e-11

_MOST_POLICIES = 10_000
"""Number of policies after which the walk stops with an error. It is far more than any model has needed."""


def eta_max(mdp: MDP, default_policy: ArrayLike) -> float:
    """Returns the price from which on the always-lazy policy is optimal (Theorem 3).

    It is 0 if every state is absorbing.

    Args:
        mdp: The base model.
        default_policy: `[S, A]` probabilities of the actions taken when the agent is lazy.
    """
    default = LazyMDP(mdp, default_policy, 0.0).default_policy
    mdp.check_infinite_horizon()
    rewards = np.einsum("sa,sa->s", default, mdp.rewards)
    value = policy_values(mdp, default, rewards[None])[0]
    gaps = lazy_gap(action_values(mdp, mdp.rewards, value), default)[~mdp.absorbing]
    return float(gaps.max(initial=0.0))


class EtaMinTheorem(NamedTuple):
    """The paper's formula for eta_min (Theorem 4).

    Attributes:
        value: Value of the formula.
        holds: Whether the assumption behind the formula holds, in which case `value` is `eta_min`.
    """

    value: float
    holds: bool


def eta_min_theorem(mdp: MDP, default_policy: ArrayLike) -> EtaMinTheorem:
    """Returns the formula of Theorem 4 for `eta_min`, and whether its assumption holds.

    The formula is `min_s G_{Q*}(s) / (1 + E_pi*[Z] - E_default[Z])` over the states with a positive denominator. Its
    proof assumes that `pi*` is still the best never-lazy policy at that price. Where that does not hold, use `eta_min`.
    If several policies are optimal, the one with the shortest episodes is used, which is the best one at small prices.

    Args:
        mdp: The base model.
        default_policy: `[S, A]` probabilities of the actions taken when the agent is lazy.
    """
    default = LazyMDP(mdp, default_policy, 0.0).default_policy
    mdp.check_infinite_horizon()
    alive = ~mdp.absorbing
    if not alive.any():
        return EtaMinTheorem(0.0, True)
    line = _never_lazy_optimum(mdp)
    gap = lazy_gap(line.x, default)
    stretch = 1.0 + line.steps - np.einsum("sa,sa->s", default, line.z)
    counted = alive & (stretch > 0.0)
    if not counted.any():
        return EtaMinTheorem(np.inf, False)
    value = max(0.0, float((gap[counted] / stretch[counted]).min()))
    at_value = line.x - value * line.z
    best = (line.base_value - value * line.steps)[:, None]
    return EtaMinTheorem(value, bool((at_value - best)[alive].max() <= line.margin + value * line.grain))


def eta_min(mdp: MDP, default_policy: ArrayLike) -> float:
    """Returns the smallest price, 0 or above, from which on being lazy is better than control in some state.

    It is exact even where the formula of Theorem 4 is not. Better means strictly better: an interval of prices on which
    being lazy and control tie does not count.

    Args:
        mdp: The base model.
        default_policy: `[S, A]` probabilities of the actions taken when the agent is lazy.
    """
    default = LazyMDP(mdp, default_policy, 0.0).default_policy
    mdp.check_infinite_horizon()
    alive = ~mdp.absorbing
    if not alive.any():
        return 0.0
    line, eta = _never_lazy_optimum(mdp), 0.0
    for _ in range(_MOST_POLICIES):
        # The prices at which being lazy or another action becomes better: gain(eta) = (x - V) - eta (z - Z) > 0.
        lazy_at = _first_crossing(
            np.einsum("sa,sa->s", default, line.x) - line.base_value,
            np.einsum("sa,sa->s", default, line.z) - 1.0 - line.steps,
            alive, eta, line.grain,
        )  # fmt: skip
        other_at = _first_crossing(
            line.x - line.base_value[:, None], line.z - line.steps[:, None], alive[:, None], eta, line.grain
        )
        if lazy_at <= other_at:
            return lazy_at
        eta = other_at
        best = line.base_value - eta * line.steps - line.margin - eta * line.grain
        tied = line.x - eta * line.z >= best[:, None]
        line = _shortest(mdp, tied, line.margin)
    raise ValueError(TOO_LONG)


class _Line(NamedTuple):
    """A never-lazy policy, its value as a line `base_value - eta * steps` and its action values `x - eta * z`."""

    base_value: NDArray[np.float64]  # [S]
    steps: NDArray[np.float64]  # [S]
    x: NDArray[np.float64]  # [S, A]
    z: NDArray[np.float64]  # [S, A]
    margin: float  # difference below which two values count as equal
    grain: float  # difference below which two numbers of steps count as equal


def _first_crossing(
    gain: NDArray[np.float64], slope: NDArray[np.float64], among: NDArray[np.bool_], eta: float, grain: float
) -> float:
    """Returns the first price, at least `eta`, from which on some `gain - eta * slope` is positive; inf if none."""
    falling = among & (slope < -grain)
    return max(eta, float(np.where(falling, gain / np.where(falling, slope, 1.0), np.inf).min()))


def _never_lazy_optimum(mdp: MDP) -> _Line:
    """Returns the optimal policy of the base model that is absorbed soonest."""
    q, tie = optimal_q(mdp)
    margin = max(tie, _RELATIVE_MARGIN * (1.0 + float(np.abs(q).max())))
    return _shortest(mdp, q >= q.max(axis=1, keepdims=True) - margin, margin)


def _shortest(mdp: MDP, allowed: NDArray[np.bool_], margin: float) -> _Line:
    """Returns the policy absorbed soonest that takes only `allowed [S, A]` actions, which tie up to `margin`."""
    ones = np.where(mdp.absorbing[:, None], 0.0, np.ones(mdp.rewards.shape))
    action = allowed.argmax(axis=1)
    states = np.arange(mdp.n_states)
    for _ in range(_MOST_POLICIES):
        policy = np.eye(mdp.n_actions)[action]
        base_value, steps = policy_values(mdp, policy, np.stack([mdp.rewards[states, action], ones[:, 0]]))
        z = action_values(mdp, ones, steps)
        shorter = np.where(allowed, z, np.inf)
        grain = _RELATIVE_MARGIN * (1.0 + float(steps.max()))
        if not grain <= 1e-2:  # a single step would be lost in rounding
            raise ValueError(TOO_LONG)
        better = shorter.min(axis=1) < steps - grain
        if not better.any():
            return _Line(base_value, steps, action_values(mdp, mdp.rewards, base_value), z, margin, grain)
        action = np.where(better, shorter.argmin(axis=1), action)
    raise ValueError(TOO_LONG)
