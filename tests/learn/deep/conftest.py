"""Settings of JAX for the tests of the deep agents, which spend most of their time compiling.

What JAX compiles is cached beside pytest's own cache, so that the workers of pytest-xdist and later runs share it. XLA
optimizes only the learning tests, which train for long, and these at level 1: the programs are as fast as at level 3,
and compilation is three times as fast. The other tests are compiled without most optimizations: they train so little
that it makes no difference. The variables are set before JAX is imported, so that processes started by tests see them,
too.
"""

import importlib.metadata
import importlib.util
import os
from pathlib import Path

import pytest

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[3] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
# With fusion emitters, XLA compiles every loop by itself, through MLIR. A program is not divided for several threads,
# because the workers of pytest-xdist use all cores. XLA does not start if it does not know a flag, so these are set
# only for versions that have been tried.
FLAGS = (
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 --xla_backend_optimization_level=1"
)
if importlib.util.find_spec("jaxlib") and importlib.metadata.version("jaxlib").startswith("0.10."):
    os.environ["XLA_FLAGS"] = f"{FLAGS} {os.environ.get('XLA_FLAGS', '')}".strip()

IGNORED = (
    "ignore:Error reading persistent compilation cache entry",  # another worker is writing it: it is compiled again
    "ignore:(the return rises|at eta = )",  # `DoubtfulFrontier`: most agents here are trained for a moment only
)


def pytest_collection_modifyitems(items):
    for item in items:
        for message in IGNORED:
            item.add_marker(pytest.mark.filterwarnings(message))


@pytest.fixture(autouse=True)
def optimized(request):
    """Has XLA optimize what learning tests compile."""
    if not request.node.get_closest_marker("learning"):
        yield
        return
    jax = pytest.importorskip("jax")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
    if request.config.getoption("seeds") > 1:
        jax.clear_caches()  # some hundred compiled programs would exhaust the memory maps of a process
