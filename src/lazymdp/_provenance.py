"""Where a result comes from: versions of the packages it rests on, and the command that made it."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("lazymdp", "numpy", "scipy", "numba", "gymnasium", "matplotlib")
_DEEP_PACKAGES = ("jax", "equinox", "optax", "pgx", "ale-py")
"""Named only where they are in use."""


def versions() -> dict[str, str]:
    """Versions of Python and of what a result rests on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:  # used from a source tree that is not installed
            found[package] = "unknown"
    for package in _DEEP_PACKAGES:
        if package.replace("-", "_") in sys.modules:
            found[package] = version(package)
    return found


def command_line() -> str:
    """The command that runs now, as one would type it."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
