"""The best return under a limit on control: two policies and the probability of playing each.

With `V` the return, `K` the number of controls and `N` the number of steps lived (steps in states that are not
absorbing), all expected from the start distribution and discounted, a limit is a constraint `excess <= 0` where

* `excess = K - n` for a *control count* `n`;
* `excess = K - share * N` for a *control rate* `share`.

Both are linear in the occupancies of states and actions, so the best policy solves a linear program with a single extra
constraint: it is a mixture, drawn at the start of an episode, of two deterministic policies. Both of them maximize the
Lagrangian `V - eta * excess` at the same multiplier `eta`.

For a count the Lagrangian is the value of the lazy-MDP at price `eta`, and the two policies are neighbors on the
eta-path. For a rate it is the value of a lazy-MDP at price `eta` in which every step lived also earns `eta * share`.
Where episodes can end, policies differ in `N`, and the multiplier has to be searched for:

1. Start with the best policy without a limit (`excess > 0`, otherwise it is the answer) and the always-lazy one
   (`excess <= 0`).
2. Let `eta` be the multiplier at which the two have the same Lagrangian, and find the best policy there by policy
   iteration.
3. If it is not better than the two, these are the answer. Otherwise it replaces the one on its side of the limit.

Every round finds a new vertex of the set of achievable pairs `(excess, V)`, so the search ends, usually after about ten
rounds. It stops when the Lagrangian improves by less than rounding. By duality no plan within the limit is then better,
up to rounding errors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_type
from lazymdp._files import write_csv
from lazymdp.exact.linear import EPS, action_values, effective_policy, policy_values, rounding_terms
from lazymdp.lazy import LazyMDP

_ROUNDING = 1e-12
"""Relative size below which a difference between two expectations from the start distribution counts as rounding."""

_MOST_ROUNDS = 1_000
"""Limit on the rounds of the search for the multiplier. About ten are usual; the limit rules out an endless loop."""


@dataclass(frozen=True, eq=False, repr=False)
class ControlPlan:
    """The best policy under a limit on control: a mixture of two deterministic policies.

    Draw one of the two with `sample_policy` at the start of every episode and follow it until the episode ends.

    Attributes:
        eta: The multiplier of the limit: the return that one more control would be worth. 0 if the limit does not bind.
            Under a limit on the count it is also a price at which both policies are optimal.
        actions: Two `[S]` int arrays, where `lazy_action` is lazy. The first policy exceeds the limit and the second is
            within it; where the limit does not bind, both are the best policy without a limit.
        weight: Probability of the first policy.
        base_value: Expected return of the mixture from the start distribution, without the price.
        control_count: Expected discounted number of controls of the mixture from the start distribution.
        control_rate: `control_count` divided by the expected discounted number of steps lived; 0 if none is.
        lazy_action: Index of the lazy action.
    """

    eta: float
    actions: tuple[NDArray[np.int64], NDArray[np.int64]]
    weight: float
    base_value: float
    control_count: float
    control_rate: float
    lazy_action: int

    def sample_policy(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draws the policy of one episode: `[S]` actions, the first policy with probability `weight`."""
        check_type(rng, "rng", np.random.Generator, "a generator: make one with `np.random.default_rng(seed)`")
        return self.actions[0 if rng.random() < self.weight else 1].copy()

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes the policies that have a positive probability, one row per policy and state."""
        drawn = self._drawn()
        n_states = self.actions[0].size
        write_csv(
            path,
            {
                "probability": np.repeat([probability for probability, _ in drawn], n_states),
                "state": np.tile(np.arange(n_states), len(drawn)),
                "action": np.concatenate([action for _, action in drawn]),
                "control": np.concatenate([action != self.lazy_action for _, action in drawn]),
            },
        )

    def _drawn(self) -> list[tuple[float, NDArray[np.int64]]]:
        """The policies that have a positive probability, with that probability."""
        both = zip((self.weight, 1.0 - self.weight), self.actions, strict=True)
        return [(probability, action) for probability, action in both if probability > 0.0]

    def __repr__(self) -> str:
        lines = [
            f"ControlPlan(return {self.base_value:.4g} with {self.control_count:.4g} controls, "
            f"in {self.control_rate:.1%} of steps; eta = {self.eta:.4g})"
        ]
        for probability, action in self._drawn():
            episodes = "every episode" if probability == 1.0 else f"{probability:.1%} of episodes"
            control = np.count_nonzero(action != self.lazy_action)
            lines.append(f"  in {episodes}: control in {control} of {action.size} states")
        return "\n".join(lines)


class Outcome(NamedTuple):
    """A deterministic policy and its expectations from the start distribution."""

    action: NDArray[np.int64]  # [S]
    base_value: float
    control_count: float
    steps: float  # expected discounted steps lived


def steps_lived(lazy: LazyMDP, action: NDArray[np.int64]) -> float:
    """Expected discounted number of steps in states that are not absorbing, from the start, under `action [S]`."""
    policy, _ = effective_policy(lazy.mdp, lazy.default_policy, action)
    return lazy.mdp.start_average(policy_values(lazy.mdp, policy, np.ones((1, lazy.mdp.n_states)))[0])


def mixed_plan(lazy_action: int, eta: float, first: Outcome, second: Outcome, weight: float) -> ControlPlan:
    """The plan that plays `first` with probability `weight` and `second` otherwise."""
    base_value, count, steps = (
        weight * one + (1.0 - weight) * other for one, other in zip(first[1:], second[1:], strict=True)
    )
    rate = count / steps if steps > 0.0 else 0.0
    return ControlPlan(eta, (first.action, second.action), weight, base_value, count, rate, lazy_action)


def plan_for_rate(lazy: LazyMDP, share: float, action: NDArray[np.int64]) -> ControlPlan:
    """The best plan that takes control in at most `share` of the steps lived.

    Args:
        lazy: The base model and the default policy; its price is not used.
        share: Control rate, 0 to 1.
        action: `[S]` policy from which to search for the best policy without a limit; the closer, the faster.
    """

    def excess(policy: Outcome) -> float:
        return policy.control_count - share * policy.steps

    def lagrangian(policy: Outcome, eta: float) -> float:
        return policy.base_value - eta * excess(policy)

    more = _best_policy(lazy, share, 0.0, action)
    less = _expectations(lazy, np.full_like(action, lazy.lazy_action))[0]
    if excess(more) <= _ROUNDING * more.steps:
        best = more if share > 0.0 else less  # at a share of 0, states that are never reached are lazy too
        return mixed_plan(lazy.lazy_action, 0.0, best, best, 1.0)
    for _ in range(_MOST_ROUNDS):
        spread = excess(more) - excess(less)
        eta = max(0.0, (more.base_value - less.base_value) / spread)
        found = _best_policy(lazy, share, eta, more.action)
        earned = lazy.mdp.max_reward * more.steps  # of which the return may be a small difference
        rounding = _ROUNDING * (earned + eta * (more.control_count + share * more.steps))
        if lagrangian(found, eta) <= lagrangian(more, eta) + rounding:
            return mixed_plan(lazy.lazy_action, eta, more, less, -excess(less) / spread)
        if excess(found) > 0.0:
            more = found
        else:
            less = found
    raise ValueError(f"no price was found for a control rate of {share} in {_MOST_ROUNDS} rounds.")


def _expectations(lazy: LazyMDP, action: NDArray[np.int64]) -> tuple[Outcome, NDArray[np.float64]]:
    """The outcome of a policy from the start, and `[3, S]` its `V`, `K` and `N` from every state."""
    mdp = lazy.mdp
    policy, control = effective_policy(mdp, lazy.default_policy, action)
    rewards = np.einsum("sa,sa->s", policy, mdp.rewards)
    lines = policy_values(mdp, policy, np.stack([rewards, control.astype(float), np.ones(mdp.n_states)]))
    return Outcome(action, *(mdp.start_average(line) for line in lines)), lines


def _best_policy(lazy: LazyMDP, share: float, eta: float, action: NDArray[np.int64]) -> Outcome:
    """Maximizes the Lagrangian `V - eta * (K - share * N)` in every state by policy iteration from `action [S]`.

    A choice is only replaced by one that is better by more than rounding, so ties keep what they have. Policies that
    differ by less than the error of the linear solver could still alternate; the first to return ends the iteration.
    """
    mdp = lazy.mdp
    terms = rounding_terms(mdp)
    seen: set[bytes] = set()
    while True:
        outcome, (base_value, count, steps) = _expectations(lazy, action)
        value = base_value - eta * (count - share * steps)
        # Every choice in a state earns the same `eta * share` now, which is left out of the comparison.
        free = action_values(mdp, mdp.rewards, value)
        lazy_value = np.einsum("sa,sa->s", lazy.default_policy, free)
        choices = np.column_stack([free - eta, lazy_value])
        now = np.take_along_axis(choices, action[:, None], axis=1)[:, 0]
        best = np.where(lazy_value >= choices[:, :-1].max(axis=1), lazy.lazy_action, choices.argmax(axis=1))
        rounding = EPS * terms * (mdp.max_reward + eta + float(np.abs(value).max()))
        better = (choices.max(axis=1) > now + rounding) & ~mdp.absorbing
        seen.add(action.tobytes())
        action = np.where(better, best, action)
        if action.tobytes() in seen:
            return outcome
