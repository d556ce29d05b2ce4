"""Which moments of a recording matter: the lazy-gap and the measures that it is compared with, in one interface.

Every measure gives each step a score; the larger it is, the more the step matters:

* `lazy_gap`: the value of the best action minus the mean value under the default policy (Jacq et al. 2022, Sec. 5).
* `critical_eta`: the largest price at which the agent takes control; the Whittle index of the state, with the lazy
  action as the passive one (Whittle 1988). It is known for exact agents and dials.
* `action_gap`: the value of the best action minus that of the second best (Farahmand 2011; Bellemare et al. 2016).
* `importance_advice`: the value of the best action minus that of the worst (Torrey and Taylor 2013).
* `highlights`: the same difference as `importance_advice`, but `Ranking.top` also spreads its choices out, as
  HIGHLIGHTS does with its interval between summary states (Amir and Amir 2018).
* `entropy`: the negative entropy of a softmax of the values, at a temperature of their standard deviation. A policy
  that is sure of its action is taken as a sign that the action matters (Huang et al. 2018, critical states).
* `mask`: the probability that a learned mask keeps the agent's action. The mask is a network of its own, trained to
  blind the agent as often as possible while the return stays the same (StateMask; Cheng et al. 2023).
* `random`: uniform random numbers, the baseline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_choice, check_count, check_seed
from lazymdp.explain.recording import Recording, check_recording
from lazymdp.measure import importance

Steps = dict[str, NDArray[Any]]
"""The columns of an episode, as `Recording.steps` returns them."""

HIGHLIGHTS_INTERVAL = 50
"""Smallest distance in steps between two moments of `highlights`; the interval of Amir and Amir (2018)."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """The steps of a recording by importance.

    Attributes:
        by: Name of the measure.
        score: For each episode, `[T]` scores. The larger, the more important.
        interval: Smallest distance in steps between two moments of an episode that `top` returns.
    """

    by: str
    score: list[NDArray[np.float64]]
    interval: int = 1

    def top(self, k: int) -> list[tuple[int, int]]:
        """Returns the `k` most important moments as (episode, step), the most important first.

        Equal scores are in the order in which they were recorded. There are fewer than `k` moments if the recording is
        too short.
        """
        check_count(k, "k", "the number of moments")
        places = [(episode, step) for episode, scores in enumerate(self.score) for step in range(len(scores))]
        order = np.argsort(-np.concatenate([np.empty(0), *self.score]), kind="stable")
        chosen: list[tuple[int, int]] = []
        for episode, step in (places[place] for place in order):
            if len(chosen) == k:
                break
            near = (abs(step - other) < self.interval for where, other in chosen if where == episode)
            if self.interval == 1 or not any(near):
                chosen.append((episode, step))
        return chosen


def rank(recording: Recording, by: str = "lazy_gap", *, seed: int = 0) -> Ranking:
    """Ranks the steps of a recording by a measure of importance.

    Args:
        recording: The recording.
        by: `lazy_gap`, `critical_eta`, `action_gap`, `importance_advice`, `highlights`, `entropy`, `mask` or
            `random`; the module `lazymdp.explain.rank` describes them.
        seed: Random seed of the measure `random`.

    Raises:
        ValueError: The recording lacks the numbers that the measure needs.
    """
    check_recording(recording)
    check_choice(by, "by", tuple(MEASURES))
    rng = np.random.default_rng(check_seed(seed))
    scores = []
    for episode in range(recording.episodes):
        score = np.asarray(MEASURES[by](recording.steps(episode), rng), dtype=np.float64)
        if not np.isfinite(score).all():
            step = int(np.argmin(np.isfinite(score)))
            remedy = _REMEDIES.get(by, _VALUES)
            raise ValueError(f"{by} is unknown in step {step} of episode {episode} of {recording.folder}: {remedy}")
        scores.append(score)
    return Ranking(by, scores, HIGHLIGHTS_INTERVAL if by == "highlights" else 1)


def lazy_gap(steps: Steps, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the recorded lazy-gaps `[T]` (Jacq, Ferret, Pietquin and Geist 2022, "Lazy-MDPs", AAMAS)."""
    return steps["lazy_gap"]


def critical_eta(steps: Steps, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the recorded critical prices `[T]` (Whittle 1988, "Restless bandits", J. Appl. Probab. 25A)."""
    return steps["critical_eta"]


def action_gap(steps: Steps, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the value of the best action minus that of the second best `[T]`.

    Farahmand 2011, "Action-gap phenomenon in reinforcement learning", NeurIPS; Bellemare et al. 2016, "Increasing the
    action gap", AAAI.
    """
    return _known(steps, importance.action_gap)


def importance_advice(steps: Steps, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the value of the best action minus that of the worst `[T]`.

    Torrey and Taylor 2013, "Teaching on a budget: agents advising agents in reinforcement learning", AAMAS.
    """
    return _known(steps, importance.importance_advice)


def highlights(steps: Steps, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the value of the best action minus that of the worst `[T]`, which is `importance_advice`.

    HIGHLIGHTS takes the measure of Torrey and Taylor and adds that summary states keep a distance; `Ranking.top` does
    the same. Amir and Amir 2018, "HIGHLIGHTS: summarizing agent behavior to people", AAMAS.
    """
    return importance_advice(steps, rng)


def entropy(steps: Steps, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the negative entropy `[T]`, in nats, of a softmax of the values.

    Agents that act greedily have no entropy of their own. The temperature of the softmax is the standard deviation of
    the values over all actions and steps of the episode, after the mean of each step is subtracted, so that the scale
    of the rewards does not matter. Huang et al. 2018, "Establishing appropriate trust via critical states", IROS.
    """
    q = steps["q"] - steps["q"].mean(axis=1, keepdims=True)
    logits = q / (q.std() or 1.0)
    logits = logits - logits.max(axis=1, keepdims=True)
    log_probability = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.asarray((np.exp(log_probability) * log_probability).sum(axis=1))


def mask(steps: Steps, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns the recorded probabilities `[T]` that a learned mask keeps the agent's action.

    Cheng et al. 2023, "StateMask: explaining deep reinforcement learning through state mask", NeurIPS.
    """
    return steps.get("mask", np.full(len(steps["action"]), np.nan))


def random(steps: Steps, rng: np.random.Generator) -> NDArray[np.float64]:
    """Returns uniform random scores `[T]`, the baseline that every measure should beat."""
    return rng.random(len(steps["action"]))


def _known(steps: Steps, measure: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> NDArray[np.float64]:
    """Applies a measure that accepts only finite values; unknown values have an unknown score."""
    finite = np.asarray(np.isfinite(steps["q"]).all(axis=1))
    return np.where(finite, measure(np.where(finite[:, None], steps["q"], 0.0)), np.nan)


MEASURES: dict[str, Callable[[Steps, np.random.Generator], NDArray[np.float64]]] = {
    function.__name__: function
    for function in (lazy_gap, critical_eta, action_gap, importance_advice, highlights, entropy, mask, random)
}
"""The measures by name."""
LABELS = {
    "lazy_gap": "lazy-gap", "critical_eta": "critical eta", "action_gap": "action-gap", "highlights": "HIGHLIGHTS",
    "importance_advice": "importance advice", "entropy": "policy entropy", "mask": "learned mask", "random": "random",
}  # fmt: skip
"""The names of the measures as people write them."""

_VALUES = (
    "the agent has no values. Record it with critic='fit', or at the command line with `lazymdp record --critic fit`."
)
_REMEDIES = {
    "critical_eta": "only exact agents and dials, which are trained for a range of prices, have it.",
    "mask": "no mask was trained. Record it with mask='fit', or at the command line with `lazymdp record --mask fit`.",
}
