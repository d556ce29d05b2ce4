"""The plan: which jobs remain, and how long they will take."""

import pytest

from lazymdp.sweep.plan import make_plan
from lazymdp.sweep.speeds import MEASURED
from lazymdp.sweep.study_file import read_study

TEXT = """
environments = ["minatar/breakout"]
algorithms = ["pqn"]
prices = [0.01, 0.1]
seeds = 3
steps = 409_600
"""


def result(spec, seconds):
    return {"spec": spec.to_json(), "seconds": seconds}


def test_the_time_comes_from_the_table_until_runs_are_finished(write_study):
    study = read_study(write_study(TEXT))
    plan = make_plan(study, {}, [], "cpu")
    speed = MEASURED["minatar", "pqn", "cpu", False]
    assert plan.machine_seconds == pytest.approx(6 * speed.seconds(409_600))
    assert plan.wall_seconds(4) == pytest.approx(2 * speed.seconds(409_600))
    assert [job.specs[0].config.seed for job in plan.jobs] == [0, 0, 1, 1, 2, 2]
    first, second, third = list(study.specs)[:3]
    finished = {name: result(study.specs[name], 100.0) for name in (first, second)}
    plan = make_plan(study, finished, [third], "cpu")
    assert (plan.total, plan.done, plan.set_aside, plan.runs) == (6, 2, 1, 3)
    assert plan.machine_seconds == pytest.approx(300.0) and "2 finished runs" in plan.sources[0]


def test_an_unknown_speed_gives_no_time(write_study):
    plan = make_plan(read_study(write_study(TEXT)), {}, [], "gpu")
    assert plan.machine_seconds is None and plan.wall_seconds(2) is None
    assert "no speed has been measured on a gpu" in plan.sources[0]


def test_packed_runs_are_one_job(write_study):
    plan = make_plan(read_study(write_study(f"{TEXT}\npack = true")), {}, [], "gpu")
    assert len(plan.jobs) == 1 and len(plan.jobs[0].specs) == plan.runs == 6
    assert plan.machine_seconds == pytest.approx(6 * 409_600 / MEASURED["minatar", "pqn", "gpu", True].steps_per_second)


def test_a_speed_from_the_table_names_the_kind_of_environment_and_one_of_finished_runs_the_environment(write_study):
    pytest.importorskip("jax")
    study = read_study(write_study(TEXT.replace("minatar/breakout", "FrozenLake-v1")))
    assert make_plan(study, {}, [], "cpu").sources[0].startswith("pqn on control problems: 25,000 steps/s after 14 s")
    first = next(iter(study.specs))
    plan = make_plan(study, {first: result(study.specs[first], 100.0)}, [], "cpu")
    assert plan.sources == ("pqn on FrozenLake-v1: 4,096 steps/s (1 finished run)",)
