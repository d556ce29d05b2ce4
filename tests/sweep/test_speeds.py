"""The table of measured speeds: it predicts the times of the committed measurements that it was made from."""

import csv
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from lazymdp.sweep.plan import make_jobs
from lazymdp.sweep.speeds import MEASURED, Speed, family
from lazymdp.sweep.study_file import read_study

ROOT = Path(__file__).parents[2]


def measured():
    """Median processor times of whole runs by algorithm, environment and number of steps."""
    times = defaultdict(list)
    for name in ("algorithms", "control"):
        with open(ROOT / "benchmarks" / "results" / f"{name}.csv") as file:
            for row in csv.DictReader(file):
                algorithm = row["agent"].removesuffix("-time")
                if algorithm in ("dqn", "pqn"):
                    times[algorithm, row["env"], int(row["steps"])].append(float(row["cpu_seconds"]))
    return {key: median(values) for key, values in times.items()}


def test_the_time_of_every_measured_run_is_predicted_within_a_factor():
    found = measured()
    assert len(found) >= 10 and {family(env) for _, env, _ in found} == {"minatar", "control"}
    for (algorithm, env, steps), seconds in found.items():
        predicted = MEASURED[family(env), algorithm, "cpu", False].seconds(steps)
        assert 1 / 1.7 < predicted / seconds < 1.7, (algorithm, env, steps, predicted, seconds)


def test_the_minatar_study_takes_as_long_as_it_took():
    record = json.loads((ROOT / "results" / "minatar" / "run.json").read_text())
    study = read_study(ROOT / "studies" / "minatar.toml")
    settings = record["settings"]
    assert len(settings["games"]) * settings["seeds"] * (2 * len(settings["etas"]) + 1) == len(study.specs)
    speed = MEASURED["minatar", "pqn", "gpu", True]
    planned = sum(speed.seconds(job.steps) for job in make_jobs(list(study.specs.values())))
    assert planned == pytest.approx(record["seconds"], rel=0.02)


def test_atari_is_a_quarter_of_the_measured_frames():
    rates = json.loads((ROOT / "benchmarks" / "results" / "deep_gpu.json").read_text())["atari"]
    for algorithm in ("dqn", "pqn"):
        assert MEASURED["ALE", algorithm, "gpu", False].steps_per_second == pytest.approx(
            rates[algorithm] / 4, rel=0.005
        )


def test_a_speed_says_where_it_was_measured():
    assert str(Speed(1_000.0, "here", 26.0)) == "1,000 steps/s after 26 s (here)"
    assert str(Speed(1_000.0, "3 finished runs")) == "1,000 steps/s (3 finished runs)"
