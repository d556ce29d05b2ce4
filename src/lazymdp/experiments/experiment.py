"""The definition of an experiment: settings in, data out; claims and a figure from the data. No files, no printing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

Progress = Callable[[int, int], None]
"""Called with the amount of work done and the total amount."""
Table = Mapping[str, NDArray[Any]]
"""Columns of equal length, by name."""
Tables = Mapping[str, Table]
"""The data of an experiment: tables by name."""


def table(**columns: ArrayLike) -> dict[str, NDArray[Any]]:
    """Build a table from columns; a single value fills its column."""
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column)) for column in columns.values()))
    return dict(zip(columns, arrays, strict=True))


def stacked(tables: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Concatenate tables with the same columns, row after row."""
    return {name: np.concatenate([one[name] for one in tables]) for name in tables[0]}


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, or one of ours, checked against the data.

    Attributes:
        text: The statement.
        expected: The value or property that the statement predicts.
        found: The value or property computed from the data.
        holds: Whether the two agree.
    """

    text: str
    expected: str
    found: str
    holds: bool


def check_settings(config: Any) -> None:
    """Raise a `ValueError` for invalid settings: empty tuples, counts below 1, negative or non-finite numbers.

    A tuple may be empty if that is its default.
    """
    for field in fields(config):
        for value in np.atleast_1d(getattr(config, field.name)).tolist() or [None]:
            least = 0 if field.name == "seed" else 1
            if value is None:
                if field.default == ():
                    continue
                raise ValueError(f"{field.name} is empty, expected at least one value.")
            if isinstance(value, str | bool):
                continue
            if isinstance(value, int) and value < least:
                raise ValueError(f"{field.name} is {value}, expected at least {least}.")
            if not (0.0 <= value < np.inf):
                raise ValueError(f"{field.name} is {value}, expected a finite number that is not negative.")


@dataclass(frozen=True)
class Experiment:
    """One result: a module of this package with `TITLE`, `Config`, `run`, `claims` and `plot`.

    Attributes:
        name: Its name at the command line.
        title: One line that says what it shows.
        config: The class of its settings, a frozen dataclass whose defaults are the settings of the paper.
        run: Computes the data and reports progress. If `needs_gpu`, it also takes the `Parts` of `study`.
        claims: Checks the claims, using only the data.
        plot: Draws the figure, using only the data.
        caption: Explains the figure.
        needs_gpu: Whether running it takes a GPU or much longer than a minute. The figure of such an experiment, a
            *study*, is drawn from the data committed in the repository, unless a new run is requested.
        jobs: Returns the names of the independent jobs of a study that consists of such; see the module `jobs`.
        make_job: Does one of these jobs and returns its rows.
        whole_machine: Whether every job uses all cores and a GPU, which jobs at the same time share. Such a job takes a
            third argument, a folder in which it keeps what it has trained.
    """

    name: str
    title: str
    config: type[Any]
    run: Callable[..., Tables]
    claims: Callable[[Tables], list[Claim]]
    plot: Callable[[Tables], Figure]
    caption: str
    needs_gpu: bool = False
    jobs: Callable[[Any], list[str]] | None = None
    make_job: Callable[..., Table] | None = None
    whole_machine: bool = False

    @classmethod
    def of(cls, module: ModuleType) -> Experiment:
        """Build the experiment that a module defines; the last paragraph of its docstring is the caption."""
        caption = " ".join((module.__doc__ or "").strip().split("\n\n")[-1].split())
        # An experiment may not have the module name of what it is about, since module names are unique.
        name = getattr(module, "NAME", module.__name__.rpartition(".")[2].replace("_", "-"))
        needs_gpu = getattr(module, "NEEDS_GPU", False)
        jobs, make_job = getattr(module, "jobs", None), getattr(module, "make_job", None)
        return cls(
            name,
            module.TITLE,
            module.Config,
            module.run,
            module.claims,
            module.plot,
            caption,
            needs_gpu,
            jobs,
            make_job,
            getattr(module, "WHOLE_MACHINE", False),
        )
