"""Files are written whole, and a lock ends with the process that holds it."""

import os
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from lazymdp._files import locked, write_text

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
