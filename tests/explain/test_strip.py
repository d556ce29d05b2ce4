"""Film strips: which frames are chosen, and how they look."""

import numpy as np
import pytest
import small_recordings as recordings

import lazymdp as lz
from lazymdp._colors import CONTROL, rgb
from lazymdp.explain.strip import choose_steps

pytest.importorskip("pyarrow")
Image = pytest.importorskip("PIL.Image")


def peaks(length, at, height=1.0):
    gaps = np.full(length, 0.1)
    gaps[list(at)] = height
    return gaps


def pixels_of(path):
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB")).reshape(-1, 3)


def test_the_largest_gaps_are_shown_and_lazy_steps_for_contrast(tmp_path):
    at = (5, 30, 62, 90)
    recording = recordings.write(tmp_path / "r", [peaks(100, at)])
    shown = lz.explain.strip(recording, tmp_path / "strip.png", frames=6)
    steps = [step for _, step in shown]
    assert set(at) <= set(steps) and len(steps) == 6 and steps == sorted(steps)
    assert np.diff(steps).min() >= 2  # not consecutive
    lazy = sorted(set(steps) - set(at))
    assert all(min(abs(step - other) for other in at) > 5 for step in lazy)
    colors = pixels_of(tmp_path / "strip.png")
    assert (colors == rgb(CONTROL)).all(axis=1).sum() > 1000


def test_neighbors_of_a_peak_are_left_out(tmp_path):
    gaps = np.full(100, 0.3)
    gaps[50:56] = [0.9, 1.0, 0.95, 0.9, 0.85, 0.8]
    recording = recordings.write(tmp_path / "r", [gaps])
    steps = choose_steps(recording, 0, gaps, 5)
    assert 51 in steps and len([step for step in steps if 48 <= step <= 57]) == 1


def test_steps_by_hand_and_the_episode_with_the_largest_gap(tmp_path):
    recording = recordings.write(tmp_path / "r", [peaks(20, [3]), peaks(20, [7], 2.0)])
    given = lz.explain.strip(recording, tmp_path / "s.png", steps=[9, 8, 2], episode=1, columns=2, title="By hand")
    assert given == [(1, 9), (1, 8), (1, 2)]
    assert lz.explain.strip(recording, tmp_path / "s.png", steps=[1]) == [(0, 1)]
    assert (1, 7) in lz.explain.strip(recording, tmp_path / "s.png", frames=3)


def test_lazy_frames_are_gray(tmp_path):
    recording = recordings.write(tmp_path / "r", [np.full(6, 0.1)])
    lz.explain.strip(recording, tmp_path / "s.png", steps=[0, 1], title="t")
    colors = pixels_of(tmp_path / "s.png").astype(int)
    assert (colors.max(axis=1) - colors.min(axis=1)).max() < 12  # inks and rules are almost gray, too


def test_an_agent_without_values_is_shown_at_even_distances(tmp_path, monkeypatch):
    plain = recordings.columns
    monkeypatch.setattr(recordings, "columns", lambda *given: plain(*given) | {"lazy_gap": np.full(64, np.nan)})
    recording = recordings.write(tmp_path / "r", [np.full(64, 1.0)])
    steps = [step for _, step in lz.explain.strip(recording, tmp_path / "s.png", frames=4)]
    assert steps[0] < 16 and steps[-1] >= 32 and np.diff(steps).min() >= 8


def test_short_episodes(tmp_path):
    recording = recordings.write(tmp_path / "r", [[0.5, 0.1]])
    assert lz.explain.strip(recording, tmp_path / "s.png", frames=8) == [(0, 0)]


def test_errors(tmp_path):
    recording = recordings.write(tmp_path / "r", [[0.5, 0.1]])
    with pytest.raises(ValueError, match=r"strip.gif, expected a file that ends in .png"):
        lz.explain.strip(recording, tmp_path / "strip.gif")
    with pytest.raises(FileNotFoundError, match="no folder"):
        lz.explain.strip(recording, tmp_path / "nowhere" / "strip.png")
    with pytest.raises(ValueError, match="step is 2, expected a step of episode 0, from 0 to 1"):
        lz.explain.strip(recording, tmp_path / "strip.png", steps=[2])
    with pytest.raises(ValueError, match="steps is empty"):
        lz.explain.strip(recording, tmp_path / "strip.png", steps=[])
    blind = recordings.write(tmp_path / "blind", [[0.5, 0.1]], frames=False)
    with pytest.raises(ValueError, match="blind has no frames"):
        lz.explain.strip(blind, tmp_path / "strip.png")
