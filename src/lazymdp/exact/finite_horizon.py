"""Finite horizons, solved by backward induction: a control set and a lazy-gap for every step."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_count
from lazymdp._files import write_csv
from lazymdp.exact import bellman
from lazymdp.exact.bellman import over_states, rows_of
from lazymdp.exact.linear import backup_error, rounding_terms
from lazymdp.lazy import LazyMDP


@dataclass(frozen=True, eq=False)
class HorizonSolution:
    """An optimal solution over `H` steps. At step `t`, the first index of every array, `H - t` steps remain.

    Attributes:
        value: `[H+1, S]` optimal values, price included; `value[H]` is 0.
        q: `[H, S, A]` value of taking control with each action, including the price `-eta` paid now.
        lazy_gap: `[H, S]` `max_a q - q . default`.
        control: `[H, S]` bool, where the agent takes control: where the gap is proven to be larger than eta. Ties are
            lazy, and so is what rounding errors cannot tell from a tie.
        action: `[H, S]` int, the agent's action; `A` is lazy.
        error_bound: Proven bound on the rounding error of `value`.
    """

    value: NDArray[np.float64]
    q: NDArray[np.float64]
    lazy_gap: NDArray[np.float64]
    control: NDArray[np.bool_]
    action: NDArray[np.int64]
    error_bound: float

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one row per step and state: `step`, `state`, `value`, `lazy_gap`, `control`, `action`, `q_0`, ..."""
        steps, n_states, n_actions = self.q.shape
        place = {"step": np.repeat(np.arange(steps), n_states), "state": np.tile(np.arange(n_states), steps)}
        arrays = {"value": self.value[:-1], "lazy_gap": self.lazy_gap, "control": self.control, "action": self.action}
        by_action = {f"q_{action}": self.q[..., action].ravel() for action in range(n_actions)}
        write_csv(path, {**place, **{name: array.ravel() for name, array in arrays.items()}, **by_action})

    def __repr__(self) -> str:
        steps, n_states = self.control.shape
        return f"HorizonSolution({steps} steps, control in {self.control.mean():.1%} of steps x {n_states} states)"


def solve_horizon(lazy: LazyMDP, horizon: int) -> HorizonSolution:
    """Solves a lazy-MDP over `horizon` steps by backward induction. Gamma may be 1 in any model."""
    check_count(horizon, "horizon", "a number of steps")
    mdp, rows = lazy.mdp, rows_of(lazy)
    n_states, n_actions = mdp.n_states, mdp.n_actions
    try:
        value = np.zeros((horizon + 1, n_states))
        q = np.empty((horizon, n_states * n_actions))
        gap = np.empty((horizon, n_states))
        action = np.empty((horizon, n_states), dtype=np.int64)
    except MemoryError as refused:
        size = 8e-9 * horizon * n_states * (n_actions + 3)
        raise ValueError(
            f"horizon is {horizon}, for which the solution would need {size:.3g} GB of memory: use fewer steps, or an "
            "infinite horizon."
        ) from refused
    none = np.empty(0, dtype=np.int64)
    error, terms = 0.0, rounding_terms(mdp)
    kept = mdp.gamma * (1.0 + mdp.row_defect) * (1.0 + lazy.default_defect)
    errors, margins = np.zeros((horizon, 1)), np.zeros((horizon, 1))
    for t in reversed(range(horizon)):
        over_states(bellman.action_values, rows, value[t + 1], q[t], gap[t], action[t])
        over_states(bellman.backup, rows, value[t + 1], value[t], none)
        scale = mdp.max_reward + float(np.abs(value[t + 1]).max())
        rounding = backup_error(terms, scale + abs(lazy.eta))
        # As in `Certificate.gap_margin`.
        margins[t] = 2.0 * kept * error + 4.0 * rounding + 2.0 * lazy.default_defect * scale
        error = kept * error + rounding
        errors[t] = error
    control = (gap > lazy.eta + margins) & ~mdp.absorbing
    action[~control] = lazy.lazy_action
    return HorizonSolution(value, q.reshape(horizon, n_states, n_actions), gap, control, action, float(errors.max()))
