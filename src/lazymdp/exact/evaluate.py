"""The value of a given policy (Theorem 1 of the paper), by solving linear systems.

For an augmented policy `pi_+` with effective policy `pi`, the value is the sum of the base model's return and the cost
of control, `V_+ = V + C` with `C = -eta K`. The expected discounted number of control steps `K` satisfies

    K(s) = 1 - pi_+(lazy|s) + gamma E_{a ~ pi, s'} K(s').

`V` and `K` are solutions of `(I - gamma P_pi) x = b` on the states that are not absorbing, exact up to rounding errors.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._files import write_csv
from lazymdp.exact.linear import policy_values
from lazymdp.lazy import LazyMDP, check_lazy, check_mdp, check_policy
from lazymdp.mdp import MDP


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """Values of an augmented policy, each `[S]` and 0 in absorbing states.

    Attributes:
        value: `V_+ = base_value + control_cost`, the value with the price.
        base_value: `V`, the expected return of the base model, without the price.
        control_cost: `C = -eta K`, the expected discounted cost of control.
        control_count: `K`, the expected discounted number of control steps.
    """

    value: NDArray[np.float64]
    base_value: NDArray[np.float64]
    control_cost: NDArray[np.float64]
    control_count: NDArray[np.float64]

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one row per state: `state`, `value`, `base_value`, `control_cost`, `control_count`."""
        write_csv(path, {"state": np.arange(self.value.size), **vars(self)})

    def __repr__(self) -> str:
        ranges = ", ".join(f"{name} {array.min():.4g} to {array.max():.4g}" for name, array in vars(self).items())
        return f"Evaluation({self.value.size} states: {ranges})"


def evaluate(lazy: LazyMDP, policy_plus: ArrayLike) -> Evaluation:
    """Evaluates an augmented policy (Theorem 1).

    Args:
        lazy: The lazy-MDP.
        policy_plus: `[S, A+1]` probabilities with the lazy action last, or `[S]` actions.
    """
    check_lazy(lazy).mdp.check_infinite_horizon()
    plus = lazy.check_policy_plus(policy_plus)
    policy = lazy.effective_policy(plus)
    rewards = np.einsum("sa,sa->s", policy, lazy.mdp.rewards)
    control = 1.0 - plus[:, -1]
    base_value, count = policy_values(lazy.mdp, policy, np.stack([rewards, control]))
    cost = -lazy.eta * count
    return Evaluation(base_value + cost, base_value, cost, count)


def steps_to_absorption(mdp: MDP, policy: ArrayLike) -> NDArray[np.float64]:
    """Computes the expected discounted number of steps before absorption under a base policy (`E_pi[Z^pi(s, .)]`).

    Args:
        mdp: The base model.
        policy: `[S, A]` probabilities.

    Returns:
        `[S]`; 0 in absorbing states.
    """
    check_mdp(mdp).check_infinite_horizon()
    table = check_policy(mdp, policy, mdp.n_actions, "policy")
    return policy_values(mdp, table, np.ones((1, mdp.n_states)))[0]
