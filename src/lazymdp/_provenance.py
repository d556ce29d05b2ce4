"""How a result was made: the versions of the packages it depends on, and the command."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("lazymdp", "numpy", "scipy", "numba", "gymnasium", "matplotlib")
_DEEP_PACKAGES = ("jax", "equinox", "optax", "pgx", "ale-py")
"""Packages whose versions are recorded only if they have been imported."""


def versions() -> dict[str, str]:
    """Returns the versions of Python and of the packages that a result depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # imported from a source tree that is not installed
            found[package] = "unknown"
    for package in _DEEP_PACKAGES:
        if package.replace("-", "_") in sys.modules:
            found[package] = version(package)
    return found


def command_line() -> str:
    """Returns the command that started this process, as it was typed; `python -m lazymdp` is `lazymdp`."""
    program = Path(sys.argv[0])
    return " ".join([program.parent.name if program.name == "__main__.py" else program.name, *sys.argv[1:]])


def machine() -> str:
    """Returns the processor, the number of its cores, and the GPU if JAX uses one."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.machine()
    words = [name, f"{os.cpu_count()} cores"]
    if "jax" in sys.modules:
        words += sorted({one.device_kind for one in sys.modules["jax"].devices() if one.platform == "gpu"})
    return ", ".join(words)
