"""Default policies as tables `[S, A]`: what acts when the agent is lazy."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.exact.algorithms import Search, local_policy_iteration, policy_iteration
from lazymdp.exact.linear import TOO_LONG, action_values
from lazymdp.lazy import LazyMDP, check_table
from lazymdp.mdp import MDP

_EXACT_UP_TO = 5_000
"""States up to which the optimum is computed by linear systems, to rounding."""


def uniform(mdp: MDP) -> NDArray[np.float64]:
    """Every action equally likely."""
    return np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)


def optimal(mdp: MDP) -> NDArray[np.float64]:
    """An optimal policy of the base model; actions that tie share evenly."""
    q, margin = optimal_q(mdp)
    return _shared(q >= q.max(axis=1, keepdims=True) - margin)


def second_best(mdp: MDP) -> NDArray[np.float64]:
    """Always the best action that is not optimal; ties share, and where all actions are optimal they all share."""
    q, margin = optimal_q(mdp)
    worse = q < q.max(axis=1, keepdims=True) - margin
    runner_up = np.where(worse, q, -np.inf).max(axis=1, keepdims=True)
    return _shared(np.where(worse.any(axis=1, keepdims=True), worse & (q >= runner_up - margin), True))


def named(mdp: MDP, name: str) -> NDArray[np.float64]:
    """A default policy by name, as the command line takes it.

    Args:
        mdp: The base model.
        name: `uniform`, `optimal` or `second-best`; the name or number of an action that is always taken; or the path
            of an `.npy` file with a table `[S, A]`.
    """
    if name in _NAMED:
        return _NAMED[name](mdp)
    if name.endswith(".npy"):
        return check_table(np.load(name, allow_pickle=False), (mdp.n_states, mdp.n_actions), name)
    actions = mdp.action_names or ()
    if name in actions or name.isdecimal():
        action = actions.index(name) if name in actions else int(name)
        if action < mdp.n_actions:
            return np.tile(np.eye(mdp.n_actions)[action], (mdp.n_states, 1))
    raise ValueError(
        f"the default policy {name!r} is none of {', '.join(_NAMED)}, an action "
        f"({', '.join(actions) or f'0 to {mdp.n_actions - 1}'}), or an .npy file with a table [S, A]."
    )


def mixture(policy: ArrayLike, other: ArrayLike, weight: float) -> NDArray[np.float64]:
    """`weight * policy + (1 - weight) * other`: the first with probability `weight`, at each step anew."""
    if not 0.0 <= weight <= 1.0:
        raise ValueError(f"weight is {weight}, expected a probability between 0 and 1.")
    first, second = np.asarray(policy, dtype=np.float64), np.asarray(other, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"the two policies have shapes {first.shape} and {second.shape}, expected the same.")
    return weight * first + (1.0 - weight) * second


def optimal_q(mdp: MDP) -> tuple[NDArray[np.float64], float]:
    """`Q*` of the base model, `[S, A]`, and the margin within which two actions count as tied.

    At eta = 0 the lazy action is a mixture of the others and adds nothing, so the lazy-MDP's optimum is the base's.
    """
    free = LazyMDP(mdp, uniform(mdp), 0.0)
    mdp.check_infinite_horizon()
    search = Search(free, tol=0.0, max_iterations=1000, progress=None)  # 0: until only rounding is left
    (policy_iteration if mdp.n_states <= _EXACT_UP_TO else local_policy_iteration)(search)
    _, error = search.certificate(*search.backup(np.empty_like(search.value)), search.value)
    scale = max(mdp.max_reward, float(np.abs(search.value).max()))
    if not error <= 1e-4 * scale:  # a tie could not be told from a difference
        raise ValueError(TOO_LONG)
    return action_values(mdp, mdp.rewards, search.value), 4.0 * error + 1e-12 * scale


def _shared(chosen: NDArray[np.bool_]) -> NDArray[np.float64]:
    return chosen / chosen.sum(axis=1, keepdims=True)


_NAMED = {"uniform": uniform, "optimal": optimal, "second-best": second_best}

__all__ = ["mixture", "named", "optimal", "second_best", "uniform"]
