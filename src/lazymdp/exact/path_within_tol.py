"""An eta-path with a proven tolerance, for models of any size.

The optimal value `V*(s; eta)` is convex in the price in every state. The line of any policy lies below it, and the
chord between two prices that have been solved lies above it. Where chord and lines are further apart than the tolerance
in some state, the price at which the lines of the two policies meet is solved too, and both halves are treated in the
same way. This stops when the distance is at most `tol` everywhere, which proves the error of the path. If rounding
errors do not allow such a proof, an error is raised. Policies and lines at a new price are computed from those at the
two prices around it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lazymdp.exact import bellman
from lazymdp.exact.bellman import over_states, pack, rows_of
from lazymdp.exact.error_bound import Certificate
from lazymdp.exact.eta_bounds import eta_max
from lazymdp.exact.krylov import bicgstab
from lazymdp.exact.linear import action_values, policy_line
from lazymdp.exact.path_exact import Progress, Trace
from lazymdp.exact.solve import NotConverged, Solution, solve
from lazymdp.lazy import LazyMDP

_EVALUATED = 0.05
"""Share of the tolerance by which the line of a policy may be wrong."""

_IGNORED = 0.01
"""Share of the tolerance that may be lost by keeping choices that are nearly as good as the best."""

_ROUNDS = 6
"""Number of rounds of policy iteration from the policies at neighboring prices."""


class _Point(NamedTuple):
    """A price, a policy, its line `base_value - eta * control_count`, and the proven error of its value there."""

    eta: float
    action: NDArray[np.int64]  # [S]
    line: NDArray[np.float64]  # [2, S]: base value and control count
    error: float

    def at(self, eta: float) -> NDArray[np.float64]:
        """Returns the policy's value, `[S]`, at another price."""
        return self.line[0] - eta * self.line[1]


def certified_trace(lazy: LazyMDP, tol: float, progress: Progress | None = None) -> Trace:
    """Finds policies from `eta_max` down to price 0 whose values are within `tol` of the optimum in every state."""
    mdp = lazy.mdp
    top = eta_max(mdp, lazy.default_policy)
    trace = Trace()
    solved = 0

    def counted(found: _Point) -> _Point:
        nonlocal solved
        solved += 1
        if progress is not None:
            progress(solved, found.eta)
        if not found.error <= 0.5 * tol:  # otherwise no chord between two points could be within tol
            raise ValueError(
                f"tol = {tol:g} cannot be proven at eta = {found.eta:g}: the best policy found is only proven to be "
                f"within {found.error:.1e} of the optimum. Use a larger tol."
            )
        return found

    def between(high: _Point, low: _Point, eta: float) -> _Point:
        here = lazy.with_eta(eta)
        found = _improve(here, tol, high, low, top) if mdp.gamma < 1.0 else None
        return counted(found if found is not None else _solve_at(here, 0.25 * tol))

    def walk(high: _Point, low: _Point) -> Iterator[tuple[float, _Point]]:
        """Yields, from `high` down to `low`, the prices at which the policy changes and the policy below each."""
        pending = [(high, low)]  # a stack instead of recursion, which long paths would exhaust
        while pending:
            above, below = pending.pop()
            meeting, gap = _gap(above, below, mdp.start)
            if gap <= (1.0 - _EVALUATED) * tol:
                yield meeting, below
            elif below.eta < meeting < above.eta:
                middle = between(above, below, meeting)
                pending += [(middle, below), (above, middle)]
            else:
                raise ValueError(f"tol = {tol:g} cannot be proven at eta = {meeting:g}. Use a larger tol.")

    high = counted(_point(lazy.with_eta(top), np.full(mdp.n_states, mdp.n_actions)))
    trace.start_base_values.append(mdp.start_average(high.line[0]))
    trace.start_control_counts.append(mdp.start_average(high.line[1]))
    current = high
    for eta, following in walk(high, counted(_solve_at(lazy.with_eta(0.0), 0.25 * tol))) if top > 0.0 else ():
        if not np.array_equal(current.action, following.action):
            value, count = mdp.start_average(following.line[0]), mdp.start_average(following.line[1])
            trace.add(eta, current.action, following.action, value, count)
        current = following
    return trace


def certified_error(lazy: LazyMDP, value: NDArray[np.float64]) -> float:
    """Returns a proven bound on how far `value [S]` is below the optimum of `lazy`, computed by one sweep."""
    none = np.empty(0, dtype=np.int64)
    low, high = over_states(bellman.backup, rows_of(lazy), value, np.empty_like(value), none)
    middle, width = Certificate(lazy)(low, high, value)
    return max(0.0, middle + width)


def _improve(lazy: LazyMDP, tol: float, high: _Point, low: _Point, top: float) -> _Point | None:
    """Finds a policy at a price between two points by policy iteration, from the better of the two in each state.

    Policies are evaluated approximately, starting from the lines of the points. Choices change only if the gain matters
    for the tolerance, so that ties do not make for switches. Returns None if a quarter of the tolerance is not met in a
    few rounds, or if BiCGSTAB does not converge.
    """
    eta, discount = lazy.eta, 1.0 - lazy.mdp.gamma
    weight = (eta - low.eta) / (high.eta - low.eta)
    guess = weight * high.line + (1.0 - weight) * low.line
    better = high.at(eta) > low.at(eta)
    action = np.where(better, high.action, low.action)
    value = np.where(better, high.at(eta), low.at(eta))
    accuracy = 0.5 * _EVALUATED * tol * discount  # of residuals, which bound the error when divided by 1 - gamma
    for _ in range(_ROUNDS):
        action = _greedy_from(lazy, value, action, _IGNORED * tol * discount)
        step, rewards, control = _policy_system(lazy, action)
        found = _approximate(step, rewards - eta * control, value, accuracy)
        if found is None:
            return None
        value = found
        error = certified_error(lazy, value)
        if error <= 0.25 * tol:
            count = _approximate(step, control, guess[1], accuracy / top)
            return None if count is None else _Point(eta, action, np.stack([value + eta * count, count]), error)
    return None


def _policy_system(
    lazy: LazyMDP, action: NDArray[np.int64]
) -> tuple[sp.csr_array, NDArray[np.float64], NDArray[np.float64]]:
    """Returns `gamma P`, the rewards `[S]` and the controls `[S]` of a policy; all are 0 in absorbing states."""
    mdp = lazy.mdp
    control = (action < mdp.n_actions) & ~mdp.absorbing
    chosen = np.where(control, np.arange(mdp.n_states) * mdp.n_actions + action, -1)
    packed = pack(rows_of(lazy.with_eta(0.0)), chosen)
    size = packed.ends[-1]
    ends = packed.ends.astype(np.int32)  # no more entries than the model has, whose indices are 32 bits wide
    step = sp.csr_array((packed.weights[:size], packed.columns[:size], ends), shape=(mdp.n_states, mdp.n_states))
    step.sum_duplicates()
    return step, packed.rewards, control.astype(float)


def _approximate(
    step: sp.csr_array, right: NDArray[np.float64], guess: NDArray[np.float64], target: float
) -> NDArray[np.float64] | None:
    """Solves `x = right + step x` until no residual exceeds `target`; returns None if BiCGSTAB does not converge."""
    x = guess
    for _ in range(4):
        residual = right + step @ x - x
        if np.abs(residual).max() <= target:
            return x
        correction, done = bicgstab(step.indptr, step.indices, step.data, residual, 0.0, 0.5 * target, 300)
        if not done:
            return None
        x = x + correction
    return None


def _solve_at(lazy: LazyMDP, tol: float) -> _Point:
    """Solves at one price and bounds the error of the policy's own value."""
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


def _greedy_from(
    lazy: LazyMDP, value: NDArray[np.float64], action: NDArray[np.int64], margin: float
) -> NDArray[np.int64]:
    """Returns the greedy policy for `value [S]`, except that choices of `action [S]` stay unless worse by `margin`."""
    mdp = lazy.mdp
    states = np.arange(mdp.n_states)
    choices = np.empty((mdp.n_states, mdp.n_actions + 1))
    control = action_values(mdp, mdp.rewards, value)
    np.subtract(control, lazy.eta, out=choices[:, :-1])
    choices[:, -1] = np.einsum("sa,sa->s", lazy.default_policy, control)
    best = choices.argmax(axis=1)
    keep = (choices[states, action] >= choices[states, best] - margin) | mdp.absorbing
    return np.where(keep, action, best)


def _point(lazy: LazyMDP, action: NDArray[np.int64]) -> _Point:
    """Evaluates a policy, exactly up to rounding errors."""
    line = policy_line(lazy.mdp, lazy.default_policy, action)
    return _Point(lazy.eta, action, line, certified_error(lazy, line[0] - lazy.eta * line[1]))


def _gap(high: _Point, low: _Point, start: NDArray[np.float64]) -> tuple[float, float]:
    """Returns the price at which the lines from the start meet, and their largest distance below the chord there."""
    steeper = float(start @ (low.line[1] - high.line[1]))
    meeting = 0.5 * (high.eta + low.eta)
    if steeper > 0.0:
        crossing = float(start @ (low.line[0] - high.line[0])) / steeper
        inside = low.eta < crossing < high.eta
        meeting = crossing if inside else meeting
    weight = (meeting - low.eta) / (high.eta - low.eta)
    chord = weight * (high.at(high.eta) + high.error) + (1.0 - weight) * (low.at(low.eta) + low.error)
    return meeting, float((chord - np.minimum(high.at(meeting), low.at(meeting))).max())
