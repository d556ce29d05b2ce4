"""The property and fault tests by name, with counts; run as a program, it renews their section of the soak test's page.

    python tests/soak/named_tests.py

A property test is one that Hypothesis runs on many examples. The fault tests are all tests of the files in `FAULTS`.
"""

import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmarks" / "soak.md"
HEADING = "## Property and fault tests"
FAULTS = (
    "learn/deep/test_checked_files.py",
    "learn/deep/test_env_failures.py",
    "learn/deep/test_run_folder.py",
    "learn/deep/test_trust.py",
    "test_arguments.py",
    "test_arguments_everywhere.py",
    "test_files.py",
    "test_mdp.py",
)


class _Collected:
    """Receives the tests that pytest finds, without running them."""

    def __init__(self) -> None:
        self.cases: Counter[tuple[str, str]] = Counter()
        self.examples: dict[tuple[str, str], int] = {}

    def pytest_collection_modifyitems(self, items):
        for item in items:
            test = str(item.path.relative_to(ROOT / "tests")), item.originalname
            self.cases[test] += 1
            if getattr(item.obj, "is_hypothesis_test", False):
                self.examples[test] = item.obj._hypothesis_internal_use_settings.max_examples


def section() -> str:
    """Returns the section of the page, from what pytest collects."""
    found = _Collected()
    here = str(Path(__file__).parent)
    sys.path = [place for place in sys.path if place != here]  # its soak.py would hide the package of tests
    if pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", str(ROOT / "tests")], plugins=[found]):
        raise SystemExit("pytest could not collect the tests")
    properties = [(*test, found.cases[test] * count) for test, count in sorted(found.examples.items())]
    faults = [(*test, count) for test, count in sorted(found.cases.items()) if test[0] in FAULTS]
    return "\n".join(
        [
            HEADING,
            "",
            "Collected by `python tests/soak/named_tests.py`; CI runs all of them.",
            "",
            f"{len(properties)} property tests, with {sum(row[2] for row in properties):,} examples in one run:",
            "",
            *_table("examples", properties),
            "",
            f"{len(faults)} fault tests, with {sum(row[2] for row in faults):,} cases: all tests of the files that are "
            "about damaged files, failing environments, foreign code, and arguments and models that are not valid.",
            "",
            *_table("cases", faults),
            "",
        ]
    )


def _table(what: str, rows: list[tuple[str, str, int]]) -> list[str]:
    lines = [f"| `{file}` | `{name}` | {count:,} |" for file, name, count in rows]
    return [f"| file | test | {what} |", "| --- | --- | ---: |", *lines]


if __name__ == "__main__":
    before, _, _ = PAGE.read_text().partition(HEADING)
    PAGE.write_text(before.rstrip() + "\n\n" + section())
