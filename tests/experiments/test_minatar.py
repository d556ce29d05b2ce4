"""The MinAtar study: made part by part with numbers made up, and the one that is committed."""

import re
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import minatar, minatar_study, results_io, runner

matplotlib.use("Agg")
RESULTS = Path(__file__).parents[2] / "results"


def test_the_committed_minatar_runs_are_drawn_and_their_claims_hold():
    data = results_io.load(RESULTS / "minatar")
    rows = data["runs"]
    games = minatar.complete_games(rows)
    assert games == list(minatar.Config().games)
    for game in games:
        for method in minatar.METHODS:
            cell = minatar._cell(rows, game, method, 0.1)
            assert sorted(cell["seed"].tolist()) == list(range(10))
    for claim in minatar.claims(data):
        assert claim.holds, claim
    figure = minatar.plot(data)
    assert [ax.get_title("left") for ax in figure.axes if ax.axison] == [game.replace("_", " ") for game in games]
    plt.close(figure)
    spoiled = {**rows, "score": np.where(rows["method"] == "dial", 0.0, rows["score"])}
    assert not all(claim.holds for claim in minatar.claims({"runs": spoiled}))
    tried = data["trials"]  # settings under which specialists do better than the dial count against it
    structured = tried["method"] == "structured"
    better = {**tried, "score": np.where(structured, 1e6, tried["score"])}
    for claim in minatar.claims({**data, "trials": better}):
        game = claim.text.split(":")[0]
        assert "specialist" not in claim.text or claim.holds == (game not in tried["game"][structured])


@pytest.fixture
def parts(monkeypatch):
    """The parts of the study that are made, with numbers made up."""
    made = []

    def part(config, game, method, tell):
        tell(f"{game} begins")
        made.append((game, method))
        etas, seeds = (grid.ravel() for grid in np.meshgrid(config.etas, np.arange(config.seeds), indexing="ij"))
        worth = 2.0 if method == "dial" else 1.0
        return results_io.table(
            game=game, method=method, eta=etas, seed=seeds, score=worth - etas, length=10.0, control=0.5 - 0.1 * etas,
            cut_off=0.0, epochs=1, learning_rate=1e-3,
        )  # fmt: skip

    monkeypatch.setattr(minatar, "part", part)
    return made


def test_the_minatar_study_is_made_part_by_part_and_keeps_what_is_there(tmp_path, parts):
    small = dict(etas=(0.0, 0.3), seeds=3)
    with pytest.raises(ValueError, match="the games are breakout, .*, not pong"):
        minatar_study.make(tmp_path / "study", "pong", **small)
    assert not (tmp_path / "study").exists()
    minatar_study.make(tmp_path / "study", "freeway", **small)
    older = {name: column for name, column in results_io.load(tmp_path / "study")["runs"].items() if name != "cut_off"}
    results_io.save(tmp_path / "study", {"runs": older}, results_io.load_record(tmp_path / "study"))
    minatar_study.make(tmp_path / "study", "breakout", "freeway", **small)
    assert parts == [(game, method) for game in ("freeway", "breakout") for method in minatar.METHODS]
    assert results_io.load_record(tmp_path / "study").settings["games"] == ["freeway", "breakout"]
    data = results_io.load(tmp_path / "study")
    assert len(data["runs"]["score"]) == 2 * 3 * 2 * 3 and data["claims"]["holds"].all()
    assert np.isnan(data["runs"]["cut_off"]).sum() == 18  # what older rows do not tell
    assert (tmp_path / "study" / "figure.png").exists()
    with pytest.raises(ValueError, match="holds a study with other settings"):
        minatar_study.make(tmp_path / "study", **{**small, "seeds": 4})


BAD_ARGUMENTS = {
    "the following arguments are required: folder\n": [],
    "the games are breakout, asterix, .*, not pong": ["study", "pong"],
    "--exploring has games of its own: give none": ["study", "breakout", "--exploring"],
    "study holds no study: make it first, without --exploring": ["study", "--exploring"],
}


@pytest.mark.parametrize("message", BAD_ARGUMENTS)
def test_the_study_s_command_refuses_what_it_cannot_make(message, tmp_path, monkeypatch, parts, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        minatar_study.main(BAD_ARGUMENTS[message])
    assert ended.value.code == 2 and re.search(message, capsys.readouterr().err)
    assert not parts and not list(tmp_path.iterdir())


def test_the_study_s_command_makes_the_games_named(tmp_path, parts):
    assert minatar_study.main([str(tmp_path), "freeway"]) == 0
    assert parts == [("freeway", method) for method in minatar.METHODS]
    assert minatar_study.main([str(tmp_path), "--exploring"]) == 0
    assert len(parts) == 6 and results_io.load_record(tmp_path).command == runner.command("minatar")


def test_dials_that_play_as_the_prototype_did_are_added_to_a_study(tmp_path, parts):
    with pytest.raises(FileNotFoundError, match="holds no study: make it first"):
        minatar_study.explore(tmp_path / "study")
    assert not parts and not (tmp_path / "study").exists()
    minatar_study.make(tmp_path / "study", "breakout", "freeway", etas=(0.0, 0.02, 0.1), seeds=1)
    before = results_io.load(tmp_path / "study")
    assert "breakout, eta 0.1: the dial's return, one seed" in before["claims"]["claim"]
    for _ in range(2):  # the second time all is there
        minatar_study.explore(tmp_path / "study")
    assert parts[6:] == [(game, "dial") for game in ("breakout", "asterix", "freeway")]
    after = results_io.load(tmp_path / "study")
    assert after["exploring"]["seed"].max() == 3 and len(after["exploring"]["score"]) == 3 * 8 * 4
    np.testing.assert_array_equal(after["runs"]["score"], before["runs"]["score"])
    told = "breakout, eta 0.1: the dial's return, mean of 4 seeds, 5 % of choices random"
    [place] = np.flatnonzero(after["claims"]["claim"] == told)
    assert [after["claims"][name][place] for name in ("expected", "found", "holds")] == [">= 16.1", "1.9", 0]
