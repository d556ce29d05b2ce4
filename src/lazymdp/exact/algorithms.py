"""The algorithms behind `solve`. Each improves `search.value` until its error is proven to be below the tolerance.

They share only the sweeps and the error bound, so that they can be tested against each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact import bellman
from lazymdp.exact.active_set import ActiveSet
from lazymdp.exact.bellman import QSweep, Rows, over_states, q_sweep, rows_of
from lazymdp.exact.error_bound import Certificate
from lazymdp.exact.linear import policy_line
from lazymdp.lazy import LazyMDP

Progress = Callable[[int, float], None]
"""Callback that receives the iteration and the error bound reached."""

_FOLLOW = 6
"""Number of sweeps with fixed choices between two sweeps that choose, in modified policy iteration."""

_SETTLED = 0.05
"""Largest share of changed choices for which sweeps with fixed choices are worthwhile."""

_FINAL = 0.001
"""Share of changed choices below which the policy counts as final."""

_PROBES = 4
"""Number of sweeps from which the pace of modified policy iteration is predicted."""

_PATIENCE = 100.0
"""Number of sweeps for which local policy iteration would take about as long as modified policy iteration."""

_SHRINKS = 0.9
"""Factor by which differences between states must shrink per sweep for modified policy iteration to be tried."""

_LOOSE, _TIGHTEN = 0.05, 8
"""Relative residual of the first corrections, and the number of corrections after which it is squared, repeatedly."""

_LOCAL_ROUNDS, _COVERED = 30, 4
"""After this many local corrections, all states are corrected together from time to time: each time the local ones
have corrected this multiple of the number of states."""

_MOST_FAILURES, _MOST_ROUNDS = 2, 10_000
"""Largest numbers of failed corrections and of all corrections; after that, only sweeps are made."""


class Search:
    """The state of an algorithm: the values reached and the bound on their error.

    Attributes:
        value: `[S]` current values; algorithms change them in place or replace the array.
        iterations: Number of sweeps or rounds so far.
        last: The sweep that computed `q` from the current values, if the algorithm ended with it.
    """

    def __init__(self, lazy: LazyMDP, tol: float, max_iterations: int, progress: Progress | None) -> None:
        self.lazy, self.tol, self.max_iterations, self.progress = lazy, tol, max_iterations, progress
        self.rows: Rows = rows_of(lazy)
        self.certificate = Certificate(lazy)
        self.value = np.empty(lazy.mdp.n_states)
        over_states(bellman.opening, self.rows, self.value)
        self.iterations = 0
        self.last: QSweep | None = None

    def backup(self, out: NDArray[np.float64], chosen: NDArray[np.int64] | None = None) -> tuple[float, float]:
        """Computes `out = T value` and returns the smallest and the largest entry of `T value - value`."""
        rows = np.empty(0, dtype=np.int64) if chosen is None else chosen
        return over_states(bellman.backup, self.rows, self.value, out, rows)

    def done(self, low: float, high: float) -> bool:
        """Counts an iteration. Returns whether the tolerance is proven, rounding is reached, or iterations run out."""
        self.iterations += 1
        _, error = self.certificate(low, high, self.value)
        if self.progress is not None:
            self.progress(self.iterations, error)
        only_rounding = error <= 2.0 * self.certificate.limit(low, high, self.value)
        return error <= self.tol or only_rounding or self.exhausted

    def ends_here(self) -> bool:
        """Like `done` after a backup, but with a sweep that computes `q`, which is kept if it was the last."""
        sweep = q_sweep(self.rows, self.value)
        if self.done(sweep.low, sweep.high):
            self.last = sweep
        return self.last is not None

    @property
    def exhausted(self) -> bool:
        """Whether `max_iterations` is reached."""
        return self.iterations >= self.max_iterations


def value_iteration(search: Search) -> str:
    """Repeats `v <- T v`."""
    out = np.empty_like(search.value)
    while not search.done(*search.backup(out)):
        search.value, out = out, search.value
    return "value_iteration"


def modified_policy_iteration(search: Search) -> str:
    """Alternates `v <- T v` with a few sweeps that keep its choices, each cheaper by about the number of actions.

    As long as many choices still change, sweeps that keep them are of no use, and the next sweep chooses again.
    """
    _modified(search, patience=np.inf)
    return "modified_policy_iteration"


def _modified(search: Search, patience: float) -> bool:
    """Runs modified policy iteration. Returns False if it seems to need more than `patience` further sweeps."""
    out = np.empty_like(search.value)
    chosen = np.full(search.value.size, -1, dtype=np.int64)
    before, policy = chosen.copy(), None
    pace = _Pace(search.tol)
    while not search.done(*(change := search.backup(out, chosen))):
        search.value, out = out, search.value
        if pace.sweeps_left(search.certificate(*change, search.value)[1]) > patience:
            return False
        changes = np.count_nonzero(chosen != before)
        before[:] = chosen
        if changes > _SETTLED * chosen.size:
            continue
        policy = bellman.pack(search.rows, chosen, policy)
        settled = changes <= _FINAL * chosen.size  # probably the final policy: evaluate it fully
        fixed = _Pace(search.tol)
        for _ in range(10 * _FOLLOW if settled else _FOLLOW):
            low, high = over_states(bellman.follow, policy, search.value, out)
            search.value, out = out, search.value
            if not settled:
                continue
            error = search.certificate(low, high, search.value)[1]
            if 2.0 * error <= search.tol:
                if search.ends_here():
                    return True
                break
            if fixed.sweeps_left(error) > patience:
                return False
    return True


class _Pace:
    """Predicts from the last errors how many sweeps are left until the tolerance is met."""

    def __init__(self, tol: float) -> None:
        self._tol = tol
        self._errors: list[float] = []

    def sweeps_left(self, error: float) -> float:
        """Adds the error bound of one more sweep. Returns the prediction; 0 for the first `_PROBES` sweeps."""
        self._errors.append(error)
        if len(self._errors) <= _PROBES or error <= self._tol:
            return 0.0
        rate = (error / self._errors[-_PROBES]) ** (1.0 / (_PROBES - 1))
        return float(np.log(error / self._tol) / -np.log(rate)) if rate < 1.0 else np.inf


def policy_iteration(search: Search) -> str:
    """Howard's policy iteration from the always-lazy policy. Each policy is evaluated by a linear system."""
    lazy, mdp = search.lazy, search.lazy.mdp
    chosen = np.full(mdp.n_states, -1, dtype=np.int64)
    previous = chosen.copy()
    out = np.empty_like(search.value)
    while True:
        action = np.where(chosen >= 0, chosen % mdp.n_actions, mdp.n_actions)
        value, count = policy_line(mdp, lazy.default_policy, action)
        search.value = value - lazy.eta * count
        low, high = search.backup(out, chosen)
        stuck = np.array_equal(chosen, previous) or high <= search.certificate.rounding(search.value)
        if search.done(low, high) or stuck:
            return "policy_iteration"
        # Keep the old choice unless the new one is better by more than rounding, so that ties cannot cycle.
        tied = out - search.value <= search.certificate.rounding(search.value)
        chosen[tied & ~mdp.absorbing] = previous[tied & ~mdp.absorbing]
        previous = chosen.copy()


def gauss_seidel(search: Search) -> str:
    """Sweeps in place over the blocks of states whose values still change."""
    _active(search, rounds=0)
    return "gauss_seidel"


def local_policy_iteration(search: Search) -> str:
    """Like `gauss_seidel`, with a step of policy iteration on the changing states between sweeps."""
    _active(search, rounds=_MOST_ROUNDS)
    return "local_policy_iteration"


def auto(search: Search) -> str:
    """Chooses by a few sweeps: how quickly differences between states shrink, and how many states change.

    Modified policy iteration is left as soon as it seems to need many more sweeps: where a discount near 1, rare
    transitions or slow absorption hold it up.
    """
    out = np.empty_like(search.value)
    spans = []
    for _ in range(3):
        low, high = search.backup(out)
        if search.done(low, high):
            return "value_iteration"
        moving = np.count_nonzero(out != search.value) / out.size
        search.value, out = out, search.value
        spans.append(high - low)
        if moving < 0.5:
            break
    if len(spans) == 3 and spans[2] < _SHRINKS * spans[1] and _modified(search, _PATIENCE):
        return "modified_policy_iteration"
    return local_policy_iteration(search)


METHODS: dict[str, Callable[[Search], str]] = {
    method.__name__: method
    for method in (
        auto,
        value_iteration,
        modified_policy_iteration,
        gauss_seidel,
        local_policy_iteration,
        policy_iteration,
    )
}
"""Algorithms by name. Each returns the name of the algorithm that finished, which differs for `auto`."""


def _active(search: Search, rounds: int) -> None:
    """Repeats, with ever smaller thresholds: sweeps and corrections of active blocks, then a full sweep for the bound.

    Where the discount is near 1, loose corrections can lead from policy to policy in a circle, and local ones can
    follow a change around a ring, lap after lap. So they become ever more exact, and if there are many, all states are
    corrected once in a while: in the end, this is policy iteration.

    Args:
        search: The values to improve.
        rounds: Number of corrections allowed; 0 for sweeps alone.
    """
    gamma = search.lazy.mdp.gamma
    theta = 0.5 * search.tol * ((1.0 - gamma) if gamma < 1.0 else 1e-3)
    active = ActiveSet(search.rows, search.value)
    out = np.empty_like(search.value)
    made = failures = covered = 0
    forcing, finest = _LOOSE, False
    while not search.done(*search.backup(out)) and not finest:
        active.restart(out, theta)
        passes = 10
        while not search.exhausted:
            floor = 4.0 * search.certificate.rounding(search.value)  # smaller changes are rounding errors
            finest = theta <= floor
            due = active.sweep(max(theta, floor), passes)
            search.iterations += 1
            if not due:
                break
            passes = 4
            if made < rounds and failures <= _MOST_FAILURES:
                everywhere = made >= _LOCAL_ROUNDS and covered >= _COVERED * out.size
                size, done = active.correct(max(theta, floor), forcing, 200, everywhere)
                covered = 0 if everywhere else covered + size
                failures += not done
                made += 1
                forcing = forcing**2 if made % _TIGHTEN == 0 else forcing
        theta *= 0.25
