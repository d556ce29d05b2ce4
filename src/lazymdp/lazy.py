"""The lazy-MDP: one more action, *lazy*, that leaves the step to a default policy; taking control costs `eta`.

This module implements Sections 3 and 4 of the paper. Let `q` `[S, A]` be the value of taking control with each action
(the paper's Q without a-bar, which includes the `-eta` paid now). Everything else follows from `q`, so that the lazy
action needs no transition rows of its own:

* the value of being lazy is `q . default_policy + eta` (Property 2);
* the *lazy-gap* is `G = max_a q - q . default_policy`;
* the greedy agent takes control where `G > eta` and is lazy otherwise; a tie is lazy (Property 3). The paper's
  Corollary 1 prints this rule with the sign reversed.

Nothing is charged in absorbing states: their values and lazy-gaps are 0.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_eta, check_finite, check_type, plain_array, real_array, shown
from lazymdp._arrays import SUM_TOLERANCE
from lazymdp.mdp import MDP


class LazyMDP:
    """A base model, a default policy and a price: `M_+ = (M, a-bar, pi-bar, eta)`.

    Args:
        mdp: The base model `M`.
        default_policy: `[S, A]` probabilities `pi-bar(a | s)` of the policy that acts when the agent is lazy.
        eta: Price of one step in control: any finite number. A negative price is a bonus for taking control.

    Attributes:
        mdp: The base model.
        default_policy: `[S, A]` probabilities.
        eta: Price of one step in control.
        lazy_action: Index of the lazy action, always the last: `mdp.n_actions`.
        default_defect: Largest difference from 1 of the sum of a row of `default_policy` (rounding).
    """

    def __init__(self, mdp: MDP, default_policy: ArrayLike, eta: float) -> None:
        self.mdp = check_mdp(mdp)
        self.default_policy = check_policy(mdp, default_policy, mdp.n_actions, "default_policy")
        self.default_defect = float(np.abs(self.default_policy.sum(axis=1) - 1.0).max())
        self.eta = check_eta(eta)

    @property
    def lazy_action(self) -> int:
        """Index of the lazy action."""
        return self.mdp.n_actions

    def with_eta(self, eta: float) -> LazyMDP:
        """Returns the same model and default policy at another price, without copying or checking them again."""
        other = copy.copy(self)
        other.eta = check_eta(eta)
        return other

    def effective_policy(self, policy_plus: ArrayLike) -> NDArray[np.float64]:
        """Returns the policy that an augmented policy executes: `pi(a|s) = pi_+(a|s) + pi_+(lazy|s) pi-bar(a|s)`.

        Args:
            policy_plus: `[S, A+1]` probabilities, or `[S]` actions; the lazy action is the last.

        Returns:
            `[S, A]` probabilities of the actions of the base model.
        """
        plus = self.check_policy_plus(policy_plus)
        return plus[:, :-1] + plus[:, -1:] * self.default_policy

    def check_policy_plus(self, policy_plus: ArrayLike) -> NDArray[np.float64]:
        """Returns an augmented policy as `[S, A+1]` probabilities, and raises an error if it is not valid.

        Args:
            policy_plus: `[S, A+1]` probabilities, or `[S]` actions.
        """
        given = plain_array(policy_plus, "policy_plus is")
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
        """Returns the lazy-MDP as an MDP with A + 1 actions, the lazy one last (Sec. 3)."""
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
        default_policy: `[..., A]` probabilities of the default policy.

    Returns:
        `[...]` gaps. The greedy agent takes control where the gap is larger than eta.
    """
    values, default = check_finite(q, "q"), check_finite(default_policy, "default_policy")
    try:
        fits = default.shape[-1] == values.shape[-1] and bool(np.broadcast_shapes(default.shape, values.shape))
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"default_policy has shape {default.shape}, expected {values.shape} like q, or [A] for all rows of q."
        )
    sums = default.sum(axis=-1)
    # Probabilities from a network are of type float32, and sum to 1 less exactly.
    tolerance = SUM_TOLERANCE if np.asarray(default_policy).dtype.itemsize >= 8 else 1e-5
    bad = (default < 0.0).any(axis=-1) | (np.abs(sums - 1.0) > tolerance)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0]) if bad.ndim else ()
        raise ValueError(
            f"default_policy is {default[place].tolist()}{f' at {place}' if place else ''}, expected probabilities "
            "that sum to 1."
        )
    best = values.max(axis=-1, keepdims=True)
    # A sum of differences, and not of values, is exactly 0 where the default policy takes only best actions.
    return np.einsum("...a,...a->...", default, best - values)


def check_mdp(mdp: Any) -> MDP:
    """Returns a model, and raises an error if it is something else."""
    return check_type(mdp, "mdp", MDP, "an MDP: make one from arrays, or with `MDP.from_gymnasium`")


def check_lazy(lazy: Any) -> LazyMDP:
    """Returns a lazy-MDP, and raises an error if it is something else."""
    return check_type(lazy, "lazy", LazyMDP, "a LazyMDP: make one with `LazyMDP(mdp, default_policy, eta)`")


def check_policy(mdp: MDP, policy: ArrayLike, n_choices: int, what: str) -> NDArray[np.float64]:
    """Returns a policy of a model as `[S, n_choices]` probabilities, and raises an error if it is not valid.

    Args:
        mdp: The model.
        policy: The probabilities.
        n_choices: Number of actions in each state, with or without the lazy one.
        what: The name of the policy in error messages.
    """
    return check_table(policy, (mdp.n_states, n_choices), what, mdp.describe_state)


def check_table(
    policy: ArrayLike, shape: tuple[int, int], what: str, describe: Callable[[int], str] = "state {}".format
) -> NDArray[np.float64]:
    """Returns a table of probabilities, one distribution per row, and raises an error if it is not valid.

    Args:
        policy: The probabilities; they are not normalized.
        shape: The expected shape.
        what: The name of the table in error messages.
        describe: Names the state of a row in error messages.
    """
    if isinstance(policy, str) or callable(policy):
        raise ValueError(
            f"{what} is {shown(policy)}, expected a table of probabilities, {list(shape)}, such as "
            "lz.policies.uniform(mdp)."
        )
    table = real_array(policy, f"{what} entries")
    if table.shape != shape:
        remedy = f" From actions, make numpy.eye({shape[1]})[actions]." if table.shape == shape[:1] else ""
        raise ValueError(f"{what} has shape {table.shape}, expected {shape}: one row per state.{remedy}")
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
    """Sets the transitions of absorbing states to exactly 1, where mixing rows may have left 1 - 1e-16."""
    for state in states:
        begin, end = matrix.indptr[state * n_choices], matrix.indptr[(state + 1) * n_choices]
        matrix.data[begin:end] = 1.0
    return matrix
