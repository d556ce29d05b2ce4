"""The console, and progress on standard error: the share done, the speed and the remaining time."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters other than the end of a line, and halves of characters, which cannot be encoded."""


def printable(text: str) -> str:
    r"""Returns a text with escapes such as `\x1b` in place of control characters."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class PlainConsole(Console):
    """A console that prints escapes in place of the control characters in a text.

    Names in a model may come from someone else, and a terminal obeys control characters: it would change colors, or
    erase what stands above.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Renders without control characters, except those of the console itself."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


ERR = PlainConsole(stderr=True, emoji=False)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Shows progress bars with a description, the elapsed time and the remaining time; after an error, they vanish."""
    columns = (TextColumn("{task.description:<24}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(SpinnerColumn(), *columns, console=ERR) as bars:
        try:
            yield bars
        except Exception:  # the message is all that is left on the screen
            bars.live.transient = True
            for task in bars.task_ids:
                bars.remove_task(task)
            raise


class Rate:
    """Measures steps per second since its last call.

    Args:
        first: Steps that were made before the measurement starts.
    """

    def __init__(self, first: int) -> None:
        self._step, self._time = first, time.monotonic()

    def __call__(self, step: int) -> float:
        """Returns the steps per second since the last call, given the number of steps made so far."""
        made, self._step = step - self._step, step
        now, before = time.monotonic(), self._time
        self._time = now
        return made / max(now - before, 1e-9)


def show_settings(algorithm: str, env: str, settings: Mapping[str, Any]) -> None:
    """Shows the settings with which a training run starts."""
    shown = ", ".join(f"{name} {_shown(value)}" for name, value in settings.items() if value is not None)
    say(f"{algorithm} on {env}: {shown}")


def say(text: str) -> None:
    """Prints a message on standard error."""
    ERR.print(text, soft_wrap=True, highlight=False, markup=False)


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return (" to " if isinstance(value[0], float) else " x ").join(
            map(_shown, value)
        )  # prices, or widths of layers
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if type(value) is int else str(value)


@contextmanager
def training_bar(total: int, first: int) -> Iterator[Callable[[int, list[Any]], None]]:
    """Shows a progress bar for a training run, and yields a function that updates it.

    Args:
        total: Steps of the whole run.
        first: Steps that were made before, by the run that is resumed.

    Yields:
        A function of the number of steps made so far and the latest metrics, one per price.
    """
    with progress_bars() as bars:
        task, rate = bars.add_task("compiling", total=total, completed=first), Rate(first)

        def update(step: int, metrics: list[Any]) -> None:
            words = f"{rate(step):,.0f} steps/s"
            if metrics:
                row = metrics[0]
                words += f", eta {row.eta:.3g}: return {row.mean_return:.3g}, control {row.control_rate:.0%}"
            bars.update(task, completed=step, description=words)

        yield update
