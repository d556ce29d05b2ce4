"""Writes the README's table of speeds from the results of the benchmarks, so that no number is typed by hand.

python benchmarks/summary.py
"""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- speed: written by benchmarks/summary.py -->\n", "<!-- /speed -->"


def main() -> None:
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    README.write_text(before + BEGIN + table() + END + after)
    print("wrote the README's table")


def table() -> str:
    """Returns the table in Markdown: lazymdp and the fastest peer of the same run, one line per problem."""
    lines = ["| problem | ours | fastest peer in the same run | times faster |", "|---|---:|---|---:|"]
    exact = json.loads((ROOT / "benchmarks/results/exact.json").read_text())
    solved = [row for row in exact["rows"] if row["status"] == "ok"]
    for problem in dict.fromkeys(row["problem"] for row in solved):
        lines.append(_line(f"solve {problem}", [row for row in solved if row["problem"] == problem]))
    path = json.loads((ROOT / "benchmarks/results/path.json").read_text())
    for states in dict.fromkeys(row["states"] for row in path["rows"]):
        lines.append(_line(f"path of a {states}-state arm", [row for row in path["rows"] if row["states"] == states]))
    return "\n".join(lines) + "\n"


def _line(name: str, rows: list[dict]) -> str:
    ours = next(row for row in rows if row["solver"] == "lazymdp")
    peer = min((row for row in rows if row is not ours), key=lambda row: row["seconds"])
    ratio = peer["seconds"] / ours["seconds"]
    return f"| {name} | {ours['seconds']:.2g} s | {peer['solver']}, {peer['seconds']:.2g} s | {ratio:.1f} |"


if __name__ == "__main__":
    main()
