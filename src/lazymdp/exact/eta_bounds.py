"""The prices between which laziness is a real choice: Section 5 of the paper.

`eta_max` (Theorem 3) is the largest lazy-gap under the default policy: above it the always-lazy policy is optimal.

`eta_min` is the smallest price from which some state is lazy. The paper's Theorem 4 gives a formula that assumes the
never-lazy optimum to stay the base optimum `pi*` as the price rises. Where episodes can end that is not so: paying per
step makes shorter episodes better. The exact value is found by walking up from price 0 along the never-lazy optima,

    q(s, a; eta) = x(s, a) - eta z(s, a),      x = r + gamma P V,  z = 1 + gamma P Z,

each optimal on an interval of prices, until being lazy becomes better in some state.
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

_MOST_STEPS = 10_000
"""Policies after which to give up: far more than any model has shown, and a bound all the same."""


def eta_max(mdp: MDP, default_policy: ArrayLike) -> float:
    """The price from which on the always-lazy policy is optimal (Theorem 3); 0 if every state is absorbing."""
    default = LazyMDP(mdp, default_policy, 0.0).default_policy
    mdp.check_infinite_horizon()
    rewards = np.einsum("sa,sa->s", default, mdp.rewards)
    value = policy_values(mdp, default, rewards[None])[0]
    gaps = lazy_gap(action_values(mdp, mdp.rewards, value), default)[~mdp.absorbing]
    return float(gaps.max(initial=0.0))


class EtaMinTheorem(NamedTuple):
    """The paper's formula for eta_min (Theorem 4), and whether the assumption behind it holds."""

    value: float
    holds: bool


def eta_min_theorem(mdp: MDP, default_policy: ArrayLike) -> EtaMinTheorem:
    """Theorem 4: `min_s G_{Q*}(s) / (1 + E_pi*[Z] - E_default[Z])`, over the states where the denominator is positive.

    Returns:
        The formula's value, and whether `pi*` is still the best never-lazy policy at that price, which the proof
        takes for granted. Where it does not hold, `eta_min` gives the true value. Of several optimal policies the
        one with the shortest episodes is meant: it is the best one at any small price.
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
    best = (line.value - value * line.steps)[:, None]
    return EtaMinTheorem(value, bool((at_value - best)[alive].max() <= line.margin + value * line.grain))


def eta_min(mdp: MDP, default_policy: ArrayLike) -> float:
    """The smallest price from which on being lazy is better than control somewhere; exact, also where Theorem 4 is not.

    Better means strictly: where lazy and control tie on a whole interval of prices, that interval does not count.
    """
    default = LazyMDP(mdp, default_policy, 0.0).default_policy
    mdp.check_infinite_horizon()
    alive = ~mdp.absorbing
    if not alive.any():
        return 0.0
    line, eta = _never_lazy_optimum(mdp), 0.0
    for _ in range(_MOST_STEPS):
        # Where being lazy, or another action, overtakes: gain(eta) = (x - V) - eta (z - Z) turns positive.
        lazy_at = _first_crossing(
            np.einsum("sa,sa->s", default, line.x) - line.value,
            np.einsum("sa,sa->s", default, line.z) - 1.0 - line.steps,
            alive, eta, line.grain,
        )  # fmt: skip
        other_at = _first_crossing(
            line.x - line.value[:, None], line.z - line.steps[:, None], alive[:, None], eta, line.grain
        )
        if lazy_at <= other_at:
            return lazy_at
        eta = other_at
        best = line.value - eta * line.steps - line.margin - eta * line.grain
        tied = line.x - eta * line.z >= best[:, None]
        line = _shortest(mdp, tied, line.margin)
    raise ValueError(TOO_LONG)


class _Line(NamedTuple):
    """A never-lazy policy's values as lines in eta: `value - eta * steps`, and its actions' `x - eta * z`."""

    value: NDArray[np.float64]  # [S]
    steps: NDArray[np.float64]  # [S]
    x: NDArray[np.float64]  # [S, A]
    z: NDArray[np.float64]  # [S, A]
    margin: float  # within which two values count as equal
    grain: float  # within which two numbers of steps do


def _first_crossing(
    gain: NDArray[np.float64], slope: NDArray[np.float64], among: NDArray[np.bool_], eta: float, grain: float
) -> float:
    """The first price, `eta` or later, from which on some `gain - eta * slope` is positive; inf if none."""
    falling = among & (slope < -grain)
    return max(eta, float(np.where(falling, gain / np.where(falling, slope, 1.0), np.inf).min()))


def _never_lazy_optimum(mdp: MDP) -> _Line:
    """The base optimum, of all optimal policies the one absorbed soonest."""
    q, tie = optimal_q(mdp)
    margin = max(tie, _RELATIVE_MARGIN * (1.0 + float(np.abs(q).max())))
    return _shortest(mdp, q >= q.max(axis=1, keepdims=True) - margin, margin)


def _shortest(mdp: MDP, allowed: NDArray[np.bool_], margin: float) -> _Line:
    """Among policies that only take `allowed [S, A]` actions, all of the same value up to `margin`, the shortest."""
    ones = np.where(mdp.absorbing[:, None], 0.0, np.ones(mdp.rewards.shape))
    action = allowed.argmax(axis=1)
    states = np.arange(mdp.n_states)
    for _ in range(_MOST_STEPS):
        policy = np.eye(mdp.n_actions)[action]
        value, steps = policy_values(mdp, policy, np.stack([mdp.rewards[states, action], ones[:, 0]]))
        z = action_values(mdp, ones, steps)
        shorter = np.where(allowed, z, np.inf)
        grain = _RELATIVE_MARGIN * (1.0 + float(steps.max()))
        if grain > 1e-2:  # a single step could not be told from none
            raise ValueError(TOO_LONG)
        better = shorter.min(axis=1) < steps - grain
        if not better.any():
            return _Line(value, steps, action_values(mdp, mdp.rewards, value), z, margin, grain)
        action = np.where(better, shorter.argmin(axis=1), action)
    raise ValueError(TOO_LONG)
