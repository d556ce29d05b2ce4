"""The study of what generality costs: its scores, the committed data, and runs with made-up numbers."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import generality, results_io
from lazymdp.experiments.experiment import table
from lazymdp.experiments.runner import reproduce

matplotlib.use("Agg")
RESULTS = Path(__file__).parents[2] / "results"


def test_the_committed_runs_are_drawn():
    data = results_io.load(RESULTS / "generality")
    rows, config = data["runs"], generality.Config()
    for game in config.games:
        # In Space Invaders, the specialists with an eighth of the steps have not been run.
        for method in generality.METHODS[: 2 if game == "space_invaders" else 3]:
            for eta in config.etas:
                here = (rows["game"] == game) & (rows["method"] == method) & (rows["eta"] == eta)
                assert sorted(rows["seed"][here].tolist()) == list(range(config.seeds))
    assert [claim.text.split(":")[0] for claim in generality.claims(data)][:-1] == list(config.games)
    figure = generality.plot(data)
    assert [ax.get_title("left") for ax in figure.axes] == [game.replace("_", " ") for game in config.games]
    plt.close(figure)


def made(dial, specialist, alone=1.0, eta=0.1):
    """Runs of 10 steps with control in half of them, so that `0.5 * 10 * eta` is paid."""
    rows = [("default", [alone], 0.0, 0.0), ("dial", dial, eta, 0.5), ("specialist", specialist, eta, 0.5)]
    parts = [
        table(game="breakout", method=method, eta=price, seed=np.arange(len(returns)), mean_return=np.array(returns),
              mean_length=10.0, control_rate=rate, truncated=0.0)
        for method, returns, price, rate in (*rows, ("eighth", specialist, eta, 0.5))
    ]  # fmt: skip
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_a_score_is_a_share_of_the_specialists_gain_over_the_default_policy():
    found = generality.score(made([4.0, 6.0], [7.0, 7.0]), "breakout", "dial", 0.1)
    assert found.share == pytest.approx((5.0 - 0.5 - 1.0) / (7.0 - 0.5 - 1.0))
    assert found.low == pytest.approx(2.5 / 5.5) and found.high == pytest.approx(4.5 / 5.5)
    assert found.difference == pytest.approx(-2.0)
    nothing = generality.score(made([2.0], [1.5]), "breakout", "dial", 0.1)  # the specialist gains 1.5 - 0.5 - 1 = 0
    assert np.isnan(nothing.share) and nothing.difference == pytest.approx(0.5)


def test_claims_depend_on_the_lowest_share():
    def verdicts(dial):
        return [claim.holds for claim in generality.claims({"runs": made([dial], [11.5])})]  # the specialist gains 10

    assert verdicts(11.5) == [True, True]
    assert verdicts(10.5) == [False, True]  # 90%
    assert verdicts(9.0) == [False, False]  # 75%


def test_a_study_is_run_part_by_part_and_can_be_continued(tmp_path, monkeypatch):
    ran, told = [], []

    def part(config, game, method):
        ran.append(method)
        rows = made([8.0] * config.seeds, [9.0] * config.seeds)
        chosen = np.isin(rows["method"], [method, "default"] if method == "dial" else [method])
        return {name: column[chosen] for name, column in rows.items()}

    monkeypatch.setattr(generality, "part", part)
    config = generality.Config(games=("breakout",), seeds=2)
    outcome = reproduce("generality", config, tmp_path, fresh=True, progress=lambda *share: told.append(share))
    assert ran == list(generality.METHODS) and told[-1][0] == told[-1][1]
    assert [claim.holds for claim in outcome.claims] == [False, True]  # 6.5 of 7.5
    assert reproduce("generality", config, tmp_path).claims == outcome.claims and len(ran) == 3
    assert generality.jobs(generality.Config(games=("space_invaders",)))[0] == "space_invaders_dial"
    with pytest.raises(ValueError, match="games has 'pong', expected one or more of breakout, asterix"):
        reproduce("generality", generality.Config(games=("pong",)), tmp_path / "x", fresh=True)
