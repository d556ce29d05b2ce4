"""Studies: experiments that take long, most of them on a GPU, and are therefore run rarely and in parts.

The data of a study are committed in the folder `results/` of the repository. `reproduce` draws the figure and checks
the claims from these data; only `fresh` runs a study again. The study is then run part by part. Every finished part is
saved in `FOLDER/parts`, so the same command continues an interrupted study. When all parts are complete, they are
merged into the data of the study and deleted.

A study covers several games: its `Config` has a field `games`, and each of its tables has a column `game`. The games
can be run separately, even by several processes at once that share a folder.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.experiments import results_io
from lazymdp.experiments.experiment import Experiment, Progress, Table, Tables
from lazymdp.experiments.results_io import Record, as_saved

COMMITTED = Path(__file__).parents[3] / "results"
"""The folder `results/` of the repository that this file is part of; it does not exist in an installed wheel."""
LOCK = ".lock"
_ROWS = "rows"


class Parts:
    """The finished parts of a study that is being run, each saved in a folder of its own.

    Args:
        folder: The folder of the study.
        config: The settings of the study. Parts that were saved with other settings are refused, except that games and
            agents, which the name of a part tells, may differ.
    """

    def __init__(self, folder: Path, config: Any) -> None:
        self.folder = folder / "parts"
        self.records: list[Record] = []
        self._settings = {name: value for name, value in _without_games(as_saved(config)).items() if name != "agents"}
        self._used: list[Path] = []

    def has(self, name: str) -> bool:
        """Return whether a part is finished."""
        return (self.folder / name / results_io.RECORD).exists()

    def get(self, name: str, make: Callable[[], Table]) -> Table:
        """Return a part: load it if it exists, otherwise make it and save it."""
        folder = self.folder / name
        record = results_io.load_record(folder)
        if record is None:
            started = time.perf_counter()
            rows = make()
            record = Record.now(name, self._settings, time.perf_counter() - started)
            results_io.save(folder, {_ROWS: rows}, record)
        elif record.settings != self._settings:
            raise ValueError(
                f"{folder} was made with other settings. Delete {self.folder}, or choose another output folder."
            )
        self.records.append(record)
        self._used.append(folder)
        return results_io.load(folder)[_ROWS]

    def record(self, name: str, config: Any) -> Record:
        """Return the record of the whole study: how its parts were made, maybe on other machines, and how long."""
        now = Record.now(name, as_saved(config), sum(record.seconds for record in self.records))
        commands = [record.command for record in self.records]
        return replace(
            now,
            command=max(dict.fromkeys(commands), key=commands.count, default=now.command),
            versions=_united(self.records) or now.versions,
        )

    def remove(self) -> None:
        """Delete the parts that were used; those of other processes stay."""
        for folder in self._used:
            shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # not empty, or removed by another process
            self.folder.rmdir()


def has_data(name: str) -> bool:
    """Return whether the repository holds the data of an experiment; a study that has not been run yet has none."""
    return (COMMITTED / name / results_io.RECORD).exists()


def saved_data(experiment: Experiment, config: Any, folder: Path) -> tuple[Tables, Record]:
    """Return the data of a study and their record, from `folder` if it holds a study, else from the repository."""
    wanted = as_saved(config)
    committed = COMMITTED / experiment.name
    for source in (folder, committed):
        record = results_io.load_record(source)
        if record is not None and record.settings == wanted:
            return results_io.load(source), record
        if record is not None and source == folder:
            raise ValueError(f"{folder} holds a study with other settings; choose another output folder.")
    again = "or run it again with --fresh, which takes long and needs JAX, and in many cases a GPU."
    if COMMITTED.is_dir() and not has_data(experiment.name):
        raise FileNotFoundError(f"{experiment.name} has not been run yet, so there are no data: run it with --fresh.")
    if not COMMITTED.is_dir():
        raise FileNotFoundError(
            f"the data of {experiment.name} are in the repository of lazymdp, not in the installed package. Clone the "
            f"repository and install it with `pip install -e .`, {again}"
        )
    raise ValueError(f"{committed} has no data for these settings; leave them out, {again}")


def run(experiment: Experiment, config: Any, folder: Path, progress: Progress | None) -> tuple[Tables, Record, Parts]:
    """Run a study part by part, continuing where an interrupted run with the same settings stopped."""
    _check_folder(folder, config)
    parts = Parts(folder, config)
    data = experiment.run(config, progress, parts)
    return data, parts.record(experiment.name, config), parts


def merged(experiment: Experiment, folder: Path, data: Tables, record: Record) -> tuple[Tables, Record]:
    """Add new games to the study in `folder`, replacing older data of the same games; the caller holds the lock."""
    before = results_io.load_record(folder)
    if before is None:
        return data, record
    tables, games = results_io.load(folder), record.settings["games"]
    for name, rows in data.items():
        tables[name] = joined(_other_games(tables[name], games), rows) if name in tables else dict(rows)
    known, order = [*before.settings["games"], *games], experiment.config().games
    listed = [*(game for game in order if game in known), *(game for game in known if game not in order)]
    settings = {**record.settings, "games": list(dict.fromkeys(listed))}
    seconds = round(before.seconds + record.seconds, 2)
    if set(before.settings["games"]) <= set(games):  # nothing of the older data is left
        return tables, replace(record, settings=settings, seconds=seconds)
    command = "; ".join(dict.fromkeys([*before.command.split("; "), record.command]))
    united = _united([before, record])
    return tables, replace(record, settings=settings, seconds=seconds, command=command, versions=united)


def _united(records: Sequence[Record]) -> dict[str, str]:
    """Return the versions with which several records were made."""
    found: dict[str, set[str]] = {}
    for record in records:
        for package, version in record.versions.items():
            found.setdefault(package, set()).update(version.split(", "))
    return {package: ", ".join(sorted(versions)) for package, versions in found.items()}


def _check_folder(folder: Path, config: Any) -> None:
    """Raise an error if the folder holds a study with other settings, whose data took long to compute."""
    record = results_io.load_record(folder)
    if record is not None and _without_games(record.settings) != _without_games(as_saved(config)):
        raise ValueError(f"{folder} holds a study with other settings; choose another output folder.")


def joined(rows: Table, more: Table) -> dict[str, NDArray[Any]]:
    """Append rows to a table; a column that only the new rows have is NaN in the old ones."""
    missing = np.full(len(rows["game"]), np.nan)
    return {name: np.concatenate([rows.get(name, missing), more[name]]) for name in more}


def _other_games(rows: Table, games: Sequence[str]) -> Table:
    others = ~np.isin(rows["game"], games)
    return {name: column[others] for name, column in rows.items()}


def _without_games(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "games"}
