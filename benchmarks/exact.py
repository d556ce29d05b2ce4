"""Measures time and memory to a proven error of 1e-6, for lazymdp and every peer in one run.

    python benchmarks/exact.py            # run everything and write the tables
    python benchmarks/exact.py --problems random-100k    # run one problem again, keep the results of the others
    python benchmarks/exact.py --quick    # the small grid only, two runs of each solver

``benchmarks/README.md`` explains what is measured and by which rules.
"""

from __future__ import annotations

import environment  # re-executes this script in benchmarks/.venv; must come before imports of installed packages

# isort: split
import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import report
from models import PROBLEMS, explicit, model_bytes, save
from peers import SOLVERS
from reference import reference_value
from solvers import TOL
from worker import measure

REFERENCE_TOL = 1e-10
OURS = "lazymdp"
# The project's goals: time of the fastest peer divided by ours, per problem.
GOALS = {"grid-50": 3.0, "grid-300": 3.0, "grid-1000": 10.0, "grid-1000-goals": 10.0, "random-100k": 3.0}
MEMORY_GOAL = 2.0  # our peak memory divided by the size of the base model's arrays, on the problem below
MEMORY_PROBLEM = "grid-1000"
HEADER = (
    "problem",
    "solver",
    "settings",
    "seconds",
    "relative to ours",
    "actual error",
    "peak MB",
    "arrays MB",
    "build s",
    "warm-up s",
)


def main() -> None:
    options = _options()
    rows = []
    for name in options.problems:
        with tempfile.TemporaryDirectory() as folder:
            rows += run_problem(name, options.solvers, options.repeats, options.limit, Path(folder))
    complete = set(options.solvers) == set(SOLVERS) and not options.quick
    if complete:
        rows = _with_other_problems(rows)
    cells = [_cells(row, rows) for row in rows]
    report.show("time to a proven sup-norm error of 1e-6", HEADER, cells, words=3)
    goals = _goals(rows)
    if goals:
        report.show("goals", GOAL_HEADER, goals)
    if not complete:
        print("partial run: nothing written")
        return
    packages = [solver.package for solver in SOLVERS.values()] + ["numpy", "numba"]
    results = {"circumstances": report.circumstances(packages), "tol": TOL, "rows": rows}
    report.write("exact", "Exact solutions: lazymdp and its peers", results, _sections(rows, cells, goals))


def _with_other_problems(rows: list[dict]) -> list[dict]:
    """Adds the rows of earlier runs for the problems that this run did not solve.

    All rows of a problem are replaced together, so that lazymdp and the peers are always from the same run.
    """
    for row in rows:
        row["measured"] = report.circumstances([])["command"]
    path = report.ROOT / "benchmarks" / "results" / "exact.json"
    earlier = json.loads(path.read_text())["rows"] if path.exists() else []
    fresh = {row["problem"] for row in rows}
    both = rows + [row for row in earlier if row["problem"] not in fresh]
    return sorted(both, key=lambda row: list(PROBLEMS).index(row["problem"]))


def run_problem(name: str, keys: list[str], repeats: int, limit: int, folder: Path) -> list[dict]:
    """Builds a problem, computes its reference solution and measures each solver on it."""
    problem = PROBLEMS[name]()
    model = explicit(problem)
    save(problem, folder / "base")
    save(model, folder / "explicit")
    base_bytes, n_states = model_bytes(problem), len(problem.rewards)
    del problem
    print(f"{name}: {n_states:,} states, reference ...", flush=True)
    reference, bound = reference_value(model, REFERENCE_TOL)
    live = float((np.abs(reference) > TOL).mean())
    del model
    rows = []
    for key in keys:
        row = {"problem": name, "solver": key, "base_bytes": base_bytes, "live": live, "reference_bound": bound}
        row.update(run_solver(key, n_states, repeats, limit, folder))
        if row["status"] == "ok":
            row["error"] = float(np.abs(np.load(folder / "value.npy") - reference).max())
            if row["error"] > TOL + bound:
                row["status"] = f"error {row['error']:.1e}"
        print(f"{name} {key}: {row['status']}, {row.get('seconds', '-')} s", flush=True)
        rows.append(row)
    return rows


def run_solver(key: str, n_states: int, repeats: int, limit: int, folder: Path) -> dict:
    """Measures one solver. A solver that compiles first runs once in another process to fill its cache."""
    solver = SOLVERS[key]
    if solver.largest is not None and n_states > solver.largest:
        return {"status": f"not attempted above {solver.largest:,} states"}
    if solver.package in environment.failures():
        return {"status": f"not installed: {environment.failures()[solver.package]}"}
    first = measure(key, folder, 1, limit) if solver.compiles else None
    found = measure(key, folder, repeats, limit)
    if first is not None and "seconds" in found and "seconds" in first:
        found["warm_up"] = first["warm_up"] + max(0.0, first["seconds"] - found["seconds"])
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--repeats", type=int, default=5, help="number of runs with the best settings")
    parser.add_argument("--limit", type=int, default=180, help="time limit of one solve, in seconds")
    parser.add_argument("--quick", action="store_true", help="the small grid only, two runs of each solver")
    options = parser.parse_args()
    if options.quick:
        options.problems, options.repeats = ["grid-50"], 2
    return options


def _ours(problem: str, rows: list[dict]) -> dict | None:
    for row in rows:
        if (row["problem"], row["solver"], row["status"]) == (problem, OURS, "ok"):
            return row
    return None


def _cells(row: dict, rows: list[dict]) -> list[str]:
    name = SOLVERS[row["solver"]].name
    if row["status"] != "ok":
        dashes = ["-"] * (len(HEADER) - 5)
        return [row["problem"], name, "-", row["status"], "-", *dashes]
    ours = _ours(row["problem"], rows)
    return [
        row["problem"],
        name,
        row["algorithm"],
        report.number(row["seconds"]),
        report.number(row["seconds"] / ours["seconds"]) if ours else "-",
        f"{row['error']:.1e}",
        f"{row['peak'] / 1e6:,.0f}",
        f"{row['model_bytes'] / 1e6:,.0f}",
        report.number(row["build"]),
        report.number(row["warm_up"]),
    ]


GOAL_HEADER = ("goal", "compared with", "target", "result", "met")


def _goals(rows: list[dict]) -> list[list[str]]:
    """Returns one line per goal for which there are results."""
    lines = []
    for problem, wanted in GOALS.items():
        ours = _ours(problem, rows)
        peers = [r for r in rows if r["problem"] == problem and r["solver"] != OURS]
        peers = [peer for peer in peers if peer["status"] == "ok"]
        if ours and peers:
            fastest = min(peers, key=lambda peer: peer["seconds"])
            ratio = fastest["seconds"] / ours["seconds"]
            against = f"fastest peer: {SOLVERS[fastest['solver']].name}"
            lines.append(_goal(f"times faster, {problem}", against, wanted, ratio, ratio >= wanted))
    ours = _ours(MEMORY_PROBLEM, rows)
    if ours:
        ratio = ours["peak"] / ours["base_bytes"]
        against = f"base model's arrays, {ours['base_bytes'] / 1e6:,.0f} MB"
        met = ratio < MEMORY_GOAL
        lines.append(_goal(f"peak memory, {MEMORY_PROBLEM}", against, MEMORY_GOAL, ratio, met))
    return lines


def _goal(goal: str, against: str, wanted: float, found: float, met: bool) -> list[str]:
    return [goal, against, report.number(wanted), report.number(found), "yes" if met else "no"]


def _sections(rows: list[dict], cells: list[list[str]], goals: list[list[str]]) -> list[str]:
    live = ", ".join(f"{name} {share:.1%}" for name, share in {r["problem"]: r["live"] for r in rows}.items())
    commands = {row["problem"]: row["measured"] for row in rows}
    proofs = [[solver.name, solver.proof] for solver in SOLVERS.values()]
    absent = [list(item) for item in environment.failures().items()]
    return [
        "The table shows the seconds to a proven sup-norm error of 1e-6: wall time with all cores, the median of five "
        "runs (fewer if they are long) with the solver's best settings. Peers get the explicit model with A + 1 "
        "actions. *Actual error* is the difference from a "
        f"reference proven to {REFERENCE_TOL:.0e}. *Peak* is the resident memory above what the process used before it "
        "loaded the model. *Arrays* is the size of the model's arrays as they are passed to the solver. The seconds do "
        "not include *build* (making the library's own model) and *warm-up* (imports and compilation). "
        "`benchmarks/README.md` has the details.",
        report.markdown(HEADER, cells, words=3),
        f"Share of states whose value differs from 0 by more than the tolerance: {live}. Where this share is small "
        "(because taking control pays only near the goal), a solver that detects which states matter has an advantage "
        "that it does not have elsewhere.",
        "On each problem, lazymdp and all peers were measured in one run: "
        + "; ".join(f"{problem} by `{command}`" for problem, command in commands.items())
        + ".",
        "## Goals",
        report.markdown(GOAL_HEADER, goals),
        "## Why each answer is proven",
        "`d` is the change of the values in the last sweep. `benchmarks/solvers.py` explains how it bounds the error.",
        report.markdown(("solver", "proof"), proofs),
        "## Packages that could not be installed",
        report.markdown(("package", "reason"), absent) if absent else "All packages were installed.",
    ]


if __name__ == "__main__":
    main()
