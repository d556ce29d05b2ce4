"""The examples run as they are, are short, and show what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PRINTED = {
    "first_steps": (
        ("130 of 206 states take control", "149 breakpoints", "at most 5 controls: return 0.263"),
        {"first_steps.png"},
    ),
    "machine_maintenance": (
        (r"new +0.00  \(never\)", r"worn +3.00", r"poor +6.11", "failure only earns 0.732", r"14 visits a year: 0.955"),
        {"machine.npz", "on_failure.npy"},
    ),
    "own_environment": ((r"default alone: +return  41", r"price  2.0: best is to act above 1.5"), set()),
    "lazy_exploration": (
        (r"eta = 0.0 : final return 0.10 ", r"eta = 0.03: final return 0.9\d "),
        {"lazy_exploration.png"},
    ),
    "which_states_matter": (
        (r"action-gap +0.212 at state 13", r"critical eta +0.099 at state 14", "half optimal 0.048 at state 14"),
        {"which_states_matter.png"},
    ),
}
"""By name, what an example must print (regular expressions, in order) and which files it must leave."""
APART = {"sb3_cartpole"}
"""Needs an extra; `tests/interop` runs it."""


def run(folder: Path, *arguments: str) -> str:
    """What a Python process prints, started in `folder`; warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTED) | APART


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_and_leaves_what_it_should(name, tmp_path):
    expected, files = PRINTED[name]
    printed = run(tmp_path, str(EXAMPLES / f"{name}.py"), *(["."] if files else []))
    place = 0
    for pattern in expected:
        found = re.compile(pattern).search(printed, place)
        assert found, f"{pattern!r} is not, in this order, in\n{printed}"
        place = found.end()
    assert {path.name for path in tmp_path.iterdir()} == files
    assert all(path.stat().st_size > 0 for path in tmp_path.iterdir())


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_is_short_and_says_how_to_run_it(name):
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60
    assert f"python examples/{name}.py" in text.split('"""')[1]


def test_the_saved_machine_can_be_explored(tmp_path):
    run(tmp_path, str(EXAMPLES / "machine_maintenance.py"))
    run(tmp_path, "-m", "lazymdp", "explore", "machine.npz", "--default", "on_failure.npy", "-o", "page.html")
    assert "worn" in (tmp_path / "page.html").read_text(encoding="utf-8")
