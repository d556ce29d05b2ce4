"""Files are written whole, and a lock ends with the process that holds it."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest

from lazymdp._files import checksum, locked, replacing, write_text

HOLD = """
import sys
from lazymdp._files import locked
with locked(sys.argv[1], wait=True):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def holder(lock):
    """Another process that holds the lock until its standard input is closed."""
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_lock_without_waiting_is_refused_at_once_and_free_after_a_kill(tmp_path):
    lock = tmp_path / ".lock"
    with holder(lock) as process:
        started = time.monotonic()
        with pytest.raises(BlockingIOError, match=r"\.lock is locked by another process"), locked(lock, wait=False):
            pass
        assert time.monotonic() - started < 1.0
        process.kill()
        process.wait()
        with locked(lock, wait=False):
            pass
    with locked(lock, wait=False), pytest.raises(BlockingIOError), locked(lock, wait=False):
        pass
    with locked(lock, wait=False):
        pass


def test_a_lock_can_be_waited_for(tmp_path):
    lock = tmp_path / ".lock"
    with holder(lock) as process:
        process.stdin.close()
        with locked(lock, wait=True):
            assert process.wait(10) == 0


def test_a_lock_is_released_after_an_exception(tmp_path):
    with pytest.raises(RuntimeError), locked(tmp_path / ".lock", wait=True):
        raise RuntimeError
    with locked(tmp_path / ".lock", wait=False):
        pass


def test_a_file_is_synced_before_it_replaces_another(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: calls.append("fsync") or fsync(number))
    monkeypatch.setattr(os, "replace", lambda *paths: calls.append("replace") or replace(*paths))
    write_text(tmp_path / "x", "new")
    assert calls == ["fsync", "replace"] and (tmp_path / "x").read_text() == "new"


LEAVE = """
import os, sys
from lazymdp._files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    os._exit(9)
"""


def test_a_temporary_file_of_a_killed_process_is_removed_by_the_next_write(tmp_path):
    path, other = tmp_path / "model.npz", tmp_path / "another.npz"
    for target in (path, other):
        assert subprocess.run([sys.executable, "-c", LEAVE, str(target)]).returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    write_text(path, "whole")
    assert {entry.name for entry in tmp_path.iterdir() if ".part" not in entry.name} == {"model.npz"}
    assert [entry.name.split(".")[1] for entry in tmp_path.iterdir() if ".part" in entry.name] == ["another"]


def test_a_temporary_file_that_is_being_written_is_left_alone(tmp_path):
    name = f".x.{os.getppid()}.part"
    with replacing(tmp_path / "x") as mine:
        mine.write_text("new")
        theirs = mine.with_name(mine.name.replace(f"-{os.getpid()}.", f"-{os.getppid()}."))
        elsewhere = mine.with_name(f".x.another-host-{2**22 + 1}.part")
        for path in (theirs, elsewhere, tmp_path / name):
            path.write_text("other")
        write_text(tmp_path / "y", "")
    write_text(tmp_path / "x", "newer")
    assert theirs.exists() and elsewhere.exists() and (tmp_path / name).exists()
    assert (tmp_path / "x").read_text() == "newer"


def test_a_checksum_covers_names_types_shapes_and_contents():
    arrays = {"a": np.arange(6), "b": np.array(True)}
    others = [
        {"a": np.arange(6), "c": np.array(True)},
        {"a": np.arange(6, dtype=np.int32), "b": np.array(True)},
        {"a": np.arange(6).reshape(2, 3), "b": np.array(True)},
        {"a": np.arange(1, 7), "b": np.array(True)},
        {"a": np.arange(6), "b": np.array(False)},
        {"a": np.arange(6)},
    ]
    assert checksum(arrays) == checksum(dict(reversed(arrays.items()))) == checksum({**arrays, "a": list(range(6))})
    assert checksum({"a": np.arange(6).reshape(2, 3).T}) == checksum({"a": np.arange(6).reshape(2, 3).T.copy()})
    assert len({checksum(arrays), checksum(arrays, "text"), *map(checksum, others)}) == len(others) + 2
