"""Processes that execute runs: killed, hanging, stopped, and printing; and local workers that go on after them."""

import os
import signal
import threading
import time

import pytest

pytest.importorskip("jax")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.sweep

from lazymdp.sweep.execute import Job  # noqa: E402
from lazymdp.sweep.study_file import read_study  # noqa: E402
from lazymdp.sweep.supervise import Limits, _end_of, supervise  # noqa: E402
from lazymdp.sweep.sweep_folder import SweepFolder  # noqa: E402

MODULE = """
import os, sys, time
import gymnasium as gym

class Odd(gym.Wrapper):
    def step(self, action):
        print('{"error": "not a message"}', os.environ["ODD_API_KEY"])
        if os.path.exists(os.environ["ODD_HANGS"]):
            time.sleep(1000)
        if os.path.exists(os.environ["ODD_DIES"]):
            os.remove(os.environ["ODD_DIES"])
            with open("forked", "w") as file:
                file.write(str(time.monotonic()))
            if os.fork() == 0:  # keeps the pipe open
                time.sleep(100)
            os.kill(os.getpid(), 9)
        time.sleep(0.001)
        return self.env.step(action)

gym.register("Odd-v0", lambda: Odd(gym.make("FrozenLake-v1", max_episode_steps=30)))
"""


@pytest.fixture
def job(write_study, tmp_path, monkeypatch):
    """A run in an environment that hangs or kills its process as soon as a file exists."""
    (tmp_path / "odd_env_of_test.py").write_text(MODULE)
    (tmp_path / "jax.py").write_text("raise ImportError('a file of the user')")  # must not hide what is installed
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("ODD_HANGS", "ODD_DIES"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("ODD_API_KEY", "never-write-this")
    path = write_study()
    path.write_text(path.read_text().replace("FrozenLake-v1", "odd_env_of_test:Odd-v0"))
    return Job((next(iter(read_study(path).specs.values())),))


def test_a_killed_process_a_hang_and_a_stop_each_leave_a_checkpoint(job, tmp_path):
    address, limits = str(tmp_path / "sweep"), Limits(checkpoint_seconds=0.1, hang_seconds=100.0)
    folder, name = SweepFolder(address), job.specs[0].id
    (tmp_path / "ODD_DIES").write_text("")
    outcome = supervise(job, address, limits)
    assert outcome.status == "failed" and "SIGKILL" in outcome.reason and not (tmp_path / "ODD_DIES").exists()
    assert time.monotonic() - float((tmp_path / "forked").read_text()) < 30.0  # it did not wait for the other process
    assert "***" in outcome.log and "never-write-this" not in outcome.log
    assert "progress.json" not in folder.names(f"runs/{name}")  # `status` must not show it as running

    def when_training(then):
        while "last.safetensors" not in folder.names(f"runs/{name}/training"):
            time.sleep(0.05)
        then()

    stop = threading.Event()
    threading.Thread(target=when_training, args=(stop.set,), daemon=True).start()
    outcome = supervise(job, address, limits, stop.is_set)
    assert outcome.status == "stopped" and "last.safetensors" in folder.names(f"runs/{name}/training")
    (tmp_path / "ODD_HANGS").write_text("")
    outcome = supervise(job, address, Limits(checkpoint_seconds=0.1, hang_seconds=6.0))
    assert outcome.status == "failed" and outcome.reason == "it gave no sign of life for 6 s"
    (tmp_path / "ODD_HANGS").unlink()
    outcome = supervise(job, address, limits)
    assert outcome.status == "done", (outcome.reason, outcome.log)
    assert folder.read_sealed(f"runs/{name}/result.json")["run"] == name


def test_the_end_of_a_log_does_not_begin_with_half_a_secret(tmp_path, monkeypatch):
    secret = "s3cr3t-" * 200
    monkeypatch.setenv("A_LONG_TOKEN", secret)
    path = tmp_path / "log"
    path.write_text(f"signed with {secret}\n" * 50 + "the last line\n")
    with open(path, "rb") as log:
        end = _end_of(log)
    assert "s3cr3t" not in end and end.startswith("signed with ***") and end.endswith("the last line\n")
    path.write_text("short")
    with open(path, "rb") as log:
        assert _end_of(log) == "short"


def test_a_process_ends_when_the_one_that_started_it_is_killed(job, tmp_path):
    import json
    import subprocess
    import sys

    given = {"specs": [job.specs[0].to_json()], "folder": str(tmp_path / "sweep"), "sys_path": sys.path,
             "checkpoint_seconds": 60.0}  # fmt: skip
    (tmp_path / "ODD_HANGS").write_text("")
    code = (
        "import subprocess, sys, time\n"
        "import os; command = [sys.executable, '-m', 'lazymdp.sweep.worker', str(os.getpid())]\n"
        "p = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)\n"
        f"p.stdin.write({json.dumps(json.dumps(given))} + '\\n'); p.stdin.flush()\n"
        "print(p.pid, flush=True); time.sleep(100)"
    )
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **quiet) as parent:
        child = int(parent.stdout.readline())
        time.sleep(2.0)
        os.kill(child, 0)  # it runs
        parent.send_signal(signal.SIGKILL)
    for _ in range(200):
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError("the process is still there")
