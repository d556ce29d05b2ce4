"""Failures of environments: the error that names them, the rewards that are accepted, and a watchdog for hangs.

Environments and default policies are code of the user. While such code runs, it is entered in `busy`, with the time at
which it began. `watched` starts a thread that ends the process if one of the entries is too old. It cannot interrupt
native code that never releases Python's interpreter lock.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from lazymdp._arguments import safe_repr
from lazymdp._env_outcomes import BadOutcome

LARGEST_REWARD = 1e12
"""Largest absolute reward that is accepted: beyond it, squares of values are no longer finite in single precision."""


class EnvironmentFailed(RuntimeError):
    """An environment raised an error, or returned something from which nothing can be learned.

    The message names the environment, its index, the step and the error.
    """


def said_by(error: BaseException) -> str:
    """Returns what an environment did wrong, for a message that names it."""
    return str(error) if isinstance(error, BadOutcome) else safe_repr(error)


class _Watched(Protocol):
    """The owner of code that may hang."""

    def place_of(self, index: int) -> str:
        """Returns which copy of the code runs, and its step, for messages."""


busy: dict[_Watched, tuple[int, float]] = {}
"""Code of the user that runs at this moment: its owner, the index of the copy, and the time at which it began."""


class _Named:
    """Code that runs once, with a name."""

    def __init__(self, what: str) -> None:
        self._what = what

    def place_of(self, index: int) -> str:
        """Returns the name, for messages."""
        return self._what


@contextmanager
def running(what: str) -> Iterator[Callable[[], None]]:
    """Registers code of the user in `busy` while a `with` block runs it.

    Args:
        what: Names the code in messages.

    Yields:
        A function that restarts the clock, to be called after other code has run.
    """
    owner = _Named(what)

    def begin() -> None:
        busy[owner] = 0, time.monotonic()

    begin()
    try:
        yield begin
    finally:
        del busy[owner]


@contextmanager
def watched(seconds: float | None, way_on: Callable[[], str]) -> Iterator[None]:
    """Ends the process with exit code 2 if code of the user takes longer than a time limit; see the module.

    Args:
        seconds: Time limit of everything that is entered in `busy`; None for no limit.
        way_on: Returns a text that says how to go on, for the message.
    """
    if seconds is None:
        yield
        return
    done = threading.Event()
    threading.Thread(target=_watch, args=(seconds, way_on, done), daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _watch(seconds: float, way_on: Callable[[], str], done: threading.Event) -> None:
    while not done.wait(min(seconds / 4, 1.0)):
        for owner, (index, began) in list(busy.items()):
            if time.monotonic() - began > seconds:
                show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar may have hidden it
                text = f"Error: {owner.place_of(index)}: no answer within {seconds:g} s (--step-timeout). {way_on()}"
                os.write(2, f"{show_cursor}\n{' '.join(text.split())}\n".encode())
                os._exit(2)  # the code that hangs cannot be interrupted in any other way
