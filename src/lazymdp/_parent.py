"""Processes that end with the process that started them, even if that is killed."""

from __future__ import annotations

import os
import threading
import time


def end_with_parent(parent: int | None = None) -> None:
    """Ends this process as soon as its parent has ended, also while its main thread waits for something.

    Args:
        parent: Id of the parent process. Without it, a parent that has ended before this call is not noticed.
    """
    threading.Thread(target=_watch, args=(parent or os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.25)
    os._exit(1)
