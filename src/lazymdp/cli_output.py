"""How the command line shows things: tables on standard output, progress on standard error, JSON for machines."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

OUT = Console()
ERR = Console(stderr=True)
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Progress bars on standard error."""
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(SpinnerColumn(), *columns, console=ERR) as bars:
        yield bars


@contextmanager
def training_bar(total: int, first: int) -> Iterator[Callable[[Any, list[Any]], None]]:
    """A bar for a run of so many steps, some of them made before; gives what is to be told its reports."""
    with progress_bars() as bars:
        task, started = bars.add_task("compiling", total=total, completed=first), time.monotonic()

        def tell(run: Any, metrics: list[Any]) -> None:
            words = f"{(run.step - first) / (time.monotonic() - started):,.0f}/s"
            if metrics:
                words += f", eta {metrics[0].eta:.3g}: score {metrics[0].score:.3g} control {metrics[0].control:.0%}"
            bars.update(task, completed=run.step, description=words)

        yield tell


def show_facts(facts: dict[str, Any]) -> None:
    """Names and values, one to a line."""
    table = Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        table.add_row(name.replace("_", " "), f"{fact:.5g}" if isinstance(fact, float) else str(fact))
    OUT.print(table)


def print_json(value: Any) -> None:
    """One line of JSON."""
    print(json.dumps(_plain(value)))


def _plain(value: Any) -> Any:
    """Python's own types; what JSON has no word for (infinite, not a number) is null."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
