"""Q-learning and SARSA in lazy-MDPs (Sec. 6.3 of the paper), with many seeds and prices in one call.

The two forms learn the same values. `form="augmented"` is the paper's: a table with A + 1 columns, in which the choice
that was made is updated. `form="structured"` is a table with A columns, in which every executed action is updated and
the value of being lazy is derived. `kernel` states the update rules. With `lazy=False` there is no lazy action and no
price: plain Q-learning or SARSA.

In a model, the reward of a step is the expected reward of its state and action. An environment that has no transition
table is stepped in Python with the same choices and updates, which is slower.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import (
    check_choice,
    check_count,
    check_etas,
    check_flag,
    check_gamma,
    check_number,
    check_probability,
    check_progress,
    check_seeds,
)
from lazymdp._files import write_csv
from lazymdp.lazy import check_table
from lazymdp.learn.tabular.kernel_data import Plan, Rule, Target, greedy_choices, make_plan
from lazymdp.learn.tabular.parallel import Progress, Run, train_runs
from lazymdp.learn.tabular.sampling import as_model, cumulative_bounds, sizes
from lazymdp.mdp import MDP

FORMS = ("structured", "augmented")

_MOST_POINTS = 1_000_000
"""Largest number of points of a learning curve, so that the curves fit in memory."""


@dataclass(frozen=True, eq=False)
class TabularResult:
    """The results of tabular learning: one run for each of `E` prices and `N` seeds.

    The curves have `P` points, and each point summarizes the episodes since the previous point.

    Attributes:
        etas: `[E]` prices.
        seeds: `[N]` random seeds.
        q: `[E, N, S, C]` learned values. `C` is A, or A + 1 in the augmented form, whose last column is the value of
            being lazy. The columns of control include the price.
        visits: `[E, N, S, C]` number of updates of each value.
        action: `[E, N, S]` greedy choices; `A` is lazy, and ties are lazy.
        episode: `[P]` number of episodes played up to each point.
        mean_return: `[E, N, P]` mean return of an episode: the sum of its rewards, without discount or price.
        control_rate: `[E, N, P]` share of steps in which the agent took control.
        episode_length: `[E, N, P]` mean number of steps of an episode.
        occupancy: `[E, N, S]` share of steps spent in each state at the last point, which is the end of training.
        steps: Total number of environment steps in all runs.
    """

    etas: NDArray[np.float64]
    seeds: NDArray[np.int64]
    q: NDArray[np.float64]
    visits: NDArray[np.int64]
    action: NDArray[np.int64]
    episode: NDArray[np.int64]
    mean_return: NDArray[np.float64]
    control_rate: NDArray[np.float64]
    episode_length: NDArray[np.float64]
    occupancy: NDArray[np.float64]
    steps: int

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes the learning curves, with one row per price, seed and point.

        The columns are `eta`, `seed`, `episode`, `mean_return`, `control_rate` and `episode_length`.
        """
        etas, seeds, episodes = np.meshgrid(self.etas, self.seeds, self.episode, indexing="ij")
        curves = {name: getattr(self, name).ravel() for name in ("mean_return", "control_rate", "episode_length")}
        write_csv(path, {"eta": etas.ravel(), "seed": seeds.ravel(), "episode": episodes.ravel(), **curves})

    def __repr__(self) -> str:
        returns, rates = self.mean_return[..., -1].mean(axis=1), self.control_rate[..., -1].mean(axis=1)
        last = ", ".join(
            f"eta {eta:g}: return {mean_return:.3g}, control {rate:.1%}"
            for eta, mean_return, rate in zip(self.etas, returns, rates, strict=True)
        )
        return f"TabularResult({self.seeds.size} seeds, {self.steps:,} steps; at the end {last})"


def q_learning(
    source: MDP | gym.Env[Any, Any],
    default_policy: ArrayLike | None = None,
    eta: float | Sequence[float] = 0.0,
    *,
    gamma: float = 0.99,
    alpha: float = 0.5,
    alpha_power: float = 0.0,
    epsilon: float = 0.1,
    final_epsilon: float = 0.0,
    episodes: int = 100_000,
    max_steps: int = 1_000,
    seed: int | Sequence[int] = 0,
    lazy: bool = True,
    form: str = "structured",
    points: int = 100,
    workers: int | None = None,
    progress: Progress | None = None,
) -> TabularResult:
    """Learns the optimal values of a lazy-MDP from samples, by Q-learning.

    Args:
        source: A model, or an environment with Discrete observations and actions.
        default_policy: `[S, A]` probabilities of the policy that acts when the agent is lazy. Uniform if None.
        eta: Price of a step of control, or several prices.
        gamma: Discount. An `MDP` has its own, which is used instead.
        alpha: Step size.
        alpha_power: The step size is `alpha / n**alpha_power` at the n-th update of an entry. Values between 0.5 and 1
            make the learned values converge; 0 keeps the step size constant, as in the paper.
        epsilon: Probability of a random choice in the first episode. It falls linearly to `final_epsilon`.
        final_epsilon: Probability of a random choice in the last episode.
        episodes: Number of episodes per run.
        max_steps: Number of steps after which an episode is truncated.
        seed: Random seed, or several. There is one run for each seed and price.
        lazy: Whether there is a lazy action. False is plain Q-learning, and `eta` has no effect.
        form: `"structured"` or `"augmented"`.
        points: Number of points of the learning curves.
        workers: Number of runs at the same time; one per core if None. The results do not depend on it.
        progress: Called from time to time with the number of episodes played and the total.
    """
    return _learn(
        "q_learning", source, default_policy, eta, gamma, alpha, alpha_power, epsilon, final_epsilon,
        episodes, max_steps, seed, lazy, form, points, workers, progress,
    )  # fmt: skip


def sarsa(
    source: MDP | gym.Env[Any, Any],
    default_policy: ArrayLike | None = None,
    eta: float | Sequence[float] = 0.0,
    *,
    gamma: float = 0.99,
    alpha: float = 0.5,
    alpha_power: float = 0.0,
    epsilon: float = 0.1,
    final_epsilon: float = 0.0,
    episodes: int = 100_000,
    max_steps: int = 1_000,
    seed: int | Sequence[int] = 0,
    lazy: bool = True,
    form: str = "structured",
    points: int = 100,
    workers: int | None = None,
    progress: Progress | None = None,
) -> TabularResult:
    """Learns the values of the agent's own epsilon-greedy policy in a lazy-MDP, by SARSA.

    The arguments are those of `q_learning`. The target of an update is the value of the agent's next choice, including
    random ones.
    """
    return _learn(
        "sarsa", source, default_policy, eta, gamma, alpha, alpha_power, epsilon, final_epsilon,
        episodes, max_steps, seed, lazy, form, points, workers, progress,
    )  # fmt: skip


def _learn(
    target: Target, source: MDP | gym.Env[Any, Any], default_policy: ArrayLike | None, eta: float | Sequence[float],
    gamma: float, alpha: float, alpha_power: float, epsilon: float, final_epsilon: float, episodes: int,
    max_steps: int, seed: int | Sequence[int], lazy: bool, form: str, points: int, workers: int | None,
    progress: Progress | None,
) -> TabularResult:  # fmt: skip
    """Learns with one of the targets of `kernel`; the other arguments are those of `q_learning`."""
    gamma, alpha, alpha_power, epsilon, final_epsilon, episodes, max_steps = check_settings(
        gamma, alpha, alpha_power, epsilon, final_epsilon, episodes, max_steps
    )
    points = check_count(points, "points", "a number of points", _MOST_POINTS)
    check_progress(progress)
    check_choice(form, "form", FORMS)
    check_flag(lazy, "lazy")
    if workers is not None:
        workers = check_count(workers, "workers", "a number of runs at the same time, or None for one per core")
    etas, seeds = check_etas(eta), check_seeds(seed)
    model = as_model(source, gamma)
    structured = lazy and form == "structured"
    rule = make_rule(model, default_policy, gamma, alpha, alpha_power, lazy=lazy, structured=structured, target=target)
    rules = [rule.with_eta(float(price) if lazy else 0.0) for price in etas]
    plan = make_plan(episodes, max_steps, epsilon, final_epsilon, points)
    n_columns = int(rule.n_actions) + (lazy and not structured)
    return _collect(train_runs(model, rules, seeds, plan, workers, progress), etas, seeds, plan, n_columns)


def make_rule(
    model: MDP | gym.Env[Any, Any], default_policy: ArrayLike | None, gamma: float, alpha: float, alpha_power: float,
    *, lazy: bool, structured: bool, target: Target, learn_steps: bool = False,
) -> Rule:  # fmt: skip
    """Returns a rule with price 0, after checking the default policy; the discount of a model replaces `gamma`."""
    n_states, n_actions = sizes(model)
    given = np.full((n_states, n_actions), 1.0 / n_actions) if default_policy is None else default_policy
    checked = check_table(given, (n_states, n_actions), "default_policy")
    return Rule(
        n_actions=np.uint64(n_actions),
        n_choices=np.uint64(n_actions + lazy),
        structured=structured or None,
        sarsa=target == "sarsa" or None,
        evaluates_default=target == "default_policy",
        default_policy=checked,
        default_bounds=cumulative_bounds(checked.ravel(), np.arange(0, checked.size + 1, n_actions)),
        gamma=model.gamma if isinstance(model, MDP) else gamma,
        eta=0.0,
        prices=np.zeros(n_actions + 1),
        alpha=alpha,
        alpha_power=alpha_power,
        learn_steps=learn_steps or None,
    )


def _collect(
    runs: list[list[Run]], etas: NDArray[np.float64], seeds: NDArray[np.int64], plan: Plan, n_columns: int
) -> TabularResult:
    """Stacks the runs into arrays `[E, N, ...]`."""

    def stack(pick: Callable[[Run], NDArray[Any]]) -> NDArray[Any]:
        return np.array([[pick(run) for run in row] for row in runs])

    episodes = np.diff(plan.edges)
    rewards, controls, steps = np.moveaxis(stack(lambda run: run.curves), -1, 0)
    occupancy = stack(lambda run: run.occupancy)
    return TabularResult(
        etas=etas,
        seeds=seeds,
        q=stack(lambda run: run.tables.q[:, :n_columns]),
        visits=stack(lambda run: run.tables.visits[:, :n_columns]),
        action=stack(lambda run: greedy_choices(run.tables)),
        episode=plan.edges[1:],
        mean_return=rewards / episodes,
        control_rate=controls / np.maximum(steps, 1.0),
        episode_length=steps / episodes,
        occupancy=occupancy / np.maximum(occupancy.sum(axis=-1, keepdims=True), 1),
        steps=int(steps.sum()),
    )


def check_settings(
    gamma: float, alpha: float, alpha_power: float, epsilon: float, final_epsilon: float, episodes: int, max_steps: int
) -> tuple[float, float, float, float, float, int, int]:
    """Returns the settings as plain numbers, and raises an error if one is invalid, before any long work starts."""
    first, last = check_probability(epsilon, "epsilon"), check_probability(final_epsilon, "final_epsilon")
    if last > first:
        raise ValueError(f"final_epsilon is {last}, above epsilon = {first}: exploration must not increase.")
    return (
        check_gamma(gamma),
        check_number(alpha, "alpha", 0.0, 1.0, "a step size above 0 and at most 1", above=True),
        check_number(alpha_power, "alpha_power", 0.0, 1.0, "a number between 0 (constant step size) and 1"),
        first,
        last,
        check_count(episodes, "episodes", "a number of episodes"),
        check_count(max_steps, "max_steps", "a number of steps"),
    )
