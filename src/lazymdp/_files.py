"""Writing files in one step: a crash or an interruption leaves the old file, or none, never half of one. Locks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Gives a temporary name beside `path` to write to; renamed to `path` at the end, removed after an error."""
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}.")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder.")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part{target.suffix}")
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # as any file that is written: some libraries hide theirs from others
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` to `path` in one step."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def locked(path: str | os.PathLike[str], *, wait: bool) -> Iterator[None]:
    """Holds the lock of a file that nobody replaces; it ends with the process, however that ends.

    Args:
        path: Of the file, made if it is not there.
        wait: For another process that holds it, or else `BlockingIOError`.
    """
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
