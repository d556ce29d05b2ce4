"""Ctrl-C and SIGTERM during long work: what is under way ends in good order, or at once if asked again."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Stop:
    """Whether the run was asked to stop: by a signal, to end with a checkpoint; by a second one, or early, at once."""

    def __init__(self) -> None:
        self.asked = self.gently = False

    def __call__(self) -> bool:
        """Whether it was asked to."""
        return self.asked

    def ask(self, *_: Any) -> None:
        """What a signal does; noted first, since Python drops an exception that falls into a destructor."""
        at_once, self.asked = self.asked or not self.gently, True
        if at_once:
            raise KeyboardInterrupt
        os.write(2, b"\nStopping with a checkpoint as soon as this iteration is made; once more: at once.\n")


@contextmanager
def stopped_gently() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM have the run end with a checkpoint."""
    stop = Stop()
    with _handled(stop.ask, signal.SIGINT, signal.SIGTERM):
        yield stop


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends what is done as Ctrl-C does."""
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
