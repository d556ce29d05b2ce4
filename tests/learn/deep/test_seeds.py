"""The table of `make seeds` has a row for every learning test with every combination of its parameters.

Here and not in `tests/test_docs.py`, because parameters are known only after the tests have been imported, and JAX.
"""

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from seed_ids import seed_of, without_seed

pytest.importorskip("jax")

TESTS = Path(__file__).parents[2]
TABLE = TESTS.parent / "benchmarks" / "results" / "seeds.csv"


def test_every_learning_test_has_a_row_for_each_of_its_parameters(tmp_path):
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if "pytest.mark.learning" in path.read_text("utf-8")]
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "learning", "--seeds", "2"]
    command = [sys.executable, "-m", "pytest", *options, "--seeds-table", str(tmp_path / "seeds.csv"), *map(str, files)]
    collected = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    assert collected.returncode == 0, collected.stdout + collected.stderr
    seeds = Counter(without_seed(line) for line in collected.stdout.splitlines() if seed_of(line) is not None)
    assert seeds and set(seeds.values()) == {2}
    there = {test.partition("::")[0] for test in seeds}  # without Stable-Baselines3, its tests are not collected
    with open(TABLE, newline="") as file:
        rows = [row["test"] for row in csv.DictReader(file)]
    assert sorted(row for row in rows if row.partition("::")[0] in there) == sorted(seeds)


def test_a_seed_is_told_from_other_parameters():
    ids = {
        "t.py::f[seed3]": ("t.py::f", 3),
        "t.py::f[seed3-a-b]": ("t.py::f[a-b]", 3),
        "t.py::f[a-seed12-b]": ("t.py::f[a-b]", 12),
        "t.py::f[a-seed0]": ("t.py::f[a]", 0),
        "t.py::f[a-b]": ("t.py::f[a-b]", None),
        "t.py::f[linseed3-oil]": ("t.py::f[linseed3-oil]", None),
        "t.py::f": ("t.py::f", None),
    }
    assert {test: (without_seed(test), seed_of(test)) for test in ids} == ids
