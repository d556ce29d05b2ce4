"""An eta-path with a proven tolerance from the exact path of a dense model.

Where many prices would have to be solved one by one, the exact path is faster. It has rounding errors only, but that is
not proven. Here, as many of its policies are taken as the tolerance needs, and the error of each is proven by a sweep.
The values of the others are not computed. If it needs many, the exact path itself is proven, which takes one value for
each policy instead of two lines. Otherwise the argument between two prices is that of `path_within_tol`: the optimum is
convex in the price, so it lies below the chord, and above the lines of both policies.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from lazymdp.exact.error_bound import Certificate
from lazymdp.exact.linear import DenseFactors
from lazymdp.exact.path_dense import Tableau
from lazymdp.exact.path_exact import Policies, Progress, Trace, follow
from lazymdp.lazy import LazyMDP

_BATCH = 64
"""Number of policies evaluated by one matrix product."""

_MANY, _FEW, _LARGE_BATCH = 0.17, 32, 256
"""If more than this share and this number of policies are needed, all policies are proven instead, in batches of this
size, which takes a fraction of the time for each."""


class Point(NamedTuple):
    """A price, a policy, its line `base_value - eta * control_count`, and the proven error of its value there."""

    eta: float
    action: NDArray[np.int64]  # [S]
    line: NDArray[np.float64]  # [2, S]: base value and control count
    error: float

    def at(self, eta: float) -> NDArray[np.float64]:
        """Returns the policy's value, `[S]`, at another price."""
        return self.line[0] - eta * self.line[1]


def distance(high: Point, low: Point, eta: float) -> float:
    """Returns the largest distance of the lines of two policies below the chord, at a price between theirs."""
    weight = (eta - low.eta) / (high.eta - low.eta)
    chord = weight * (high.at(high.eta) + high.error) + (1.0 - weight) * (low.at(low.eta) + low.error)
    return float((chord - np.minimum(high.at(eta), low.at(eta))).max())


def meeting_price(high: Point, low: Point, start: NDArray[np.float64]) -> float:
    """Returns the price at which the lines from the start distribution meet; halfway if that is not between them."""
    steeper = float(start @ (low.line[1] - high.line[1]))
    crossing = float(start @ (low.line[0] - high.line[0])) / steeper if steeper > 0.0 else np.nan
    return crossing if low.eta < crossing < high.eta else 0.5 * (high.eta + low.eta)


def thinned_trace(
    lazy: LazyMDP, tol: float, share: float, factors: DenseFactors | None, progress: Progress | None
) -> Trace | None:
    """Finds policies of the exact path whose values are proven to be within `tol` in every state at every price.

    Args:
        lazy: The lazy-MDP, with a discount below 1; its price does not matter.
        tol: The tolerance.
        share: Share of the tolerance by which the line of a policy may be wrong.
        factors: Dense factors of the always-lazy policy's matrix, if there are any.
        progress: Called with the number of steps of the exact path so far and the price reached.

    Returns:
        The policies; None if rounding errors do not allow the proof, or if the model is too large.
    """
    policies: Policies = []
    try:
        walk = _Walk(lazy, factors)
        exact = follow(walk, progress, policies)
    except ValueError:  # too large, or too long-lived
        return None
    if not exact.breakpoints:
        return None
    # Place i is the price of breakpoint i, with the policy below it. The first and the last price have places as well.
    prices = np.array([exact.breakpoints[0], *exact.breakpoints, 0.0])
    segments = np.minimum(np.arange(prices.size), len(policies) - 1)
    accuracy = 0.5 * share * tol * (1.0 - lazy.mdp.gamma)
    certificate = Certificate(lazy.with_eta(exact.breakpoints[0]))  # holds at smaller prices as well
    table = lazy.mdp.transitions.toarray()  # [S*A, S]; much faster than a sparse matrix with few zeros
    points: dict[int, Point] = {}
    wanted = [0, prices.size - 1]
    # A state that switches needs a policy within about tol of its price, so the spacing tells how many there will be.
    needed, tried = np.unique(np.floor(prices / tol)).size, False
    while wanted:
        if not tried and max(needed, len(points) + len(wanted)) > max(_FEW, _MANY * prices.size):
            if _proven_everywhere(lazy, walk, certificate, table, policies, prices[1:], (1.0 - share) * tol):
                return exact
            tried = True
        for first in range(0, len(wanted), _BATCH):
            batch = wanted[first : first + _BATCH]
            chosen = [policies[segments[i]] for i in batch]
            found = _evaluate(lazy, walk, certificate, table, chosen, prices[batch], accuracy)
            if found is None or any(point.error > (1.0 - share) * tol for point in found):
                return None
            points.update(zip(batch, found, strict=True))
        wanted = []
        for i, j in pairwise(sorted(points)):
            eta = _meeting(points[i], points[j], j - i, lazy.mdp.start)
            if eta < points[i].eta and distance(points[i], points[j], eta) > (1.0 - share) * tol:
                if j - i == 1:
                    return None
                # Prices fall from place to place.
                wanted.append(int(np.clip(np.searchsorted(-prices, -eta), i + 1, j - 1)))
    return _trace(lazy, points)


class _Walk(Tableau):
    """A tableau that reads off the gains of being lazy quickly, because they are kept for every policy."""

    def lazy_gains(self) -> NDArray[np.float64]:
        gains = np.zeros((2, self.alive.size))
        _fill_lazy(gains, self._alpha, self._beta, self.slot_action, self.slot_state, self.lazy_action)
        return gains


@numba.njit(cache=True, nogil=True)
def _fill_lazy(gains: Any, alpha: Any, beta: Any, slot_action: Any, slot_state: Any, lazy_action: int) -> None:
    """Copies the gains of the slots that hold lazy actions to `gains [2, states]`."""
    for slot in range(slot_action.size):
        if slot_action[slot] == lazy_action:
            gains[0, slot_state[slot]], gains[1, slot_state[slot]] = alpha[slot], beta[slot]


def _proven_everywhere(
    lazy: LazyMDP,
    walk: Tableau,
    certificate: Certificate,
    table: NDArray[np.float64],
    policies: Policies,
    prices: NDArray[np.float64],
    allowed: float,
) -> bool:
    """Returns whether every policy is proven to be within `allowed` of the optimum, down to its price in `prices`.

    One value per policy is enough, at the price at which the next one follows. Between two such prices, the value of
    the policy there is close to the line that connects both values, because it satisfies its own equation at both ends,
    which is linear in the price; and the gain of every other choice over this line is largest at one of the ends.
    """
    mdp = lazy.mdp
    low = high = largest = 0.0
    for first in range(0, prices.size, _LARGE_BATCH):
        chosen, eta = policies[first : first + _LARGE_BATCH], prices[first : first + _LARGE_BATCH]
        value = _values(walk, np.array([gains for _, gains in chosen]), eta)
        action = np.array([action for action, _ in policies[first : first + _LARGE_BATCH + 1]])
        following = (table @ value).reshape(mdp.n_states, mdp.n_actions, eta.size)
        found = _extremes(following, mdp.gamma, mdp.rewards, lazy.default_policy, mdp.absorbing, value, eta, action)
        low, high = min(low, found[0]), max(high, found[1])
        largest = max(largest, float(np.abs(value).max()))
        if 2.0 * certificate(low, high, np.array([largest]))[1] > allowed:
            return False
    return True


def _values(walk: Tableau, gains: NDArray[np.float64], prices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the values of policies, `[S, n]`, at one price each, from the gains of being lazy, `[n, 2, states]`."""
    right = walk._lazy_rewards - gains[:, 0] + prices[:, None] * gains[:, 1]
    values = np.zeros((len(gains), walk.action.size))
    values[:, walk.alive] = scipy.linalg.lapack.dgetrs(*walk._lazy_factors, right.T)[0].T
    return np.ascontiguousarray(values.T)


@numba.njit(cache=True, nogil=True)
def _extremes(
    following: Any, gamma: float, rewards: Any, default: Any, absorbing: Any, value: Any, prices: Any, action: Any
) -> Any:
    """Finds the smallest residual of policies `i` and `i + 1` at value `i`, and the largest gain of any choice over it.

    Args:
        following: `[S, A, n]` expected next values.
        gamma: Discount factor.
        rewards: `[S, A]`.
        default: `[S, A]`.
        absorbing: `[S]`.
        value: `[S, n]`.
        prices: `[n]`.
        action: `[n + 1, S]`, or `[n, S]` if there is no policy after the last value.
    """
    n_states, n_actions, n = following.shape
    low = high = 0.0
    choices = np.empty(n_actions + 1)
    for state in range(n_states):
        if absorbing[state]:
            continue
        for i in range(n):
            lazy, best = 0.0, -np.inf
            for a in range(n_actions):
                control = rewards[state, a] + gamma * following[state, a, i]
                lazy += default[state, a] * control
                choices[a] = control - prices[i]
                best = max(best, choices[a])
            choices[n_actions] = lazy
            before = choices[action[i, state]]
            after = choices[action[min(i + 1, len(action) - 1), state]]
            low = min(low, min(before, after) - value[state, i])
            high = max(high, max(best, lazy) - value[state, i])
    return low, high


def _meeting(high: Point, low: Point, apart: int, start: NDArray[np.float64]) -> float:
    """Returns the price at which one policy follows another; for neighbors on the exact path, it is a breakpoint."""
    return low.eta if apart == 1 else meeting_price(high, low, start)


def _trace(lazy: LazyMDP, points: dict[int, Point]) -> Trace:
    """Records the policies that were found, from the largest price down."""
    start, trace = lazy.mdp.start_average, Trace()
    places = sorted(points)
    current = points[places[0]]
    trace.start_base_values.append(start(current.line[0]))
    trace.start_control_counts.append(start(current.line[1]))
    for i, j in pairwise(places):
        high, low = points[i], points[j]
        if not np.array_equal(high.action, low.action):
            eta = _meeting(high, low, j - i, lazy.mdp.start)
            trace.add(eta, high.action, low.action, start(low.line[0]), start(low.line[1]))
    return trace


def _evaluate(
    lazy: LazyMDP,
    walk: Tableau,
    certificate: Certificate,
    table: NDArray[np.float64],
    policies: Policies,
    prices: NDArray[np.float64],
    accuracy: float,
) -> list[Point] | None:
    """Computes the lines of policies and proves the errors of their values at one price each.

    Returns None if a residual of a value, or of a number of controls times the largest price, exceeds `accuracy`.
    """
    mdp, default, n = lazy.mdp, lazy.default_policy, len(policies)
    lines = walk.lines(np.array([gains for _, gains in policies]))  # [n, 2, S]
    value = lines[:, 0] - prices[:, None] * lines[:, 1]
    both = np.concatenate([value, lines[:, 1]])
    following = (mdp.gamma * (table @ both.T)).reshape(mdp.n_states, mdp.n_actions, 2, n)
    choices = np.empty((mdp.n_states, mdp.n_actions + 1, 2, n))
    choices[:, :-1] = following
    choices[:, :-1, 0] += mdp.rewards[:, :, None]
    choices[:, -1] = np.einsum("sa,sakn->skn", default, choices[:, :-1])
    choices[:, :-1, 0] -= prices
    choices[:, :-1, 1] += 1.0
    action = np.array([action for action, _ in policies]).T  # [S, n]
    alive = ~mdp.absorbing
    best = (choices[:, :, 0].max(axis=1) - value.T)[alive]
    own = np.take_along_axis(choices, action[:, None, None, :], axis=1)[:, 0]  # [S, 2, n]
    residual = np.abs(own - both.reshape(2, n, -1).transpose(2, 0, 1))[alive].max(axis=0)
    if (residual[0] > accuracy).any() or (residual[1] * prices[0] > accuracy).any():
        return None
    points = []
    for i, eta in enumerate(prices.tolist()):
        middle, width = certificate(float(best[:, i].min()), float(best[:, i].max()), value[i])
        line = np.stack([value[i] + eta * lines[i, 1], lines[i, 1]])
        points.append(Point(eta, action[:, i].astype(np.int64), line, max(0.0, middle + width)))
    return points
