"""Estimates of the bounds on eta from samples alone (Sec. 5 of the paper), when no model is known.

`eta_max` is the largest lazy-gap of the default policy's values (Theorem 3). They are learned from steps of the default
policy. The target of an update is the expectation over the default policy's next action, not the action itself as in
SARSA, so that exploration does not bias the values.

`eta_min` is estimated by the formula of Theorem 4, with the restriction of that theorem (`lazymdp.eta_min_theorem`). It
needs the optimal values `Q*` and the expected discounted number of steps `Z*` of the optimal policy. Both are learned
from the same steps by Q-learning; for `Z*`, every reward is replaced by 1.

The estimates report how many visits they rest on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_progress, check_seed
from lazymdp.lazy import lazy_gap
from lazymdp.learn.tabular.kernel_data import Rule, Tables, make_plan
from lazymdp.learn.tabular.parallel import Progress, train_runs
from lazymdp.learn.tabular.q_learning import check_settings, make_rule
from lazymdp.learn.tabular.sampling import as_model
from lazymdp.mdp import MDP


@dataclass(frozen=True, eq=False)
class EtaMaxEstimate:
    """An estimate of `eta_max`.

    Attributes:
        value: The largest lazy-gap.
        state: The state with this lazy-gap.
        visits: Number of times that the least visited action of this state was executed.
        gaps: `[S]` lazy-gaps; nan in states with an action that was never executed.
        state_visits: `[S]` number of steps from each state.
    """

    value: float
    state: int
    visits: int
    gaps: NDArray[np.float64]
    state_visits: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"EtaMaxEstimate({self.value:.4g} in state {self.state}, {self.visits:,} visits)"


@dataclass(frozen=True, eq=False)
class EtaMinEstimate:
    """An estimate of `eta_min` by the formula of Theorem 4.

    Attributes:
        value: The smallest ratio of the formula, or 0 if it is negative.
        state: The state with this ratio.
        visits: Number of times that the least visited action of this state was executed.
        ratios: `[S]` the ratio of the formula in each state: inf where the state does not bound eta, nan in states with
            an action that was never executed.
        state_visits: `[S]` number of steps from each state.
    """

    value: float
    state: int
    visits: int
    ratios: NDArray[np.float64]
    state_visits: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"EtaMinEstimate({self.value:.4g} in state {self.state}, {self.visits:,} visits)"


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
    """Estimates `eta_max` from steps of the default policy, with random actions in between.

    Args:
        source: A model, or an environment with Discrete observations and actions.
        default_policy: `[S, A]` probabilities of the default policy. Uniform if None.
        gamma: Discount. An `MDP` has its own, which is used instead.
        alpha: The step size is `alpha / n**alpha_power` at the n-th update of an entry.
        alpha_power: Exponent of the step size, see `alpha`.
        epsilon: Probability of a random choice, so that every action is tried.
        episodes: Number of episodes.
        max_steps: Number of steps after which an episode is truncated.
        seed: Random seed.
        progress: Called from time to time with the number of episodes played and the total.
    """
    gamma, alpha, alpha_power, epsilon, _, episodes, max_steps = check_settings(
        gamma, alpha, alpha_power, epsilon, epsilon, episodes, max_steps
    )
    check_seed(seed)
    check_progress(progress)
    model = as_model(source, gamma)
    rule = make_rule(
        model, default_policy, gamma, alpha, alpha_power, lazy=True, structured=True, target="default_policy"
    )
    tables, tried = _train(model, rule, epsilon, episodes, max_steps, seed, progress)
    gaps = np.where(tried, lazy_gap(tables.q[:, :-1], rule.default_policy), np.nan)
    state = int(np.nanargmax(gaps))
    visits = tables.visits[:, :-1]
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
    """Estimates `eta_min` by the formula of Theorem 4, from Q-learning.

    The arguments are those of `estimate_eta_max`.
    """
    gamma, alpha, alpha_power, epsilon, _, episodes, max_steps = check_settings(
        gamma, alpha, alpha_power, epsilon, epsilon, episodes, max_steps
    )
    check_seed(seed)
    check_progress(progress)
    model = as_model(source, gamma)
    rule = make_rule(
        model, default_policy, gamma, alpha, alpha_power,
        lazy=False, structured=False, target="q_learning", learn_steps=True,
    )  # fmt: skip
    tables, tried = _train(model, rule, epsilon, episodes, max_steps, seed, progress)
    q, steps, visits = (table[:, :-1] for table in (tables.q, tables.steps, tables.visits))
    best = steps[np.arange(len(q)), q.argmax(axis=1)]
    denominator = 1.0 + best - (rule.default_policy * steps).sum(axis=1)
    gaps = lazy_gap(q, rule.default_policy)
    ratios = np.divide(gaps, denominator, out=np.full(len(q), np.inf), where=denominator > 0.0)
    ratios = np.where(tried, ratios, np.nan)
    state = int(np.nanargmin(ratios))
    return EtaMinEstimate(max(0.0, float(ratios[state])), state, int(visits[state].min()), ratios, visits.sum(axis=1))


def _train(
    model: MDP | gym.Env[Any, Any], rule: Rule, epsilon: float, episodes: int, max_steps: int, seed: int,
    progress: Progress | None,
) -> tuple[Tables, NDArray[np.bool_]]:  # fmt: skip
    """Trains one run; returns its tables and `[S]` the states in which every action was executed."""
    plan = make_plan(episodes, max_steps, epsilon, epsilon, points=100)
    [[run]] = train_runs(model, [rule], np.array([seed]), plan, 1, progress)
    tried = np.all(run.tables.visits[:, :-1] > 0, axis=1)
    if not tried.any():
        raise ValueError(f"no state had all its actions executed in {episodes} episodes: increase episodes or epsilon.")
    return run.tables, tried
