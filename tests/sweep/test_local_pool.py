"""Local workers, and the process that is kept ready for the next run: used once, replaced, and never left behind."""

import filecmp
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("jax")
pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.sweep, pytest.mark.skipif(not Path("/proc/self").exists(), reason="finds processes in /proc")]

from lazymdp.sweep import engine, local_pool  # noqa: E402
from lazymdp.sweep.execute import Job  # noqa: E402
from lazymdp.sweep.run_sweep import Prepared, Where, run_sweep  # noqa: E402
from lazymdp.sweep.study_file import StudyError, read_study  # noqa: E402
from lazymdp.sweep.supervise import Limits, Outcome, Worker  # noqa: E402

MODULE = """
import os, sys, time
import gymnasium as gym

class Slow(gym.Wrapper):
    def step(self, action):
        if "lazymdp.sweep.worker" in sys.orig_argv and os.path.exists("dies"):
            os.remove("dies")
            os.kill(os.getpid(), 9)
        time.sleep(0.001)
        return self.env.step(action)

gym.register("Slow-v0", lambda: Slow(gym.make("FrozenLake-v1", max_episode_steps=30)))
"""


@pytest.fixture
def study(write_study, tmp_path, monkeypatch):
    """Path of a study of three runs, in an environment that kills its process if there is a file `dies`."""
    (tmp_path / "slow_env_of_test.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path = write_study()
    text = path.read_text().replace("FrozenLake-v1", "slow_env_of_test:Slow-v0").replace("seeds = 2", "seeds = 3")
    text = text.replace("steps = 2048", "steps = 512")
    path.write_text(text)
    return path


@pytest.fixture
def attempts(monkeypatch):
    """The jobs that are started and the processes that were ready for them, in their order."""
    found, supervise = [], local_pool.supervise

    def record(job, address, limits, asked_to_stop, worker):
        found.append((job.id, worker and worker.process.pid))
        return supervise(job, address, limits, asked_to_stop, worker)

    monkeypatch.setattr(local_pool, "supervise", record)
    return found


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def workers_of(parent):
    """Ids of the processes that wait for jobs or execute them, which a process has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            is_child = int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and b"lazymdp.sweep.worker" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_runs_keep_their_order_and_their_results_and_no_process_is_left(study, attempts, tmp_path, monkeypatch):
    sweep = run_sweep(Prepared(study, tmp_path / "ready"), Where(1))
    order, processes = zip(*attempts, strict=True)
    assert list(order) == list(read_study(study).specs) == list(sweep.results)
    assert len(set(processes)) == 3 and all(processes) and not any(map(is_there, processes))
    assert not workers_of(os.getpid())
    monkeypatch.setattr(local_pool.LocalPool, "expect", lambda self, waiting: None)
    run_sweep(Prepared(study, tmp_path / "cold"), Where(1))
    assert [process for _, process in attempts[3:]] == [None] * 3
    assert filecmp.cmp(tmp_path / "ready" / "results.parquet", tmp_path / "cold" / "results.parquet", shallow=False)


def test_a_run_whose_process_was_ready_and_dies_is_tried_again_in_another_one(study, attempts, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_FIRST_WAIT", 0.1)
    (tmp_path / "dies").touch()
    lines = []
    sweep = run_sweep(Prepared(study, tmp_path / "sweep"), Where(1), tell=lines.append)
    assert len(sweep.results) == 3 and not sweep.set_aside and sum("Retry 1 of 3" in line for line in lines) == 1
    order, processes = zip(*attempts, strict=True)
    first, second, third = read_study(study).specs
    assert processes[0] is not None and len(set(processes)) == 4
    assert order in ((first, first, second, third), (first, second, first, third), (first, second, third, first))


def test_a_process_is_kept_ready_only_while_jobs_wait_and_replaced_if_it_was_killed(study, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(local_pool, "supervise", lambda *args: given.append(args[-1]) or Outcome("done"))
    job = Job((next(iter(read_study(study).specs.values())),))
    pool = local_pool.LocalPool(str(tmp_path), 2, Limits())
    pool.expect(0)
    assert not workers_of(os.getpid())
    for _ in range(3):
        pool.expect(5)
    (ready,) = workers_of(os.getpid())
    pool.expect(0)
    assert not is_there(ready)
    pool.expect(1)
    (ready,) = workers_of(os.getpid())
    os.kill(ready, signal.SIGKILL)
    while (Path(f"/proc/{ready}/stat").read_text().rpartition(")")[2].split()[0]) != "Z":
        time.sleep(0.01)
    pool.start(job)
    pool.expect(1)
    pool.start(job)
    while pool.running:
        pool.finished(1.0)
    assert given[0] is None and given[1] is not None and not is_there(ready)
    given[1].close()


def test_without_memory_for_one_more_process_the_sweep_goes_on(tmp_path, monkeypatch):
    def no_memory(cores):
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(local_pool, "Worker", no_memory)
    local_pool.LocalPool(str(tmp_path), 1, Limits()).expect(1)


def test_a_process_whose_input_ends_without_a_job_ends_without_an_error():
    worker = Worker(1)
    worker.process.stdin.close()
    assert worker.process.wait(60.0) == 0
    worker.log.seek(0)
    assert worker.log.read() == b""
    worker.close()


def test_a_study_that_is_refused_leaves_no_process(study, tmp_path):
    text = study.read_text().replace("Slow-v0", "Nowhere-v0")
    study.write_text(text)
    with pytest.raises(StudyError, match="Nowhere"):
        run_sweep(Prepared(study, tmp_path / "sweep"), Where(1))
    assert not workers_of(os.getpid())


@pytest.mark.parametrize(
    ("sent", "seconds"), [(signal.SIGKILL, 0.0), (signal.SIGKILL, 4.0), (signal.SIGTERM, 4.0)], ids=str
)
def test_a_sweep_that_is_killed_or_stopped_leaves_no_process(sent, seconds, study, tmp_path):
    study.write_text(study.read_text().replace("steps = 512", "steps = 200_000"))
    command = [sys.executable, "-m", "lazymdp", "sweep", "run", str(study), "-o", "out", "--workers", "1", "--go"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as running:
        while len(workers := workers_of(running.pid)) < 2:  # one with a job, one without
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.01)
        time.sleep(seconds)
        running.send_signal(sent)
        running.wait(60.0)
    assert running.returncode == (-9 if sent == signal.SIGKILL else 130)
    deadline = time.monotonic() + 30.0
    while any(map(is_there, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
