"""The Atari study: the committed data, the comparison with Dopamine, and runs with made-up numbers."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp._colors import CONTROL
from lazymdp.experiments import dqn_dopamine, dqn_dopamine_figure, results_io
from lazymdp.experiments.atari_runs import MILLION, run_rows
from lazymdp.experiments.dqn_dopamine_figure import PUBLISHED
from lazymdp.experiments.experiment import table
from lazymdp.experiments.runner import reproduce

matplotlib.use("Agg")
RESULTS = Path(__file__).parents[2] / "results"


def test_the_committed_runs_are_drawn():
    data = results_io.load(RESULTS / "dqn-dopamine")
    rows = data["runs"]
    assert set(rows["game"]) == set(dqn_dopamine.Config().games)
    whole = rows["frames"] == 10 * MILLION
    assert set(rows["game"][whole & (rows["agent"] == "dial")]) >= {"MsPacman", "Zaxxon", "Gravitar", "Frostbite"}
    claims = dqn_dopamine.claims(data)
    assert len(claims) > 20 and any(claim.holds for claim in claims) and not all(claim.holds for claim in claims)
    figure = dqn_dopamine.plot(data)
    titles = [ax.get_title("left") for ax in figure.axes if ax.axison]
    played = rows["game"][(rows["agent"] == "dial") & (rows["phase"] == "evaluation")]
    assert titles == [game for game in PUBLISHED if game in played]
    plt.close(figure)


def _made_up(config, job, folder):
    game, agent, seed = job.split("_")
    mean, deviation = PUBLISHED[game][5]
    off = 1.9 if agent == "dqn" else 2.1
    ended = [(5 * MILLION, 0.0, 10, mean + off * deviation, 1.0), (10 * MILLION, 0.0, 10, PUBLISHED[game][10][0], 1.0)]
    prices = [(0.0, 300.0, 1.0)] if agent == "dqn" else [(0.0, 270.0, 1.0), (0.05, 330.0, 0.05), (np.inf, 15.0, 0.0)]
    plays = [("evaluation", config.frames, eta, 4, mean + np.arange(4.0) - 1.5, rate) for eta, mean, rate in prices]
    clock = [(0, 1000.0), (10 * MILLION, 1500.0 if agent == "dqn" else 1600.0)]
    rows = run_rows(ended, clock, plays, acts="target", zero_fraction=0.0, average_share=0.05)
    return table(game=game, agent=agent, high=config.high if agent == "dial" else 0.0, seed=int(seed), **rows)


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(dqn_dopamine, "make_job", _made_up)


def test_runs_are_compared_with_the_published_ones(tmp_path, made_up):
    config = dqn_dopamine.Config(games=("Gravitar", "Pong"), seeds=2)
    outcome = reproduce("dqn-dopamine", config, tmp_path, fresh=True)
    found = {claim.text: claim for claim in outcome.claims}
    assert found["Gravitar: plain dqn equals Dopamine's DQN after 5 million frames"].holds
    assert not found[
        "Gravitar: the dial (prices up to 0.5) at price 0 equals Dopamine's DQN after 5 million frames"
    ].holds
    assert found["Pong: the dial (prices up to 0.5) at price 0 equals Dopamine's DQN after 10 million frames"].holds
    [little] = [claim for text, claim in found.items() if "little control" in text]
    assert (little.found, little.holds) == ("110%", True)  # 330 of plain dqn's 300, at 5% control
    again = reproduce("dqn-dopamine", config, tmp_path)
    assert again.reused and again.claims == outcome.claims


def test_runs_with_the_older_network_are_judged_only_where_there_are_no_others(made_up):
    config = dqn_dopamine.Config(games=("Gravitar", "Pong"))
    rows = {name: column.copy() for name, column in dqn_dopamine.run(config)["runs"].items()}
    rows["acts"] = np.where((rows["game"] == "Pong"), "newest", rows["acts"])
    older = {name: column[rows["game"] == "Gravitar"] for name, column in rows.items()}
    older |= {"acts": np.full(older["game"].size, "newest"), "mean_return": older["mean_return"] - 200.0}
    both = {name: np.concatenate([column, older[name]]) for name, column in rows.items()}
    texts = {claim.text: claim for claim in dqn_dopamine.claims({"runs": both})}
    assert texts == {claim.text: claim for claim in dqn_dopamine.claims({"runs": rows})}
    assert [text for text in texts if "newest network choosing" in text] == [text for text in texts if "Pong" in text]
    figure = dqn_dopamine.plot({"runs": both})
    points = {ax.get_title("left"): ax.lines[1].get_markerfacecolor() for ax in figure.axes if ax.axison}
    assert points == {"Gravitar": CONTROL, "Pong": "white"}
    plt.close(figure)


def test_averaged_agents_are_judged_where_there_are_some_and_all_training_with_the_target_network(made_up):
    rows = dqn_dopamine.run(dqn_dopamine.Config(games=("Gravitar",)))["runs"]
    older = dict(rows) | {"average_share": np.zeros(rows["game"].size), "mean_return": rows["mean_return"] - 10.0}
    both = {name: np.concatenate([column, older[name]]) for name, column in rows.items()}
    points, expected = (dqn_dopamine_figure._frontiers(dqn_dopamine_figure._current(given), "Gravitar")[0.5]
                        for given in (both, rows))  # fmt: skip
    np.testing.assert_allclose(points["mean_return"], expected["mean_return"])
    compared = dqn_dopamine_figure.comparison(dqn_dopamine_figure._current(both))
    assert set(compared["seeds"].tolist()) == {2}


def test_shares_are_the_largest_at_prices_with_little_control(made_up):
    [found] = dqn_dopamine.run(dqn_dopamine.Config(games=("Gravitar",)))["shares"]["up_to_100%"].tolist()
    assert found == 1.1
    rows = dqn_dopamine.run(dqn_dopamine.Config(games=("Gravitar",)))["runs"]
    rows["control_rate"] = np.where(rows["eta"] == 0.05, 0.6, rows["control_rate"])
    shares = dqn_dopamine_figure.shares(rows)
    assert [shares[f"up_to_{percent}%"][0] for percent in (100, 75, 30)] == [1.1, 1.1, 0.05]
    assert shares["plain_dqn"][0] == 300.0 and shares["default_alone"][0] == 15.0


def test_speeds_are_measured_side_by_side(made_up):
    speed = dqn_dopamine.run(dqn_dopamine.Config(games=("Gravitar",)))["speed"]
    assert speed["agent"].tolist() == ["dqn", "dial"] and speed["runs_beside"].tolist() == [1, 1]
    np.testing.assert_allclose(speed["seconds"], 200.0)  # the dial ends its first half after 300 s, dqn ends after 500
    np.testing.assert_allclose(speed["frames_per_second"], [20_000, 16_667])
    np.testing.assert_allclose(speed["of_all_runs"], 36_667)


def test_without_a_run_of_plain_dqn_shares_are_of_the_published_return(made_up):
    data = dqn_dopamine.run(dqn_dopamine.Config(games=("Gravitar",), agents=("dial",)))
    points = dqn_dopamine_figure._frontiers(data["runs"], "Gravitar")[0.5]
    np.testing.assert_allclose(points["share"], np.array([270.0, 330.0, 15.0]) / PUBLISHED["Gravitar"][10][0])
    plt.close(dqn_dopamine.plot(data))


def test_shares_are_of_the_training_return_where_plain_dqn_is_better_in_training(made_up):
    rows = dict(dqn_dopamine.run(dqn_dopamine.Config(games=("Gravitar",)))["runs"])
    greedy = (rows["agent"] == "dqn") & (rows["phase"] == "evaluation")
    rows["mean_return"] = np.where(greedy, 30.0, rows["mean_return"])
    points = dqn_dopamine_figure._frontiers(rows, "Gravitar")[0.5]
    np.testing.assert_allclose(points["share"][0], 270.0 / PUBLISHED["Gravitar"][10][0])


@pytest.mark.parametrize("settings, message", [
    ({"games": ("Gravitar", "Chess")}, "games has 'Chess', expected one or more of Boxing, Breakout"),
    ({"agents": ("ppo",)}, r"agents is \('ppo',\), expected one or both of dqn, dial"),
])  # fmt: skip
def test_unknown_names_are_refused_before_anything_is_written(tmp_path, made_up, settings, message):
    with pytest.raises(ValueError, match=message):
        reproduce("dqn-dopamine", dqn_dopamine.Config(**settings), tmp_path, fresh=True)
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_names_the_line_that_installs_it(tmp_path):
    code = "import sys; sys.modules['jax'] = None\nfrom lazymdp.cli.main import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "reproduce", "dqn-dopamine", "--fresh", "-o", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "pip install 'lazymdp[deep,atari]'" in done.stderr
