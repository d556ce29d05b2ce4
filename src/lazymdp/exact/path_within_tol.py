"""A path of any size whose values are certified within a tolerance.

`V*(s; eta)` is convex in the price for every state. A policy that is optimal at one price gives a line below it
everywhere, and two prices solved give a chord above it between them. Where the two are further apart than the tolerance
in any state, the price at which the two policies' lines meet is solved too, and both halves are looked at again.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact import bellman
from lazymdp.exact.bellman import over_states, rows_of
from lazymdp.exact.error_bound import Certificate
from lazymdp.exact.eta_bounds import eta_max
from lazymdp.exact.linear import policy_line
from lazymdp.exact.path_exact import Progress, Trace
from lazymdp.exact.solve import NotConverged, Solution, solve
from lazymdp.lazy import LazyMDP


class _Point(NamedTuple):
    """A price, a policy optimal there up to `error`, and that policy's line `value - eta * controls`."""

    eta: float
    action: NDArray[np.int64]  # [S]
    value: NDArray[np.float64]  # [S]
    controls: NDArray[np.float64]  # [S]
    error: float

    def at(self, eta: float) -> NDArray[np.float64]:
        """`[S]` the policy's value at another price."""
        return self.value - eta * self.controls


def certified_trace(lazy: LazyMDP, tol: float, progress: Progress | None = None) -> Trace:
    """A trace from `eta_max` down to 0 whose policies are within `tol` of the optimum in every state."""
    mdp = lazy.mdp
    trace = Trace()
    solved = 0

    def point(eta: float, action: NDArray[np.int64] | None = None) -> _Point:
        nonlocal solved
        solved += 1
        found = _solve_at(lazy.with_eta(eta), 0.25 * tol, action)
        if progress is not None:
            progress(solved, eta)
        if not found.error <= 0.5 * tol:  # else no chord between two points could be within tol
            raise ValueError(
                f"tol = {tol:g} cannot be certified at eta = {eta:g}: the best policy found is only proven to be "
                f"within {found.error:.1e} of the optimum. Ask for a larger tol."
            )
        return found

    def walk(high: _Point, low: _Point) -> Iterator[tuple[float, _Point]]:
        """From `high` down to `low`: the prices at which to change policy, and to which."""
        pending = [(high, low)]  # a stack, not recursion: paths can be long
        while pending:
            above, below = pending.pop()
            meeting, gap = _gap(above, below, mdp.start)
            if gap <= tol:
                yield meeting, below
            elif below.eta < meeting < above.eta:
                middle = point(meeting)
                pending += [(middle, below), (above, middle)]
            else:
                raise ValueError(f"tol = {tol:g} cannot be certified at eta = {meeting:g}. Ask for a larger tol.")

    top = eta_max(mdp, lazy.default_policy)
    high = point(top, np.full(mdp.n_states, mdp.n_actions))
    trace.start_base_values.append(mdp.start_average(high.value))
    trace.start_control_counts.append(mdp.start_average(high.controls))
    current = high
    for eta, following in walk(high, point(0.0)) if top > 0.0 else ():
        if not np.array_equal(current.action, following.action):
            value, count = mdp.start_average(following.value), mdp.start_average(following.controls)
            trace.add(eta, current.action, following.action, value, count)
        current = following
    return trace


def certified_error(lazy: LazyMDP, value: NDArray[np.float64]) -> float:
    """How far `value [S]` can be below the optimum at the price of `lazy`, proven by one sweep."""
    none = np.empty(0, dtype=np.int64)
    low, high = over_states(bellman.backup, rows_of(lazy), value, np.empty_like(value), none)
    middle, width = Certificate(lazy)(low, high, value)
    return max(0.0, middle + width)


def _solve_at(lazy: LazyMDP, tol: float, action: NDArray[np.int64] | None) -> _Point:
    """Solves at one price (or takes the policy given) and certifies the policy's own value."""
    if action is not None:
        return _point(lazy, action)
    for solver_tol in (tol * (1.0 - lazy.mdp.gamma), 1e-3 * tol * (1.0 - lazy.mdp.gamma)):
        if solver_tol > 0.0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConverged)  # what counts is the policy's own certificate
                found = _point(lazy, _greedy(solve(lazy, solver_tol), lazy))
            if found.error <= tol:
                return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)
        return _point(lazy, _greedy(solve(lazy, tol, method="policy_iteration"), lazy))


def _greedy(solution: Solution, lazy: LazyMDP) -> NDArray[np.int64]:
    """The greedy policy itself, without the caution of `Solution.action`."""
    control = (solution.lazy_gap > lazy.eta) & ~lazy.mdp.absorbing
    return np.where(control, solution.q.argmax(axis=1), lazy.lazy_action)


def _point(lazy: LazyMDP, action: NDArray[np.int64]) -> _Point:
    value, count = policy_line(lazy.mdp, lazy.default_policy, action)
    return _Point(lazy.eta, action, value, count, certified_error(lazy, value - lazy.eta * count))


def _gap(high: _Point, low: _Point, start: NDArray[np.float64]) -> tuple[float, float]:
    """Where the two policies' lines meet from the start, and how far below the chord either is there, at worst."""
    steeper = float(start @ (low.controls - high.controls))
    meeting = 0.5 * (high.eta + low.eta)
    if steeper > 0.0:
        crossing = float(start @ (low.value - high.value)) / steeper
        inside = low.eta < crossing < high.eta
        meeting = crossing if inside else meeting
    weight = (meeting - low.eta) / (high.eta - low.eta)
    chord = weight * (high.at(high.eta) + high.error) + (1.0 - weight) * (low.at(low.eta) + low.error)
    return meeting, float((chord - np.minimum(high.at(meeting), low.at(meeting))).max())
