"""What JAX compiled is kept beside pytest's own cache: these tests spend most of their time compiling, often the same.

Set before JAX is imported, for the processes that tests start, too.
"""

import os
from pathlib import Path

os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[2] / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
