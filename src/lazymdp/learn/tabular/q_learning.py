"""Tabular Q-learning and SARSA in lazy-MDPs: Section 6.3 of the paper, many seeds and prices in one call.

Two ways to learn the same thing, `backup="augmented"` (the paper's, A + 1 columns) and `backup="structured"` (A
columns, the value of being lazy derived, every executed action updated); see `kernel`. With `lazy=False`
there is no lazy action and no price: plain Q-learning or SARSA.

Rewards of a model are the expected ones of a state and action. On an environment that carries no model the same
updates are made from its own steps, in Python and thus slower.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import gymnasium as gym
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.lazy import check_eta, check_table
from lazymdp.learn.tabular.kernel_data import COLUMNS, MAX, SAMPLED, Rule, widened
from lazymdp.learn.tabular.parallel import Progress, Run, Schedule, train_runs
from lazymdp.learn.tabular.sampling import as_model, sizes
from lazymdp.mdp import MDP

_P = ParamSpec("_P")
_R = TypeVar("_R")

BACKUPS = ("structured", "augmented")


@dataclass(frozen=True)
class TabularResult:
    """What was learned: one run per price and seed, `E` prices and `N` seeds.

    Attributes:
        etas: `[E]` prices.
        seeds: `[N]` seeds.
        q: `[E, N, S, C]` values learned. `C` is A, or A + 1 for the augmented backup, whose last column is the value
            of being lazy. Control columns include the price.
        visits: `[E, N, S, C]` number of updates of each.
        action: `[E, N, S]` the greedy choice; `A` is lazy, and a tie is lazy.
        episode: `[P]` number of episodes played at each point of the curves.
        score: `[E, N, P]` mean reward of an episode, price excluded, since the point before.
        control_frequency: `[E, N, P]` share of steps in which the agent took control, since the point before.
        episode_length: `[E, N, P]` mean steps of an episode, since the point before.
        occupancy: `[E, N, S]` share of steps spent in each state since the last point but one: at the end of training.
        occupancy_before: `[E, N, S]` likewise, of the steps before the event; zeros where no event was given.
        steps: Steps of the environment in all runs together.
    """

    etas: NDArray[np.float64]
    seeds: NDArray[np.int64]
    q: NDArray[np.float64]
    visits: NDArray[np.int64]
    action: NDArray[np.int64]
    episode: NDArray[np.int64]
    score: NDArray[np.float64]
    control_frequency: NDArray[np.float64]
    episode_length: NDArray[np.float64]
    occupancy: NDArray[np.float64]
    occupancy_before: NDArray[np.float64]
    steps: int

    def __repr__(self) -> str:
        last = ", ".join(
            f"eta {eta:g}: score {score:.3g}, control {control:.1%}"
            for eta, score, control in zip(
                self.etas, self.score[..., -1].mean(axis=1), self.control_frequency[..., -1].mean(axis=1), strict=True
            )
        )
        return f"TabularResult({self.seeds.size} seeds, {self.steps:,} steps; at the end {last})"


def _takes_arguments_of(model: Callable[_P, _R]) -> Callable[[Callable[..., _R]], Callable[_P, _R]]:
    """Gives a function the signature of another, for help and type checkers."""

    def dress(function: Callable[..., _R]) -> Callable[_P, _R]:
        return functools.update_wrapper(function, model, assigned=("__annotations__", "__wrapped__"), updated=())

    return dress


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
    backup: str = "structured",
    points: int = 100,
    event: ArrayLike | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
    _target: int = MAX,
) -> TabularResult:
    """Q-learning: learns the optimal values of a lazy-MDP from samples.

    Args:
        source: A model, or an environment with Discrete observations and actions.
        default_policy: `[S, A]` what acts when the agent is lazy; uniform if not given.
        eta: Price of a step of control, or several.
        gamma: Discount; a model's own discount is used for an `MDP`.
        alpha: Step size.
        alpha_power: The step size falls as `alpha / n**alpha_power` with the number of updates `n` of an entry; between
            0.5 and 1 the values converge, 0 keeps it constant as in the paper.
        epsilon: Probability of a random choice in the first episode; it falls linearly ...
        final_epsilon: ... to this in the last.
        episodes: Number of episodes.
        max_steps: Steps after which an episode is cut off.
        seed: Seed, or several; each gives a run of its own for each price.
        lazy: False leaves the lazy action and the price out.
        backup: `"structured"` or `"augmented"`.
        points: Points of the learning curves.
        event: `[S]` bool, the states at which something has happened (the key is held): `occupancy_before` counts what
            comes earlier in an episode.
        workers: Runs at the same time; one per core if not given. Results do not depend on it.
        progress: Called now and then with the episodes done and in all.
    """
    model = as_model(source, gamma)
    etas = np.array([check_eta(price) for price in np.atleast_1d(np.asarray(eta, dtype=float))])
    seeds = np.atleast_1d(np.asarray(seed, dtype=np.int64))
    _check_settings(gamma, alpha, alpha_power, epsilon, final_epsilon, episodes, max_steps, points, backup)
    augmented = lazy and backup == "augmented"
    rule = make_rule(
        model, default_policy, gamma, alpha, alpha_power, lazy=lazy, structured=not augmented, target=_target
    )
    rules = [rule._replace(eta=float(price) if lazy else 0.0) for price in etas]
    schedule = Schedule(episodes, max_steps, epsilon, final_epsilon, min(points, episodes))
    runs = train_runs(model, rules, seeds, schedule, event, workers, progress)
    return _collect(runs, etas, seeds, schedule)


@_takes_arguments_of(q_learning)
def sarsa(*args: Any, **kwargs: Any) -> TabularResult:
    """SARSA: as `q_learning`, but a step counts what the agent does next, exploration included."""
    return q_learning(*args, **kwargs, _target=SAMPLED)


def make_rule(
    model: MDP | gym.Env[Any, Any], default_policy: ArrayLike | None, gamma: float, alpha: float, alpha_power: float,
    *, lazy: bool, structured: bool, target: int,
) -> Rule:  # fmt: skip
    """A rule at price 0; the default is checked, and uniform if not given; a model's own discount goes first."""
    n_states, n_actions = sizes(model)
    given = np.full((n_states, n_actions), 1.0 / n_actions) if default_policy is None else default_policy
    default = check_table(given, (n_states, n_actions), "default_policy")
    n_columns = n_actions + (lazy and not structured)
    width = COLUMNS + 2 * n_columns
    return Rule(
        np.uint64(n_actions),
        np.uint64(n_actions + lazy),
        np.uint64(n_columns),
        np.uint64(width),
        widened(default, width),
        widened(np.cumsum(default, axis=1), width),
        bool((default == default[0, 0]).all()),
        np.append(np.ones(n_actions), 0.0),
        model.gamma if isinstance(model, MDP) else gamma,
        0.0,
        alpha,
        alpha_power,
        target,
    )


def _collect(
    runs: list[list[Run]], etas: NDArray[np.float64], seeds: NDArray[np.int64], schedule: Schedule
) -> TabularResult:
    """Puts the runs side by side."""

    def stack(pick: Callable[[Run], NDArray[Any]]) -> NDArray[Any]:
        return np.array([[pick(run) for run in row] for row in runs])

    count = np.diff(schedule.edges)
    length = stack(lambda run: run.steps)
    return TabularResult(
        etas,
        seeds,
        stack(lambda run: run.q),
        stack(lambda run: run.visits),
        stack(lambda run: run.action),
        schedule.edges[1:],
        stack(lambda run: run.score) / count,
        stack(lambda run: run.controls) / np.maximum(length, 1),
        length / count,
        _shares(stack(lambda run: run.occupancy)),
        _shares(stack(lambda run: run.before)),
        int(length.sum()),
    )


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    return counts / np.maximum(counts.sum(axis=-1, keepdims=True), 1)


def _check_settings(
    gamma: float, alpha: float, alpha_power: float, epsilon: float, final_epsilon: float, episodes: int, max_steps: int,
    points: int, backup: str,
) -> None:  # fmt: skip
    """Refuses what cannot be meant, before any long work starts."""
    for name, number in (("gamma", gamma), ("epsilon", epsilon), ("final_epsilon", final_epsilon)):
        if not 0.0 <= number <= 1.0:
            raise ValueError(f"{name} is {number}, expected a number between 0 and 1.")
    if not 0.0 < alpha <= 1.0:
        raise ValueError(f"alpha is {alpha}, expected a step size above 0, at most 1.")
    if not 0.0 <= alpha_power <= 1.0:
        raise ValueError(f"alpha_power is {alpha_power}, expected a number between 0 (constant step size) and 1.")
    if final_epsilon > epsilon:
        raise ValueError(f"final_epsilon is {final_epsilon}, above epsilon = {epsilon}: exploration falls, not grows.")
    for name, whole in (("episodes", episodes), ("max_steps", max_steps), ("points", points)):
        if whole < 1:
            raise ValueError(f"{name} is {whole}, expected at least 1.")
    if backup not in BACKUPS:
        raise ValueError(f"backup is {backup!r}, expected one of {', '.join(map(repr, BACKUPS))}.")
