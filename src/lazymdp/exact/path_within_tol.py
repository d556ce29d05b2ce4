"""An eta-path with a proven tolerance, for models of any size.

The optimal value `V*(s; eta)` is convex in the price in every state. The line of any policy lies below it, and the
chord between two prices that have been solved lies above it. Where chord and lines are further apart than the tolerance
in some state, the price at which the lines of the two policies meet is solved too, and both halves are treated in the
same way. This stops when the distance is at most `tol` everywhere, which proves the error of the path. If rounding
errors do not allow such a proof, an error is raised.
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
    """A price, a policy, its line `base_value - eta * control_count`, and the proven error of its value there."""

    eta: float
    action: NDArray[np.int64]  # [S]
    base_value: NDArray[np.float64]  # [S]
    control_count: NDArray[np.float64]  # [S]
    error: float

    def at(self, eta: float) -> NDArray[np.float64]:
        """Returns the policy's value, `[S]`, at another price."""
        return self.base_value - eta * self.control_count


def certified_trace(lazy: LazyMDP, tol: float, progress: Progress | None = None) -> Trace:
    """Finds policies from `eta_max` down to price 0 whose values are within `tol` of the optimum in every state."""
    mdp = lazy.mdp
    trace = Trace()
    solved = 0

    def point(eta: float, action: NDArray[np.int64] | None = None) -> _Point:
        nonlocal solved
        solved += 1
        found = _solve_at(lazy.with_eta(eta), 0.25 * tol, action)
        if progress is not None:
            progress(solved, eta)
        if not found.error <= 0.5 * tol:  # otherwise no chord between two points could be within tol
            raise ValueError(
                f"tol = {tol:g} cannot be proven at eta = {eta:g}: the best policy found is only proven to be "
                f"within {found.error:.1e} of the optimum. Use a larger tol."
            )
        return found

    def walk(high: _Point, low: _Point) -> Iterator[tuple[float, _Point]]:
        """Yields, from `high` down to `low`, the prices at which the policy changes and the policy below each."""
        pending = [(high, low)]  # a stack instead of recursion, which long paths would exhaust
        while pending:
            above, below = pending.pop()
            meeting, gap = _gap(above, below, mdp.start)
            if gap <= tol:
                yield meeting, below
            elif below.eta < meeting < above.eta:
                middle = point(meeting)
                pending += [(middle, below), (above, middle)]
            else:
                raise ValueError(f"tol = {tol:g} cannot be proven at eta = {meeting:g}. Use a larger tol.")

    top = eta_max(mdp, lazy.default_policy)
    high = point(top, np.full(mdp.n_states, mdp.n_actions))
    trace.start_base_values.append(mdp.start_average(high.base_value))
    trace.start_control_counts.append(mdp.start_average(high.control_count))
    current = high
    for eta, following in walk(high, point(0.0)) if top > 0.0 else ():
        if not np.array_equal(current.action, following.action):
            value, count = mdp.start_average(following.base_value), mdp.start_average(following.control_count)
            trace.add(eta, current.action, following.action, value, count)
        current = following
    return trace


def certified_error(lazy: LazyMDP, value: NDArray[np.float64]) -> float:
    """Returns a proven bound on how far `value [S]` is below the optimum of `lazy`, computed by one sweep."""
    none = np.empty(0, dtype=np.int64)
    low, high = over_states(bellman.backup, rows_of(lazy), value, np.empty_like(value), none)
    middle, width = Certificate(lazy)(low, high, value)
    return max(0.0, middle + width)


def _solve_at(lazy: LazyMDP, tol: float, action: NDArray[np.int64] | None) -> _Point:
    """Solves at one price, or takes the policy given, and bounds the error of the policy's own value."""
    if action is not None:
        return _point(lazy, action)
    for solver_tol in (tol * (1.0 - lazy.mdp.gamma), 1e-3 * tol * (1.0 - lazy.mdp.gamma)):
        if solver_tol > 0.0:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConverged)  # only the bound on the policy's own value counts
                found = _point(lazy, _greedy(solve(lazy, solver_tol), lazy))
            if found.error <= tol:
                return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)
        return _point(lazy, _greedy(solve(lazy, tol, method="policy_iteration"), lazy))


def _greedy(solution: Solution, lazy: LazyMDP) -> NDArray[np.int64]:
    """Returns the greedy policy itself. `Solution.action` is lazy wherever control is not proven to be better."""
    control = (solution.lazy_gap > lazy.eta) & ~lazy.mdp.absorbing
    return np.where(control, solution.q.argmax(axis=1), lazy.lazy_action)


def _point(lazy: LazyMDP, action: NDArray[np.int64]) -> _Point:
    value, count = policy_line(lazy.mdp, lazy.default_policy, action)
    return _Point(lazy.eta, action, value, count, certified_error(lazy, value - lazy.eta * count))


def _gap(high: _Point, low: _Point, start: NDArray[np.float64]) -> tuple[float, float]:
    """Returns the price at which the lines from the start meet, and their largest distance below the chord there."""
    steeper = float(start @ (low.control_count - high.control_count))
    meeting = 0.5 * (high.eta + low.eta)
    if steeper > 0.0:
        crossing = float(start @ (low.base_value - high.base_value)) / steeper
        inside = low.eta < crossing < high.eta
        meeting = crossing if inside else meeting
    weight = (meeting - low.eta) / (high.eta - low.eta)
    chord = weight * (high.at(high.eta) + high.error) + (1.0 - weight) * (low.at(low.eta) + low.error)
    return meeting, float((chord - np.minimum(high.at(meeting), low.at(meeting))).max())
