"""Optimal solutions of a lazy-MDP.

Every algorithm stops when the error bound of `lazymdp.exact.error_bound` proves the tolerance:

* `"value_iteration"` sweeps over all states;
* `"modified_policy_iteration"` makes most sweeps with fixed choices, which is cheaper;
* `"gauss_seidel"` sweeps in place, and only over states whose values still change;
* `"local_policy_iteration"` adds linear solves on those states, and on all states if many are needed;
* `"policy_iteration"` solves one linear system per policy and is exact up to rounding errors;
* `"auto"` makes a few sweeps. If differences between states shrink quickly it continues with modified policy iteration,
  otherwise, or if that turns out slow, with local policy iteration.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_choice, check_count, check_progress, check_tol
from lazymdp._files import write_csv
from lazymdp.exact.algorithms import METHODS, Progress, Search
from lazymdp.exact.bellman import q_sweep
from lazymdp.exact.finite_horizon import HorizonSolution, solve_horizon
from lazymdp.exact.linear import TINY, too_long
from lazymdp.lazy import LazyMDP, check_lazy

_RELATIVE_TOL = 1e-8
"""Default tolerance, relative to the largest reward."""

_MOST_ITERATIONS = 100_000


class NotConverged(UserWarning):
    """The solver stopped before the error bound reached the tolerance."""


@dataclass(frozen=True, eq=False)
class Solution:
    """An optimal solution of a lazy-MDP, up to `error_bound`.

    Attributes:
        value: `[S]` optimal value `V_+*`, price included; 0 in absorbing states.
        q: `[S, A]` value of taking control with each action, including the price `-eta` paid now.
        lazy_gap: `[S]` `max_a q - q . default`.
        control: `[S]` bool, the states in which the agent takes control: those whose gap is *proven* larger than eta.
            Ties are lazy, and so are states that the error bound and rounding cannot tell from a tie.
        action: `[S]` int, the agent's action; `A` is lazy. Being lazy in a state that only looks like a tie costs at
            most `4 * gamma * error_bound` per step, rounding errors, and what rows of the default policy lack to 1.
        converged: Whether `error_bound <= tol`.
        residual: Largest `|T v - v|` of the values from which the bound was computed.
        error_bound: Proven bound on `|value - V_+*|` in every state.
        method: Name of the algorithm used.
        iterations: Number of sweeps or rounds it took.
    """

    value: NDArray[np.float64]
    q: NDArray[np.float64]
    lazy_gap: NDArray[np.float64]
    control: NDArray[np.bool_]
    action: NDArray[np.int64]
    converged: bool
    residual: float
    error_bound: float
    method: str
    iterations: int

    @property
    def policy_plus(self) -> NDArray[np.float64]:
        """The policy as probabilities, `[S, A+1]` with the lazy action last."""
        return np.eye(self.q.shape[1] + 1)[self.action]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one row per state: `state`, `value`, `lazy_gap`, `control`, `action`, and `q_0`, `q_1`, ..."""
        by_state = {name: getattr(self, name) for name in ("value", "lazy_gap", "control", "action")}
        by_action = {f"q_{action}": column for action, column in enumerate(self.q.T)}
        write_csv(path, {"state": np.arange(self.value.size), **by_state, **by_action})

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"Solution({int(self.control.sum())} of {self.value.size} states take control, {state}, "
            f"error <= {self.error_bound:.1e}, {self.method})"
        )


@overload
def solve(
    lazy: LazyMDP,
    tol: float | None = ...,
    *,
    method: str = ...,
    max_iterations: int = ...,
    progress: Progress | None = ...,
    horizon: None = ...,
) -> Solution: ...
@overload
def solve(lazy: LazyMDP, *, horizon: int) -> HorizonSolution: ...
def solve(
    lazy: LazyMDP,
    tol: float | None = None,
    *,
    method: str = "auto",
    max_iterations: int = _MOST_ITERATIONS,
    progress: Progress | None = None,
    horizon: int | None = None,
) -> Solution | HorizonSolution:
    """Solves a lazy-MDP, over an infinite horizon or over `horizon` steps.

    Args:
        lazy: The lazy-MDP. Its price may be any finite number.
        tol: Largest sup-norm error allowed in `value`; the solution proves that it is met. By default 1e-8 times the
            largest absolute reward (or bonus `-eta` for control, if that is larger).
        method: `"auto"`, `"value_iteration"`, `"modified_policy_iteration"`, `"gauss_seidel"`,
            `"local_policy_iteration"` or `"policy_iteration"`.
        max_iterations: Number of sweeps or rounds after which the solver stops with a `NotConverged` warning.
        progress: Called with the iteration and the error bound reached.
        horizon: Number of steps, for a finite horizon. It is solved by backward induction, for which gamma may be 1 in
            any model; the other arguments apply to the infinite horizon only, and are an error here.

    Returns:
        A `Solution`, or a `HorizonSolution` if a horizon is given.
    """
    check_lazy(lazy)
    if horizon is not None:
        _check_horizon_alone(horizon, tol=tol, method=method, max_iterations=max_iterations, progress=progress)
        return solve_horizon(lazy, horizon)
    scale = max(lazy.mdp.max_reward, -lazy.eta)
    default_tol = max(_RELATIVE_TOL * scale, TINY) if scale > 0.0 else _RELATIVE_TOL
    allowed = default_tol if tol is None else check_tol(tol)
    check_count(max_iterations, "max_iterations", "a number of sweeps or rounds")
    check_choice(method, "method", list(METHODS))
    check_progress(progress)
    lazy.mdp.check_infinite_horizon()
    if method == "auto" and lazy.mdp.gamma == 1.0:
        method = "policy_iteration"  # without a discount a sweep is not a contraction
    search = Search(lazy, allowed, max_iterations, progress)
    return _finish(search, METHODS[method](search))


def _check_horizon_alone(horizon: int, **others: object) -> None:
    """Raises an error if an argument for the infinite horizon is given together with a finite one."""
    unused = {"tol": None, "method": "auto", "max_iterations": _MOST_ITERATIONS, "progress": None}
    for name, value in others.items():
        if isinstance(value, np.ndarray) or value != unused[name]:
            raise ValueError(
                f"{name} is {value!r}, but with horizon = {horizon!r} the solution is exact up to rounding errors and "
                f"{name} has no meaning: leave it out, or leave out the horizon."
            )


def _finish(search: Search, method: str) -> Solution:
    """Certifies the values, reads off the policy, and warns if the tolerance is not met."""
    lazy, mdp, value = search.lazy, search.lazy.mdp, search.value
    q, gap, action, low, high = search.last or q_sweep(search.rows, value)
    shift, error = search.certificate(low, high, value)
    if error + abs(shift) <= search.tol:  # good enough without centering
        error += abs(shift)
    elif mdp.absorbing.any():
        np.add(value, shift, out=value, where=~mdp.absorbing)
        q, gap, action, _, _ = q_sweep(search.rows, value)
    else:  # rows sum to 1, up to a defect that the bound includes, so a shift of all values shifts all of q
        value += shift
        q += mdp.gamma * shift
    converged = error <= search.tol
    if not converged:
        limit = search.certificate.limit(low, high, value)
        remedy = f"Use tol >= {2.0 * limit:.1e}" if error <= 4.0 * limit else "Increase max_iterations"
        found = (
            f"with a proven error of {error:.2e}, above tol = {search.tol:.2e}. Double precision can prove {limit:.1e} "
            f"for this model. {remedy}."
        )
        if limit == np.inf:
            found = f"without a proven error: {too_long(mdp)}"
        warnings.warn(f"{method} stopped after {search.iterations} iterations {found}", NotConverged, stacklevel=3)
    control = gap > lazy.eta + search.certificate.gap_margin(value, error)
    control &= ~mdp.absorbing
    action[~control] = lazy.lazy_action
    by_action = q.reshape(mdp.n_states, mdp.n_actions)
    residual = max(-low, high, 0.0)
    return Solution(value, by_action, gap, control, action, converged, residual, error, method, search.iterations)
