"""Settings of JAX for tests, which spend most of their time compiling. Import it before JAX.

What JAX compiles is cached in the user's cache folder, so that the workers of pytest-xdist, later runs and other clones
share it; `make clean` deletes it. XLA leaves out most optimizations, because most tests train so little that they make
no difference. The settings are environment variables, so that processes started by tests see them, too.
"""

import importlib.metadata
import importlib.util
import os
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lazymdp" / "jax-tests"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")
# With fusion emitters, XLA compiles every loop by itself, through MLIR. A program is not divided for several threads,
# because the workers of pytest-xdist use all cores. XLA does not start if it does not know a flag, so these are set
# only for versions that have been tried.
FLAGS = (
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 --xla_backend_optimization_level=1"
)
tried = importlib.util.find_spec("jaxlib") and importlib.metadata.version("jaxlib").startswith("0.10.")
if tried and FLAGS not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{FLAGS} {os.environ.get('XLA_FLAGS', '')}".strip()
