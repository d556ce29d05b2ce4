"""The number of CPU cores this process may use, and limits on the threads of processes that it starts."""

from __future__ import annotations

import os


def available() -> int:
    """Returns the number of cores this process is allowed to use, or of all cores if the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limited(cores: int) -> dict[str, str]:
    """Returns the environment variables of a process that runs beside others: as many threads as it has cores."""
    found = dict(os.environ)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        found.setdefault(name, str(cores))
    if cores == 1 and "xla_cpu_multi_thread_eigen" not in found.get("XLA_FLAGS", ""):
        found["XLA_FLAGS"] = f"{found.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".strip()
    found.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the processes may share a GPU
    return found
