"""The check of the 60 Atari games: the list of games, and what the claims say if one is missing."""

import tomllib
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import atari_ready
from lazymdp.experiments.atari_ready import GAMES, Config
from lazymdp.experiments.experiment import table

matplotlib.use("Agg")
STUDY = Path(__file__).parents[2] / "studies" / "atari.toml"


def made_up(**changed):
    rows = dict(game=GAMES, actions=6, steps=256, updates=8, frames=5, weight_change=1e-3, finite=1)
    return {"games": table(**{**rows, **changed})}


def test_the_games_are_the_sixty_of_the_study_file():
    listed = tomllib.loads(STUDY.read_text())["environments"]
    assert [f"ALE/{game}-v5" for game in GAMES] == listed and len(set(GAMES)) == 60
    assert atari_ready.jobs(Config(games=("Pong",))) == ["Pong"]
    with pytest.raises(ValueError, match="games has 'Surround', expected one or more of AirRaid, "):
        atari_ready.jobs(Config(games=("Surround",)))


def test_a_game_that_does_not_load_step_or_train_breaks_a_claim():
    assert all(claim.holds for claim in atari_ready.claims(made_up()))
    one = np.arange(60) == 7
    found = atari_ready.claims({"games": {k: v[~one] for k, v in made_up()["games"].items()}})
    assert not any(claim.holds for claim in found) and "without BankHeist" in found[0].found
    for changed in (dict(frames=np.where(one, 1, 5)), dict(weight_change=np.where(one, 0.0, 1.0)),
                    dict(finite=np.where(one, 0, 1))):  # fmt: skip
        assert sum(not claim.holds for claim in atari_ready.claims(made_up(**changed))) == 1


def test_the_figure_names_every_game():
    figure = atari_ready.plot(made_up())
    assert [text.get_text() for text in figure.axes[1].get_xticklabels()] == list(GAMES)
    plt.close(figure)
