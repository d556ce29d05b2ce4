"""Optimal solutions of a lazy-MDP.

Every algorithm stops on the proven error bound of `certificate`:

* `"value_iteration"` sweeps over all states;
* `"modified_policy_iteration"` sweeps mostly under fixed choices, which is cheaper;
* `"gauss_seidel"` sweeps in place, only where something still moves;
* `"local_policy_iteration"` adds linear solves on those states;
* `"policy_iteration"` solves a linear system per policy: exact to rounding;
* `"auto"` looks at a few bellman. Where differences between states die out quickly it goes on with modified policy
  iteration, else with local policy iteration.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import overload

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact import bellman
from lazymdp.exact.algorithms import METHODS, Progress, Search
from lazymdp.exact.bellman import over_states
from lazymdp.exact.finite_horizon import HorizonSolution, solve_horizon
from lazymdp.lazy import LazyMDP


class NotConverged(UserWarning):
    """The solver stopped before the error bound reached the tolerance."""


@dataclass(frozen=True, eq=False)
class Solution:
    """An optimal solution of a lazy-MDP, up to `error_bound`.

    Attributes:
        value: `[S]` optimal value `V_+*`, price included; 0 in absorbing states.
        q: `[S, A]` value of taking control with each action, the price `-eta` paid now included.
        lazy_gap: `[S]` `max_a q - q . default`.
        control: `[S]` bool, where the agent takes control: where the gap is *proven* larger than eta. A tie is lazy,
            and so is what cannot be told from a tie within the error bound.
        action: `[S]` int, what the agent does; `A` is lazy. Where a tie cannot be told, being lazy costs at most four
            times gamma `error_bound` a step.
        converged: Whether `error_bound <= tol`.
        residual: Largest `|T v - v|` of the values the bound was computed from.
        error_bound: Proven bound on `|value - V_+*|` in every state.
        method: The algorithm used.
        iterations: Its sweeps or rounds.
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
        """`[S, A+1]` the policy as probabilities, the lazy action last."""
        return np.eye(self.q.shape[1] + 1)[self.action]

    def __repr__(self) -> str:
        state = "converged" if self.converged else "NOT converged"
        return (
            f"Solution({int(self.control.sum())} of {self.value.size} states take control, {state}, "
            f"error <= {self.error_bound:.1e}, {self.method})"
        )


@overload
def solve(
    lazy: LazyMDP,
    tol: float = ...,
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
    tol: float = 1e-8,
    *,
    method: str = "auto",
    max_iterations: int = 100_000,
    progress: Progress | None = None,
    horizon: int | None = None,
) -> Solution | HorizonSolution:
    """Solves a lazy-MDP, over an infinite horizon or over `horizon` steps.

    Args:
        lazy: The lazy-MDP.
        tol: Proven sup-norm error asked of `value`.
        method: `"auto"`, `"value_iteration"`, `"modified_policy_iteration"`, `"gauss_seidel"`,
            `"local_policy_iteration"` or `"policy_iteration"`.
        max_iterations: Sweeps or rounds after which to give up, with a `NotConverged` warning.
        progress: Called with the iteration and the error bound reached.
        horizon: Number of steps. Backward induction needs no tolerance, method or iterations: the other arguments
            are for the infinite horizon, and gamma may be 1 for any model.
    """
    if horizon is not None:
        return solve_horizon(lazy, horizon)
    lazy.mdp.check_infinite_horizon()
    if not tol > 0.0:
        raise ValueError(f"tol is {tol}, expected a positive number: the error allowed in the values.")
    if max_iterations < 1:
        raise ValueError(f"max_iterations is {max_iterations}, expected at least 1.")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}, expected one of {', '.join(map(repr, METHODS))}.")
    if method == "auto" and lazy.mdp.gamma == 1.0:
        method = "policy_iteration"  # without discount a sweep is no contraction
    search = Search(lazy, tol, max_iterations, progress)
    return _finish(search, METHODS[method](search))


def _finish(search: Search, method: str) -> Solution:
    """Certifies the values, reads off the policy, and says so if the tolerance was not met."""
    lazy, mdp, value = search.lazy, search.lazy.mdp, search.value
    q = np.empty(mdp.n_states * mdp.n_actions)
    gap = np.empty(mdp.n_states)
    action = np.empty(mdp.n_states, dtype=np.int64)
    low, high = over_states(bellman.action_values, search.rows, value, q, gap, action)
    shift, error = search.certificate(low, high, value)
    if error + abs(shift) <= search.tol:  # good enough without centring
        error += abs(shift)
    elif mdp.absorbing.any():
        np.add(value, shift, out=value, where=~mdp.absorbing)
        over_states(bellman.action_values, search.rows, value, q, gap, action)
    else:  # rows sum to 1, up to what the bound allows for: shifting all values shifts all of q
        value += shift
        q += mdp.gamma * shift
    converged = error <= search.tol
    if not converged:
        limit = search.certificate.limit(low, high, value)
        more = f"ask for tol >= {2.0 * limit:.1e}" if error <= 4.0 * limit else "allow more with max_iterations"
        warnings.warn(
            f"{method} stopped after {search.iterations} iterations with a proven error of {error:.2e}, above "
            f"tol = {search.tol:.2e}; double precision can prove {limit:.1e} here. To have it met, {more}.",
            NotConverged,
            stacklevel=3,
        )
    control = gap > lazy.eta + 2.0 * mdp.gamma * error
    control &= ~mdp.absorbing
    action[~control] = lazy.lazy_action
    by_action = q.reshape(mdp.n_states, mdp.n_actions)
    residual = max(-low, high, 0.0)
    return Solution(value, by_action, gap, control, action, converged, residual, error, method, search.iterations)
