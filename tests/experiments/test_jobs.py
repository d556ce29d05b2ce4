"""Studies of independent jobs: several processes, a time limit, and jobs that fail."""

import os
import time
from dataclasses import dataclass

import pytest

from lazymdp.experiments import minatar
from lazymdp.experiments.experiment import Experiment, table
from lazymdp.experiments.jobs import Unfinished, run_in_processes, run_jobs
from lazymdp.experiments.study import Parts


@dataclass(frozen=True)
class Config:
    games: tuple[str, ...] = ("none",)
    names: tuple[str, ...] = ("short_0", "short_1", "short_2")


def jobs(config):
    return list(config.names)


def make_job(config, job, folder=None):
    if job.startswith("fails"):
        raise ArithmeticError(f"{job} has failed")
    if job.startswith("slow"):
        time.sleep(60.0)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return table(
        game="none", job=job, process=os.getpid(), cores=cores, threads=int(os.environ.get("OMP_NUM_THREADS", 0)),
        memory=float(os.environ.get("XLA_PYTHON_CLIENT_MEM_FRACTION", 0.0)), folder=str(folder),
    )  # fmt: skip


def study(**changed):
    parts = dict(name="x", title="", config=Config, run=run_jobs, claims=list, plot=list, caption="", needs_gpu=True)
    return Experiment(**{**parts, "jobs": jobs, "make_job": make_job, **changed})


def rows(config, folder):
    made = []

    def make(job):
        made.append(job)
        return table(game="none", job=job, process=0, cores=0, threads=0, memory=0.0, folder="")

    return run_jobs(jobs(config), make, None, Parts(folder, config)), made


def test_each_job_is_done_once_in_a_process_of_its_own_with_one_core(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    told = []
    config = Config()
    run_in_processes(study(), config, tmp_path, workers=2, progress=lambda done, total: told.append((done, total)))
    assert sorted(told)[-1] == (3, 3) and "OMP_NUM_THREADS" not in os.environ
    found, made = rows(config, tmp_path)
    assert not made and found["job"].tolist() == ["short_0", "short_1", "short_2"]
    assert len(set(found["process"].tolist()) | {os.getpid()}) == 4
    assert set(found["cores"].tolist()) == {1} and set(found["threads"].tolist()) == {1}
    run_in_processes(study(), config, tmp_path, workers=2)  # nothing is left to do
    assert rows(config, tmp_path)[0]["process"].tolist() == found["process"].tolist()


def test_jobs_that_use_the_whole_machine_share_it_and_have_a_folder(tmp_path, monkeypatch):
    for name in ("OMP_NUM_THREADS", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
        monkeypatch.delenv(name, raising=False)
    config, cores = Config(), len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    run_in_processes(study(whole_machine=True), config, tmp_path, workers=3)
    found, _ = rows(config, tmp_path)
    assert set(found["cores"].tolist()) == {cores} and set(found["threads"].tolist()) == {0}
    assert set(found["memory"].tolist()) == {0.3}
    assert found["folder"].tolist() == [str(tmp_path / "runs" / name) for name in config.names]


def test_at_the_time_limit_running_jobs_are_stopped_and_finished_ones_are_kept(tmp_path, monkeypatch):
    config, done = Config(names=("slow_0", "short_0", "slow_1")), tmp_path / "parts" / "short_0" / "run.json"
    began = time.monotonic()
    monkeypatch.setattr("lazymdp.experiments.jobs.time.monotonic", lambda: 9.0 if done.exists() else 0.0)
    with pytest.raises(Unfinished, match="x: 1 of 3 jobs are done and saved"):
        run_in_processes(study(), config, tmp_path, workers=2, stop_after=5.0)
    monkeypatch.undo()
    assert time.monotonic() - began < 50.0
    found, made = rows(config, tmp_path)
    assert made == ["slow_0", "slow_1"] and found["process"].tolist()[1] > 0


def test_a_job_that_would_not_be_finished_is_not_started(tmp_path, monkeypatch):
    config = Config(names=("short_0", "short_1"))
    moments = iter([0.0, 0.0, *[50.0] * 1000])  # the first job takes 50 of 60 seconds
    monkeypatch.setattr("lazymdp.experiments.jobs.time.monotonic", lambda: next(moments))
    with pytest.raises(Unfinished, match="1 of 2 jobs"):
        run_in_processes(study(), config, tmp_path, workers=1, stop_after=60.0)


def test_jobs_that_fail_are_named_after_the_others_are_done(tmp_path):
    config = Config(names=("fails_0", "short_0"))
    with pytest.raises(RuntimeError, match=r"x: 1 jobs failed \(fails_0\); see the errors above"):
        run_in_processes(study(), config, tmp_path, workers=1)
    assert rows(config, tmp_path)[1] == ["fails_0"]


def test_other_studies_cannot_be_run_in_processes(tmp_path):
    with pytest.raises(ValueError, match="minatar does not consist of independent jobs"):
        run_in_processes(Experiment.of(minatar), minatar.Config(), tmp_path, workers=2)
