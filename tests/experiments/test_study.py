"""Studies: redrawn from committed data, and run again part by part."""

import json
import shutil
import subprocess
import sys

import matplotlib
import numpy as np
import pytest

from lazymdp.experiments import EXPERIMENTS, minatar, results_io, study
from lazymdp.experiments.experiment import table
from lazymdp.experiments.runner import reproduce
from lazymdp.experiments.study import Parts

matplotlib.use("Agg")
SMALL = dict(etas=(0.0, 0.3), seeds=3, skip_exploring=True)


def run_study(out, *games, **settings):
    return reproduce("minatar", minatar.Config(games=games, **{**SMALL, **settings}), out, fresh=True)


# -- redrawn from committed data -----------------------------------------------------------------------------------


def test_a_study_is_redrawn_from_the_committed_data(tmp_path, parts):
    outcome = reproduce("minatar", minatar.Config(), tmp_path)
    assert outcome.reused and outcome.holds and not parts and len(outcome.claims) == 13
    committed = study.COMMITTED / "minatar"
    for file in ("runs.csv", "trials.csv", "exploring.csv", "run.json", "claims.csv"):
        assert (tmp_path / "minatar" / file).read_text() == (committed / file).read_text()
    assert (tmp_path / "minatar" / "figure.svg").exists()
    again = reproduce("minatar", minatar.Config(), tmp_path)  # now from the folder itself
    assert again == outcome


def test_other_settings_have_no_committed_data(tmp_path):
    with pytest.raises(
        ValueError, match=r"results/minatar has no data for these settings; .* or run it again with --fresh"
    ):
        reproduce("minatar", minatar.Config(seeds=3), tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_the_repository_the_message_says_where_the_data_are(tmp_path, monkeypatch):
    monkeypatch.setattr(study, "COMMITTED", tmp_path / "site-packages" / "results")
    with pytest.raises(FileNotFoundError, match="are in the repository of lazymdp, .* Clone .* --fresh"):
        reproduce("minatar", minatar.Config(), tmp_path)


def test_data_in_the_folder_are_never_replaced_by_the_committed_ones(tmp_path, parts):
    run_study(tmp_path, "freeway")
    before = (tmp_path / "minatar" / "runs.csv").read_bytes()
    with pytest.raises(ValueError, match="minatar holds a study with other settings; choose another output folder"):
        reproduce("minatar", minatar.Config(), tmp_path)
    assert (tmp_path / "minatar" / "runs.csv").read_bytes() == before
    assert reproduce("minatar", minatar.Config(games=("freeway",), **SMALL), tmp_path).reused


# -- run again -----------------------------------------------------------------------------------------------------


def test_an_interrupted_study_continues_where_it_stopped(tmp_path, parts):
    parts.stop = ("breakout", "structured")
    with pytest.raises(KeyboardInterrupt):
        run_study(tmp_path, "freeway", "breakout")
    assert results_io.load_record(tmp_path / "minatar") is None
    parts.stop = None
    with pytest.raises(ValueError, match="was made with other settings. Delete .*parts, or choose another"):
        run_study(tmp_path, "freeway", seeds=4)
    outcome = run_study(tmp_path, "freeway", "breakout")
    assert parts == [(game, method) for game in ("freeway", "breakout") for method in minatar.METHODS]  # each once
    data = results_io.load(tmp_path / "minatar")
    assert len(data["runs"]["mean_return"]) == 2 * 3 * 2 * 3 and outcome.holds and not outcome.reused
    assert not (tmp_path / "minatar" / "parts").exists() and (tmp_path / "minatar" / "figure.png").exists()


def test_games_are_added_to_a_study_and_replaced_if_they_are_run_again(tmp_path, parts):
    run_study(tmp_path, "freeway")
    folder = tmp_path / "minatar"
    older = {name: column for name, column in results_io.load(folder)["runs"].items() if name != "truncated"}
    record = results_io.load_record(folder)
    other = {"notes": table(game=["freeway"], kept=[7])}
    results_io.save(folder, {"runs": older, **other}, record)
    run_study(tmp_path, "breakout")
    assert parts == [(game, method) for game in ("freeway", "breakout") for method in minatar.METHODS]
    assert results_io.load_record(folder).settings["games"] == ["breakout", "freeway"]
    data = results_io.load(folder)
    assert len(data["runs"]["mean_return"]) == 2 * 3 * 2 * 3 and data["notes"]["kept"].tolist() == [7]
    assert np.isnan(data["runs"]["truncated"]).sum() == 18  # a column that the older rows do not have
    assert len(results_io.load_claims(folder)) == 4
    run_study(tmp_path, "freeway")
    data = results_io.load(folder)
    assert len(data["runs"]["mean_return"]) == 2 * 3 * 2 * 3 and not np.isnan(data["runs"]["truncated"]).any()
    with pytest.raises(ValueError, match="holds a study with other settings"):
        run_study(tmp_path, "seaquest", seeds=4)


def test_processes_can_add_games_to_one_folder_at_the_same_time(tmp_path):
    code = """
import sys
import numpy as np
from pathlib import Path
from lazymdp.experiments import minatar
from lazymdp.experiments.experiment import table
from lazymdp.experiments.runner import reproduce
minatar.part = lambda config, game, method, tell: table(
    game=game, method=method, eta=config.etas, seed=0, mean_return=1.0, mean_length=1.0, control_rate=0.5,
    truncated=0.0, epochs=1, learning_rate=1e-3)
config = minatar.Config(games=(sys.argv[2],), etas=(0.0, 0.3), seeds=1, skip_exploring=True)
reproduce("minatar", config, Path(sys.argv[1]), fresh=True)
"""
    games = ["asterix", "seaquest"]
    running = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), game]) for game in games]
    assert [process.wait(120) for process in running] == [0, 0]
    assert results_io.load_record(tmp_path / "minatar").settings["games"] == games
    assert len(results_io.load(tmp_path / "minatar")["runs"]["game"]) == 2 * 3 * 2
    assert not (tmp_path / "minatar" / "parts").exists()


def test_a_part_is_made_once_and_removed_at_the_end(tmp_path):
    config, made = minatar.Config(), []

    def make():
        made.append(1)
        return table(game=["x"], value=[0.5])

    for _ in range(2):
        parts = Parts(tmp_path, config)
        assert parts.get("a", make)["value"].tolist() == [0.5]
    Parts(tmp_path, config).get("b", make)
    assert len(made) == 2 and len(parts.records) == 1
    parts.remove()
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["b"]  # another process's
    record = json.loads((tmp_path / "parts" / "b" / "run.json").read_text())
    assert "games" not in record["settings"] and record["settings"]["seeds"] == 10
    shutil.rmtree(tmp_path / "parts")


def test_the_record_of_a_study_says_how_its_parts_were_made(tmp_path):
    config, rows = minatar.Config(), table(game=["x"], value=[0.5])
    for name, command, python in (("a", "one", "3.11"), ("b", "two", "3.12"), ("c", "two", "3.12")):
        settings = Parts(tmp_path, config)._settings
        record = results_io.Record(name, settings, command, 1.5, {"python": python, "jax": "0.11"}, "today")
        results_io.save(tmp_path / "parts" / name, {"rows": rows}, record)
    parts = Parts(tmp_path, config)
    for name in "abc":
        parts.get(name, lambda: rows)
    found = parts.record("minatar", config)
    assert (found.name, found.command, found.seconds) == ("minatar", "two", 4.5)
    assert found.versions == {"python": "3.11, 3.12", "jax": "0.11"}


def test_the_record_of_merged_games_says_how_all_of_them_were_made(tmp_path):
    experiment, rows = EXPERIMENTS["minatar"], table(game=["asterix"], value=[0.5])

    def merged(game, command, python):
        settings = {"games": [game]}
        record = results_io.Record("minatar", settings, command, 1.5, {"python": python}, "today")
        made = {"runs": {**rows, "game": np.array([game])}}
        data, record = study.merged(experiment, tmp_path, made, record)
        results_io.save(tmp_path, data, record)
        return record

    merged("asterix", "one", "3.11")
    found = merged("breakout", "two", "3.12")
    assert (found.command, found.seconds, found.versions) == ("one; two", 3.0, {"python": "3.11, 3.12"})
    again = merged("breakout", "two", "3.13")
    assert (again.command, again.versions) == ("one; two", {"python": "3.11, 3.12, 3.13"})
    shutil.rmtree(tmp_path)
    merged("breakout", "two", "3.12")
    assert merged("breakout", "three", "3.13").command == "three"  # nothing of the older data is left


def test_only_studies_are_redrawn_by_default():
    studies = [name for name, experiment in EXPERIMENTS.items() if experiment.needs_gpu]
    assert studies == ["fidelity", "minatar", "generality", "dqn-dopamine", "atari-moments", "minatar-pretrained",
                       "lunarlander-cost", "expert-rules", "atari-ready"]  # fmt: skip
