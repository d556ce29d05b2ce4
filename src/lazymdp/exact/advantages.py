"""How much better than a policy each action is, and how far rounding errors can reach.

The *advantage* of an action over a policy `pi` is `A(s, a) = r(s, a) + gamma P(. | s, a) V - V(s)`. Its sign decides
which actions are better and which tie, so each advantage comes with a bound on its rounding error, state by state: what
is small beside the largest value of the model may be large in a corner of it.

Let `e = (I - gamma P_pi)^-1 |rho|` bound the error of the computed `V`, with `rho` its residual and the rounding errors
of computing that. The error of an advantage is then at most

    rounding of A(s, a)  +  |rho(s)|  +  gamma |P(. | s, a) - P_pi(. | s)| e.

Actions whose rows are almost those of the policy are compared almost without error, however long the model lives.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lazymdp.exact.linear import EPS, PolicySystem, action_values, policy_transitions, rounding_terms, too_long
from lazymdp.mdp import MDP

_TOO_COARSE = 1e-5
"""Error of an advantage, relative to the largest reward, above which questions about ties are refused."""

_CLOSELY_UP_TO = 5_000
"""Largest number of states for which rounding errors are always bounded state by state, which takes two more solves."""

_MOST_ENTRIES = 20_000_000
"""Number of transitions above which rows are not compared entry by entry, to save memory."""


class Advantages(NamedTuple):
    """A policy's value and its advantages, with bounds on their rounding errors."""

    value: NDArray[np.float64]  # [S]
    advantage: NDArray[np.float64]  # [S, A]; 0 in absorbing states
    margin: NDArray[np.float64]  # [S, A] bound on the rounding error of each advantage

    @property
    def snapped(self) -> NDArray[np.float64]:
        """`[S, A]` advantages, 0 where they cannot be told from 0."""
        return np.where(np.abs(self.advantage) <= self.margin, 0.0, self.advantage)


def advantages(mdp: MDP, policy: NDArray[np.float64], *rewards: NDArray[np.float64]) -> list[Advantages]:
    """Computes the advantages of all actions over a policy, for each of several rewards.

    Args:
        mdp: The model.
        policy: `[S, A]` probabilities.
        *rewards: `[S, A]` each; 0 in absorbing states.
    """
    system = PolicySystem(mdp, policy)
    expected = np.array([np.einsum("sa,sa->s", policy, r) for r in rewards])
    sizes = np.array([np.einsum("sa,sa->s", policy, np.abs(r)) for r in rewards])
    values = system.solve(expected)
    if mdp.n_states > _CLOSELY_UP_TO:
        residual = _residual(mdp, system, expected, sizes, values)
        errors = residual.max(axis=1, keepdims=True) * system.lifetimes.max()
        found = _margins(mdp, rewards, values, residual, 2.0 * mdp.gamma * errors[..., None])
        scales = [float(np.abs(r).max()) for r in rewards]
        if all(a.margin.max() <= 1e-4 * _TOO_COARSE * scale for a, scale in zip(found, scales, strict=True)):
            return found
    values += system.solve(system.residual(expected, values))  # errors become small in every state, not on the whole
    residual = _residual(mdp, system, expected, sizes, values)
    errors = 1.01 * np.abs(system.solve(residual))
    return _margins(mdp, rewards, values, residual, _distances(mdp, policy, errors))


def check_precision(mdp: MDP, margin: NDArray[np.float64], scale: float) -> None:
    """Raises an error where rounding errors of advantages are too large beside `scale` to answer with them."""
    if not float(margin.max(initial=0.0)) <= _TOO_COARSE * scale:
        raise ValueError(too_long(mdp))


def _residual(
    mdp: MDP,
    system: PolicySystem,
    expected: NDArray[np.float64],
    sizes: NDArray[np.float64],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns a bound on `|b + gamma P_pi x - x|`, `[k, S]`, with the rounding errors of computing it."""
    at = np.abs(values)
    summed = system.residual(sizes, at) + 2.0 * at  # |b| + gamma P_pi |x| + |x|
    return np.abs(system.residual(expected, values)) + EPS * rounding_terms(mdp) * summed


def _margins(
    mdp: MDP,
    rewards: tuple[NDArray[np.float64], ...],
    values: NDArray[np.float64],
    residual: NDArray[np.float64],
    distances: NDArray[np.float64],
) -> list[Advantages]:
    """Computes the advantages from values `[k, S]`, and their margins as in the module's formula."""
    found, dead = [], mdp.absorbing[:, None]
    for reward, value, left, distance in zip(rewards, values, residual, distances, strict=True):
        advantage = action_values(mdp, reward, value) - value[:, None]
        size = action_values(mdp, np.abs(reward), np.abs(value)) + np.abs(value)[:, None]
        margin = EPS * rounding_terms(mdp) * size + left[:, None] + distance
        found.append(Advantages(value, np.where(dead, 0.0, advantage), np.where(dead, 0.0, margin)))
    return found


def _distances(mdp: MDP, policy: NDArray[np.float64], errors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns `gamma |P(. | s, a) - P_pi(. | s)| e`, `[k, S, A]`, for each row `e` of `errors [k, S]`."""
    shape = (len(errors), mdp.n_states, mdp.n_actions)
    own = policy_transitions(mdp, policy)
    if mdp.transitions.nnz + mdp.n_actions * own.nnz > _MOST_ENTRIES:  # the sum instead of the difference
        both = np.array([(mdp.transitions @ e).reshape(shape[1:]) + (own @ e)[:, None] for e in errors])
        return mdp.gamma * both
    apart = mdp.transitions - sp.csr_array(own[np.repeat(np.arange(mdp.n_states), mdp.n_actions)])
    return mdp.gamma * (abs(apart) @ errors.T).T.reshape(shape)
