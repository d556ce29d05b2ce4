"""Progress on standard error: how far, how fast, how much longer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

ERR = Console(stderr=True)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Bars with words before them, the time taken and the time left."""
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(SpinnerColumn(), *columns, console=ERR) as bars:
        yield bars


class Rate:
    """Steps per second since it was last asked; `first` have been made before."""

    def __init__(self, first: int) -> None:
        self._step, self._time = first, time.monotonic()

    def __call__(self, step: int) -> float:
        """Of the run that has made `step` by now."""
        made, self._step = step - self._step, step
        now, before = time.monotonic(), self._time
        self._time = now
        return made / max(now - before, 1e-9)


@contextmanager
def training_bar(total: int, first: int) -> Iterator[Callable[[int, list[Any]], None]]:
    """A bar for a run of so many steps, some of them made before; gives what is to be told the step and its metrics."""
    with progress_bars() as bars:
        task, rate = bars.add_task("compiling", total=total, completed=first), Rate(first)

        def tell(step: int, metrics: list[Any]) -> None:
            words = f"{rate(step):,.0f}/s"
            if metrics:
                row = metrics[0]
                words += f", eta {row.eta:.3g}: return {row.mean_return:.3g}, control {row.control_rate:.0%}"
            bars.update(task, completed=step, description=words)

        yield tell
