"""Files that are never half written, checksums of their content, and locks between processes."""

from __future__ import annotations

import csv
import os
import platform
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import ArrayLike

from lazymdp._arguments import check_path

_HOST = re.sub(r"[^\w-]", "-", platform.node()) or "host"


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path`, and renames that file to `path` at the end.

    A crash or an interruption leaves the old file at `path`, or none, but never a part of the new one. After an
    exception the temporary file is removed. After a crash, the next call for the same path removes it.
    """
    target = check_path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}: there is no folder {target.parent}.")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {target}: it is a folder.")
    remove_orphans(target.parent, target.name)
    temporary = target.with_name(f".{target.name}.{_HOST}-{os.getpid()}.part{target.suffix}")
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


def remove_orphans(folder: Path, name: str | None = None) -> None:
    """Removes temporary files that `replacing` left in a folder when its process was killed.

    Files of processes that still run, and of other machines that share the folder, are left alone.

    Args:
        folder: The folder.
        name: Name of the file that was to be replaced; by default any file.
    """
    pattern = re.compile(rf"\.{'.+' if name is None else re.escape(name)}\.{re.escape(_HOST)}-(\d+)\.part[^/]*")
    for entry in os.scandir(folder):
        found = pattern.fullmatch(entry.name)
        if found and not _is_running(int(found[1])):
            Path(entry.path).unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    """Returns whether another process runs; True where this cannot be known without disturbing it."""
    if process == os.getpid():
        return False
    if os.name != "posix":  # on Windows, signal 0 is Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def checksum(arrays: Mapping[str, ArrayLike], text: str = "") -> str:
    """Returns the CRC-32 of a text and of named arrays: their names, types, shapes and contents.

    A checksum detects damage, not forgery. CRC-32 processes some 4 GB per second, ten times as fast as a disk writes.
    """
    crc = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    for name in sorted(arrays):
        array: Any = np.asarray(arrays[name])
        crc = zlib.crc32(f"{name} {array.dtype.str} {array.shape} ".encode(), crc)
        crc = zlib.crc32(memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8)), crc)  # type: ignore[arg-type]
    return f"{crc:08x}"


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
