"""Files that are never half written, and locks between processes."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import ArrayLike


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path`, and renames that file to `path` at the end.

    A crash or an interruption leaves the old file at `path`, or none, but never a part of the new one. After an
    exception the temporary file is removed.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}.")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder.")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part{target.suffix}")
    try:
        yield temporary
        with open(temporary, "r+b") as written:  # a power failure after the rename must not leave an empty file
            os.fsync(written.fileno())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # the usual permissions: some libraries write files only the owner can read
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes `text` to `path` as `replacing` does: all of it or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_csv(path: str | os.PathLike[str], columns: Mapping[str, ArrayLike]) -> None:
    """Writes columns of equal length to `path` in one step, with a header.

    Booleans are written as 0 and 1, and numbers with as many digits as it takes to read them back unchanged.
    """
    arrays = [np.asarray(column) for column in columns.values()]
    cells = [(array.astype(int) if array.dtype == bool else array).tolist() for array in arrays]
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*cells, strict=True))


@contextmanager
def locked(path: str | os.PathLike[str], *, wait: bool) -> Iterator[None]:
    """Holds an exclusive lock; the operating system releases it when the process ends, even if it is killed.

    Args:
        path: The lock file, created if it does not exist. It must not be replaced or deleted while processes use it.
        wait: Whether to wait for another process that holds the lock.

    Raises:
        BlockingIOError: Another process holds the lock, and `wait` is False.
    """
    lock = FileLock(path)
    try:
        lock.acquire(blocking=wait)
    except Timeout as error:
        raise BlockingIOError(f"{path} is locked by another process.") from error
    try:
        yield
    finally:
        lock.release()
