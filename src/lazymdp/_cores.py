"""The number of CPU cores this process may use."""

from __future__ import annotations

import os


def available() -> int:
    """Returns the number of cores this process is allowed to use, or of all cores if the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
