"""Optional packages of the sweep, imported when they are needed; an error names the line that installs them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def deep(module: str) -> Any:
    """Imports a module of `lazymdp.learn.deep` that needs JAX."""
    try:
        return import_module(f"lazymdp.learn.deep.{module}")
    except ImportError as error:
        raise ImportError(f"training needs JAX ({error.name} is missing): pip install 'lazymdp[sweep]'") from error


def pyarrow() -> Any:
    """Imports pyarrow with its Parquet module."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("the table of results needs pyarrow: pip install 'lazymdp[sweep]'") from error
    return pyarrow
