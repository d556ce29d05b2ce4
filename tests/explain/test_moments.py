"""Peaks of the lazy-gap, and the moments that a reader is shown."""

import numpy as np
import pytest

pytest.importorskip("pyarrow")

from recordings import key_door, synthetic

import lazymdp as lz
from lazymdp.explain.moments import by_gap, moments_of, peaks


def test_moments_are_the_peaks_of_steps_in_control():
    gap = np.zeros(100)
    gap[[10, 11, 40, 60, 90]] = [1.0, 0.9, 0.8, 2.0, 0.7]
    steps = {"lazy_gap": gap, "control": gap != 2.0}
    found = peaks([steps], 4.0)
    assert [moment.step for moment in found[0][:3]] == [10, 40, 90]  # 11 belongs to 10, and 60 is lazy
    lazy = peaks([{"lazy_gap": gap, "control": np.zeros(100, dtype=bool)}], 4.0)
    assert [moment.step for moment in lazy[0][:4]] == [60, 10, 40, 90]


def test_steps_that_a_critic_would_leave_to_the_default_policy_are_no_moments():
    """A critic expects more of the default policy where the lazy-gap of an agent that is never lazy is negative."""
    control = np.ones(100, dtype=bool)
    gap = np.full(100, -1.0)
    gap[[10, 60]] = [1.0, -0.5]
    assert [moment.step for moment in peaks([{"lazy_gap": gap, "control": control}], 4.0)[0]] == [10]
    gap[10] = -2.0  # the agent is wrong everywhere
    assert peaks([{"lazy_gap": gap, "control": control}], 4.0)[0][0].step == 60


def test_moments_of_all_episodes_are_sorted_by_their_gap(tmp_path):
    recording = synthetic(tmp_path / "cart", lengths=(60, 60, 60))
    steps = [recording.steps(episode) for episode in range(3)]
    gaps = [moment.gap for moment in by_gap(peaks(steps, 4.0))]
    assert gaps == sorted(gaps, reverse=True) and len(gaps) > 8
    shown = [same[0] for same in moments_of(recording, 5)]
    assert shown == by_gap(peaks(steps, recording.about["frames_per_second"]))[:5]


def test_a_state_that_is_met_in_every_episode_is_one_moment(tmp_path):
    """All episodes of the exact agent end in the same way."""
    recording = key_door(tmp_path / "kdt", episodes=3, eta=0.025)
    shown = moments_of(recording, 4)
    pictures = {recording.frame(same[0].episode, same[0].step).tobytes() for same in shown}
    assert len(shown) == len(pictures) == 4 and max(map(len, shown)) > 1
    assert (shown[0][0].episode, shown[0][0].step) == lz.explain.rank(recording).top(1)[0]
