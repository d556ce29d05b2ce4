"""How much better than a policy each action is, and how far rounding errors can reach.

The *advantage* of an action over a policy `pi` is `A(s, a) = r(s, a) + gamma P(. | s, a) V - V(s)`. Its sign decides
which actions are better and which tie. Where a model lives long, it is a small difference of large values. Values are
therefore refined until they are exact to about twice the precision of a double (each is a sum of two doubles), and
advantages are computed from them by sums and products whose rounding errors are kept (Knuth, Dekker).

Each advantage comes with a bound on what is left of its error, state by state: what is small beside the largest value
of the model may be large in a corner of it. Let `e = (I - gamma P_pi)^-1 |rho|` bound the error of `V`, with `rho` its
residual and the rounding errors of computing that. The error of an advantage is then at most

    rounding of A(s, a)  +  |rho(s)|  +  gamma |P(. | s, a) - P_pi(. | s)| e.

The numbers of a model are rounded themselves: probabilities of 0.1 and 0.2 are not quite those. What such rounding does
to an advantage in its own state is added, so that actions that tie on paper tie here.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numba
import numpy as np
from numpy.typing import NDArray

from lazymdp.exact.linear import EPS, PolicySystem, action_values, effective_policy, rounding_terms, too_long
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP

_TOO_COARSE = 3e-6
"""Error of an advantage, relative to the largest reward, above which questions about ties are refused."""

_FINE_ENOUGH = 1e-9
"""The same, below which the advantages of a large model are not refined."""

_ALWAYS_REFINED, _ALWAYS_REFINED_TRANSITIONS = 5_000, 1_000_000
"""Largest numbers of states and transitions for which values are always refined: a few solves and slow sweeps."""

_MOST_REFINEMENTS = 8


class Solver(Protocol):
    """Solves `x = b + gamma P_pi x` for each row `b` of `rewards [k, S]`, up to rounding."""

    def solve(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the solutions, `[k, S]`."""


class Advantages(NamedTuple):
    """A policy's value and its advantages, with bounds on their rounding errors."""

    value: NDArray[np.float64]  # [S]
    advantage: NDArray[np.float64]  # [S, A]; 0 in absorbing states
    margin: NDArray[np.float64]  # [S, A] bound on the rounding error of each advantage, its data's included

    @property
    def snapped(self) -> NDArray[np.float64]:
        """`[S, A]` advantages, 0 where they cannot be told from 0."""
        return np.where(np.abs(self.advantage) <= self.margin, 0.0, self.advantage)


def advantages(
    mdp: MDP, policy: NDArray[np.float64], *rewards: NDArray[np.float64], system: PolicySystem | None = None
) -> list[Advantages]:
    """Computes the advantages of all actions over a policy, for each of several rewards.

    Args:
        mdp: The model.
        policy: `[S, A]` probabilities.
        *rewards: `[S, A]` each; 0 in absorbing states.
        system: The policy's linear system, if the caller has use for it, too.
    """
    system = system or PolicySystem(mdp, policy)
    return [_of_one_reward(mdp, policy, np.ascontiguousarray(reward), system) for reward in rewards]


def line_gains(
    lazy: LazyMDP, action: NDArray[np.int64], system: Solver
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Computes the line of a policy with the lazy action, refined, and what the other choices gain over it.

    Args:
        lazy: The lazy-MDP; its price does not matter.
        action: `[S]`; `A` is lazy.
        system: The policy's linear system.

    Returns:
        `[2, S]` base value `V` and control count `K`, and `[2, S, A+1]` `alpha` and `beta`: the gain at a price `eta`
        is `alpha - eta beta`. Both are 0 for the policy's own choices and in absorbing states.
    """
    mdp, default = lazy.mdp, lazy.default_policy
    policy, control = effective_policy(mdp, default, action)
    paid = np.repeat(control[:, None].astype(float), mdp.n_actions, axis=1)
    # Rounded once: the rounding errors of an ordinary sum would be multiplied by the values.
    defect = np.array([math.fsum([*row, -1.0]) for row in default])
    line, gains = np.empty((2, mdp.n_states)), np.empty((2, mdp.n_states, mdp.n_actions + 1))
    for k, reward in enumerate((np.ascontiguousarray(mdp.rewards), paid)):
        value = system.solve(np.einsum("sa,sa->s", policy, reward)[None])[0]
        low, found, residual = _refine(mdp, policy, reward, system, value)
        if not float(np.abs(residual).max()) <= EPS * float(np.abs(reward).max() + np.abs(value).max()):
            raise ValueError(too_long(mdp))  # the system is too inaccurate even to correct its own errors
        line[k] = value + low
        later = found - paid if k else found
        gains[k, :, -1] = np.einsum("sa,sa->s", default, later) + defect * line[k]
        gains[k, :, :-1] = later + k  # a control counts as 1
    gains[:, np.arange(mdp.n_states), action] = 0.0
    gains[:, mdp.absorbing] = 0.0
    return line, gains


def check_precision(mdp: MDP, margin: NDArray[np.float64], scale: float) -> None:
    """Raises an error where rounding errors of advantages are too large beside `scale` to answer with them."""
    if not float(margin.max(initial=0.0)) <= _TOO_COARSE * scale:
        raise ValueError(too_long(mdp))


def _of_one_reward(
    mdp: MDP, policy: NDArray[np.float64], reward: NDArray[np.float64], system: PolicySystem
) -> Advantages:
    expected = np.einsum("sa,sa->s", policy, reward)
    value = system.solve(expected[None])[0]
    size = action_values(mdp, np.abs(reward), np.abs(value)) + np.abs(value)[:, None]
    if mdp.n_states > _ALWAYS_REFINED or mdp.transitions.nnz > _ALWAYS_REFINED_TRANSITIONS:
        rounding = EPS * rounding_terms(mdp) * size
        residual = np.abs(system.residual(expected[None], value[None])[0]) + np.einsum("sa,sa->s", policy, rounding)
        error = float(residual.max()) * float(system.lifetimes.max(initial=0.0))
        margin = np.where(mdp.absorbing[:, None], 0.0, rounding + residual[:, None] + 2.0 * mdp.gamma * error)
        if margin.max() <= _FINE_ENOUGH * float(np.abs(reward).max()):
            advantage = action_values(mdp, reward, value) - value[:, None]
            return Advantages(value, np.where(mdp.absorbing[:, None], 0.0, advantage), margin)
    low, found, residual = _refine(mdp, policy, reward, system, value)
    grain = (2.0 * EPS) ** 2 * rounding_terms(mdp) * size
    rest = np.abs(residual) + np.einsum("sa,sa->s", policy, grain)
    errors = 1.1 * np.abs(system.solve(rest[None])[0])
    matrix = mdp.transitions
    moved = _distances(matrix.indptr, matrix.indices, matrix.data, policy, mdp.gamma, errors)
    margin = EPS * rounding_terms(mdp) * size + grain + rest[:, None] + moved
    return Advantages(value + low, found, np.where(mdp.absorbing[:, None], 0.0, margin))


def _refine(
    mdp: MDP,
    policy: NDArray[np.float64],
    reward: NDArray[np.float64],
    system: Solver,
    value: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Refines `value [S]` in place, as long as that reduces its residual and there is more of it than rounding error.

    Returns:
        `[S]` what is to be added to the values, `[S, A]` the advantages, and `[S]` the residual `b + gamma P_pi V - V`.
    """
    low, best = np.zeros_like(value), np.inf
    if not np.isfinite(value).all():
        raise ValueError(too_long(mdp))
    scale = float(np.abs(reward).max()) + float(np.abs(value).max())
    matrix = mdp.transitions
    found, residual = np.empty(reward.shape), np.empty(value.size)
    for _ in range(_MOST_REFINEMENTS):
        _advantages(
            matrix.indptr, matrix.indices, matrix.data, reward, policy, mdp.absorbing, mdp.gamma, value, low, found,
            residual,
        )  # fmt: skip
        largest = float(np.abs(residual).max())
        if not largest < 0.5 * best:
            break
        best = largest
        kept = value.copy(), low.copy(), found.copy(), residual.copy()
        if largest <= EPS**2 * scale:
            break
        _add(value, low, system.solve(residual[None])[0])
    value[:], low, found, residual = kept
    return low, found, residual


@numba.njit(cache=True, nogil=True)
def _distances(indptr: Any, indices: Any, data: Any, policy: Any, gamma: float, errors: Any) -> Any:
    """Returns `gamma |P(. | s, a) - P_pi(. | s)| e`, `[S, A]`, for `e = errors [S]`."""
    n_states, n_actions = policy.shape
    found = np.empty((n_states, n_actions))
    own, other = np.zeros(n_states), np.zeros(n_states)  # the rows of the policy and of one action; 0 between states
    reached = np.empty(n_states, dtype=np.int64)
    last = np.full(n_states, -1, dtype=np.int64)  # state that reached this one last
    for s in range(n_states):
        count = 0
        for a in range(n_actions):
            for j in range(indptr[s * n_actions + a], indptr[s * n_actions + a + 1]):
                t = indices[j]
                own[t] += policy[s, a] * data[j]
                if last[t] != s:
                    last[t] = s
                    reached[count] = t
                    count += 1
        for a in range(n_actions):
            for j in range(indptr[s * n_actions + a], indptr[s * n_actions + a + 1]):
                other[indices[j]] += data[j]
            total = 0.0
            for i in range(count):
                t = reached[i]
                total += abs(other[t] - own[t]) * errors[t]
                other[t] = 0.0
            found[s, a] = gamma * total
        for i in range(count):
            own[reached[i]] = 0.0
    return found


# -- sums of two doubles: a number is `high + low`, where low is smaller than the rounding error of high ---------------


@numba.njit(cache=True, nogil=True, inline="always")
def _two_sum(a: Any, b: Any) -> Any:
    """Returns the rounded sum and its rounding error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@numba.njit(cache=True, nogil=True, inline="always")
def _two_product(a: Any, b: Any) -> Any:
    """Returns the rounded product and its rounding error (Dekker)."""
    product = a * b
    wide_a, wide_b = 134217729.0 * a, 134217729.0 * b  # 2**27 + 1 splits a double into two halves
    a_high, b_high = wide_a - (wide_a - a), wide_b - (wide_b - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@numba.njit(cache=True, nogil=True, inline="always")
def _plus(high: Any, low: Any, other_high: Any, other_low: Any) -> Any:
    total, error = _two_sum(high, other_high)
    return _two_sum(total, error + (low + other_low))


@numba.njit(cache=True, nogil=True)
def _add(value: Any, low: Any, change: Any) -> None:
    """Adds `change [S]` to `value + low`."""
    for s in range(value.size):
        value[s], low[s] = _plus(value[s], low[s], change[s], 0.0)


@numba.njit(cache=True, nogil=True)
def _advantages(
    indptr: Any, indices: Any, data: Any, reward: Any, policy: Any, absorbing: Any, gamma: float, value: Any, low: Any,
    found: Any, residual: Any,
) -> None:  # fmt: skip
    """Computes the advantages `found [S, A]` and the residual `[S]` of the values `value + low` to twice the precision.

    The residual is the policy's own advantage: `sum_a pi(a|s) A(s, a) + (sum_a pi(a|s) - 1) V(s)`.
    """
    n_states, n_actions = reward.shape
    for s in range(n_states):
        residual[s] = 0.0
        mean, mean_low, mass, mass_low = 0.0, 0.0, -1.0, 0.0
        for a in range(n_actions):
            found[s, a] = 0.0
            if absorbing[s]:
                continue
            high, rest = 0.0, 0.0
            for j in range(indptr[s * n_actions + a], indptr[s * n_actions + a + 1]):
                t = indices[j]
                product, error = _two_product(data[j], value[t])
                high, rest = _plus(high, rest, product, error + data[j] * low[t])
            product, error = _two_product(gamma, high)
            high, rest = _plus(reward[s, a], 0.0, product, error + gamma * rest)
            high, rest = _plus(high, rest, -value[s], -low[s])
            found[s, a] = high
            product, error = _two_product(policy[s, a], high)
            mean, mean_low = _plus(mean, mean_low, product, error + policy[s, a] * rest)
            mass, mass_low = _plus(mass, mass_low, policy[s, a], 0.0)
        if not absorbing[s]:
            residual[s] = mean + (mass + mass_low) * value[s] + mean_low
