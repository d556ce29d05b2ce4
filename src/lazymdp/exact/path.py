"""The whole answer for every eta at once: the *eta-path*.

For a fixed policy the value is a line in the price, `V - eta K`. The optimum is the upper envelope of these lines:
convex, piecewise linear, with slope `-K`, so that total control falls as the price rises. The path lists the prices at
which the optimal policy changes, the *breakpoints*, and which states change there and how. Above the largest breakpoint
(`eta_max`) everything is lazy; below the smallest one nothing changes down to 0.

The price at which a state stops taking control is its `critical_eta`, an importance that needs no chosen eta: the lazy
action is the passive action of a restless bandit and eta its subsidy, so this is the state's *Whittle index*. It is a
single number only where the state, once lazy, stays lazy as the price grows. That is not always so, and the path tells:
`is_indexable`, `control_intervals`.

`max return subject to at most B expected controls` is solved by mixing the two policies at one breakpoint:
`EtaPath.for_budget`.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.exact.linear import policy_line
from lazymdp.exact.path_exact import Progress, Trace, exact_trace
from lazymdp.exact.path_within_tol import certified_error, certified_trace
from lazymdp.exact.solve import NotConverged
from lazymdp.lazy import LazyMDP, check_eta
from lazymdp.mdp import MDP


@dataclass(frozen=True, eq=False)
class BudgetedPolicy:
    """The best one can do within a budget of control: two policies and a weight.

    At the start of an episode play `actions[0]` with probability `weight`, else `actions[1]`, to the end.

    Attributes:
        eta: The price at which both policies are optimal: what one more control is worth.
        actions: Two `[S]` int arrays, the lazy action is `A`; the first takes more control.
        weight: Probability of the first.
        value: Expected return of the base model from the start distribution, price not included.
        control_count: Expected discounted number of controls from the start distribution, at most the budget.
    """

    eta: float
    actions: tuple[NDArray[np.int64], NDArray[np.int64]]
    weight: float
    value: float
    control_count: float


@dataclass(frozen=True, repr=False, eq=False)
class EtaPath:
    """Every optimal policy of a model and a default, for every price from 0 up.

    Memory grows with the number of switches, not with breakpoints times states: policies are rebuilt on demand.

    Attributes:
        mdp: The base model.
        default_policy: `[S, A]`.
        breakpoints: `[B]` prices at which the optimal policy changes, increasing. Two that differ by less than 1e-11
            of the largest are one, and one below that is 0 and left out.
        switches: `[W, 4]` int: breakpoint, state, action below the breakpoint, action above it (`A` is lazy), by
            increasing breakpoint. Most switches turn lazy as the price grows; the reverse also happens.
        start_values: `[B+1]` value `V` of each optimal policy from the start distribution, without the price; entry
            `i` belongs to the prices between breakpoints `i - 1` and `i`.
        start_counts: `[B+1]` its expected discounted number of controls `K`; the value with the price is `V - eta K`.
        tol: Proven sup-norm error of `value_at`; 0 for an exact path (rounding apart). With a tolerance everything
            else describes the policies found, which are optimal only up to it: fewer breakpoints than there are, each
            where two of these policies meet.
    """

    mdp: MDP
    default_policy: NDArray[np.float64]
    breakpoints: NDArray[np.float64]
    switches: NDArray[np.int64]
    start_values: NDArray[np.float64]
    start_counts: NDArray[np.float64]
    tol: float
    _lines: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # of the segment asked for last

    def action_at(self, eta: float) -> NDArray[np.int64]:
        """`[S]` an optimal action per state at price `eta`; `A` is lazy, and a tie is lazy."""
        price = self._checked(eta)
        action = self._segment_action(int(np.searchsorted(self.breakpoints, price, side="right")))
        here = self.switches[self.breakpoints[self.switches[:, 0]] == price]
        action[here[here[:, 2] == self.mdp.n_actions, 1]] = self.mdp.n_actions
        return action

    def value_at(self, eta: float) -> NDArray[np.float64]:
        """`[S]` optimal value `V_+*` at price `eta`, price included."""
        price = self._checked(eta)
        value, count = self._line(price)
        return value - price * count

    def control_count_at(self, eta: float) -> NDArray[np.float64]:
        """`[S]` expected discounted number of controls `K` of the optimal policy at price `eta`."""
        return self._line(self._checked(eta))[1]

    @property
    def critical_eta(self) -> NDArray[np.float64]:
        """`[S]` the largest price at which each state takes control; 0 where it never does. Its Whittle index."""
        critical = np.zeros(self.mdp.n_states)
        lazy_above = self.switches[self.switches[:, 3] == self.mdp.n_actions]
        np.maximum.at(critical, lazy_above[:, 1], self.breakpoints[lazy_above[:, 0]])
        return critical

    @property
    def non_indexable_states(self) -> NDArray[np.int64]:
        """The states that are lazy at some price and take control again at a larger one."""
        lazy_below = self.switches[:, 2] == self.mdp.n_actions
        return np.unique(self.switches[lazy_below, 1])

    @property
    def is_indexable(self) -> bool:
        """Whether every state, once lazy, stays lazy as the price grows; see `non_indexable_states`."""
        return not self.non_indexable_states.size

    def control_intervals(self, state: int) -> list[tuple[float, float]]:
        """The intervals of prices, increasing, in which `state` takes control; one or none where it is indexable."""
        if not 0 <= state < self.mdp.n_states:
            raise ValueError(f"state is {state}, expected 0 to {self.mdp.n_states - 1}.")
        lazy, intervals, end = self.mdp.n_actions, [], 0.0
        for index, _, below, above in self.switches[self.switches[:, 1] == state][::-1]:
            if above == lazy:
                end = float(self.breakpoints[index])
            elif below == lazy:
                intervals.append((float(self.breakpoints[index]), end))
        if self._segment_action(0)[state] != lazy:
            intervals.append((0.0, end))
        return intervals[::-1]

    def for_budget(self, control_count: float) -> BudgetedPolicy:
        """The largest expected return with at most `control_count` expected discounted controls.

        Both are meant from the start distribution. The optimum of this linear program is a mixture of the two policies
        on either side of a breakpoint, or a single one where the budget is generous.
        """
        budget = float(control_count)
        if not budget >= 0.0:
            raise ValueError(f"control_count is {budget}, expected a number of controls, at least 0.")
        counts, values = self.start_counts, self.start_values
        if budget >= counts[0]:
            action = self._segment_action(0)
            return BudgetedPolicy(0.0, (action, action), 1.0, float(values[0]), float(counts[0]))
        above = int(np.argmax(counts <= budget))  # counts fall along the path, to 0 at the end
        below = above - 1
        weight = (budget - counts[above]) / (counts[below] - counts[above])
        return BudgetedPolicy(
            float(self.breakpoints[below]),
            (self._segment_action(below), self._segment_action(above)),
            float(weight),
            float(weight * values[below] + (1.0 - weight) * values[above]),
            float(weight * counts[below] + (1.0 - weight) * counts[above]),
        )

    def __repr__(self) -> str:
        span = f" from {self.breakpoints[0]:.4g} to {self.breakpoints[-1]:.4g}" if self.breakpoints.size else ""
        kind = "exact" if self.tol == 0.0 else f"within {self.tol:g}"
        order = "indexable" if self.is_indexable else f"{self.non_indexable_states.size} states not indexable"
        return f"EtaPath({self.breakpoints.size} breakpoints{span}, {len(self.switches)} switches, {kind}, {order})"

    def _checked(self, eta: float) -> float:
        price = check_eta(eta)
        if price < 0.0:
            raise ValueError(f"eta is {price}; the path covers prices from 0 up. Use solve for a negative one.")
        return price

    def _segment_action(self, segment: int) -> NDArray[np.int64]:
        """The policy between breakpoints `segment - 1` and `segment`: always lazy, then every switch down to there."""
        action = np.full(self.mdp.n_states, self.mdp.n_actions)
        done = self.switches[self.switches[:, 0] >= segment][::-1]
        action[done[:, 1]] = done[:, 2]  # a state's last switch, at the smallest price, is written last
        return action

    def _line(self, eta: float) -> NDArray[np.float64]:
        """`[2, S]` the values `V` and `K` of the policy optimal at `eta`."""
        segment = int(np.searchsorted(self.breakpoints, eta, side="right"))
        if segment not in self._lines:
            line = policy_line(self.mdp, self.default_policy, self._segment_action(segment))
            self._lines.clear()
            self._lines[segment] = line
        return self._lines[segment]


def eta_path(
    mdp: MDP, default_policy: ArrayLike, *, tol: float | None = None, progress: Progress | None = None
) -> EtaPath:
    """Solves a model for every price at once.

    Args:
        mdp: The base model.
        default_policy: `[S, A]` what acts when the agent is lazy.
        tol: None for the exact path, for models up to a few thousand states. A number gives, for any size, a path
            whose values are proven to be within `tol` of the optimum in every state at every price.
        progress: Called with the number of switches (or solutions) so far and the price reached.
    """
    lazy = LazyMDP(mdp, default_policy, 0.0)
    mdp.check_infinite_horizon()
    if tol is not None and not tol > 0.0:
        raise ValueError(f"tol is {tol}, expected a positive number, or None for the exact path.")
    if tol is not None:
        return _assemble(lazy, certified_trace(lazy, tol, progress), tol)
    path = _assemble(lazy, exact_trace(lazy, progress), 0.0)
    _check_bottom(lazy, path)
    return path


def _check_bottom(lazy: LazyMDP, path: EtaPath) -> None:
    """Certifies the policy reached at price 0: an error made anywhere on the way down would show there."""
    error = certified_error(lazy, path.value_at(0.0))
    scale = 1.0 + lazy.mdp.max_reward + float(np.abs(path.value_at(0.0)).max())
    if not error <= 1e-6 * scale:
        warnings.warn(
            f"the path ends at price 0 with a policy that may be {error:.1e} below the optimum: rounding has been lost "
            "on the way. Use tol= for a path with a proven error.",
            NotConverged,
            stacklevel=3,
        )


def _assemble(lazy: LazyMDP, trace: Trace, tol: float) -> EtaPath:
    """Turns the trace, recorded from the largest price down, into a path that reads from 0 up."""
    count = len(trace.breakpoints)
    switches = np.array(trace.switches, dtype=np.int64).reshape(-1, 4)[::-1]
    switches[:, 0] = count - 1 - switches[:, 0]
    return EtaPath(
        lazy.mdp,
        lazy.default_policy,
        np.array(trace.breakpoints)[::-1],
        switches,
        np.array(trace.start_values)[::-1],
        np.array(trace.start_counts)[::-1],
        tol,
    )
