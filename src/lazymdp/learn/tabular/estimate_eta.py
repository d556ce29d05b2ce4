"""The bounds on eta from samples alone: Section 5 of the paper, where no model is known.

`eta_max` needs the values of the default policy, learned by watching it (SARSA with the default's mean as target, so
that an exploring step does no harm); it is the largest lazy-gap over the states seen. `eta_min` needs the optimum
`Q*`, learned by Q-learning, and `Z*`, learned beside it with every reward replaced by 1; it is the formula of Theorem
4, with the theorem's restriction (see `lazymdp.eta_min_theorem`). Both are estimates: how many visits they rest on is
part of the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.lazy import lazy_gap
from lazymdp.learn.tabular.kernel_data import DEFAULT, MAX
from lazymdp.learn.tabular.parallel import Progress, Schedule, train_runs
from lazymdp.learn.tabular.q_learning import make_rule
from lazymdp.learn.tabular.sampling import as_model, sizes
from lazymdp.mdp import MDP


@dataclass(frozen=True)
class EtaMaxEstimate:
    """An estimate of `eta_max`.

    Attributes:
        value: The largest lazy-gap found.
        state: Where it was found.
        visits: How often the least tried action was tried there: what the figure rests on.
        gaps: `[S]` lazy-gaps; nan in states some action of which was never tried.
        state_visits: `[S]` steps taken from each state.
    """

    value: float
    state: int
    visits: int
    gaps: NDArray[np.float64]
    state_visits: NDArray[np.int64]


@dataclass(frozen=True)
class EtaMinEstimate:
    """An estimate of the paper's formula for `eta_min` (Theorem 4).

    Attributes:
        value: The formula's value.
        state: The state it comes from.
        visits: How often the least tried action was tried there.
        ratios: `[S]` the formula's ratio in each state; nan where an action was never tried, inf where it does not
            bind.
        state_visits: `[S]` steps taken from each state.
    """

    value: float
    state: int
    visits: int
    ratios: NDArray[np.float64]
    state_visits: NDArray[np.int64]


def estimate_eta_max(
    source: MDP | gym.Env[Any, Any],
    default_policy: ArrayLike | None = None,
    *,
    gamma: float = 0.99,
    alpha: float = 1.0,
    alpha_power: float = 0.5,
    epsilon: float = 0.2,
    episodes: int = 20_000,
    max_steps: int = 1_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> EtaMaxEstimate:
    """Estimates `eta_max` by watching the default policy, a random action now and then (`epsilon`).

    Args:
        source: A model, or an environment with Discrete observations and actions.
        default_policy: `[S, A]`; uniform if not given.
        gamma: Discount; a model's own is used for an `MDP`.
        alpha: Step size `alpha / n**alpha_power` at the n-th visit.
        alpha_power: See `alpha`.
        epsilon: Probability of a random action, so that every action is tried.
        episodes: Number of episodes.
        max_steps: Steps after which an episode is cut off.
        seed: Seed.
        progress: Called with the episodes done and in all.
    """
    schedule = Schedule(episodes, max_steps, epsilon, epsilon, min(100, episodes))
    model = as_model(source, gamma)
    rule = make_rule(model, default_policy, gamma, alpha, alpha_power, lazy=True, structured=True, target=DEFAULT)
    n_states, n_actions = sizes(model)
    [[run]] = train_runs(model, [rule], np.array([seed]), schedule, None, 1, progress)
    tried = (run.visits > 0).all(axis=1)
    if not tried.any():
        raise ValueError(f"in {episodes} episodes no state had all its actions tried: allow more, or a larger epsilon.")
    default = rule.default.reshape(n_states, -1)[:, :n_actions]
    gaps = np.where(tried, lazy_gap(run.q, default), np.nan)
    state = int(np.nanargmax(gaps))
    visits = run.visits
    return EtaMaxEstimate(float(gaps[state]), state, int(visits[state].min()), gaps, visits.sum(axis=1))


def estimate_eta_min(
    source: MDP | gym.Env[Any, Any],
    default_policy: ArrayLike | None = None,
    *,
    gamma: float = 0.99,
    alpha: float = 1.0,
    alpha_power: float = 0.5,
    epsilon: float = 0.5,
    episodes: int = 20_000,
    max_steps: int = 1_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> EtaMinEstimate:
    """Estimates the paper's formula for `eta_min` from Q-learning of `Q*` and `Z*`; arguments as `estimate_eta_max`."""
    schedule = Schedule(episodes, max_steps, epsilon, epsilon, min(100, episodes))
    model = as_model(source, gamma)
    rule = make_rule(model, default_policy, gamma, alpha, alpha_power, lazy=False, structured=True, target=MAX)
    n_states, n_actions = sizes(model)
    [[run]] = train_runs(model, [rule], np.array([seed]), schedule, None, 1, progress, with_steps=True)
    tried = (run.visits > 0).all(axis=1)
    if not tried.any():
        raise ValueError(f"in {episodes} episodes no state had all its actions tried: allow more, or a larger epsilon.")
    default = rule.default.reshape(n_states, -1)[:, :n_actions]
    q, z = run.q, run.steps_to_end
    best = z[np.arange(n_states), q.argmax(axis=1)]
    stretch = 1.0 + best - (default * z).sum(axis=1)
    ratios = np.divide(lazy_gap(q, default), stretch, out=np.full(n_states, np.inf), where=stretch > 0.0)
    ratios = np.where(tried, ratios, np.nan)
    state = int(np.nanargmin(ratios))
    visits = run.visits
    return EtaMinEstimate(max(0.0, float(ratios[state])), state, int(visits[state].min()), ratios, visits.sum(axis=1))
