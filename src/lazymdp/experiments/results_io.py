"""The files of a result: its data, its claims, and a record of how it was made.

A result is a folder with one CSV file per table, `claims.csv`, and `run.json`, the record: name and settings, command,
versions and date. `run.json` is written last, so a folder that has one is complete. A run that was interrupted before
that point is run again.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._files import write_csv, write_text
from lazymdp._provenance import command_line, versions
from lazymdp.experiments.experiment import Claim, Tables, table

RECORD = "run.json"
CLAIMS = "claims.csv"


@dataclass(frozen=True)
class Record:
    """The content of `run.json`.

    Attributes:
        name: Name of the experiment.
        settings: The fields of its `Config`, converted to JSON types.
        command: The command line that made the data.
        seconds: Run time in seconds.
        versions: Versions of Python and of the packages used.
        finished: Date and time at which the run ended, UTC.
    """

    name: str
    settings: dict[str, Any]
    command: str
    seconds: float
    versions: dict[str, str]
    finished: str

    @classmethod
    def now(cls, name: str, settings: dict[str, Any], seconds: float) -> Record:
        """Return the record of a run that ends now, in this process."""
        finished = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(name, settings, command_line(), round(seconds, 2), versions(), finished)


def as_saved(config: Any) -> dict[str, Any]:
    """Return settings as they will be read from `run.json`: tuples become lists."""
    return json.loads(json.dumps(asdict(config)))


def save(folder: Path, data: Tables, record: Record, claims: Sequence[Claim] | None = None) -> None:
    """Write the tables, the claims if they are given, and finally the record."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).unlink(missing_ok=True)  # from here on the folder is incomplete until the record is written
    for name, columns in data.items():
        write_csv(folder / f"{name}.csv", columns)
    if claims is not None:
        save_claims(folder, claims)
    write_text(folder / RECORD, json.dumps(asdict(record), indent=2) + "\n")


def save_claims(folder: Path, claims: Sequence[Claim]) -> None:
    """Write `claims.csv`; there may be no claims if the settings differ from the paper's."""
    columns = table(
        claim=[claim.text for claim in claims],
        expected=[claim.expected for claim in claims],
        found=[claim.found for claim in claims],
        holds=[claim.holds for claim in claims],
    )
    write_csv(folder / CLAIMS, columns)


def load_record(folder: Path) -> Record | None:
    """Return the record of a complete result, or None if the folder holds no complete result."""
    try:
        return Record(**json.loads((folder / RECORD).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ValueError(f"{folder / RECORD} is damaged ({error}); delete it to run the experiment again.") from error


def load(folder: Path) -> dict[str, dict[str, NDArray[Any]]]:
    """Return every table of a result, without its claims."""
    return {path.stem: read_table(path) for path in sorted(folder.glob("*.csv")) if path.name != CLAIMS}


def read_table(path: Path) -> dict[str, NDArray[Any]]:
    """Return the table in a CSV file."""
    names, rows = _read_csv(path)
    columns = zip(*rows, strict=True) if rows else ([] for _ in names)
    return {name: _typed(list(cells)) for name, cells in zip(names, columns, strict=True)}


def load_claims(folder: Path) -> list[Claim]:
    """Return the claims of a result as they were judged when it was made or last redrawn."""
    _, rows = _read_csv(folder / CLAIMS)
    return [Claim(text, expected, found, holds == "1") for text, expected, found, holds in rows]


def _read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    with open(path, newline="", encoding="utf-8") as file:
        names, *rows = csv.reader(file)
    wrong = next((number for number, row in enumerate(rows, 2) if len(row) != len(names)), None)
    if wrong is not None:
        raise ValueError(f"{path} line {wrong} has {len(rows[wrong - 2])} fields, but its header has {len(names)}.")
    return names, rows


def _typed(cells: list[str]) -> NDArray[Any]:
    """Convert cells to integers if possible, else to floating-point numbers, else leave them as text."""
    for kind in (int, float):
        try:
            return np.array([kind(cell) for cell in cells])
        except ValueError:
            continue
    return np.array(cells)
