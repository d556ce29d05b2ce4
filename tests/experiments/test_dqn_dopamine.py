"""The Atari study: the committed data, the comparison with Dopamine, and runs with made-up numbers."""

import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import dqn_dopamine, results_io
from lazymdp.experiments.dqn_dopamine import MILLION, PUBLISHED
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


def test_the_returns_of_a_million_frames_are_means_over_episodes_of_one_price():
    ended = [(400_000, 0.0, 3, 10.0, 1.0), (1_000_000, 0.0, 1, 50.0, 0.5), (1_000_001, 0.0, 2, 7.0, 1.0),
             (900_000, 0.1, 5, 99.0, 0.2)]  # fmt: skip
    rows = dqn_dopamine.runs_table("Pong", "dial", 0.5, 4, ended, [(10 * MILLION, np.inf, 2, [1.0, 3.0], 0.0)])
    training = rows["phase"] == "training"
    assert list(zip(rows["frames"][training], rows["eta"][training], rows["episodes"][training], strict=True)) == [
        (MILLION, 0.0, 4), (MILLION, 0.1, 5), (2 * MILLION, 0.0, 2)]  # fmt: skip
    np.testing.assert_allclose(rows["mean_return"], [20.0, 99.0, 7.0, 2.0])
    np.testing.assert_allclose(rows["control_rate"], [0.875, 0.2, 1.0, 0.0])
    assert rows["std_return"][-1] == np.float64(1.4142)


def _made_up(config, game, agent, seed, tell):
    mean, deviation = PUBLISHED[game][5]
    off = 1.9 if agent == "dqn" else 2.1
    ended = [(5 * MILLION, 0.0, 10, mean + off * deviation, 1.0), (10 * MILLION, 0.0, 10, PUBLISHED[game][10][0], 1.0)]
    prices = [(0.0, 300.0, 1.0)] if agent == "dqn" else [(0.0, 270.0, 1.0), (0.05, 330.0, 0.05), (np.inf, 15.0, 0.0)]
    return dqn_dopamine.runs_table(
        game,
        agent,
        config.high if agent == "dial" else 0.0,
        seed,
        ended,
        [(config.frames, eta, 4, mean + np.arange(4.0) - 1.5, rate) for eta, mean, rate in prices],
    )


@pytest.fixture
def made_up(monkeypatch):
    monkeypatch.setattr(dqn_dopamine, "_train_and_evaluate", _made_up)


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


def test_without_a_run_of_plain_dqn_shares_are_of_the_published_return(made_up):
    data = dqn_dopamine.run(dqn_dopamine.Config(games=("Gravitar",), agents=("dial",)))
    points = dqn_dopamine._frontiers(data["runs"], "Gravitar")[0.5]
    np.testing.assert_allclose(points["share"], np.array([270.0, 330.0, 15.0]) / PUBLISHED["Gravitar"][10][0])
    plt.close(dqn_dopamine.plot(data))


def test_shares_are_of_the_training_return_where_plain_dqn_is_better_in_training(made_up):
    rows = dict(dqn_dopamine.run(dqn_dopamine.Config(games=("Gravitar",)))["runs"])
    greedy = (rows["agent"] == "dqn") & (rows["phase"] == "evaluation")
    rows["mean_return"] = np.where(greedy, 30.0, rows["mean_return"])
    points = dqn_dopamine._frontiers(rows, "Gravitar")[0.5]
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
