"""Builds the reports that the documentation links, and their screenshots. Run it with `make reports`.

It needs the extras `explain`, `minatar` and `sb3`, and Chromium, either on PATH or at the path given by the environment
variable CHROMIUM. The agents: the exact agent of Key-Door-Treasure; the dial on MinAtar Breakout that is kept in the
repository, `lazymdp train minatar/breakout --steps 8000000`, exported with `lz.learn.export`; and PPO of
Stable-Baselines3 on CartPole, which is trained here.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import lazymdp as lz

DOCS = Path(__file__).parent
BREAKOUT = DOCS.parent / "results" / "minatar" / "agents" / "breakout-dial-0"


def cartpole(folder: Path) -> Path:
    """Trains PPO on CartPole with a fixed seed, and returns its file."""
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, n_epochs=10, seed=0, device="cpu")
    model.learn(40_000)
    model.save(folder / "cartpole.zip")
    return folder / "cartpole.zip"


def build(name: str, path: Path) -> None:
    """Writes one report."""
    if name == "key_door_treasure":
        lz.explain.explain("lazymdp/KeyDoorTreasure-v0", path=path, eta=0.03)
    elif name == "breakout":
        lz.explain.explain(BREAKOUT, path=path, eta=0.1, episodes=2, max_steps=1_000)
    else:
        with tempfile.TemporaryDirectory() as folder:
            lz.explain.explain(cartpole(Path(folder)), "CartPole-v1", path=path, episodes=2, trust=True)


NAMES = ("key_door_treasure", "breakout", "cartpole")


def photograph(reports: Path, pictures: Path) -> None:
    """Opens every report in Chromium and saves screenshots: the top of the page, light, as the docs show it."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if program is None:
        sys.exit("Chromium was not found. Install it (Debian: apt-get install chromium) or set CHROMIUM to its path.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for name in NAMES:
            page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
            page.goto((reports / f"{name}.html").as_uri())
            page.wait_for_selector("article[data-ready=true]")
            page.wait_for_timeout(500)  # until the video shows its frame
            page.screenshot(path=pictures / f"report_{name}.png")
            page.close()
        browser.close()


def main(names: list[str]) -> None:
    """Builds the named reports, or all, and photographs all."""
    reports = DOCS / "extra" / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        if name not in NAMES:
            sys.exit(f"there is no report {name!r}; expected one of {', '.join(NAMES)}.")
        build(name, reports / f"{name}.html")
        print(f"{reports / f'{name}.html'}: {(reports / f'{name}.html').stat().st_size / 1e6:.1f} MB")
    photograph(reports, DOCS / "pictures")


if __name__ == "__main__":
    main(sys.argv[1:])
