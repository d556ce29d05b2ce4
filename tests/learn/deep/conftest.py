"""Caches what JAX compiles beside pytest's own cache: these tests spend most of their time compiling the same programs.

The variables are set before JAX is imported, so that processes started by tests see them, too.
"""

import os
from pathlib import Path

import pytest

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[3] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


IGNORED = (
    "ignore:Error reading persistent compilation cache entry",  # another worker is writing it: it is compiled again
    "ignore:(the return rises|at eta = )",  # `DoubtfulFrontier`: most agents here are trained for a moment only
)


def pytest_collection_modifyitems(items):
    for item in items:
        for message in IGNORED:
            item.add_marker(pytest.mark.filterwarnings(message))
