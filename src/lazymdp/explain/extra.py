"""The packages of the extra `explain`, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def extra(module: str) -> Any:
    """Imports a module of a package that only recordings, strips and videos need."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"explaining an agent needs {package} ({error}): pip install 'lazymdp[explain]'") from error
