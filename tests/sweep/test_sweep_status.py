"""The state of a sweep, read from its folder."""

import time

import pytest

from lazymdp.sweep.results_table import write_plan
from lazymdp.sweep.study_file import read_study
from lazymdp.sweep.sweep_folder import SweepFolder
from lazymdp.sweep.sweep_status import StatusReader

TEXT = """
environments = ["minatar/breakout"]
algorithms = ["pqn"]
prices = [0.01]
seeds = 5
"""


def test_what_is_running_done_and_set_aside_and_the_time_left(write_study, tmp_path):
    study, folder = read_study(write_study(TEXT)), SweepFolder(tmp_path / "sweep")
    write_plan(folder, study.runs)
    first, second, third, fourth, _ = study.specs
    folder.write_sealed(f"runs/{first}/result.json", {"rows": [], "seconds": 100.0})
    folder.write_sealed(f"runs/{second}/failed.json", {"reason": "poisoned"})
    progress = {"step": 1, "total": 4, "doing": "training", "job": third, "runs": 1}
    folder.write_sealed(f"runs/{third}/progress.json", {**progress, "time": time.time()})
    folder.write_sealed(f"runs/{fourth}/progress.json", {**progress, "time": time.time() - 3600.0})  # it was killed
    reader = StatusReader(str(tmp_path / "sweep"))
    status = reader.read()
    assert (status.total, status.done) == (5, 1)
    assert [(one.label.run, one.doing, one.share) for one in status.running] == [(third, "training", 0.25)]
    assert [(label.run, reason) for label, reason in status.set_aside] == [(second, "poisoned")]
    assert status.seconds_left == pytest.approx(275.0)
    folder.write(f"runs/{third}/result.json", "half a fil")
    assert reader.read().done == 1  # a result is done only if its checksum matches


def test_the_time_left_before_any_run_is_done_comes_from_those_that_are_running(write_study, tmp_path):
    study, folder = read_study(write_study(TEXT)), SweepFolder(tmp_path / "sweep")
    write_plan(folder, study.runs)
    first, second, *_ = study.specs
    steps, now = study.specs[first].config.total_steps, time.time()
    progress = {"total": steps, "runs": 1, "time": now}
    folder.write_sealed(f"runs/{first}/progress.json", {**progress, "step": 0, "doing": "starting"})
    assert StatusReader(str(tmp_path / "sweep")).read().seconds_left is None
    # It continued from a half, and has made a quarter in 50 s: 200 s per run.
    made = {"step": 3 * steps // 4, "doing": "training", "from_step": steps // 2, "since": now - 50.0}
    folder.write_sealed(f"runs/{first}/progress.json", {**progress, **made})
    assert StatusReader(str(tmp_path / "sweep")).read().seconds_left == pytest.approx(4.25 * 200.0, rel=0.01)
    folder.write_sealed(f"runs/{second}/progress.json", {**progress, **made, "runs": 2})  # two runs in one job
    assert StatusReader(str(tmp_path / "sweep")).read().seconds_left == pytest.approx(2.75 * 200.0 / 2, rel=0.01)


def test_another_folder_is_refused_with_the_way_on(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"is not the folder of a sweep.*lazymdp sweep run STUDY\.toml -o"):
        StatusReader(str(tmp_path)).read()
