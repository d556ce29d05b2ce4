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

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.exact.advantages import Advantages, advantages, check_precision
from lazymdp.exact.linear import EPS, PolicySystem, rounding_terms, too_long
from lazymdp.exact.policies import optimal_advantages
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP

_MOST_POLICIES = 10_000
"""Number of policies after which the walk stops with an error. It is far more than any model has needed."""

_MOST_GRAIN = 1e-3
"""Rounding error in a number of steps above which the walk is refused: single steps would be lost in it."""


def eta_max(mdp: MDP, default_policy: ArrayLike) -> float:
    """Returns the price from which on the always-lazy policy is optimal (Theorem 3).

    It is 0 if every state is absorbing.

    Args:
        mdp: The base model.
        default_policy: `[S, A]` probabilities of the actions taken when the agent is lazy.
    """
    default = LazyMDP(mdp, default_policy, 0.0).default_policy
    mdp.check_infinite_horizon()
    return largest_lazy_gap(mdp, default, PolicySystem(mdp, default))


def largest_lazy_gap(mdp: MDP, default: NDArray[np.float64], system: PolicySystem) -> float:
    """Returns the largest lazy-gap under the default policy `[S, A]`, given its linear system; 0 if below rounding."""
    [found] = advantages(mdp, default, mdp.rewards, system=system)
    check_precision(mdp, found.margin, mdp.max_reward)
    return max(0.0, float(found.snapped.max()))


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
    lazy = LazyMDP(mdp, default_policy, 0.0)
    mdp.check_infinite_horizon()
    alive = ~mdp.absorbing
    if not alive.any():
        return EtaMinTheorem(0.0, True)
    PolicySystem(mdp, lazy.default_policy)  # refuses a default policy whose lifetimes cannot be proven
    line = _never_lazy_optimum(lazy)
    gain, steps = line.of_laziness(lazy.default_policy)
    gap, stretch = -gain.snapped, -steps.advantage
    counted = alive & (stretch > steps.margin)[:, 0]
    if not counted.any():  # the state that is absorbed last has a positive denominator, which rounding has hidden
        raise ValueError(too_long(mdp))
    value = max(0.0, float((gap[counted] / stretch[counted]).min()))
    better = line.gain.advantage - value * line.steps.advantage
    return EtaMinTheorem(value, bool((better <= line.gain.margin + value * line.steps.margin).all()))


def eta_min(mdp: MDP, default_policy: ArrayLike) -> float:
    """Returns the smallest price, 0 or above, from which on being lazy is better than control in some state.

    It is exact even where the formula of Theorem 4 is not. Better means strictly better: an interval of prices on which
    being lazy and control tie does not count.

    Args:
        mdp: The base model.
        default_policy: `[S, A]` probabilities of the actions taken when the agent is lazy.
    """
    lazy = LazyMDP(mdp, default_policy, 0.0)
    mdp.check_infinite_horizon()
    alive = ~mdp.absorbing
    if not alive.any():
        return 0.0
    PolicySystem(mdp, lazy.default_policy)  # refuses a default policy whose lifetimes cannot be proven
    line, eta = _never_lazy_optimum(lazy), 0.0
    for _ in range(_MOST_POLICIES):
        lazy_at = _first_crossing(*line.of_laziness(lazy.default_policy), eta)
        other_at = _first_crossing(line.gain, line.steps, eta)
        if other_at == lazy_at == np.inf:  # never lazy at any price: only rounding errors say so
            break
        if lazy_at <= other_at:
            return lazy_at
        eta = other_at
        gain = line.gain.advantage - eta * line.steps.advantage
        line = _shortest(mdp, gain >= -line.gain.margin - eta * line.steps.margin)
    raise ValueError(too_long(mdp))


class _Line(NamedTuple):
    """A never-lazy policy, whose value is the line `gain.value - eta * steps.value`.

    Another action is better by `gain.advantage - eta * steps.advantage`.
    """

    gain: Advantages  # of rewards
    steps: Advantages  # of steps lived, the number of which is to be paid for
    grain: float  # relative rounding error of a sum over actions

    def of_laziness(self, default: NDArray[np.float64]) -> tuple[Advantages, Advantages]:
        """Returns the same for being lazy once, with one column `[S, 1]`: it pays nothing now."""
        alive = (self.steps.value > 0.0)[:, None]
        # Rounded once: the rounding errors of an ordinary sum would be multiplied by the values.
        defect = np.array([math.fsum([*row, -1.0]) for row in default])[:, None]
        found = []
        for of, paid in ((self.gain, 0.0), (self.steps, 1.0)):
            left = defect * (of.value[:, None] - paid)
            mean = np.einsum("sa,sa->s", default, of.advantage)[:, None] + left - paid
            size = np.einsum("sa,sa->s", default, np.abs(of.advantage))[:, None] + np.abs(left) + paid
            margin = np.einsum("sa,sa->s", default, of.margin)[:, None] + self.grain * size
            found.append(Advantages(of.value, np.where(alive, mean, 0.0), np.where(alive, margin, 0.0)))
        return found[0], found[1]


def _first_crossing(gain: Advantages, steps: Advantages, eta: float) -> float:
    """Returns the first price, at least `eta`, from which on some choice is better; inf if there is none."""
    falling = steps.advantage < -steps.margin
    crossing = np.divide(gain.snapped, steps.advantage, out=np.full(falling.shape, np.inf), where=falling)
    return max(eta, float(crossing.min()))


def _never_lazy_optimum(lazy: LazyMDP) -> _Line:
    """Returns the optimal policy of the base model that is absorbed soonest."""
    mdp = lazy.mdp
    best = optimal_advantages(mdp, lazy.default_defect)
    return _shortest(mdp, best.advantage >= -best.margin)


def _shortest(mdp: MDP, allowed: NDArray[np.bool_]) -> _Line:
    """Returns the policy absorbed soonest that takes only `allowed [S, A]` actions, which tie."""
    ones = np.where(mdp.absorbing[:, None], 0.0, np.ones(mdp.rewards.shape))
    action = allowed.argmax(axis=1)
    grain = EPS * rounding_terms(mdp)
    for _ in range(_MOST_POLICIES):
        gain, steps = advantages(mdp, np.eye(mdp.n_actions)[action], mdp.rewards, ones)
        check_precision(mdp, gain.margin, mdp.max_reward)
        if not steps.margin.max() <= _MOST_GRAIN:
            raise ValueError(too_long(mdp))
        shorter = np.where(allowed, steps.advantage, np.inf)
        better = (shorter < -steps.margin).any(axis=1)
        if not better.any():
            return _Line(gain, steps, grain)
        action = np.where(better, shorter.argmin(axis=1), action)
    raise ValueError(too_long(mdp))
