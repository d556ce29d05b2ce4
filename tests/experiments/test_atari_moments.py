"""The moments of control in Atari games: the committed data, and counts of made-up episodes."""

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import atari_moments, results_io
from lazymdp.experiments.atari_moments import Tally, rates, situation
from lazymdp.experiments.experiment import stacked

matplotlib.use("Agg")
RESULTS = Path(__file__).parents[2] / "results"


def memory(**bytes_by_address):
    found = np.zeros(128, np.uint8)
    for name, value in bytes_by_address.items():
        found[int(name[1:])] = value
    return found


def test_the_committed_games_are_drawn():
    data = results_io.load(RESULTS / "atari-moments")
    assert set(data["moments"]["game"]) == set(atari_moments.Config().games)
    assert len(atari_moments.claims(data)) == 3
    figure = atari_moments.plot(data)
    assert [ax.get_title("left").split(",")[0] for ax in figure.axes] == list(atari_moments.ETAS)
    plt.close(figure)


def test_the_ball_of_breakout_falls_or_rises():
    assert situation("Breakout", memory(a101=0).astype(int), 100) == ("other", pytest.approx(np.nan, nan_ok=True), -1)
    assert situation("Breakout", memory(a101=100).astype(int), -1) == ("other", 80.0, 100)  # the first step with a ball
    assert situation("Breakout", memory(a101=150).astype(int), 100) == ("falling", 30.0, 150)
    assert situation("Breakout", memory(a101=150).astype(int), 160) == ("rising", 30.0, 150)


def test_the_distance_to_the_nearest_ghost_is_measured_along_the_axes():
    ghosts = memory(a10=50, a16=60, a6=0, a12=0, a7=53, a13=64, a8=90, a14=60, a9=200, a15=200)
    assert situation("MsPacman", ghosts.astype(int), -1) == ("", 7.0, -1)


def _episode(episode, falling, rising):
    """An episode with 10 steps of each kind near the paddle, and these numbers of controls."""
    tally = Tally("Breakout")
    for controls, first, second in ((falling, 160, 165), (rising, 170, 165)):
        for step in range(10):
            tally.count(memory(a101=first), False)
            tally.count(memory(a101=second), step < controls)
            tally.count(memory(a101=0), True)
    tally.total = 7.0
    return tally.rows(episode)


def test_control_rates_are_those_of_all_steps_in_a_situation():
    rows = stacked([_episode(0, 9, 1), _episode(1, 7, 0), _episode(2, 8, 2)])
    found = rates(rows, "Breakout")
    for turn, rate, least, most in (("falling", 0.8, 0.7, 0.9), ("rising", 0.1, 0.0, 0.2)):
        points = found[turn]
        assert (points["distance"], points["steps"], points["rate"]) == ([0.0], [30.0], [pytest.approx(rate)])
        assert least <= points["low"][0] < rate < points["high"][0] <= most
    assert rows["steps"][rows["turn"] == "other"].sum() == 120  # no ball, or no step to compare with
    [claim] = atari_moments.claims({"moments": rows})
    assert claim.holds and claim.found == "80% [70, 90] near, 10% rising"
    plt.close(atari_moments.plot({"moments": rows}))


def test_a_story_that_is_not_true_does_not_hold():
    rows = stacked([_episode(0, 3, 3), _episode(1, 2, 4), _episode(2, 5, 1)])
    [claim] = atari_moments.claims({"moments": rows})
    assert not claim.holds


def test_an_unknown_game_is_refused():
    with pytest.raises(ValueError, match="games has 'Chess', expected one or more of Breakout, MsPacman, Pong"):
        atari_moments.run(atari_moments.Config(games=("Chess",)))
