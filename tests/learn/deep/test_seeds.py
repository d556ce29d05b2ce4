"""The table of `make seeds` has a row for every learning test with every combination of its parameters.

Here and not in `tests/test_docs.py`, because parameters are known only after the tests have been imported, and JAX.
"""

import csv
from collections import Counter
from pathlib import Path

import pytest
from seed_ids import seed_of, without_seed

pytest.importorskip("jax")

TESTS = Path(__file__).parents[2]
TABLE = TESTS.parent / "benchmarks" / "results" / "seeds.csv"


class Collected:
    """Keeps what a session of pytest collects."""

    def pytest_collection_finish(self, session):
        self.ids = [item.nodeid for item in session.items]


def test_every_learning_test_has_a_row_for_each_of_its_parameters(tmp_path, capsys):
    files = [path for path in sorted(TESTS.rglob("test_*.py")) if "pytest.mark.learning" in path.read_text("utf-8")]
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-m", "learning"]
    options += ["--seeds", "2", "--seeds-table", str(tmp_path / "seeds.csv"), "--rootdir", str(TESTS.parent)]
    collected = Collected()  # in this process, which has imported JAX already
    assert pytest.main([*options, *map(str, files)], plugins=[collected]) == 0, capsys.readouterr()
    seeds = Counter(without_seed(test) for test in collected.ids if seed_of(test) is not None)
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
