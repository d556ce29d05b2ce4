"""Settings of JAX for the tests of the deep agents, which spend most of their time compiling.

What JAX compiles is cached beside pytest's own cache, so that the workers of pytest-xdist and later runs share it. XLA
optimizes little: without most optimizations and without its fusion emitters it compiles five times as fast, and most
learning tests take less time in all; the others use the fixture `optimized`. `make seeds`, which trains 20 times with
each program, sets the variables to optimize. They are set before JAX is imported, so that processes started by tests
see them, too.
"""

import os
from pathlib import Path

import pytest

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[3] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
# With fusion emitters, XLA compiles every loop by itself, through MLIR. A program is not divided for several threads,
# because the workers of pytest-xdist use all cores. Of a flag that is given twice, XLA takes the last. If XLA does not
# start because it does not know one of these flags, a new version has removed it: delete it here.
FLAGS = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
os.environ["XLA_FLAGS"] = f"{FLAGS} {os.environ.get('XLA_FLAGS', '')}".strip()

IGNORED = (
    "ignore:Error reading persistent compilation cache entry",  # another worker is writing it: it is compiled again
    "ignore:(the return rises|at eta = )",  # `DoubtfulFrontier`: most agents here are trained for a moment only
)


def pytest_collection_modifyitems(items):
    for item in items:
        for message in IGNORED:
            item.add_marker(pytest.mark.filterwarnings(message))


@pytest.fixture
def optimized():
    """Has XLA optimize what a test compiles that trains for millions of steps."""
    jax = pytest.importorskip("jax")
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.fixture(autouse=True)
def memory_maps_for_all_seeds(request):
    """Forgets the programs of learning tests: with 20 seeds, hundreds would exhaust the memory maps of a process."""
    yield
    if request.config.getoption("seeds") > 1 and request.node.get_closest_marker("learning"):
        pytest.importorskip("jax").clear_caches()
