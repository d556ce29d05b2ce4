"""Default policies, which act when the agent is lazy, as tables of probabilities `[S, A]`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_path, check_probability, plain_array
from lazymdp.exact.advantages import Advantages, advantages, check_precision
from lazymdp.exact.algorithms import Search, local_policy_iteration
from lazymdp.exact.error_bound import check_lifetimes
from lazymdp.exact.linear import EPS, action_values, policy_values, rounding_terms, too_long
from lazymdp.lazy import LazyMDP, check_mdp, check_table
from lazymdp.mdp import MDP

_EXACT_UP_TO = 5_000
"""Largest number of states for which the optimum is computed by policy iteration, exact up to rounding errors."""

_MOST_POLICIES = 1_000
"""Number of policies after which policy iteration stops. About ten are usual; the limit rules out an endless loop."""


def uniform(mdp: MDP) -> NDArray[np.float64]:
    """Returns the policy that takes every action with the same probability."""
    check_mdp(mdp)
    return np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)


def optimal(mdp: MDP) -> NDArray[np.float64]:
    """Returns an optimal policy of the base model. Actions that tie up to rounding errors get the same probability."""
    best = optimal_advantages(mdp)
    return _shared(best.advantage >= -best.margin)


def second_best(mdp: MDP) -> NDArray[np.float64]:
    """Returns the policy that takes the best of the actions that are not optimal.

    Actions that tie get the same probability, as do all actions where all are optimal.
    """
    best = optimal_advantages(mdp)
    worse = best.advantage < -best.margin
    others = np.where(worse, best.advantage, -np.inf)
    first = others.argmax(axis=1)[:, None]
    margin = best.margin + np.take_along_axis(best.margin, first, axis=1)
    ties = worse & (others >= others.max(axis=1, keepdims=True) - margin)
    return _shared(np.where(worse.any(axis=1, keepdims=True), ties, True))


def named(mdp: MDP, name: str) -> NDArray[np.float64]:
    """Returns a default policy by name, as on the command line.

    Args:
        mdp: The base model.
        name: `uniform`, `optimal` or `second-best`; the name or the index of an action to take always; or the path of
            an `.npy` file with a table `[S, A]`.
    """
    check_mdp(mdp)
    if not isinstance(name, str):
        raise TypeError(f"name is {name!r}, expected the name of a default policy, such as 'uniform'.")
    if name in _NAMED:
        return _NAMED[name](mdp)
    if name.endswith(".npy"):
        return check_table(_read(name), (mdp.n_states, mdp.n_actions), name)
    actions = mdp.action_names or ()
    if name in actions or name.isdecimal():
        action = actions.index(name) if name in actions else int(name)
        if action < mdp.n_actions:
            return np.tile(np.eye(mdp.n_actions)[action], (mdp.n_states, 1))
    raise ValueError(
        f"the default policy is {name!r}, expected {', '.join(_NAMED)}, an action "
        f"({', '.join(actions) or f'0 to {mdp.n_actions - 1}'}), or an .npy file with a table [S, A]."
    )


def _read(path: str) -> NDArray[Any]:
    try:
        return np.asarray(np.load(check_path(path, "name"), allow_pickle=False))
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a table saved by numpy.save, or is damaged: {error}") from error


def mixture(policy: ArrayLike, other: ArrayLike, weight: float) -> NDArray[np.float64]:
    """Returns `weight * policy + (1 - weight) * other`: every step draws the first policy with probability `weight`."""
    share = check_probability(weight, "weight")
    shape, other_shape = plain_array(policy, "policy is").shape, plain_array(other, "other is").shape
    if other_shape != shape or len(shape) != 2:
        raise ValueError(f"the policies have shapes {shape} and {other_shape}, expected [S, A] for both.")
    first, second = (
        check_table(table, (shape[0], shape[1]), name) for table, name in ((policy, "policy"), (other, "other"))
    )
    return share * first + (1.0 - share) * second


def optimal_advantages(mdp: MDP, default_defect: float = 0.0) -> Advantages:
    """Returns the advantages of all actions over an optimal policy of the base model: at most their margins.

    `default_defect` is that of `check_lifetimes`.
    """
    check_mdp(mdp).check_infinite_horizon()
    check_lifetimes(mdp, default_defect)
    if mdp.n_states > _EXACT_UP_TO:
        return _optimal_by_sweeps(mdp)
    # From the uniform policy, whose values already show the way: from the best rewards, a chain of n states would take
    # n policies.
    start = uniform(mdp)
    value = policy_values(mdp, start, np.einsum("sa,sa->s", start, mdp.rewards)[None])[0]
    action = action_values(mdp, mdp.rewards, value).argmax(axis=1)
    states = np.arange(mdp.n_states)
    for _ in range(_MOST_POLICIES):
        policy = np.eye(mdp.n_actions)[action]
        value = policy_values(mdp, policy, mdp.rewards[states, action][None])[0]
        gain = action_values(mdp, mdp.rewards, value) - value[:, None]
        size = action_values(mdp, np.abs(mdp.rewards), np.abs(value)) + np.abs(value)[:, None]
        better = (gain > EPS * rounding_terms(mdp) * size).any(axis=1) & ~mdp.absorbing
        if not better.any():
            break  # what is left to improve is decided with twice the precision below
        action = np.where(better, gain.argmax(axis=1), action)
    for _ in range(_MOST_POLICIES):
        [best] = advantages(mdp, np.eye(mdp.n_actions)[action], mdp.rewards)
        check_precision(mdp, best.margin, mdp.max_reward)
        better = (best.advantage > best.margin).any(axis=1)
        if not better.any():
            return best
        action = np.where(better, (best.advantage - best.margin).argmax(axis=1), action)
    raise ValueError(too_long(mdp))


def _optimal_by_sweeps(mdp: MDP) -> Advantages:
    """Does the same for a large model, with one margin for all states.

    At eta = 0 the lazy action is a mixture of the others, so the optimum of the lazy-MDP is that of the base model.
    """
    free = LazyMDP(mdp, uniform(mdp), 0.0)
    search = Search(free, tol=0.0, max_iterations=1000, progress=None)  # tol 0: until only rounding is left
    local_policy_iteration(search)
    _, error = search.certificate(*search.backup(np.empty_like(search.value)), search.value)
    scale = max(mdp.max_reward, float(np.abs(search.value).max()))
    if not error <= 1e-4 * scale:  # too inaccurate to recognize ties
        raise ValueError(too_long(mdp))
    q = action_values(mdp, mdp.rewards, search.value)
    margin = np.where(mdp.absorbing[:, None], 0.0, np.full(q.shape, 4.0 * error + 1e-12 * scale))
    return Advantages(search.value, q - q.max(axis=1, keepdims=True), margin)


def _shared(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    return chosen / chosen.sum(axis=1, keepdims=True)


_NAMED = {"uniform": uniform, "optimal": optimal, "second-best": second_best}

__all__ = ["mixture", "named", "optimal", "second_best", "uniform"]
