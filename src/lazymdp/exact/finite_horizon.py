"""Finite horizons: backward induction, with a control set and a lazy-gap for every step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact import bellman
from lazymdp.exact.bellman import over_states, rows_of
from lazymdp.lazy import LazyMDP


@dataclass(frozen=True, eq=False)
class HorizonSolution:
    """An optimal solution over `H` steps; index `t` is the step, `H - t` steps are left there.

    Attributes:
        value: `[H+1, S]` optimal values, price included; `value[H]` is 0.
        q: `[H, S, A]` value of taking control with each action, the price `-eta` paid now included.
        lazy_gap: `[H, S]` `max_a q - q . default`.
        control: `[H, S]` bool, where the agent takes control: where the gap is larger than eta; a tie is lazy.
        action: `[H, S]` int, what the agent does; `A` is lazy.
        error_bound: Bound on the error of `value`: rounding alone.
    """

    value: NDArray[np.float64]
    q: NDArray[np.float64]
    lazy_gap: NDArray[np.float64]
    control: NDArray[np.bool_]
    action: NDArray[np.int64]
    error_bound: float

    def __repr__(self) -> str:
        steps, n_states = self.control.shape
        return f"HorizonSolution({steps} steps, control in {self.control.mean():.1%} of steps x {n_states} states)"


def solve_horizon(lazy: LazyMDP, horizon: int) -> HorizonSolution:
    """Solves a lazy-MDP over `horizon` steps by backward induction; gamma may be 1 for any model."""
    if not isinstance(horizon, int | np.integer) or isinstance(horizon, bool) or horizon < 1:
        raise ValueError(f"horizon is {horizon!r}, expected a whole number of steps, at least 1.")
    mdp, rows = lazy.mdp, rows_of(lazy)
    n_states, n_actions = mdp.n_states, mdp.n_actions
    value = np.zeros((horizon + 1, n_states))
    q = np.empty((horizon, n_states * n_actions))
    gap = np.empty((horizon, n_states))
    action = np.empty((horizon, n_states), dtype=np.int64)
    none = np.empty(0, dtype=np.int64)
    error, terms = 0.0, mdp.max_successors + n_actions + 8
    errors = np.zeros((horizon, 1))
    for t in reversed(range(horizon)):
        over_states(bellman.action_values, rows, value[t + 1], q[t], gap[t], action[t])
        over_states(bellman.backup, rows, value[t + 1], value[t], none)
        scale = mdp.max_reward + abs(lazy.eta) + float(np.abs(value[t + 1]).max())
        error = mdp.gamma * (1.0 + mdp.row_defect) * error + float(np.finfo(float).eps) * terms * scale
        errors[t] = error
    control = (gap > lazy.eta + 2.0 * errors) & ~mdp.absorbing
    action[~control] = lazy.lazy_action
    return HorizonSolution(value, q.reshape(horizon, n_states, n_actions), gap, control, action, float(errors.max()))
