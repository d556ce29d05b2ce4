"""The metrics of a run, `metrics.csv`: one row per report and price, appended during training."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from lazymdp._files import write_text
from lazymdp.learn.deep.checked_files import file_checksum


@dataclass(frozen=True)
class Metrics:
    """Statistics of the episodes that ended since the last report.

    The episodes of a dial are grouped by the nearest of its reported prices.

    Attributes:
        step: Agent steps so far.
        eta: Price; for a single price, the mean over these episodes.
        episodes: Number of episodes.
        mean_return: Mean return, price excluded.
        length: Mean length in steps.
        control_rate: Share of steps in control, exploration included.
    """

    step: int
    eta: float
    episodes: int
    mean_return: float
    length: float
    control_rate: float


COLUMNS = tuple(field.name for field in fields(Metrics))
HEADER = ",".join(COLUMNS) + "\n"


def append(path: Path, metrics: Iterable[Metrics]) -> None:
    """Appends rows to the file."""
    with open(path, "a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([getattr(row, name) for name in COLUMNS] for row in metrics)


def mark(path: Path, step: int) -> tuple[int, str]:
    """Returns the length in bytes and the checksum of the rows up to an agent step, after writing them to the disk."""
    if not path.exists():
        cut(path, None)
    with open(path, "r+b") as file:
        os.fsync(file.fileno())  # a checkpoint on the disk must not refer to rows that a power failure can still lose
        lines = file.read().splitlines(keepends=True)
    while len(lines) > 1 and not _is_row(lines[-1], step):  # rows are in the order of their steps
        lines.pop()
    size = sum(map(len, lines))
    return size, file_checksum(path, size)


def _is_row(line: bytes, step: int) -> bool:
    cells = line.rstrip(b"\n").split(b",")
    return line.endswith(b"\n") and len(cells) == len(COLUMNS) and cells[0].isdigit() and int(cells[0]) <= step


def cut(path: Path, size: int | None) -> None:
    """Shortens the file to its first `size` bytes; None, or a file that is missing, leaves only the header."""
    if size is None or not path.exists():
        write_text(path, HEADER)
    elif path.stat().st_size > size:
        os.truncate(path, size)
