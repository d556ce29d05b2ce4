"""Results on disk: made, reused, redrawn, interrupted."""

import json
from dataclasses import replace

import matplotlib
import pytest

from lazymdp.experiments import EXPERIMENTS, fig7, kdt_path, results_io, runner
from lazymdp.experiments.runner import reproduce, reproduce_all, write_index

matplotlib.use("Agg")


def test_a_result_that_is_there_is_taken_and_one_with_other_settings_made_again(tmp_path):
    config = kdt_path.Config(checks=3)
    assert not reproduce("kdt-path", config, tmp_path).reused
    assert sorted(path.name for path in (tmp_path / "kdt-path").iterdir()) == [
        "checks.csv", "claims.csv", "facts.csv", "figure.png", "figure.svg", "policies.csv", "run.json",
    ]  # fmt: skip
    (tmp_path / "kdt-path" / "figure.svg").unlink()
    assert reproduce("kdt-path", config, tmp_path).reused
    assert (tmp_path / "kdt-path" / "figure.svg").exists()  # drawn again from the data
    assert not reproduce("kdt-path", kdt_path.Config(checks=4), tmp_path).reused
    assert not reproduce("kdt-path", kdt_path.Config(checks=4), tmp_path, fresh=True).reused
    record = json.loads((tmp_path / "kdt-path" / "run.json").read_text())
    assert record["settings"] == {"checks": 4}
    assert {"python", "lazymdp", "numpy"} <= set(record["versions"])


def test_claims_and_figure_are_made_again_from_data_that_are_reused(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "find_spec", lambda package: None)  # no report, which takes longest
    config = kdt_path.Config(checks=3)
    reproduce("kdt-path", config, tmp_path)
    folder = tmp_path / "kdt-path"
    data = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "claims.csv").write_text("claim,expected,found,holds\nan older text,1,1,1\n")
    (folder / "figure.png").write_bytes(b"an older figure")
    ran, judged = [], []
    counted = replace(
        EXPERIMENTS["kdt-path"], run=lambda *_: ran.append(1), claims=lambda d: judged.append(1) or kdt_path.claims(d)
    )
    monkeypatch.setitem(EXPERIMENTS, "kdt-path", counted)
    reproduce_all({"kdt-path": config}, tmp_path)
    assert not ran and len(judged) == 1  # the index takes the claims as they were judged
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == data


def test_drawing_twice_gives_the_same_bytes(tmp_path):
    experiment = EXPERIMENTS["fig3"]
    data = experiment.run(experiment.config())
    for folder in ("first", "second"):
        runner.draw(experiment, data, tmp_path / folder)
    for file in ("figure.svg", "figure.png"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_an_interrupted_result_is_made_again_and_harms_nothing(tmp_path, monkeypatch):
    config = kdt_path.Config(checks=3)
    reproduce("fig3", EXPERIMENTS["fig3"].config(), tmp_path)
    before = (tmp_path / "fig3" / "policies.csv").read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(results_io, "write_csv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce("kdt-path", config, tmp_path)
    monkeypatch.undo()
    assert not (tmp_path / "kdt-path" / "run.json").exists()
    assert not reproduce("kdt-path", config, tmp_path).reused
    assert reproduce("fig3", EXPERIMENTS["fig3"].config(), tmp_path).reused
    assert (tmp_path / "fig3" / "policies.csv").read_bytes() == before
    assert not list(tmp_path.rglob("*.part*"))


def test_settings_of_which_the_paper_says_nothing_are_made_without_claims(tmp_path):
    config = fig7.Config(etas=(0.1,), seeds=2, episodes=50)
    outcome = reproduce("fig7", config, tmp_path)
    assert outcome.claims == [] and outcome.holds
    assert reproduce("fig7", config, tmp_path).reused
    assert "0 of 0 claims hold" in write_index(tmp_path).read_text()


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "fig3").mkdir()
    (tmp_path / "fig3" / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is damaged .* delete it"):
        reproduce("fig3", EXPERIMENTS["fig3"].config(), tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 0}, "seeds is 0, expected at least 1"),
        ({"episodes": -5}, "episodes is -5"),
        ({"etas": ()}, "etas is empty"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"etas": (0.1, float("inf"))}, "etas is inf"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        reproduce("fig7", fig7.Config(**settings), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_page_shows_what_is_there(tmp_path, monkeypatch):
    reproduce("fig3", EXPERIMENTS["fig3"].config(), tmp_path)
    text = write_index(tmp_path).read_text()
    assert 'src="fig3/figure.svg"' in text and "5 of 5 claims hold" in text and "explorer" not in text
    (tmp_path / runner.EXPLORER).write_text("x")
    assert 'href="explorer.html"' in write_index(tmp_path).read_text()
    assert "http" not in text.replace("https://www.w3.org", "")


def text_of_report(out):
    return (out / runner.REPORT).read_text().replace("KeyDoorTreasure", "Key-Door-Treasure")


def test_without_the_extra_there_is_no_report(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "find_spec", lambda package: None)
    reproduce_all({"kdt-path": kdt_path.Config(checks=3)}, tmp_path)
    assert (tmp_path / runner.EXPLORER).exists() and not (tmp_path / runner.REPORT).exists()
    assert "report.html" not in (tmp_path / runner.INDEX).read_text()


def test_several_experiments_give_one_page_and_the_explorer(tmp_path):
    told = []
    configs = {"fig3": EXPERIMENTS["fig3"].config(), "kdt-path": kdt_path.Config(checks=3)}
    out = tmp_path / "new" / "folder"
    done = reproduce_all(configs, out, progress=lambda *progress: told.append(progress))
    assert [outcome.experiment.name for outcome in done] == list(configs) and not any(one.reused for one in done)
    pages = {runner.EXPLORER, runner.REPORT, runner.INDEX}
    assert {path.name for path in out.iterdir()} == {"fig3", "kdt-path", *pages}
    assert 'href="report.html"' in (out / runner.INDEX).read_text()
    assert "Key-Door-Treasure" in text_of_report(out) and "The moments that matter most" in text_of_report(out)
    assert (out / runner.EXPLORER).stat().st_size > 10_000
    assert "11 of 11 claims hold" in (out / runner.INDEX).read_text()
    assert (
        told[0] == ("fig3", 0, 1)
        and told[-1] == ("report", 1, 1)
        and ("kdt-path", 1, 1) in told
        and ("kdt-path", 2, 3) in told
    )
