"""A headless Chromium, and pages and paths to show in it."""

import os
import shutil

import gymnasium as gym
import pytest

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure
from lazymdp.show.explorer import explorer

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]


@pytest.fixture(scope="session")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    program = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"needs Chromium: none of {', '.join(NAMES)} is on the path, and CHROMIUM does not name one")
    with api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu", *QUIET])
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page from a file, and checks at the end that it logged no errors and loaded nothing else."""
    troubles, requests, contexts = [], [], []

    def opened(html, *, address="", **settings):
        file = tmp_path / "explorer.html"
        file.write_text(html)
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri() + address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles
    assert requests
    assert all(url.startswith(("file://", "data:")) for url in requests), requests


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
