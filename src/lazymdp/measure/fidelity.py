"""Fidelity of an importance measure: what happens to the return if the steps that it calls important are handed over.

The agent plays whole episodes in which some steps are handed over to the default policy. A step is chosen online, by
the importance of its observation: it is among the top `K` if it exceeds the `1 - K` quantile over the steps that the
agent plays alone (its *reference episodes*). Where many steps are exactly at the quantile, they are chosen at random,
so that the share of the reference steps is `K`. An episode in which steps are handed over visits other states, so the
share of its own steps may differ; `Fidelity.handed` reports it.

* `mode="replace"`: the default policy acts at the top `K` of the steps, and the agent elsewhere. A faithful measure
  loses *much* return: the curve of the top is **above** that of random steps, and that of the bottom is below.
* `mode="keep"`: the agent acts at the top `K` of the steps only, and the default policy elsewhere. A faithful measure
  loses *little* return: the curve of the top is **below** that of random steps.

The loss is the return of the agent alone minus the return with steps handed over: positive if return was lost. Episodes
are paired by their seed. In both modes, the `area` between the curves is positive if the measure is better than random.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_choice, check_count, check_number, check_seed, several
from lazymdp._files import write_csv
from lazymdp.measure.handover import (
    AGENT,
    DEFAULT,
    Importance,
    Player,
    Rule,
    check_importance,
    episode_seeds,
    uniforms,
)
from lazymdp.measure.statistics import Interval, check_confidence, mean_interval

SHARES = (0.05, 0.1, 0.2, 0.3, 0.4)
MODES = ("replace", "keep")
KINDS = ("top", "bottom", "random")


@dataclass(frozen=True, eq=False, repr=False)
class Fidelity:
    """Curves of the loss of return over the share `K` of the steps, for the top, the bottom and random steps.

    Attributes:
        mode: "replace" (the chosen steps are handed over) or "keep" (all others are).
        shares: `[K]` shares of the steps that are chosen, increasing.
        baseline: `[E]` return of each episode of the agent alone.
        returns: For "top", "bottom" and "random": `[E, K]` return of each episode with steps handed over.
        handed: For "top", "bottom" and "random": `[K]` share of the steps that were in fact handed over.
        confidence: Confidence level of the intervals.
    """

    mode: str
    shares: NDArray[np.float64]
    baseline: NDArray[np.float64]
    returns: Mapping[str, NDArray[np.float64]]
    handed: Mapping[str, NDArray[np.float64]]
    confidence: float

    def loss(self, kind: str) -> Interval:
        """Returns the mean loss of return at each share, `[K]`, with a bootstrap interval over episodes.

        A positive loss means that return was lost. For the top, larger is better with "replace" and smaller is better
        with "keep".

        Args:
            kind: "top", "bottom" or "random".
        """
        return mean_interval(self._losses(kind), confidence=self.confidence)

    def area(self, against: str = "random") -> Interval:
        """Returns the mean distance between two curves over the shares, with a bootstrap interval over episodes.

        Larger is better, and 0 is no better than the other choice of steps: this is the loss of the top minus that of
        the other steps with "replace", and the reverse with "keep". It is in units of return.

        Args:
            against: "random" or "bottom".
        """
        sign = 1.0 if self.mode == "replace" else -1.0
        between = sign * (self._losses("top") - self._losses(check_choice(against, "against", KINDS[1:])))
        return mean_interval(mean_over(self.shares, between), confidence=self.confidence)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one row per kind and share: the loss with its interval, and the share of steps handed over."""
        losses = {kind: self.loss(kind) for kind in KINDS}
        columns = {
            "kind": np.repeat(KINDS, self.shares.size),
            "share": np.tile(self.shares, len(KINDS)),
            "handed": np.concatenate([self.handed[kind] for kind in KINDS]),
            "loss": np.concatenate([losses[kind].mean for kind in KINDS]),
            "low": np.concatenate([losses[kind].low for kind in KINDS]),
            "high": np.concatenate([losses[kind].high for kind in KINDS]),
        }
        write_csv(path, columns)

    def __repr__(self) -> str:
        area = self.area()
        return (
            f"Fidelity({self.mode}, {self.baseline.size} episodes with a mean return of {self.baseline.mean():.4g}, "
            f"area over random {area.mean:.4g} [{area.low:.4g}, {area.high:.4g}], larger is better)"
        )

    def _losses(self, kind: str) -> NDArray[np.float64]:
        return self.baseline[:, None] - self.returns[check_choice(kind, "kind", KINDS)]


def fidelity(
    agent: Any,
    env: str | Callable[[], gym.Env[Any, Any]],
    importance: Importance,
    *,
    default_policy: Any = "uniform",
    mode: str = "replace",
    shares: Sequence[float] = SHARES,
    episodes: int = 100,
    gamma: float = 1.0,
    max_steps: int | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> Fidelity:
    """Measures how much return is lost if the most important steps of an agent are handed over; see the module.

    Direction: with "replace", a faithful importance loses much return at the top; with "keep", little.

    Args:
        agent: An object with `predict(observations, deterministic=True) -> (actions, state)`, or a callable from
            observations `[N, ...]` to `[N]` actions.
        env: The id of a Gymnasium environment, or a function that makes one; its actions are `Discrete`. Episodes have
            to be reproducible from the seed of `reset`.
        importance: A callable from observations `[N, ...]` to `[N]` numbers; larger is more important.
        default_policy: The policy that acts on the steps handed over, in any form that `LazyAction` accepts.
        mode: "replace": hand the chosen steps over. "keep": hand all others over.
        shares: Shares of the steps that are chosen, increasing, between 0 and 1.
        episodes: Number of episodes for each curve and share, and of reference episodes.
        gamma: Discount of the returns.
        max_steps: Number of steps after which an episode is truncated; by default the environment decides.
        seed: Random seed. The same seed gives the same result.
        confidence: Confidence level of the intervals.
    """
    check_choice(mode, "mode", MODES)
    given = several(shares, "shares", "increasing numbers between 0 and 1")
    chosen = np.array([check_number(one, "a share", 0.0, 1.0, "a number between 0 and 1") for one in given])
    if (np.diff(chosen) <= 0.0).any():
        raise ValueError(f"shares is {given}, expected increasing numbers between 0 and 1.")
    check_confidence(confidence)
    check_importance(importance)
    count = check_count(episodes, "episodes", "a number of episodes")
    seeds = episode_seeds(check_seed(seed), count)
    player = Player(agent, env, default_policy, gamma, max_steps)
    try:
        alone = player.play(seeds, importance=importance)
        scores = np.concatenate([episode.importance for episode in alone])
        returns = {kind: np.empty((count, chosen.size)) for kind in KINDS}
        handed = {kind: np.empty(chosen.size) for kind in KINDS}
        for kind in KINDS:
            for column, share in enumerate(chosen):
                rule = handover_rule(kind, mode == "keep", scores, float(share), seed, count)
                played = player.play(seeds, rule, None if kind == "random" else importance)
                returns[kind][:, column] = [episode.total for episode in played]
                handed[kind][column] = np.concatenate([episode.handed for episode in played]).mean()
    finally:
        player.close()
    baseline = np.array([episode.total for episode in alone])
    return Fidelity(mode, chosen, baseline, returns, handed, confidence)


def handover_rule(kind: str, keep: bool, scores: NDArray[np.float64], share: float, seed: int, count: int) -> Rule:
    """Returns the rule that chooses a share of the steps: those with the highest scores, the lowest, or any."""
    sign = -1.0 if kind == "bottom" else 1.0
    edge, at_edge = (0.0, share) if kind == "random" else threshold(sign * scores, share)

    def rule(step: int, episodes: NDArray[np.int64], found: NDArray[np.float64]) -> NDArray[np.int64]:
        drawn = uniforms(seed, step, episodes, count) < at_edge
        signed = np.zeros(episodes.size) if kind == "random" else sign * found
        chosen = (signed > edge) | ((signed == edge) & drawn)
        return np.where(chosen != keep, DEFAULT, AGENT)

    return rule


def threshold(scores: NDArray[np.float64], share: float) -> tuple[float, float]:
    """Returns the score above which steps are chosen, and the probability of choosing a step exactly at that score.

    Over `scores [N]`, the expected share of the steps that are chosen is exactly `share`.
    """
    values, counts = np.unique(scores, return_counts=True)
    above = scores.size - np.cumsum(counts)  # steps with a larger score than each value
    index = int(np.argmax(above <= share * scores.size))
    return float(values[index]), float((share * scores.size - above[index]) / counts[index])


def mean_over(shares: NDArray[np.float64], curves: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the mean height of curves `[E, K]` over the shares `[K]`, by the trapezoidal rule: `[E]`."""
    if shares.size == 1:
        return curves[:, 0]
    return np.trapezoid(curves, shares, axis=1) / (shares[-1] - shares[0])
