"""Handling of Ctrl-C (SIGINT) and SIGTERM during long-running work: finish the current iteration, or stop at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """Tells a training run whether a signal has asked it to stop.

    Attributes:
        gently: Whether the first signal lets the run finish its iteration and write a checkpoint. The run sets this
            once there is progress to save. Until then, and from the second signal on, a signal stops the run at once.
    """

    def __init__(self) -> None:
        self.asked = self.gently = False

    def __call__(self) -> bool:
        """Return whether the run should stop."""
        return self.asked

    def ask(self, *_: Any) -> None:
        """Handle a signal."""
        # Note the signal before raising: Python drops an exception that is raised inside a destructor.
        at_once, self.asked = self.asked or not self.gently, True
        if at_once:
            raise KeyboardInterrupt
        os.write(2, b"\nStopping after this iteration. Press Ctrl-C again to stop now.\n")


@contextmanager
def stopped_gently() -> Iterator[Stop]:
    """Let Ctrl-C and SIGTERM ask the run inside to stop with a checkpoint."""
    stop = Stop()
    with _handled(stop.ask, signal.SIGINT, signal.SIGTERM):
        yield stop


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM raise `KeyboardInterrupt`, as Ctrl-C does."""
    with _handled(signal.default_int_handler, signal.SIGTERM):
        yield


@contextmanager
def _handled(handler: Callable[..., Any], *signals: signal.Signals) -> Iterator[None]:
    before = {one: signal.signal(one, handler) for one in signals}
    try:
        yield
    finally:
        for one, old in before.items():
            signal.signal(one, old)
