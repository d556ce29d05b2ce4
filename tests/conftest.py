"""Settings for every test, and `--seeds N`, which runs every learning test with N seeds (`make seeds`).

Hypothesis has no time limit per example, because numba compiles, and no randomness between runs.

A test marked `learning` trains and asserts that the answer was learned. It takes the argument `seed`, which is 0 unless
`--seeds` is given. With `--seeds`, a table shows how many seeds pass each test. It is written to
`benchmarks/results/seeds.csv` and decides whether pytest succeeds.
"""

import csv
import platform
from collections import defaultdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import pytest
from headless import browser as browser
from hypothesis import settings
from seed_ids import seed_of, without_seed

settings.register_profile("project", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("project")

REQUIRED = 0.95
"""Share of the seeds that must pass each test: 19 of 20."""
TABLE = Path(__file__).parents[1] / "benchmarks" / "results" / "seeds.csv"
COLUMNS = ("test", "passed", "seeds", "median_seconds", "failed_seeds", "date", "versions")


def versions():
    """The versions of Python and of what learns, whether or not this process has imported it."""
    found = [f"python {platform.python_version()}"]
    for package in ("numpy", "numba", "gymnasium", "jax", "optax", "stable-baselines3"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return " ".join(found)


def pytest_addoption(parser):
    parser.addoption("--seeds", type=int, default=1, metavar="N", help="run every learning test with N seeds")
    parser.addoption("--seeds-table", default=str(TABLE), metavar="FILE", help="where --seeds writes its table")


def pytest_configure(config):
    if config.getoption("seeds") > 1 and not hasattr(config, "workerinput"):  # not in the workers of pytest-xdist
        config.pluginmanager.register(SeedsTable(Path(config.getoption("seeds_table")), config.getoption("seeds")))


def pytest_collection_modifyitems(config, items):
    """Leaves long learning tests to `make seeds`; a shorter test certifies the same learner."""
    if config.getoption("seeds") > 1:
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if item not in long]


def pytest_generate_tests(metafunc):
    if metafunc.definition.get_closest_marker("learning"):
        metafunc.parametrize("seed", range(metafunc.config.getoption("seeds")), ids=lambda seed: f"seed{seed}")


class SeedsTable:
    """Collects the outcomes of learning tests, by test and seed."""

    def __init__(self, path, seeds):
        self.path, self.seeds = path, seeds
        self.outcomes = defaultdict(dict)  # test -> seed -> (passed, seconds)

    def pytest_runtest_logreport(self, report):
        test, seed = without_seed(report.nodeid), seed_of(report.nodeid)
        if seed is not None and (report.when == "call" or report.failed):
            passed, seconds = self.outcomes[test].get(seed, (True, 0.0))
            self.outcomes[test][seed] = (passed and report.passed, seconds + report.duration)

    def rows(self):
        made = f"{datetime.now(UTC):%Y-%m-%d}", versions()
        for test, by_seed in sorted(self.outcomes.items()):
            failed = [seed for seed, (passed, _) in sorted(by_seed.items()) if not passed]
            seconds = median(seconds for _, seconds in by_seed.values())
            counts = len(by_seed) - len(failed), len(by_seed), f"{seconds:.1f}"
            yield dict(zip(COLUMNS, (test, *counts, " ".join(map(str, failed)), *made), strict=True))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session, exitstatus):
        finished = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if finished and self.outcomes and all(row["passed"] >= REQUIRED * row["seeds"] for row in self.rows()):
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.section("learning tests by seed")
        rows = {row["test"]: row for row in self.rows()}
        for row in rows.values():
            line = f"{row['passed']:4} of {row['seeds']}  {row['median_seconds']:>7} s  {row['test']}"
            terminalreporter.line(line + (f"  failed: {row['failed_seeds']}" if row["failed_seeds"] else ""))
        rows = {test: row for test, row in rows.items() if row["seeds"] == self.seeds}  # others were interrupted
        if self.path.exists():  # rows of tests that were not run are kept
            with open(self.path, newline="") as file:
                rows = {row["test"]: row for row in csv.DictReader(file)} | rows
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows[test] for test in sorted(rows))
        terminalreporter.line(f"Written to {self.path}")
