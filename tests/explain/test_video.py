"""Annotated videos: their format, and what their frames show."""

import re
import subprocess

import numpy as np
import pytest
import small_recordings as recordings

import lazymdp as lz
from lazymdp._colors import CONTROL, rgb
from lazymdp.explain.video import annotated

pytest.importorskip("pyarrow")
ffmpeg = pytest.importorskip("imageio_ffmpeg")


@pytest.fixture
def recording(tmp_path):
    return recordings.write(tmp_path / "r", [[0.1, 0.5, 0.2], [0.3, 0.1]])


def read(path):
    """The size (width, height), the description and the frames of a video."""
    command = [ffmpeg.get_ffmpeg_exe(), "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, check=True, capture_output=True)
    about = next(line for line in done.stderr.decode().splitlines() if "Video:" in line)
    width, height = map(int, re.search(r" (\d\d+)x(\d\d+)", about).groups())
    return (width, height), about, np.frombuffer(done.stdout, np.uint8).reshape(-1, height, width, 3)


def orange(image):
    return int((image == rgb(CONTROL)).all(axis=-1).sum())


def test_browsers_can_play_it(recording, tmp_path):
    made = []
    lz.explain.video(recording, tmp_path / "v.mp4", progress=lambda *given: made.append(given))
    assert made == [(frame, 5) for frame in range(1, 6)]
    size, about, frames = read(tmp_path / "v.mp4")
    assert "h264" in about and "yuv420p" in about and " 10 fps" in about
    assert len(frames) == 5 and not any(side % 2 for side in size)
    border = [frame[20, size[0] // 2].astype(int) for frame in frames]
    for color, control in zip(border, [False, True, False, True, False], strict=True):
        assert (np.abs(color - rgb(CONTROL)).max() < 30) == control
    content = (tmp_path / "v.mp4").read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")  # it can start before it is loaded


def test_one_episode_at_another_speed(recording, tmp_path):
    lz.explain.video(recording, tmp_path / "v.mp4", episode=1, frames_per_second=2)
    _, about, frames = read(tmp_path / "v.mp4")
    assert " 2 fps" in about and len(frames) == 2


def test_control_is_bordered_and_marked_on_the_timeline(recording):
    lazy, control, again = annotated(recording, 0)
    assert lazy.shape == control.shape and lazy.shape[0] % 2 == lazy.shape[1] % 2 == 0
    assert orange(control) > 2 * orange(lazy) > 0  # the timeline shows the step in control, from every step
    assert (lazy != again).any()


def test_an_agent_without_values(tmp_path, monkeypatch):
    plain = recordings.columns
    monkeypatch.setattr(recordings, "columns", lambda *given: plain(*given) | {"lazy_gap": np.full(2, np.nan)})
    recording = recordings.write(tmp_path / "r", [[1.0, 1.0]], eta=None)
    assert len(list(annotated(recording, 0))) == 2


def test_errors(recording, tmp_path):
    with pytest.raises(ValueError, match=r"v.avi, expected a file that ends in .mp4"):
        lz.explain.video(recording, tmp_path / "v.avi")
    with pytest.raises(ValueError, match="frames_per_second is 0"):
        lz.explain.video(recording, tmp_path / "v.mp4", frames_per_second=0)
    with pytest.raises(ValueError, match="episode is 2"):
        lz.explain.video(recording, tmp_path / "v.mp4", episode=2)
    blind = recordings.write(tmp_path / "blind", [[0.5]], frames=False)
    with pytest.raises(ValueError, match="blind has no frames"):
        lz.explain.video(blind, tmp_path / "v.mp4")
    assert not (tmp_path / "v.mp4").exists()


def test_ffmpeg_that_fails_leaves_no_file(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(ffmpeg, "get_ffmpeg_exe", lambda: "/bin/false")
    with pytest.raises(RuntimeError, match="ffmpeg failed with exit code 1"):
        lz.explain.video(recording, tmp_path / "v.mp4")
    assert not [path for path in tmp_path.iterdir() if path.name != "r"]
