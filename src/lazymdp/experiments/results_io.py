"""What a run leaves on disk, and how it is picked up again.

A run is a folder with its data, one CSV file per table, and `run.json`: what was asked (name, settings), by which
command, with which versions, and when. `run.json` is written last, so that a folder that has it is complete; a run that
was interrupted has none and is made again.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp._files import write_csv, write_text

Table = Mapping[str, NDArray[Any]]
"""Columns of equal length, by name."""
Tables = Mapping[str, Table]
"""The data of a run: tables by name."""

RECORD = "run.json"


@dataclass(frozen=True)
class Record:
    """What `run.json` says.

    Attributes:
        name: Of the experiment.
        settings: Of the experiment, as its `Config` holds them.
        command: The command line that made it.
        seconds: How long it took.
        versions: Of Python and of the packages used.
        finished: When, in UTC.
    """

    name: str
    settings: dict[str, Any]
    command: str
    seconds: float
    versions: dict[str, str]
    finished: str


def table(**columns: ArrayLike) -> dict[str, NDArray[Any]]:
    """A table out of columns; a single number fills its column."""
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column)) for column in columns.values()))
    return dict(zip(columns, arrays, strict=True))


def save(folder: Path, data: Tables, record: Record) -> None:
    """Writes the tables, then the record."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).unlink(missing_ok=True)  # from here on the folder is incomplete until the record is written
    for name, columns in data.items():
        write_csv(folder / f"{name}.csv", columns)
    write_text(folder / RECORD, json.dumps(asdict(record), indent=2) + "\n")


def load_record(folder: Path) -> Record | None:
    """The record of a complete run, or None where there is none."""
    try:
        return Record(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / RECORD} is damaged ({error}); remove it to make the run again.") from error


def load(folder: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """Every table of a run."""
    return {path.stem: _read_csv(path) for path in sorted(folder.glob("*.csv"))}


def _read_csv(path: Path) -> dict[str, NDArray[Any]]:
    with open(path, newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if wrong is not None:
        raise ValueError(f"{path} line {wrong} has {len(rows[wrong - 2])} fields, its header {len(names)}.")
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: _typed(list(cells)) for name, cells in zip(names, columns, strict=True)}


def _typed(cells: list[str]) -> NDArray[Any]:
    """Whole numbers where all are, else numbers, else text."""
    for kind in (int, float):
        try:
            return np.array([kind(cell) for cell in cells])
        except ValueError:
            continue
    return np.array(cells)
