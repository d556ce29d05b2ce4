"""The format of a recording: written and read back, killed, truncated and damaged."""

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import small_recordings as recordings

import lazymdp as lz
from lazymdp._files import _HOST
from lazymdp.explain.recording import COLUMNS, RecordingWriter

pq = pytest.importorskip("pyarrow.parquet")
GAPS = [[0.1, 0.5, 0.2, 0.9], [0.3, 0.0, 0.4]]


@pytest.fixture
def folder(tmp_path):
    recordings.write(tmp_path / "recording", GAPS)
    return tmp_path / "recording"


def test_what_is_written_is_read_back(folder):
    found = lz.explain.load(folder)
    assert found.episodes == 2 and found.has_frames and found.about["agent"] == "nobody"
    for episode, gaps in enumerate(GAPS):
        wanted, steps = recordings.columns(gaps, episode), found.steps(episode)
        assert list(steps) == [name for name in COLUMNS if name != "mask"]
        np.testing.assert_array_equal(steps["step"], np.arange(len(gaps)))
        for name, column in wanted.items():
            np.testing.assert_array_equal(steps[name], column, err_msg=name)
        for step in range(len(gaps)):
            np.testing.assert_array_equal(found.frame(episode, step), recordings.frame(episode, step))
        summary = found.summary(episode)
        assert summary.pop("return") == pytest.approx(wanted["reward"].sum())
        assert summary == {"seed": 5 + episode, "terminated": True, "truncated": False, "length": len(gaps)}
    found.close()


def test_it_can_be_read_without_this_library(folder):
    about = json.loads((folder / "recording.json").read_text())
    assert about["format"] == 1 and about["episodes"] == 2 and "numpy" in about["versions"]
    table = pq.read_table(folder / "episode-00000.parquet")
    assert table.column_names == [name for name in COLUMNS if name != "mask"]
    assert table["critical_eta"].null_count == 2
    assert json.loads(pq.read_metadata(folder / "episode-00000.parquet").metadata[b"seed"]) == 5
    with zipfile.ZipFile(folder / "episode-00000.zip") as frames:
        assert frames.namelist() == [f"00000{step}.png" for step in range(4)]
        assert frames.read("000000.png").startswith(b"\x89PNG")


def test_a_recording_without_frames(tmp_path):
    found = recordings.write(tmp_path / "blind", GAPS, frames=False)
    assert not found.has_frames and not list((tmp_path / "blind").glob("*.zip"))
    with pytest.raises(ValueError, match="no frames"):
        found.frame(0, 0)


def test_an_existing_recording_is_not_overwritten(folder):
    with pytest.raises(FileExistsError, match="holds a recording already"):
        RecordingWriter(folder, recordings.ABOUT)


def test_an_episode_that_fails_does_not_count(tmp_path):
    writer = RecordingWriter(tmp_path / "half", recordings.ABOUT)
    with pytest.raises(RuntimeError, match="emulator"), writer.episode(0) as file:
        file.add_frame(recordings.frame(0, 0))
        file.add_steps(recordings.columns([0.1]))
        raise RuntimeError("the emulator died")
    assert lz.explain.load(tmp_path / "half").episodes == 0
    assert os.listdir(tmp_path / "half") == ["recording.json"]


def test_arguments_are_checked(folder):
    found = lz.explain.load(folder)
    with pytest.raises(ValueError, match="episode is 2, expected .* from 0 to 1"):
        found.steps(2)
    with pytest.raises(ValueError, match="step is 4, expected .* from 0 to 3"):
        found.frame(0, 4)
    with pytest.raises(FileNotFoundError, match="no recording in"):
        lz.explain.load(folder / "nothing")


@pytest.mark.parametrize("name", ["recording.json", "episode-00001.parquet", "episode-00001.zip"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_a_truncated_file_is_named(folder, name, share):
    path = folder / name
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=name):
        lz.explain.load(folder)


@pytest.mark.parametrize("name", ["episode-00001.parquet", "episode-00001.zip"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        lz.explain.load(folder)


@pytest.mark.parametrize("suffix", ["parquet", "zip"])
def test_a_damaged_file_is_named(folder, suffix):
    path = folder / f"episode-00000.{suffix}"
    content = bytearray(path.read_bytes())
    place = 60 if suffix == "parquet" else 100  # in the data of the first page, or of the first image
    content[place : place + 20] = bytes(byte ^ 0xFF for byte in content[place : place + 20])
    path.write_bytes(content)
    with pytest.raises(ValueError, match=path.name):
        found = lz.explain.load(folder)
        found.steps(0), found.frame(0, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"format": 2}, "format is 2"), ({"episodes": -1}, "contradict"), ({"n_actions": "3"}, "n_actions is '3'")],
)
def test_wrong_entries_are_named(folder, change, words):
    path = folder / "recording.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=f"recording.json is damaged.*{words}"):
        lz.explain.load(folder)


def test_killed_in_the_middle_it_is_whole_up_to_the_last_episode(tmp_path):
    folder = tmp_path / "killed"
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
from lazymdp.explain.recording import RecordingWriter
import small_recordings as recordings
writer = RecordingWriter({str(folder)!r}, recordings.ABOUT)
for episode in range(10**6):
    with writer.episode(episode) as file:
        for step in range(20):
            file.add_frame(recordings.frame(episode, step))
            file.add_steps(recordings.columns([0.5], step))
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while not (folder / "episode-00002.zip").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = folder / f".episode-00099.zip.{_HOST}-{process.pid}.part.zip"  # it may have been killed between two episodes
    other = folder / f".episode-00099.zip.elsewhere-{process.pid}.part.zip"
    left.touch(), other.touch()
    found = lz.explain.load(folder)
    assert found.episodes >= 2
    for episode in range(found.episodes):
        assert len(found.steps(episode)["action"]) == 20
        np.testing.assert_array_equal(found.frame(episode, 19), recordings.frame(episode, 19))
    with pytest.raises(FileExistsError, match="holds a recording already"):
        RecordingWriter(folder, recordings.ABOUT)
    assert [path for path in folder.iterdir() if ".part" in path.name] == [other]  # of a machine that shares the folder
    left.touch()
    found.annotate(frontier=[])
    assert not left.exists() and other.exists()
    found.close()
