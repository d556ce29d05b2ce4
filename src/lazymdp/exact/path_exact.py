"""The exact eta-path, by parametric policy iteration from the always-lazy policy down to price 0.

Let `B = I - gamma P_pi` be the matrix of a policy on the states that are not absorbing. Every other choice `(s, a)` has
a row `n = e_s - gamma P(. | s, a)` and, compared with the policy, a gain that is a line in the price:

    gain(eta) = alpha - eta beta,    alpha = r(s, a) - n . V,    beta = [a is not lazy] - n . K.

As the price falls, the next choice to become better is the one with the largest `alpha / beta` among those with
`beta > 0`. It changes one row of `B`, so everything else is updated by a rank-one step: see `path_dense`, and
`path_sparse` for sparse models.

*Ties.* Several choices may become better at the same price, or at prices that rounding errors cannot tell apart: those
at which the gain is 0 up to rounding errors. Nothing else makes two prices one: where models live long, a price that is
tiny beside the largest one still matters, because it is paid often. Each step has `beta > 0` and thus strictly raises
K, so no policy occurs twice at one price, and the steps at this price end with the policy that is optimal just below
it. Choices that tie on a whole interval (`alpha = beta = 0`) are left as they are, except that being lazy is preferred.

*Rounding.* A choice whose `alpha` or `beta` is 0 up to rounding gains nothing at any price and is ignored. Rounding is
what exact values leave: a few units in the last place of the largest value. A walk whose errors are larger computes its
gains anew before it decides by less than those (`refresh`), and at the end.

*Stopping rule and guarantee.* The walk ends when no choice becomes better above price 0. As in the simplex method, the
result is exact up to rounding errors. `eta_path` certifies the policy at price 0, and warns if the error that it proves
is larger than rounding explains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact.linear import TOO_LONG, DenseFactors, policy_line
from lazymdp.exact.path_dense import Tableau
from lazymdp.exact.path_sparse import SparseWalk
from lazymdp.lazy import LazyMDP

Progress = Callable[[int, float], None]
"""Callback that receives the number of steps so far and the price reached."""

Segment = Callable[[float, float], None]
"""Callback that receives the largest and the smallest price at which the walk's present policy is optimal."""

SMALL = 100
"""Largest number of states for which a tableau is always used."""

_DENSE = 0.1
"""Share of transitions with a probability above 0 from which on a tableau is used."""


@dataclass
class Trace:
    """A record of the policies found, from the largest price down.

    Attributes:
        breakpoints: Prices at which the policy changes, decreasing.
        switches: `(index of the breakpoint, state, action below it, action above it)`.
        start_base_values: Base value of each policy from the start distribution: one more than breakpoints.
        start_control_counts: Expected discounted number of controls of each policy from the start distribution.
        last_value: `[S]` base value of the policy at price 0, as the walk has it; None if not known.
    """

    breakpoints: list[float] = field(default_factory=list)
    switches: list[tuple[int, int, int, int]] = field(default_factory=list)
    start_base_values: list[float] = field(default_factory=list)
    start_control_counts: list[float] = field(default_factory=list)
    last_value: NDArray[np.float64] | None = None

    def add(self, eta: float, before: NDArray[np.int64], after: NDArray[np.int64], value: float, count: float) -> None:
        """Records a change of the policy at `eta` from `before` to `after`, both `[S]` actions."""
        changed = np.flatnonzero(before != after)
        index = len(self.breakpoints)
        self.breakpoints.append(eta)
        self.switches += [(index, int(s), int(after[s]), int(before[s])) for s in changed]
        self.start_base_values.append(value)
        self.start_control_counts.append(count)


def always_lazy(lazy: LazyMDP) -> Trace:
    """Returns the trace of a model whose default policy is optimal: one policy for all prices."""
    value, _ = policy_line(lazy.mdp, lazy.default_policy, np.full(lazy.mdp.n_states, lazy.lazy_action))
    return Trace(start_base_values=[lazy.mdp.start_average(value)], start_control_counts=[0.0])


def exact_trace(lazy: LazyMDP, factors: DenseFactors | None = None, progress: Progress | None = None) -> Trace:
    """Follows the optimal policy from the always-lazy one down to price 0, breakpoint by breakpoint.

    Args:
        lazy: The lazy-MDP; its price does not matter.
        factors: Dense factors of the always-lazy policy's matrix, if there are any.
        progress: Called with the number of steps so far and the price reached.
    """
    return follow(SparseWalk(lazy) if is_sparse(lazy) else Tableau(lazy, factors), progress)


def follow(walk: SparseWalk | Tableau, progress: Progress | None = None, segment: Segment | None = None) -> Trace:
    """Records the policies of a walk that begins with the always-lazy policy; `segment` is called for each."""
    trace = Trace()
    trace.start_base_values.append(walk.start_base_value)
    trace.start_control_counts.append(0.0)
    eta = np.inf
    before = walk.action.copy()
    met = {hash(before.tobytes())}  # the policies met at this price
    while True:
        choices, crossing = walk.next_gains(eta)
        if not choices and walk.settle():  # rounding errors may have hidden what is left to gain
            continue
        if not choices or crossing < eta:  # no further tie at this price
            for tied in walk.lazy_ties():
                walk.step(tied)
            if not np.array_equal(before, walk.action):
                trace.add(eta, before, walk.action, walk.start_base_value, walk.start_control_count)
                before = walk.action.copy()
            if segment is not None:
                segment(eta, crossing)
            if not choices:
                trace.last_value = walk.base_value()
                return trace
            eta = crossing
            met = {hash(walk.action.tobytes())}
        walk.step(choices[0])
        for choice in choices[1:]:
            if walk.still_gains(choice, crossing):
                walk.step(choice)
        policy = hash(walk.action.tobytes())
        if policy in met:  # every step raises K, so that only rounding errors can lead in a circle
            raise ValueError(TOO_LONG)
        met.add(policy)
        if progress is not None:
            progress(walk.steps, eta)


def is_sparse(lazy: LazyMDP) -> bool:
    """Returns whether a walk with `V` and `K` and sweeps over the transitions is faster than one with a tableau."""
    n_states, n_actions = lazy.mdp.rewards.shape
    return n_states > SMALL and lazy.mdp.transitions.nnz < _DENSE * n_states * n_states * n_actions
