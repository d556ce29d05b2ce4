"""A headless Chromium for tests of pages: on the path, or named by the environment variable CHROMIUM."""

import os
import shutil
from contextlib import contextmanager

import pytest

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


@contextmanager
def opened_pages(browser, allowed=("file://", "data:")):
    """Yields a function that opens a page from a file, and checks at the end that none logged or loaded anything."""
    troubles, requests, contexts = [], [], []

    def opened(file, *, address="", **settings):
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
    assert all(url.startswith(allowed) for url in requests), requests
