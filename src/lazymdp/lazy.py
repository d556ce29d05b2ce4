"""The lazy-MDP: one more action, *lazy*, that hands the step to a default policy; taking control costs `eta`.

Sections 3 and 4 of the paper. With `q [S, A]` the value of taking control with each action (the paper's Q without
a-bar, which includes the `-eta` paid now), everything else follows and no transition row of the lazy action is ever
needed:

* being lazy is worth `q . default + eta` (Property 2);
* the *lazy-gap* is `G = max_a q - q . default`;
* the greedy agent takes control where `G > eta`, and is lazy otherwise: a tie is lazy (Property 3). The paper's
  Corollary 1 prints this rule with its sign reversed.

Absorbing states are never charged: there every value, and the lazy-gap, is 0.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lazymdp._arrays import LARGEST, SUM_TOLERANCE, real_array
from lazymdp.mdp import MDP


class LazyMDP:
    """A base model, a default policy and a price: `M_+ = (M, a-bar, pi-bar, eta)`.

    Args:
        mdp: The base model `M`.
        default_policy: `[S, A]` probabilities `pi-bar(a | s)` of what happens when the agent is lazy.
        eta: Price of one step of control, any finite number; negative is a bonus for acting.

    Attributes:
        lazy_action: Index of the lazy action, always the last: `mdp.n_actions`.
        default_defect: How far the default's probabilities sum from 1, at most (rounding).
    """

    def __init__(self, mdp: MDP, default_policy: ArrayLike, eta: float) -> None:
        self.mdp = mdp
        self.default_policy = check_policy(mdp, default_policy, mdp.n_actions, "default_policy")
        self.default_defect = float(np.abs(self.default_policy.sum(axis=1) - 1.0).max())
        self.eta = check_eta(eta)

    @property
    def lazy_action(self) -> int:
        """Index of the lazy action."""
        return self.mdp.n_actions

    def with_eta(self, eta: float) -> LazyMDP:
        """The same model and default at another price (nothing is copied or checked again but the price)."""
        other = copy.copy(self)
        other.eta = check_eta(eta)
        return other

    def effective_policy(self, policy_plus: ArrayLike) -> NDArray[np.float64]:
        """What an augmented policy does in the base model: `pi(a|s) = pi_+(a|s) + pi_+(lazy|s) pi-bar(a|s)`.

        Args:
            policy_plus: `[S, A+1]` probabilities, or `[S]` actions.

        Returns:
            `[S, A]` probabilities.
        """
        plus = self.check_policy_plus(policy_plus)
        return plus[:, :-1] + plus[:, -1:] * self.default_policy

    def check_policy_plus(self, policy_plus: ArrayLike) -> NDArray[np.float64]:
        """An augmented policy as `[S, A+1]` probabilities, checked; `[S]` action indices are spread out."""
        given = np.asarray(policy_plus)
        if given.ndim == 1 and np.issubdtype(given.dtype, np.integer):
            outside = (given < 0) | (given > self.lazy_action)
            if given.shape == (self.mdp.n_states,) and not outside.any():
                return np.eye(self.lazy_action + 1)[given]
            if given.shape == (self.mdp.n_states,):
                state = int(np.argmax(outside))
                raise ValueError(
                    f"policy_plus takes action {given[state]} in {self.mdp.describe_state(state)}, expected 0 to "
                    f"{self.lazy_action} ({self.lazy_action} is lazy)."
                )
        return check_policy(self.mdp, given, self.lazy_action + 1, "policy_plus")

    def to_mdp(self) -> MDP:
        """The explicit model with A + 1 actions, the lazy one last (Sec. 3); absorbing states stay uncharged."""
        mdp, default = self.mdp, self.default_policy
        n_states, n_actions = mdp.n_states, mdp.n_actions
        rows = np.arange(n_states * n_actions)
        blend = sp.csr_array((default.ravel(), (rows // n_actions, rows)), shape=(n_states, rows.size))
        stacked = sp.csr_array(sp.vstack([mdp.transitions, blend @ mdp.transitions]))
        order = np.hstack([rows.reshape(n_states, n_actions), (rows.size + np.arange(n_states))[:, None]])
        rewards = np.hstack([mdp.rewards - self.eta, (default * mdp.rewards).sum(axis=1, keepdims=True)])
        rewards[mdp.absorbing] = 0.0
        transitions = _with_exact_loops(stacked[order.ravel()], np.flatnonzero(mdp.absorbing), n_actions + 1)
        return MDP(
            transitions,
            rewards,
            mdp.gamma,
            mdp.start,
            mdp.absorbing,
            state_names=mdp.state_names,
            action_names=None if mdp.action_names is None else [*mdp.action_names, "lazy"],
        )

    def __repr__(self) -> str:
        return f"LazyMDP(eta={self.eta:g}, {self.mdp!r})"


def lazy_gap(q: ArrayLike, default_policy: ArrayLike) -> NDArray[np.float64]:
    """The lazy-gap `G(s) = max_a q(s, a) - sum_a pi-bar(a|s) q(s, a)`, at least 0.

    Args:
        q: `[..., A]` values of taking control with each action.
        default_policy: `[..., A]` the default's probabilities.

    Returns:
        `[...]` gaps; the greedy agent takes control where the gap is larger than eta.
    """
    values = np.asarray(q, dtype=np.float64)
    if np.isnan(values).any():
        raise ValueError(f"q is nan at {tuple(int(i) for i in np.argwhere(np.isnan(values))[0])}, expected numbers.")
    best = values.max(axis=-1, keepdims=True)
    # Summing differences, not values, makes the gap exactly 0 where the default only takes best actions.
    return np.einsum("...a,...a->...", np.asarray(default_policy, dtype=np.float64), best - values)


def check_eta(eta: float) -> float:
    """`eta` as a float; anything but a finite number is an error."""
    value = float(eta)
    if not abs(value) <= LARGEST:
        raise ValueError(
            f"eta is {value}, expected a number of size up to {LARGEST:g}: the price of a step of control."
        )
    return value


def check_policy(mdp: MDP, policy: ArrayLike, n_choices: int, what: str) -> NDArray[np.float64]:
    """A table of probabilities `[S, n_choices]` over the choices in each state of a model, checked."""
    return check_table(policy, (mdp.n_states, n_choices), what, mdp.describe_state)


def check_table(
    policy: ArrayLike, shape: tuple[int, int], what: str, describe: Callable[[int], str] = "state {}".format
) -> NDArray[np.float64]:
    """A table of probabilities of the given shape, checked row by row and never renormalised."""
    table = real_array(policy, f"{what} entries")
    if table.shape != shape:
        raise ValueError(f"{what} has shape {table.shape}, expected {shape}: one row per state.")
    bad = ~np.isfinite(table) | (table < 0.0)
    if bad.any():
        state, action = divmod(int(np.argmax(bad)), shape[1])
        raise ValueError(
            f"{what} gives action {action} in {describe(state)} probability {table[state, action]}, "
            "expected a number between 0 and 1."
        )
    sums = table.sum(axis=1)
    if (np.abs(sums - 1.0) > SUM_TOLERANCE).any():
        state = int(np.argmax(np.abs(sums - 1.0) > SUM_TOLERANCE))
        raise ValueError(f"{what} in {describe(state)} sums to {float(sums[state])!r}, not 1.")
    table.flags.writeable = False
    return table


def _with_exact_loops(matrix: sp.csr_array, states: NDArray[np.int64], n_choices: int) -> sp.csr_array:
    """Sets the self-loops of `states` to exactly 1: blending probabilities may leave 1 - 1e-16 there."""
    for state in states:
        begin, end = matrix.indptr[state * n_choices], matrix.indptr[(state + 1) * n_choices]
        matrix.data[begin:end] = 1.0
    return matrix
