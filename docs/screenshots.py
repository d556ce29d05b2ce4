"""Takes the screenshots of the explorer that the README and the docs show. Run it with `make screenshots`.

It needs Chromium, either on PATH or at the path given by the environment variable CHROMIUM.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from lazymdp.cli.main import main as lazymdp

SHOTS = {
    "explorer_light": ("lazymdp/KeyDoorTreasure-v0", "Key-Door-Treasure", "light", (1360, 1060), 1),
    "explorer_dark": ("lazymdp/RiversAndBridges-v0", "Rivers & Bridges", "dark", (1360, 1000), 1),
    "explorer_phone": ("lazymdp/KeyDoorTreasure-v0", "Key-Door-Treasure", "light", (390, 844), 2),
    "explorer_table": ("Taxi-v4", "Taxi", "light", (1360, 1000), 1),
}
"""Per screenshot: model, title, color scheme, window size in pixels, and device scale factor."""


def main(folder: Path) -> None:
    """Writes the explorer pages, opens each one in Chromium and saves a screenshot of it in `folder`."""
    browser_path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if browser_path is None:
        sys.exit("Chromium was not found. Install it (Debian: apt-get install chromium) or set CHROMIUM to its path.")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as pages, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        for name, (model, title, colors, (width, height), scale) in SHOTS.items():
            page_path = Path(pages) / f"{name}.html"
            lazymdp(["explore", model, "-o", str(page_path), "--title", title])
            page = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=colors, device_scale_factor=scale
            )
            page.goto(page_path.as_uri())
            page.wait_for_selector("#control-count")
            page.screenshot(path=folder / f"{name}.png")
            page.close()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures"))
