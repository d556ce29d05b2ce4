"""What an experiment is: settings in, data out, claims and a figure from the data. No files, no printing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from types import ModuleType
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from lazymdp.experiments.results_io import Tables

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is."""


@dataclass(frozen=True)
class Claim:
    """One statement of the paper, or of ours, and what was found.

    Attributes:
        text: The statement.
        expected: What it says, as a number or in words.
        found: What the data say.
        holds: Whether they agree.
    """

    text: str
    expected: str
    found: str
    holds: bool


def check_settings(config: Any) -> None:
    """Refuses settings that cannot be meant, before any work starts: counts below 1, numbers that are none, nothing."""
    for field in fields(config):
        for value in np.atleast_1d(getattr(config, field.name)).tolist() or [None]:
            least = 0 if field.name == "seed" else 1
            if value is None:
                raise ValueError(f"{field.name} is empty, expected at least one value.")
            if isinstance(value, int) and value < least:
                raise ValueError(f"{field.name} is {value}, expected at least {least}.")
            if not (0.0 <= value < np.inf):
                raise ValueError(f"{field.name} is {value}, expected a number of at least 0.")


@dataclass(frozen=True)
class Experiment:
    """One result: a module of this package with `TITLE`, `Config`, `run`, `claims` and `plot`.

    Attributes:
        name: What it is called at the command line.
        title: What it shows, in a line.
        config: Its settings, a frozen dataclass; calling it without arguments gives the paper's.
        run: Makes the data; reports progress.
        claims: What should hold, judged from the data alone.
        plot: The figure, drawn from the data alone.
        caption: What to see in the figure.
    """

    name: str
    title: str
    config: type[Any]
    run: Callable[[Any, Progress | None], Tables]
    claims: Callable[[Tables], list[Claim]]
    plot: Callable[[Tables], Figure]
    caption: str

    @classmethod
    def of(cls, module: ModuleType) -> Experiment:
        """The experiment a module holds; its docstring's last paragraph is the caption."""
        caption = " ".join((module.__doc__ or "").strip().split("\n\n")[-1].split())
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        return cls(name, module.TITLE, module.Config, module.run, module.claims, module.plot, caption)
