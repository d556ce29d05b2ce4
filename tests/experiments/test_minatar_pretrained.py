"""Learning on top of pretrained agents: scores, intervals, and claims about made-up runs."""

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import minatar_pretrained
from lazymdp.experiments.experiment import stacked, table
from lazymdp.experiments.minatar_pretrained import Config, aggregate, iqm, median, scores, steps_to_beat

matplotlib.use("Agg")
STEPS = 100 * np.arange(1, 9)
CURVES = {
    "scratch": np.linspace(0.0, 1.0, 8),
    "restart": np.array([0.6, 0.8, 0.9, 1.0, 0.9, 0.8, 0.8, 0.8]),
    "lazy": np.linspace(0.55, 1.0, 8),
    "dial": np.linspace(0.6, 1.3, 8),
}


def made_up(**changed):
    parts = []
    for scale, game in ((10.0, "breakout"), (100.0, "asterix")):
        for seed in range(4):
            off = 0.002 * seed

            def rows(method, step, score, seed=seed, game=game, scale=scale, off=off):
                return table(game=game, algorithm="pqn", method=method, seed=seed, step=step, eta=0.05,
                             mean_return=scale * (1.0 + np.asarray(score) + off), control_rate=0.5)  # fmt: skip

            parts += [rows("random", 0, -off), rows("default", 300, 0.5 - off)]
            parts += [rows(method, STEPS, curve) for method, curve in {**CURVES, **changed}.items()]
    return {"runs": stacked(parts)}


def test_random_actions_have_score_0_and_the_mean_of_learning_from_scratch_1():
    rows = made_up()["runs"]
    steps, found = scores(rows, "scratch")
    assert steps.tolist() == STEPS.tolist() and found.shape == (2, 4, 8)
    assert found[..., -1].mean() == pytest.approx(1.0)
    np.testing.assert_allclose(scores(rows, "random")[1], 0.0, atol=1e-12)
    np.testing.assert_allclose(found[0], found[1])  # whatever the scale of a game is


def test_statistics_are_over_all_games_and_seeds():
    values = np.arange(8.0)
    assert iqm(values) == pytest.approx(3.5) and iqm(np.array([0.0, 1.0, 2.0, 90.0])) == 1.5
    assert median(values) == 3.5
    samples = np.random.default_rng(0).normal(size=(3, 40)) + np.array([[0.0], [10.0], [20.0]])
    found = aggregate(samples, median)
    assert found.low < found.mean < found.high and found.high - found.low < 2.0  # games are not resampled


def test_the_steps_to_beat_the_default_are_those_of_the_first_evaluation_above_it():
    rows = made_up(scratch=np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.45, 0.6, 1.0]), lazy=np.full(8, 0.4))["runs"]
    assert set(steps_to_beat(rows, "scratch").ravel()) == {700.0}
    assert set(steps_to_beat(rows, "lazy").ravel()) == {np.inf}


def test_claims_are_the_words_of_the_paper():
    found = minatar_pretrained.claims(made_up())
    assert len(found) == 11 and all(claim.holds for claim in found)
    slow = minatar_pretrained.claims(made_up(lazy=np.linspace(0.0, 0.9, 8)))
    assert [claim.holds for claim in slow[1:4]] == [False, True, False]
    falls = minatar_pretrained.claims(made_up(dial=np.array([0.6, 1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 1.2])))
    assert not falls[5].holds and falls[5].found == "0.10"
    steady = minatar_pretrained.claims(made_up(restart=np.linspace(0.6, 0.9, 8)))
    assert [claim.holds for claim in steady[7:9]] == [True, False]
    assert not minatar_pretrained.claims(made_up(lazy=np.linspace(0.6, 1.2, 8)))[9].holds
    assert not minatar_pretrained.claims(made_up(dial=np.linspace(0.6, 1.0, 8)))[10].holds


def test_the_figure_has_both_statistics():
    figure = minatar_pretrained.plot(made_up())
    assert [ax.get_title("left") for ax in figure.axes] == ["pqn, interquartile mean", "pqn, median"]
    plt.close(figure)


def test_every_game_is_a_job():
    config = Config(games=("freeway",), dqn_games=("breakout",))
    assert minatar_pretrained.jobs(config) == ["pqn_freeway", "dqn_breakout"]
    with pytest.raises(ValueError, match="games has 'pong', expected one or more of breakout, asterix"):
        minatar_pretrained.jobs(Config(games=("pong",)))
