"""Caches what JAX compiles beside pytest's own cache: these tests spend most of their time compiling the same programs.

The variables are set before JAX is imported, so that processes started by tests see them, too.
"""

import os
from pathlib import Path

import pytest

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[3] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")


def pytest_collection_modifyitems(items):
    """JAX does not write its cache atomically: an entry that another worker is writing is compiled again, no error."""
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache entry"))
