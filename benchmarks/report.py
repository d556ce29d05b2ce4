"""Output of the benchmarks: tables, result files and pages, with the machine and the package versions."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent


def circumstances(packages: Iterable[str]) -> dict:
    """Returns the command, the date, the machine and the versions of the packages."""
    return {
        "command": " ".join(["python", *sys.orig_argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {package: _version(package) for package in sorted(set(packages))},
    }


def machine() -> str:
    """Returns the processor and the number of cores."""
    return f"{_cpu()}, {os.cpu_count()} cores"


def show(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 2) -> None:
    """Prints a table. The first `words` columns are left-aligned, the others right-aligned."""
    table = Table(title=title)
    for index, name in enumerate(header):
        table.add_column(name, justify="left" if index < words else "right")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 2) -> str:
    """Returns the same table in Markdown."""
    rule = ["---" if index < words else "---:" for index in range(len(header))]
    lines = [[cell.replace("|", "\\|") for cell in cells] for cells in (header, rule, *rows)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write(name: str, title: str, results: dict, sections: Sequence[str]) -> None:
    """Writes ``benchmarks/results/NAME.json`` and ``docs/benchmarks/NAME.md``."""
    data = ROOT / "benchmarks" / "results" / f"{name}.json"
    page = ROOT / "docs" / "benchmarks" / f"{name}.md"
    for path in (data, page):
        path.parent.mkdir(parents=True, exist_ok=True)
    data.write_text(json.dumps(results, indent=2) + "\n")
    made = results["circumstances"]
    versions = ", ".join(f"{package} {version}" for package, version in made["versions"].items())
    opening = (
        f"# {title}\n\nWritten by `{made['command']}` on {made['date']}: {made['cpu']}, "
        f"{made['cores']} cores, Python {made['python']}, {versions}."
    )
    page.write_text("\n\n".join([opening, *sections]) + "\n")
    print(f"wrote {data.relative_to(ROOT)} and {page.relative_to(ROOT)}")


def number(value: float | None, digits: int = 2) -> str:
    """Formats a number with `digits + 1` significant digits; None becomes a dash."""
    if value is None:
        return "-"
    if value != 0 and abs(value) < 1e-3:
        return f"{value:.1e}"
    return f"{value:#.{digits + 1}g}".rstrip(".") if abs(value) < 1000 else f"{value:,.0f}"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
