"""The optimal policies for every price at once: the *eta-path*.

For a fixed policy the value is a line in the price, `V - eta K`. The optimal value is the upper envelope of these
lines: convex and piecewise linear with slope `-K`, so total control falls as the price rises. The path lists the prices
at which the optimal policy changes, the *breakpoints*, and for each of them which states change and how. Above the
largest breakpoint, `eta_max`, every state is lazy. Below the smallest one the policy stays the same down to price 0.

The price at which a state stops taking control is its `critical_eta`, a measure of importance that needs no choice of
eta. The lazy action is the passive action of a restless bandit and eta its subsidy, so `critical_eta` is the state's
*Whittle index*. It describes the state completely only if the state, once lazy, stays lazy as the price grows. That is
not always so: see `is_indexable` and `control_intervals`.

The best plan under a limit on control mixes two policies: see `EtaPath.for_control_count` and
`EtaPath.for_control_rate`.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_eta, check_integer, check_number, check_progress, check_tol, counted
from lazymdp._files import write_csv
from lazymdp.exact.control_plan import ControlPlan, Outcome, mixed_plan, plan_for_rate, steps_lived
from lazymdp.exact.error_bound import Certificate, check_lifetimes
from lazymdp.exact.eta_bounds import largest_lazy_gap
from lazymdp.exact.linear import PolicySystem, policy_line
from lazymdp.exact.path_exact import Progress, Trace, always_lazy, exact_trace
from lazymdp.exact.path_within_tol import certified_error, certified_trace, policy_error
from lazymdp.exact.solve import NotConverged
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP

_EXPLAINED = 8.0
"""Proven error of the policy at price 0, relative to the one that a single sweep of exact values would have, above
which rounding does not explain it: choices that gain up to four times as much are ties."""


@dataclass(frozen=True, repr=False, eq=False)
class EtaPath:
    """The optimal policies of a model and a default policy for every price from 0 up.

    Memory grows with the number of switches, not with the number of breakpoints times states: policies are rebuilt on
    demand.

    Attributes:
        mdp: The base model.
        default_policy: `[S, A]` probabilities.
        breakpoints: `[B]` prices at which the optimal policy changes, increasing. Prices between which the policies
            gain no more than rounding errors count as one, and those that rounding cannot tell from 0 are left out.
            There are none if the default policy is optimal (`eta_max` is 0).
        switches: `[W, 4]` int, sorted by breakpoint: index of the breakpoint, state, action below the breakpoint,
            action above it (`A` is lazy). Most states turn lazy as the price grows; the reverse also happens.
        start_base_values: `[B+1]` base value `V` of each optimal policy from the start distribution, without the price.
            Entry `i` belongs to the prices between breakpoints `i - 1` and `i`.
        start_control_counts: `[B+1]` expected discounted number of controls `K` of each optimal policy from the start
            distribution. The value with the price is `V - eta K`.
        tol: Proven sup-norm error of `value_at`; 0 for an exact path, which has rounding errors only. With a tolerance,
            everything else describes the policies found. These are optimal up to `tol`, and there may be fewer of them.
    """

    mdp: MDP
    default_policy: NDArray[np.float64]
    breakpoints: NDArray[np.float64]
    switches: NDArray[np.int64]
    start_base_values: NDArray[np.float64]
    start_control_counts: NDArray[np.float64]
    tol: float
    _lines: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # cache of the segment last asked for

    def action_at(self, eta: float) -> NDArray[np.int64]:
        """Returns an optimal action for each state, `[S]`, at price `eta`; `A` is lazy, and ties are lazy."""
        price = self._checked(eta)
        action = self._segment_action(int(np.searchsorted(self.breakpoints, price, side="right")))
        here = self.switches[self.breakpoints[self.switches[:, 0]] == price]
        action[here[here[:, 2] == self.mdp.n_actions, 1]] = self.mdp.n_actions
        return action

    def value_at(self, eta: float) -> NDArray[np.float64]:
        """Returns the optimal value `V_+*`, `[S]`, at price `eta`, price included."""
        price = self._checked(eta)
        value, count = self._line(price)
        return value - price * count

    def control_count_at(self, eta: float) -> NDArray[np.float64]:
        """Returns the expected discounted number of controls `K`, `[S]`, of the optimal policy at price `eta`."""
        return self._line(self._checked(eta))[1]

    @property
    def critical_eta(self) -> NDArray[np.float64]:
        """`[S]`: the largest price at which each state takes control, its Whittle index; 0 if it never does."""
        critical = np.zeros(self.mdp.n_states)
        lazy_above = self.switches[self.switches[:, 3] == self.mdp.n_actions]
        np.maximum.at(critical, lazy_above[:, 1], self.breakpoints[lazy_above[:, 0]])
        return critical

    @property
    def non_indexable_states(self) -> NDArray[np.int64]:
        """States that are lazy at some price and take control again at a larger one."""
        lazy_below = self.switches[:, 2] == self.mdp.n_actions
        return np.unique(self.switches[lazy_below, 1])

    @property
    def is_indexable(self) -> bool:
        """Whether every state, once lazy, stays lazy as the price grows; see `non_indexable_states`."""
        return not self.non_indexable_states.size

    def control_intervals(self, state: int) -> list[tuple[float, float]]:
        """Returns the intervals of prices in which `state` takes control, increasing; at most one if indexable."""
        last = self.mdp.n_states - 1
        check_integer(state, "state", 0, last, f"the index of a state: an integer from 0 to {last}")
        lazy, intervals, end = self.mdp.n_actions, [], 0.0
        for index, _, below, above in self.switches[self.switches[:, 1] == state][::-1]:
            if above == lazy:
                end = float(self.breakpoints[index])
            elif below == lazy:
                intervals.append((float(self.breakpoints[index]), end))
        if self._segment_action(0)[state] != lazy:
            intervals.append((0.0, end))
        return intervals[::-1]

    def for_control_count(self, control_count: float) -> ControlPlan:
        """Returns the plan with the largest expected return among those with at most `control_count` controls.

        The return and the number of controls are expectations from the start distribution, discounted. The plan mixes
        the two policies on either side of a breakpoint; it is a single policy where the limit does not bind.

        Args:
            control_count: Largest expected discounted number of controls, at least 0.
        """
        limit = check_number(control_count, "control_count", 0.0, np.inf, "a number of controls, at least 0")
        counts = self.start_control_counts
        if limit >= counts[0]:
            best = self._outcome(0)
            return mixed_plan(self.mdp.n_actions, 0.0, best, best, 1.0)
        within = int(np.argmax(counts <= limit))  # counts fall along the path, to 0 at the end
        above = within - 1
        weight = float((limit - counts[within]) / (counts[above] - counts[within]))
        eta = float(self.breakpoints[above])
        return mixed_plan(self.mdp.n_actions, eta, self._outcome(above), self._outcome(within), weight)

    def for_control_rate(self, share: float) -> ControlPlan:
        """Returns the plan with the largest expected return among those in control in at most `share` of the steps.

        The rate is the expected discounted number of controls divided by the expected discounted number of steps lived
        (steps in states that are not absorbing), both from the start distribution. For a mixture it is the ratio of the
        mixed expectations. (A trained agent's `for_control_rate` limits the undiscounted share of steps over whole
        episodes instead.)

        Where episodes can end, policies differ in how long they last, so the plan is in general not on the path. It is
        computed by linear systems, exact up to rounding errors even if the path has a tolerance. `share = 0` gives the
        always-lazy policy, `share = 1` the best policy at price 0.

        Args:
            share: Largest control rate, 0 to 1.
        """
        limit = check_number(share, "share", 0.0, 1.0, "a share of steps between 0 and 1")
        return plan_for_rate(LazyMDP(self.mdp, self.default_policy, 0.0), limit, self._segment_action(0))

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one row per optimal policy: the price from which it is optimal, its return and its control count."""
        columns = {
            "from_eta": np.append(0.0, self.breakpoints),
            "base_value": self.start_base_values,
            "control_count": self.start_control_counts,
        }
        write_csv(path, columns)

    def __repr__(self) -> str:
        count, unordered = self.breakpoints.size, self.non_indexable_states.size
        span = f" from {self.breakpoints[0]:.4g} to {self.breakpoints[-1]:.4g}" if count > 1 else ""
        span = f" at {self.breakpoints[0]:.4g}" if count == 1 else span
        switches = counted(len(self.switches), "switch", "switches")
        kind = "exact" if self.tol == 0.0 else f"within {self.tol:g}"
        order = f"{counted(unordered, 'state')} not indexable" if unordered else "indexable"
        return f"EtaPath({counted(count, 'breakpoint')}{span}, {switches}, {kind}, {order})"

    def _checked(self, eta: float) -> float:
        price = check_eta(eta)
        if price < 0.0:
            raise ValueError(f"eta is {price}, but the path covers prices from 0 up. Use `solve` for a negative price.")
        return price

    def _outcome(self, segment: int) -> Outcome:
        """The policy between breakpoints `segment - 1` and `segment`, with its expectations from the start."""
        action = self._segment_action(segment)
        steps = steps_lived(LazyMDP(self.mdp, self.default_policy, 0.0), action)
        values, counts = self.start_base_values, self.start_control_counts
        return Outcome(action, float(values[segment]), float(counts[segment]), steps)

    def _segment_action(self, segment: int) -> NDArray[np.int64]:
        """Rebuilds the policy between breakpoints `segment - 1` and `segment` from the switches above it."""
        action = np.full(self.mdp.n_states, self.mdp.n_actions)
        done = self.switches[self.switches[:, 0] >= segment][::-1]
        action[done[:, 1]] = done[:, 2]  # NumPy keeps the last assignment: the switch at the smallest price
        return action

    def _line(self, eta: float) -> NDArray[np.float64]:
        """Returns `[2, S]`: the base value `V` and the control count `K` of the optimal policy at `eta`."""
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
        default_policy: `[S, A]` probabilities of the actions taken when the agent is lazy.
        tol: None for the exact path, which suits models of up to ten thousand states. With a number, models of any
            size get a path whose values are proven to be within `tol` of the optimum in every state at every price.
            Where the exact path is expected to take less time, its policies are taken. For dense models, this proof is
            a check by random numbers that misses an error with a probability below 1e-12 for each state and action. If
            rounding errors are too large for the check, the path is the exact one, with `tol` 0 and a warning.
        progress: Called with the number of switches (or of prices solved, with `tol`) so far and the price reached.
    """
    lazy = LazyMDP(mdp, default_policy, 0.0)
    mdp.check_infinite_horizon()
    check_progress(progress)
    check_lifetimes(mdp, lazy.default_defect)
    if tol is not None:
        allowed = check_tol(tol, ", or None for the exact path")
        certified = certified_trace(lazy, allowed, progress)
        if certified is not None:
            return _assemble(lazy, certified, allowed)
        warnings.warn(
            f"tol = {allowed:g} is too small to be proven here, because of rounding errors: this is the exact path, "
            "which has rounding errors only, and whose tol is 0.",
            NotConverged,
            stacklevel=2,
        )
    system = PolicySystem(mdp, lazy.default_policy)
    top = largest_lazy_gap(mdp, lazy.default_policy, system)  # refuses what would have rounding errors as breakpoints
    trace = exact_trace(lazy, system.dense_factors, progress) if top > 0.0 else always_lazy(lazy)
    path = _assemble(lazy, trace, 0.0)
    _check_bottom(lazy, path.action_at(0.0), trace.last_value)
    return path


def _check_bottom(lazy: LazyMDP, action: NDArray[np.int64], value: NDArray[np.float64] | None) -> None:
    """Certifies the policy reached at price 0 and its value, where an error made on the way down would show."""
    certificate = Certificate(lazy)
    for given in (value, None):  # perhaps only the value, not the policy, has lost its precision on the way
        found = given if given is not None else policy_line(lazy.mdp, lazy.default_policy, action)[0]
        error = certified_error(lazy, found, certificate) + policy_error(lazy, action, found, certificate)
        scale = lazy.mdp.max_reward + float(np.abs(found).max())
        if error <= min(_EXPLAINED * certificate(0.0, 0.0, found)[1], 1e-6 * scale):
            return
    warnings.warn(
        f"the policy at price 0 is only proven to be within {error:.1e} of the optimum: rounding errors have "
        "accumulated along the path. Pass tol= for a path with a proven error.",
        NotConverged,
        stacklevel=3,
    )


def _assemble(lazy: LazyMDP, trace: Trace, tol: float) -> EtaPath:
    """Turns a trace, recorded from the largest price down, into a path ordered from price 0 up."""
    count = len(trace.breakpoints)
    switches = np.array(trace.switches, dtype=np.int64).reshape(-1, 4)[::-1]
    switches[:, 0] = count - 1 - switches[:, 0]
    return EtaPath(
        lazy.mdp,
        lazy.default_policy,
        np.array(trace.breakpoints)[::-1],
        switches,
        np.array(trace.start_base_values)[::-1],
        np.array(trace.start_control_counts)[::-1],
        tol,
    )
