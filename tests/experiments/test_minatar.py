"""The MinAtar study: the committed data, and runs with made-up numbers."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import minatar, results_io
from lazymdp.experiments.runner import reproduce

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
    spoiled = {**rows, "mean_return": np.where(rows["method"] == "dial", 0.0, rows["mean_return"])}
    assert not all(claim.holds for claim in minatar.claims({"runs": spoiled}))
    tried = data["trials"]  # settings with which specialists do better than the dial count against the dial
    structured = tried["method"] == "structured"
    better = {**tried, "mean_return": np.where(structured, 1e6, tried["mean_return"])}
    for claim in minatar.claims({**data, "trials": better}):
        game = claim.text.split(":")[0]
        assert "specialist" not in claim.text or claim.holds == (game not in tried["game"][structured])


SMALL = dict(etas=(0.0, 0.3), seeds=3)


def test_a_study_is_run_part_by_part_and_reports_progress(parts):
    told = []
    data = minatar.run(minatar.Config(games=("freeway", "seaquest"), **SMALL), lambda *share: told.append(share))
    every = [(game, method) for game in ("freeway", "seaquest") for method in minatar.METHODS]
    assert parts == [*every, ("freeway", "dial")]  # the prototype played Freeway, but not Seaquest
    assert len(data["runs"]["game"]) == 2 * 3 * 2 * 3 and len(data["exploring"]["game"]) == 2 * 4
    assert told[:2] == [(50, 700), (100, 700)] and told[-1] == (700, 700)
    data = minatar.run(minatar.Config(games=("freeway",), skip_exploring=True, **SMALL))
    assert list(data) == ["runs"]


def test_an_unknown_game_is_refused_before_anything_is_written(tmp_path, parts):
    config = minatar.Config(games=("freeway", "pong"), **SMALL)
    with pytest.raises(ValueError, match="games has 'pong', expected one or more of breakout, asterix"):
        reproduce("minatar", config, tmp_path, fresh=True)
    assert not parts and not list(tmp_path.iterdir())


def test_dials_that_choose_at_random_are_compared_with_the_prototype(tmp_path, parts):
    games, etas = ("breakout", "freeway"), (0.0, 0.02, 0.1)
    plain = minatar.Config(games=games, etas=etas, seeds=1, skip_exploring=True)
    before = reproduce("minatar", plain, tmp_path / "plain", fresh=True)
    one_seed = "breakout, eta = 0.1: the dial's return is at least that of the first prototype (one seed)"
    assert one_seed in [claim.text for claim in before.claims]
    assert parts == [(game, method) for game in games for method in minatar.METHODS]
    parts.clear()
    whole = minatar.Config(games=games, etas=etas, seeds=1)
    after = reproduce("minatar", whole, tmp_path / "whole", fresh=True)
    assert parts[6:] == [(game, "dial") for game in games]
    data, old = (results_io.load(tmp_path / name / "minatar") for name in ("whole", "plain"))
    assert data["exploring"]["seed"].max() == 3 and len(data["exploring"]["mean_return"]) == 2 * 3 * 4
    np.testing.assert_array_equal(data["runs"]["mean_return"], old["runs"]["mean_return"])
    text = one_seed.replace("(one seed)", "(mean of 4 seeds, evaluated with 5% random choices)")
    [claim] = [claim for claim in after.claims if claim.text == text]
    assert (claim.expected, claim.found, claim.holds) == (">= 16.1", "1.9", False)


def test_a_missing_extra_names_the_line_that_installs_it(tmp_path):
    code = "import sys; sys.modules['jax'] = None\nfrom lazymdp.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "reproduce", "minatar", "--fresh", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "pip install 'lazymdp[minatar]'" in done.stderr
    assert not (tmp_path / "minatar").exists()
