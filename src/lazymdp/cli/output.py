"""How the commands print results: facts, tables, and JSON for other programs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from lazymdp._progress import PlainConsole, printable

OUT = PlainConsole(emoji=False)  # names such as ":door:" are printed as they are
INTERRUPTED = 130
"""Exit code after an interruption (Ctrl-C or SIGTERM)."""


def literal(value: Any) -> Text:
    """Return a value as a cell of a table: without markup, and as wide as it is printed."""
    return Text(printable(str(value)))


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, one pair per line."""
    grid = Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        grid.add_row(literal(name.replace("_", " ")), literal(f"{fact:.5g}" if isinstance(fact, float) else fact))
    OUT.print(grid)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]], title: str) -> None:
    """Print a table; an empty row draws a horizontal line.

    Cells are printed literally: square brackets in the name of a state are not markup.
    """
    table = Table(title=escape(title))
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    for row in rows:
        if row:
            table.add_row(*(cell if isinstance(cell, Text) else literal(cell) for cell in row))
        else:
            table.add_section()
    OUT.print(table)


def show_line(text: str) -> None:
    """Print a line without wrapping or markup, so that paths can be copied."""
    OUT.print(text, soft_wrap=True, highlight=False, markup=False)


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print(json.dumps(_plain(value)))


def _plain(value: Any) -> Any:
    """Convert a value to types that JSON supports; infinite numbers and NaN become null."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
