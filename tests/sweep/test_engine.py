"""The engine: retries, runs that are set aside, dependencies, stopping, and a full disk. No run is executed here."""

import pytest

from lazymdp.sweep import engine
from lazymdp.sweep.engine import RETRIES, Sweep
from lazymdp.sweep.plan import make_plan
from lazymdp.sweep.results_table import RunLabels, read_table, write_plan
from lazymdp.sweep.run_sweep import set_aside_runs
from lazymdp.sweep.study_file import read_study
from lazymdp.sweep.supervise import Outcome
from lazymdp.sweep.sweep_folder import OBSTACLE, SweepFolder
from lazymdp.sweep.sweep_status import StatusReader

pytest.importorskip("pyarrow")

TEXT = """
environments = ["minatar/breakout"]
algorithms = ["pqn"]
prices = [0.01]
seeds = 3
"""
ROW = {"eta": 0.01, "default_alone": False, "episodes": 1, "mean_return": 1.0, "std_return": 0.0, "control_rate": 0.5,
       "mean_controls": 1.0, "mean_length": 2.0, "mean_net_return": 0.9, "unfinished": 0}  # fmt: skip


class FakePool:
    """Ends every job at once, as `outcomes` says; a job that is done has a result."""

    def __init__(self, folder, outcome=lambda job, attempt: Outcome("done"), workers=2):
        self.folder, self.outcome, self.workers = folder, outcome, workers
        self.jobs, self.attempts, self.started, self.stopping = [], {}, [], False
        self.obstacles, self.expected = [], []

    @property
    def running(self):
        return len(self.jobs)

    def room(self):
        return self.workers - len(self.jobs)

    def obstacle(self):
        return self.obstacles.pop(0) if self.obstacles else ""

    def start(self, job):
        self.jobs.append(job)
        self.started.append(job.specs[0].id)

    def expect(self, waiting):
        self.expected.append(waiting)

    def stop(self):
        self.stopping = True

    def finished(self, seconds):
        job = self.jobs.pop(0) if self.jobs else None
        if job is None:
            return []
        if self.stopping:
            return [(job, Outcome("stopped"))]
        attempt = self.attempts[job.id] = self.attempts.get(job.id, 0) + 1
        outcome = self.outcome(job, attempt)
        if outcome == Outcome("done"):
            for spec in job.specs:
                self.folder.write_sealed(f"runs/{spec.id}/result.json", {"rows": [ROW], "seconds": 1.0})
        return [(job, outcome)]


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(engine, "_FIRST_WAIT", 0.0)


def run(study, tmp_path, outcome=lambda job, attempt: Outcome("done"), **options):
    folder = SweepFolder(tmp_path / "sweep")
    lines = []
    pool = FakePool(folder, outcome)
    sweep = Sweep(folder, [RunLabels.of(one) for one in study.runs], {}, pool, lines.append, **options)
    sweep.run(make_plan(study, {}, [], "cpu").jobs)
    return sweep, pool, lines


def test_all_runs_are_done_in_their_order(write_study, tmp_path):
    study = read_study(write_study(TEXT))
    sweep, pool, lines = run(study, tmp_path)
    assert pool.started == list(study.specs) == list(sweep.results) and not sweep.set_aside
    assert read_table(sweep.folder)["run"] == list(study.specs)
    assert lines[-1].startswith("3 of 3 done")
    assert pool.expected == [1, 0, 0]  # there is room for two at a time


def test_a_run_that_fails_is_tried_again_and_then_set_aside_with_its_reason(write_study, tmp_path):
    study = read_study(write_study(TEXT))
    first, second, third = study.specs

    def outcome(job, attempt):
        if job.id == first or (job.id == second and attempt <= RETRIES):
            return Outcome("failed", f"fault {attempt}", "the end of the log")
        return Outcome("done")

    sweep, pool, lines = run(study, tmp_path, outcome)
    assert pool.attempts == {first: 1 + RETRIES, second: 1 + RETRIES, third: 1} and RETRIES == 3
    assert set(sweep.results) == {second, third} and sweep.set_aside == {first: "fault 4"}
    assert set_aside_runs(sweep.folder, set(study.specs)) == {first: "fault 4"}
    assert sweep.folder.read_sealed(f"runs/{first}/failed.json")["log"] == "the end of the log"
    assert any("fault 4. Set aside after 4 attempts." in line for line in lines)
    assert read_table(sweep.folder)["run"] == [second, third]


def test_a_result_that_is_damaged_is_made_again(write_study, tmp_path):
    study = read_study(write_study(TEXT))
    folder, first = SweepFolder(tmp_path / "sweep"), next(iter(study.specs))

    def outcome(job, attempt):
        if job.id == first and attempt == 1:
            folder.write(f"runs/{first}/result.json", '{"rows": [], "checksum": "00000000"}')
            return Outcome("done", log="no result")
        return Outcome("done")

    sweep, pool, lines = run(study, tmp_path, outcome)
    assert pool.attempts[first] == 2 and len(sweep.results) == 3
    assert any("is missing or damaged; can every node reach this folder, and have they all" in line for line in lines)


def test_messages_name_the_default_policy_if_there_are_several(write_study, tmp_path):
    said = [run(read_study(write_study(TEXT, more)), tmp_path / str(number))[2][0]
            for number, more in enumerate(("", "default_policies = ['noop', 'uniform']"))]  # fmt: skip
    assert "pqn on minatar/breakout, price 0.01, seed 0" in said[0]
    assert "pqn on minatar/breakout, default policy noop, price 0.01, seed 0" in said[1]


def test_runs_wait_for_the_agents_that_they_need(write_study, tmp_path):
    methods = """
        [methods.lazy]
        default_policies = ["method:first"]
        [methods.first]
        prices = [0]
        seeds = 1
        [methods.second]
        prices = [0.3]
        seeds = 1
    """
    text = TEXT.replace("seeds = 3", "seeds = 1")
    study = read_study(write_study(text, methods))
    names = {run.method: run.spec.id for run in study.runs}
    sweep, pool, _ = run(study, tmp_path / "all")
    assert pool.started.index(names["first"]) < pool.started.index(names["lazy"]) and len(sweep.results) == 3

    def outcome(job, attempt):
        return Outcome("failed", "poisoned") if job.id == names["first"] else Outcome("done")

    sweep, pool, _ = run(study, tmp_path / "lost", outcome)
    assert set(sweep.results) == {names["second"]} and names["lazy"] not in pool.started
    assert sweep.set_aside[names["lazy"]] == f"it needs the run {names['first']}, which was set aside"


def test_a_stop_ends_the_sweep_and_sets_nothing_aside(write_study, tmp_path):
    study, asked = read_study(write_study(TEXT)), []

    def outcome(job, attempt):
        asked.append(True)
        return Outcome("done")

    sweep, _, _ = run(study, tmp_path, outcome, stop=lambda: bool(asked))
    assert sweep.stopped and len(sweep.results) == 1 and not sweep.set_aside


def test_what_stands_in_the_way_is_told_once_and_left_for_the_status_while_it_lasts(write_study, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "_LOOK_SECONDS", 0.0)
    study, seen = read_study(write_study(TEXT)), []
    folder = SweepFolder(tmp_path / "sweep")
    folder.write_sealed(OBSTACLE, {"reason": "of a sweep that was killed"})
    write_plan(folder, study.runs)

    def outcome(job, attempt):
        seen.append(StatusReader(folder.address).read().obstacle)
        return Outcome("done")

    pool, lines = FakePool(folder, outcome), []
    pool.obstacles = ["", "No node has 1 GPU", "No node has 1 GPU, and none 2 cores"]
    Sweep(folder, [RunLabels.of(one) for one in study.runs], {}, pool, lines.append).run(
        make_plan(study, {}, [], "cpu").jobs
    )
    assert [line for line in lines if "No node" in line] == ["No node has 1 GPU"]
    assert seen == ["", "No node has 1 GPU", "No node has 1 GPU, and none 2 cores"]
    assert OBSTACLE not in folder.names("")


def test_a_full_disk_leaves_the_previous_table_and_the_sweep_goes_on(write_study, tmp_path, monkeypatch):
    study = read_study(write_study(TEXT))
    sweep, _, _ = run(study, tmp_path)
    before = (tmp_path / "sweep" / "results.parquet").read_bytes()
    full = "[Errno 28] No space left on device"

    def no_space(*_):
        raise OSError(full)

    monkeypatch.setattr(SweepFolder, "send_file", no_space)
    sweep, _, _ = run(study, tmp_path)
    assert sweep.table_error == full and len(sweep.results) == 3
    assert (tmp_path / "sweep" / "results.parquet").read_bytes() == before


def test_a_result_that_cannot_be_read_is_a_failure_of_this_attempt(write_study, tmp_path, monkeypatch):
    study = read_study(write_study(TEXT))
    read, calls = SweepFolder.read_sealed, []

    def first_fails(self, name):
        calls.append(name)
        if len(calls) == 1:
            raise OSError("EndpointConnectionError: no route")
        return read(self, name)

    monkeypatch.setattr(SweepFolder, "read_sealed", first_fails)
    sweep, pool, lines = run(study, tmp_path)
    assert len(sweep.results) == 3 and sorted(pool.attempts.values()) == [1, 1, 2]
    assert any("its result cannot be read: EndpointConnectionError: no route. Retry 1 of 3" in line for line in lines)


def test_secrets_do_not_reach_the_folder_or_the_user(write_study, tmp_path, monkeypatch):
    monkeypatch.setenv("OUR_STORE_KEY", "hunter22")
    study = read_study(write_study(TEXT))
    refused = Outcome("failed", "403 for sftp://me:password@host with hunter22", "signed with hunter22")
    sweep, _, lines = run(study, tmp_path, lambda job, attempt: refused)
    written = "".join(path.read_text() for path in (tmp_path / "sweep").rglob("failed.json"))
    assert written.count("403 for sftp://host with ***") == written.count("signed with ***") == 3
    for text in (written, str(sweep.set_aside), *lines):
        assert "hunter22" not in text and "password" not in text
