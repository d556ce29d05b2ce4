"""The algorithms behind `solve`: each improves `search.value` until its error is proven small enough.

They share nothing but the sweeps and the certificate, so that they can be checked against each other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact import bellman
from lazymdp.exact.active_set import ActiveSet
from lazymdp.exact.bellman import Rows, over_states, rows_of
from lazymdp.exact.error_bound import Certificate
from lazymdp.exact.linear import policy_line
from lazymdp.lazy import LazyMDP

Progress = Callable[[int, float], None]
"""Called with the iteration and the error proven so far."""

_FOLLOW = 6
"""Sweeps under fixed choices between two sweeps that choose, in modified policy iteration."""

_SETTLED = 0.05
"""Share of choices that may still change for following them to pay."""

_FINAL = 0.001
"""Share of choices that changed below which they are taken for settled."""

_LOCAL_ROUNDS = 60
"""Rounds of linear solves after which local policy iteration goes on with sweeps alone."""


class Search:
    """Values on their way to the optimum, and what is proven of them.

    Attributes:
        value: `[S]` improved in place or replaced.
        iterations: Sweeps or rounds so far.
    """

    def __init__(self, lazy: LazyMDP, tol: float, max_iterations: int, progress: Progress | None) -> None:
        self.lazy, self.tol, self.max_iterations, self.progress = lazy, tol, max_iterations, progress
        self.rows: Rows = rows_of(lazy)
        self.certificate = Certificate(lazy)
        self.value = np.empty(lazy.mdp.n_states)
        over_states(bellman.opening, self.rows, self.value)
        self.iterations = 0

    def backup(self, out: NDArray[np.float64], chosen: NDArray[np.int64] | None = None) -> tuple[float, float]:
        """`out = T value`; returns the range of `T value - value`."""
        rows = np.empty(0, dtype=np.int64) if chosen is None else chosen
        return over_states(bellman.backup, self.rows, self.value, out, rows)

    def done(self, low: float, high: float) -> bool:
        """Counts an iteration; True once the error is proven, only rounding is left, or the iterations are used up."""
        self.iterations += 1
        _, error = self.certificate(low, high, self.value)
        if self.progress is not None:
            self.progress(self.iterations, error)
        only_rounding = error <= 2.0 * self.certificate.limit(low, high, self.value)
        return error <= self.tol or only_rounding or self.exhausted

    @property
    def exhausted(self) -> bool:
        """Whether the iterations allowed are used up."""
        return self.iterations >= self.max_iterations


def value_iteration(search: Search) -> str:
    """`v <- T v`."""
    out = np.empty_like(search.value)
    while not search.done(*search.backup(out)):
        search.value, out = out, search.value
    return "value_iteration"


def modified_policy_iteration(search: Search) -> str:
    """`v <- T v`, then a few sweeps with the same choices, each cheaper by about the number of actions.

    As long as many choices still change, following them is no use and the next sweep chooses again.
    """
    out = np.empty_like(search.value)
    chosen = np.full(search.value.size, -1, dtype=np.int64)
    before, policy = chosen.copy(), None
    while not search.done(*search.backup(out, chosen)):
        search.value, out = out, search.value
        changes = np.count_nonzero(chosen != before)
        before[:] = chosen
        if changes > _SETTLED * chosen.size:
            continue
        policy = bellman.pack(search.rows, chosen, policy)
        settled = changes <= _FINAL * chosen.size  # then these choices may well be the last: follow them to the end
        for _ in range(10 * _FOLLOW if settled else _FOLLOW):
            low, high = over_states(bellman.follow, policy, search.value, out)
            search.value, out = out, search.value
            if settled and 2.0 * search.certificate(low, high, search.value)[1] <= search.tol:
                break
    return "modified_policy_iteration"


def policy_iteration(search: Search) -> str:
    """Howard's algorithm from the always-lazy policy: each policy is evaluated by a linear system."""
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
        # Keep the old choice where the new one is no better than rounding: ties must not cycle.
        tied = out - search.value <= search.certificate.rounding(search.value)
        chosen[tied & ~mdp.absorbing] = previous[tied & ~mdp.absorbing]
        previous = chosen.copy()


def gauss_seidel(search: Search) -> str:
    """Sweeps in place over the blocks of states that still move."""
    _active(search, rounds=0)
    return "gauss_seidel"


def local_policy_iteration(search: Search) -> str:
    """The same, with a step of policy iteration on the moving states between the bellman."""
    _active(search, rounds=_LOCAL_ROUNDS)
    return "local_policy_iteration"


def auto(search: Search) -> str:
    """Looks at a few sweeps: do differences between states die out quickly, and do all states move?"""
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
    if len(spans) == 3 and spans[2] < 0.7 * spans[1]:
        return modified_policy_iteration(search)
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
"""Name to algorithm; each returns the name of what it ended up doing."""


def _active(search: Search, rounds: int) -> None:
    """Sweeps and corrections on the active blocks, then a full sweep to certify; repeated with a finer threshold.

    Args:
        search: The values to improve.
        rounds: Linear solves allowed, 0 for sweeps alone.
    """
    gamma = search.lazy.mdp.gamma
    theta = 0.5 * search.tol * ((1.0 - gamma) if gamma < 1.0 else 1e-3)
    active = ActiveSet(search.rows, search.value)
    out = np.empty_like(search.value)
    failures, finest = 0, False
    while not search.done(*search.backup(out)) and not finest:
        search.value -= out
        active.wake(search.value, theta)
        search.value[:] = out
        passes = 10
        while not search.exhausted:
            floor = 4.0 * search.certificate.rounding(search.value)  # below it the sweeps would chase rounding
            finest = theta <= floor
            since = active.clock
            due = active.sweep(max(theta, floor), passes)
            search.iterations += 1
            if not due:
                break
            passes = 4
            if rounds > 0:
                rounds -= 1
                failures += not active.correct(since, max(theta, floor), 0.05, 200)
                rounds = 0 if failures > 2 else rounds
        theta *= 0.25
