"""An eta-path with a proven tolerance, for models of any size.

The optimal value `V*(s; eta)` is convex in the price in every state. The line of any policy lies below it, and the
chord between two prices that have been solved lies above it. Where chord and lines are further apart than the tolerance
in some state, the price at which the lines of the two policies meet is solved too, and both halves are treated in the
same way. This stops when the distance is at most `tol` everywhere, which proves the error of the path. If rounding
errors do not allow such a proof, an error is raised. Policies and lines at a new price are computed from those at the
two prices around it.

Where so many prices would be solved that the exact path is faster, that is followed and its error bounded: see
`path_checked` for dense models and `_exact_if_faster` for sparse ones.
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
from lazymdp.exact.eta_bounds import largest_lazy_gap
from lazymdp.exact.krylov import bicgstab
from lazymdp.exact.linear import PolicySystem, action_values, policy_line
from lazymdp.exact.path_checked import checked_trace
from lazymdp.exact.path_exact import SMALL, Progress, Trace, follow, is_sparse
from lazymdp.exact.path_sparse import SparseWalk
from lazymdp.exact.solve import NotConverged, Solution, solve
from lazymdp.lazy import LazyMDP

_EVALUATED = 0.05
"""Share of the tolerance by which the line of a policy may be wrong."""

_IGNORED = 0.01
"""Share of the tolerance that may be lost by keeping choices that are nearly as good as the best."""

_PRICES = 3.0
"""Number of prices solved, divided by the root of the first distance over the tolerance: 2 to 6 where measured."""

_STEPS_PER_PRICE = 9.0
"""Number of steps of the exact path that take as long as one price: 3 to 20 where measured."""

_STEPS_PER_DENSE_PRICE = 50.0
"""The same for dense models, whose steps are made in blocks."""

_ROUNDS = 6
"""Number of rounds of policy iteration from the policies at neighboring prices."""


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


def certified_trace(lazy: LazyMDP, tol: float, progress: Progress | None = None) -> Trace | None:
    """Finds policies from `eta_max` down to price 0 whose values are within `tol` of the optimum in every state.

    Returns:
        The policies; None for a dense model in which rounding errors are too large for the check of the exact path, and
        any other proof would take far longer than that path.
    """
    mdp = lazy.mdp
    system = PolicySystem(mdp, lazy.default_policy)
    highest = _top_if_exact_is_faster(lazy, tol, system)
    if highest is not None:
        dense = checked_trace(lazy, (1.0 - _EVALUATED) * tol, highest, system.dense_factors, progress)
        if dense is not None or mdp.n_states > SMALL:
            return dense
    top = largest_lazy_gap(mdp, lazy.default_policy, system)
    trace = Trace()
    solved = 0

    def counted(found: Point) -> Point:
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

    def between(high: Point, low: Point, eta: float) -> Point:
        here = lazy.with_eta(eta)
        found = _between(here, tol, high, low, top) if mdp.gamma < 1.0 else None
        return counted(found if found is not None else _solve_at(here, 0.25 * tol))

    def walk(high: Point, low: Point) -> Iterator[tuple[float, Point]]:
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

    high, low = _ends(lazy, tol, top)
    exact = _exact_if_faster(lazy, tol, counted(high), counted(low), progress)
    if exact is not None:
        return exact
    trace.start_base_values.append(mdp.start_average(high.line[0]))
    trace.start_control_counts.append(mdp.start_average(high.line[1]))
    current = high
    for eta, following in walk(high, low) if top > 0.0 else ():
        if not np.array_equal(current.action, following.action):
            value, count = mdp.start_average(following.line[0]), mdp.start_average(following.line[1])
            trace.add(eta, current.action, following.action, value, count)
        current = following
    return trace


def _ends(lazy: LazyMDP, tol: float, top: float) -> tuple[Point, Point]:
    """Returns the points at `eta_max` and at price 0."""
    mdp = lazy.mdp
    dearest, free = lazy.with_eta(top), lazy.with_eta(0.0)
    idle, nothing = np.full(mdp.n_states, mdp.n_actions), np.zeros(mdp.n_states)
    if mdp.gamma == 1.0 or top == 0.0:
        return _point(dearest, idle), _solve_at(free, 0.25 * tol)
    high = None
    step, rewards, _ = _policy_system(dearest, idle)
    value = _approximate(step, rewards, nothing, 0.5 * _EVALUATED * tol * (1.0 - mdp.gamma))
    if value is not None:
        high = Point(top, idle, np.stack([value, nothing]), certified_error(dearest, value))
    solution = _quietly_solve(free, 0.25 * tol)
    low = _improve(free, tol, _greedy(solution, free), solution.value, nothing, top)
    return _point(dearest, idle) if high is None else high, _solve_at(free, 0.25 * tol) if low is None else low


def _exact_if_faster(lazy: LazyMDP, tol: float, high: Point, low: Point, progress: Progress | None) -> Trace | None:
    """Returns the exact path where that is expected to take less time, and proves that it is within `tol`.

    The distance of lines from a chord falls with the square of its length, which tells how many prices would have to be
    solved. Returns None if this is the faster way, or if the proof fails.
    """
    mdp = lazy.mdp
    if mdp.gamma == 1.0 or not is_sparse(lazy) or not low.eta < high.eta:
        return None
    prices = _PRICES * np.sqrt(_gap(high, low, mdp.start)[1] / tol)
    if prices * _STEPS_PER_PRICE < np.count_nonzero(low.action < mdp.n_actions):
        return None
    try:
        walk = SparseWalk(lazy)
    except ValueError:  # too large
        return None
    trace = follow(walk, progress)
    # Between two prices, the value of a policy is a line, and the optimum is convex: the gains at both ends bound it.
    bound = Certificate(lazy.with_eta(high.eta))(0.0, walk.largest_gain, np.array([walk.largest_value]))
    return trace if sum(bound) <= tol else None


def _top_if_exact_is_faster(lazy: LazyMDP, tol: float, system: PolicySystem) -> float | None:
    """Returns the largest lazy-gap of a dense model whose exact path is expected to take less time, otherwise None."""
    mdp, default = lazy.mdp, lazy.default_policy
    if mdp.gamma == 1.0 or is_sparse(lazy):
        return None
    value = system.solve(np.einsum("sa,sa->s", default, mdp.rewards)[None])[0]
    top = float((action_values(mdp, mdp.rewards, value).max(axis=1) - value)[~mdp.absorbing].max(initial=0.0))
    # Lines are at most top / (1 - gamma) below the optimum.
    prices = _PRICES * np.sqrt(top / (1.0 - mdp.gamma) / tol)
    return None if prices * _STEPS_PER_DENSE_PRICE < mdp.n_states else top


def certified_error(lazy: LazyMDP, value: NDArray[np.float64], certificate: Certificate | None = None) -> float:
    """Returns a proven bound on how far `value [S]` is below the optimum of `lazy`, computed by one sweep."""
    none = np.empty(0, dtype=np.int64)
    low, high = over_states(bellman.backup, rows_of(lazy), value, np.empty_like(value), none)
    middle, width = (certificate or Certificate(lazy))(low, high, value)
    return max(0.0, middle + width)


def policy_error(
    lazy: LazyMDP, action: NDArray[np.int64], value: NDArray[np.float64], certificate: Certificate
) -> float:
    """Returns a proven bound on how far `value [S]` is above the value of the policy `action [S]`, by one sweep."""
    control = (action < lazy.mdp.n_actions) & ~lazy.mdp.absorbing
    chosen = np.where(control, np.arange(action.size) * lazy.mdp.n_actions + action, -1)
    low, _ = over_states(bellman.follow, pack(rows_of(lazy), chosen), value, np.empty_like(value))
    middle, width = certificate(min(low, 0.0), 0.0, value)
    return max(0.0, width - middle)


def _between(lazy: LazyMDP, tol: float, high: Point, low: Point, top: float) -> Point | None:
    """Finds a point between two others by policy iteration, from the better of their policies in each state."""
    weight = (lazy.eta - low.eta) / (high.eta - low.eta)
    better = high.at(lazy.eta) > low.at(lazy.eta)
    value = np.where(better, high.at(lazy.eta), low.at(lazy.eta))
    action = np.where(better, high.action, low.action)
    return _improve(lazy, tol, action, value, weight * high.line[1] + (1.0 - weight) * low.line[1], top)


def _improve(
    lazy: LazyMDP,
    tol: float,
    action: NDArray[np.int64],
    value: NDArray[np.float64],
    count: NDArray[np.float64],
    top: float,
) -> Point | None:
    """Finds a point by policy iteration from a policy and guesses of its value and count, all `[S]`.

    Policies are evaluated approximately. Choices change only if the gain matters for the tolerance, so that ties do not
    make for switches. Returns None if a quarter of the tolerance is not met in a few rounds, or if BiCGSTAB does not
    converge.
    """
    discount = 1.0 - lazy.mdp.gamma
    accuracy = 0.5 * _EVALUATED * tol * discount  # of residuals, which bound the error when divided by 1 - gamma
    for _ in range(_ROUNDS):
        action = _greedy_from(lazy, value, action, _IGNORED * tol * discount)
        step, rewards, control = _policy_system(lazy, action)
        evaluated = _approximate(step, rewards - lazy.eta * control, value, accuracy)
        if evaluated is None:
            return None
        value = evaluated
        error = certified_error(lazy, value)
        if error <= 0.25 * tol:
            counted = _approximate(step, control, count, accuracy / top)
            return (
                None
                if counted is None
                else Point(lazy.eta, action, np.stack([value + lazy.eta * counted, counted]), error)
            )
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


def _solve_at(lazy: LazyMDP, tol: float) -> Point:
    """Solves at one price and bounds the error of the policy's own value."""
    for solver_tol in (tol * (1.0 - lazy.mdp.gamma), 1e-3 * tol * (1.0 - lazy.mdp.gamma)):
        if solver_tol > 0.0:
            found = _point(lazy, _greedy(_quietly_solve(lazy, solver_tol), lazy))
            if found.error <= tol:
                return found
    return _point(lazy, _greedy(_quietly_solve(lazy, tol, "policy_iteration"), lazy))


def _quietly_solve(lazy: LazyMDP, tol: float, method: str = "auto") -> Solution:
    """Solves without a warning if the tolerance is not met: only the bound on the policy's own value counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConverged)
        return solve(lazy, tol, method=method)


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


def _point(lazy: LazyMDP, action: NDArray[np.int64]) -> Point:
    """Evaluates a policy, exactly up to rounding errors."""
    line = policy_line(lazy.mdp, lazy.default_policy, action)
    return Point(lazy.eta, action, line, certified_error(lazy, line[0] - lazy.eta * line[1]))


def _gap(high: Point, low: Point, start: NDArray[np.float64]) -> tuple[float, float]:
    """Returns the price at which the lines from the start meet, and their largest distance below the chord there."""
    meeting = meeting_price(high, low, start)
    return meeting, distance(high, low, meeting)
