"""Settings of JAX for the tests of the deep agents: XLA optimizes only what learning tests compile.

These train for long. They are compiled at level 1 (see `jax_settings`): the programs are as fast as at level 3, and
compilation is three times as fast.
"""

import jax_settings  # noqa: F401
import pytest

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
