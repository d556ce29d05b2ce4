"""Published fidelity scores: one number for an importance measure, by a protocol with a name.

Every protocol records whole episodes of the agent, chooses steps of each by their importance, and plays each episode
again from the same seed: the recorded actions up to the first chosen step, the default policy (by default random
actions) on the chosen steps, and the agent on all others. Let `L` be the length of the recorded episode, `l` the number
of chosen steps, `dR` the change of return, and `d` a scale of returns that the user gives. Means are over episodes.
Scores of different protocols, scales or shares cannot be compared.

`statemask-code`
    The longest consecutive run among the top 10 % of the steps (rounded down, at least 1; the first of several).
    `log(mean l/L) - log(mean |dR|/d)`: **lower is better**. The scale is 500 for CartPole and 1 for Pong. This follows
    the code that StateMask's authors published for CartPole, with two deviations: `l` is the number of steps of the
    run, where their code for CartPole counts one less, and the run is the longest also if it is the first, which their
    loop counts as one shorter. Their code for Pong averages the logarithms of the episodes instead.
`rice-spec`
    The window of `share * L` consecutive steps (rounded, at least 1) with the highest mean importance; the first of
    several. `log(mean |dR|/d) - log(mean l/L)`: **higher is better**. The scale is the largest possible change.
`scattered`
    The `share * L` most important steps (rounded, at least 1), wherever they are. The score is that of `rice-spec`,
    **higher is better**. The number of steps is the same however they are spread, so spread is neither rewarded nor
    punished. Once an action has changed, "step 20" is the 20th step of the new course of the episode.

Each score comes with that of random steps: a window of the same length at a random place, or as many random steps. A
score is infinite if no return changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_choice, check_count, check_number, check_seed
from lazymdp.measure.handover import (
    AGENT,
    DEFAULT,
    RECORDED,
    Episode,
    Importance,
    Player,
    check_importance,
    episode_seeds,
)
from lazymdp.measure.statistics import Interval, check_confidence, mean_interval

PROTOCOLS = ("statemask-code", "rice-spec", "scattered")
_RESAMPLES = 2_000


@dataclass(frozen=True, eq=False)
class FidelityScore:
    """The score of an importance measure by one protocol, beside the score of random steps.

    Attributes:
        protocol: Name of the protocol.
        higher_is_better: Direction of the score.
        score: The score with its bootstrap interval over episodes.
        random: The score of random steps.
        change: Mean change of the return, `dR`; negative if return was lost.
        random_change: Mean change of the return with random steps.
        share: Mean share of the steps that were chosen, `l/L`.
    """

    protocol: str
    higher_is_better: bool
    score: Interval
    random: Interval
    change: Interval
    random_change: Interval
    share: float


def fidelity_score(
    agent: Any,
    env: str | Callable[[], gym.Env[Any, Any]],
    importance: Importance,
    *,
    protocol: str,
    scale: float,
    share: float = 0.1,
    default_policy: Any = "uniform",
    episodes: int = 100,
    max_steps: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> FidelityScore:
    """Computes a fidelity score by a named protocol; see the module for the protocols and their direction.

    Args:
        agent: An object with `predict(observations, deterministic=True) -> (actions, state)`, or a callable from
            observations `[N, ...]` to `[N]` actions.
        env: The id of a Gymnasium environment, or a function that makes one. Its episodes have to be reproducible from
            the seed of `reset` and the actions.
        importance: A callable from observations `[N, ...]` to `[N]` numbers; larger is more important.
        protocol: "statemask-code" (lower is better), "rice-spec" or "scattered" (higher is better).
        scale: Scale of the changes of return, `d`.
        share: Share of the steps that are chosen; "statemask-code" chooses its run among this share of the steps.
        default_policy: The policy that acts on the chosen steps, in any form that `LazyAction` accepts.
        episodes: Number of episodes.
        max_steps: Number of steps after which an episode is truncated; by default the environment decides.
        seed: Random seed. The same seed gives the same result.
        confidence: Confidence level of the intervals.
    """
    check_choice(protocol, "protocol", PROTOCOLS)
    unit = check_number(scale, "scale", 0.0, np.inf, "a positive change of return", above=True, below=True)
    part = check_number(share, "share", 0.0, 1.0, "a share of the steps between 0 and 1", above=True)
    check_confidence(confidence)
    check_importance(importance)
    seeds = episode_seeds(check_seed(seed), check_count(episodes, "episodes", "a number of episodes"))
    rng = np.random.default_rng([seed, 1])
    player = Player(agent, env, default_policy, 1.0, max_steps)
    try:
        recorded = player.play(seeds, importance=importance)
        chosen = [chosen_steps(protocol, episode.importance, part) for episode in recorded]
        random = [random_steps(protocol, steps, rng) for steps in chosen]
        changes = [changes_of_return(player, recorded, steps) for steps in (chosen, random)]
    finally:
        player.close()
    taken = np.array([steps.mean() for steps in chosen])  # the same for random steps
    score, at_random = (score_of(protocol, taken, np.abs(change) / unit, confidence) for change in changes)
    change, random_change = (mean_interval(change, confidence=confidence) for change in changes)
    return FidelityScore(
        protocol, protocol != "statemask-code", score, at_random, change, random_change, float(taken.mean())
    )


def chosen_steps(protocol: str, importance: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Returns the steps `[L]` that a protocol chooses in an episode with the given importance `[L]`."""
    length = importance.size
    chosen = np.zeros(length, dtype=bool)
    if protocol == "rice-spec":
        window = max(1, round(share * length))
        sums = np.convolve(importance, np.ones(window), mode="valid")
        # Sums of equal numbers may differ by rounding: among those, the first window counts.
        first = int(np.argmax(sums >= sums.max() - 1e-9 * window * np.abs(importance).max()))
        chosen[first : first + window] = True
        return chosen
    count = max(1, int(share * length) if protocol == "statemask-code" else round(share * length))
    chosen[np.argsort(-importance, kind="stable")[:count]] = True
    return longest_run(chosen) if protocol == "statemask-code" else chosen


def longest_run(chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Returns the longest consecutive run of `chosen [L]`, the first of several, as flags `[L]`."""
    edges = np.diff(np.concatenate([[0], chosen.astype(np.int64), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    run = np.zeros_like(chosen)
    if starts.size:
        longest = int(np.argmax(ends - starts))
        run[starts[longest] : ends[longest]] = True
    return run


def random_steps(protocol: str, chosen: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Returns as many steps as in `chosen [L]` at random: a window at a random place, or any steps if scattered."""
    if protocol == "scattered":
        return rng.permutation(chosen)
    count = int(chosen.sum())
    steps = np.zeros_like(chosen)
    first = int(rng.integers(chosen.size - count + 1))
    steps[first : first + count] = True
    return steps


def changes_of_return(
    player: Player, recorded: Sequence[Episode], chosen: Sequence[NDArray[np.bool_]]
) -> NDArray[np.float64]:
    """Plays every episode again with the chosen steps handed over: `[E]` changes of the return."""
    firsts = np.array([int(np.argmax(steps)) for steps in chosen])

    def rule(step: int, episodes: NDArray[np.int64], scores: NDArray[np.float64]) -> NDArray[np.int64]:
        handed = [step < chosen[one].size and bool(chosen[one][step]) for one in episodes]
        return np.where(step < firsts[episodes], RECORDED, np.where(handed, DEFAULT, AGENT))

    again = player.play([episode.seed for episode in recorded], rule, recorded=recorded)
    for old, new, first in zip(recorded, again, firsts, strict=True):
        differs = new.rewards[:first] != old.rewards[:first] if new.rewards.size >= first else np.array([True])
        if differs.any():
            raise ValueError(
                f"the episode with seed {old.seed} took another course at step {int(np.argmax(differs))}, before any "
                "step was handed over: the environment has to repeat itself for the same seed and actions."
            )
    return np.array([new.total - old.total for old, new in zip(recorded, again, strict=True)])


def score_of(protocol: str, taken: NDArray[np.float64], change: NDArray[np.float64], confidence: float) -> Interval:
    """Returns `log(mean change / mean taken)`, or minus that, with a percentile bootstrap interval over episodes."""
    count = taken.size
    draws = np.random.default_rng(0).multinomial(count, np.full(count, 1.0 / count), size=_RESAMPLES) / count
    weights = np.vstack([np.full(count, 1.0 / count), draws])
    with np.errstate(divide="ignore"):  # the score is infinite if no return changes
        scores = np.log(weights @ change) - np.log(weights @ taken)
    if protocol == "statemask-code":
        scores = -scores
    tail = (1.0 - confidence) / 2.0
    # No interpolation between order statistics, which may be infinite.
    low, high = np.quantile(scores[1:], [tail, 1.0 - tail], method="inverted_cdf")
    return Interval(scores[0], low, high)
