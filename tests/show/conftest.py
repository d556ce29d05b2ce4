"""Pages and paths to show in a headless Chromium."""

import gymnasium as gym
import pytest
from headless import opened_pages

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure
from lazymdp.show.explorer import explorer


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page from its HTML."""
    file = tmp_path / "explorer.html"

    with opened_pages(browser) as opened:

        def written(html, **settings):
            file.write_text(html)
            return opened(file, **settings)

        yield written


def uniform_path(env):
    mdp = lz.MDP.from_gymnasium(env, 0.99)
    return lz.eta_path(mdp, lz.policies.uniform(mdp))


@pytest.fixture(scope="session")
def path():
    return uniform_path(KeyDoorTreasure())


@pytest.fixture(scope="session")
def html(path):
    return explorer(path, world=KeyDoorTreasure(), title="Key-Door-Treasure")


@pytest.fixture(scope="session")
def taxi():
    return uniform_path(gym.make("Taxi-v4"))
