"""How the command line shows things: tables, facts, JSON for machines."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

OUT = Console()
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def show_facts(facts: dict[str, Any]) -> None:
    """Names and values, one to a line."""
    table = Table.grid(padding=(0, 2))
    for name, fact in facts.items():
        table.add_row(name.replace("_", " "), f"{fact:.5g}" if isinstance(fact, float) else str(fact))
    OUT.print(table)


def print_json(value: Any) -> None:
    """One line of JSON."""
    print(json.dumps(_plain(value)))


def _plain(value: Any) -> Any:
    """Python's own types; what JSON has no word for (infinite, not a number) is null."""
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
