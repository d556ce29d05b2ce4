"""The moments of a recording: peaks of the lazy-gap with the steps around them, and those that a reader is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.explain.recording import Recording

Steps = Mapping[str, NDArray[Any]]
"""Columns of an episode, `[T]` each: `control` and `lazy_gap`."""

_MOST_PEAKS = 8
"""Largest number of moments per episode."""
_POOL = 4
"""How many times as many moments are compared as are shown."""


@dataclass(frozen=True)
class Moment:
    """A peak of the lazy-gap.

    Attributes:
        episode: Number of the episode.
        step: Step of the peak.
        gap: Lazy-gap at the peak.
        share: Share of the gain of its episode within the steps around the peak; 0 if the episode has no gain.
    """

    episode: int
    step: int
    gap: float
    share: float


def moments_of(recording: Recording, count: int) -> list[list[Moment]]:
    """Returns the largest moments of a recording, as `distinct` does."""
    steps = [recording.steps(episode) for episode in range(recording.episodes)]
    return distinct(recording, by_gap(peaks(steps, float(recording.about["frames_per_second"]))), steps, count)


def distinct(recording: Recording, moments: Sequence[Moment], steps: Sequence[Steps], count: int) -> list[list[Moment]]:
    """Returns the first `count` moments, each followed by those of other places that look the same.

    These have the same frame and choice; or, without frames, the same choice in the same state of a model.
    """
    groups: dict[Any, list[Moment]] = {}
    for moment in moments[: max(_POOL * count, _POOL * _MOST_PEAKS)]:
        key: Any = moment
        columns = steps[moment.episode]
        state = state_of(columns, moment.step)
        if recording.has_frames and recording.episodes > 1:
            key = recording.frame(moment.episode, moment.step).tobytes(), int(columns["choice"][moment.step])
        elif not recording.has_frames and state is not None:
            key = state, int(columns["choice"][moment.step])
        if key in groups or len(groups) < count:
            groups.setdefault(key, []).append(moment)
    recording.close()
    return list(groups.values())


def state_of(columns: Steps, step: int) -> float | None:
    """Returns the observation before a step if it is one number, as the states of a model are, and None otherwise."""
    seen = columns.get("observation")
    return None if seen is None or seen.shape[1] != 1 else float(seen[step, 0])


def by_gap(moments: Sequence[Sequence[Moment]]) -> list[Moment]:
    """Returns the moments of all episodes, by decreasing lazy-gap."""
    return sorted((moment for found in moments for moment in found), key=lambda moment: -moment.gap)


def peaks(steps: Sequence[Steps], frames_per_second: float) -> list[list[Moment]]:
    """Returns the moments of each episode: of the steps in control with a positive lazy-gap.

    A critic may find none, and an agent may always be lazy; then they are moments of the steps in control, or of all.
    """
    control = [np.asarray(columns["control"], dtype=bool) for columns in steps]
    gains = [took & (columns["lazy_gap"] > 0) for took, columns in zip(control, steps, strict=True)]
    every = [np.ones_like(took) for took in control]
    eligible = next((masks for masks in (gains, control) if any(mask.any() for mask in masks)), every)
    return [
        _peaks(episode, columns, mask, steps_around(frames_per_second, len(mask)))
        for episode, (columns, mask) in enumerate(zip(steps, eligible, strict=True))
    ]


def steps_around(frames_per_second: float, length: int) -> int:
    """Returns the number of steps on each side of a peak that belong to it: half a second, fewer in a short episode."""
    return min(max(round(frames_per_second / 2), 1), max(length // 25, 1))


def _peaks(episode: int, columns: Mapping[str, NDArray[Any]], eligible: NDArray[np.bool_], around: int) -> list[Moment]:
    """Returns the largest moments of an episode: the highest peak, then the highest outside its surroundings, ..."""
    gap, control = columns["lazy_gap"], columns["control"]
    gain = np.where(control & (gap > 0), gap, 0.0)
    total = float(gain.sum())
    free = eligible & np.isfinite(gap)
    candidates = int(free.sum())
    found: list[Moment] = []
    for step in np.argsort(-np.where(free, gap, -np.inf), kind="stable")[:candidates]:
        if free[step] and len(found) < _MOST_PEAKS:
            near = slice(max(step - around, 0), step + around + 1)
            share = float(gain[near].sum()) / total if total > 0 else 0.0
            gain[near], free[near] = 0.0, False  # a step belongs to one moment
            found.append(Moment(episode, int(step), float(gap[step]), share))
    return found
