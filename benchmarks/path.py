"""Compares lz.eta_path with the Whittle indices of markovianbandit-pkg, and times the path of Key-Door-Treasure.

    python benchmarks/path.py            # run everything and write the tables
    python benchmarks/path.py --quick    # the smallest arm only

With two actions and "always rest" as the default policy, the critical eta of a state is its Whittle
index. The peer computes these indices and nothing else. ``benchmarks/README.md`` has the rules.
"""

from __future__ import annotations

import environment  # re-executes this script in benchmarks/.venv; must come before imports of installed packages

# isort: split
import argparse
import multiprocessing
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import report
from models import dense, grid, random_sparse, two_action_arm

SIZES = (500, 1000, 2000)
GAMMA = 0.95  # discount factor of the arms
AGREEMENT = 1e-8  # largest difference allowed between the two libraries' indices
WORLD, WORLD_GAMMA = "lazymdp/KeyDoorTreasure-v0", 0.99
WORLD_POLICIES, WORLD_SECONDS = 150, 0.1  # expected number of policies, and the goal for the time
WARM_UP_SIZE = 20
HEADER = ("states", "solver", "seconds", "CPU seconds", "relative to ours", "difference", "warm-up s")
SCALING = ((20, None), (50, None), (100, None), (50, 1e-3), (100, 1e-3), (300, 1e-3))  # size of the grid, tol
SCALING_HEADER = (
    "grid",
    "states",
    "tol",
    "breakpoints",
    "switches",
    "seconds",
    "CPU seconds",
    "peak MB",
    "goal s",
    "met",
)
SCALING_GOALS = {(50, None): 1.5, (100, None): 60.0, (300, 1e-3): 60.0}  # seconds
SCALING_MEMORY = 1000  # MB, for every grid
RANDOM = {"random": partial(random_sparse, actions=4, successors=10), "dense": partial(dense, actions=2)}
RANDOM_SIZES = (("random", 1000), ("dense", 200), ("dense", 1000))
TOLERANCES = [(*model, tol) for model in RANDOM_SIZES for tol in (0.1, 0.01, 1e-3, 1e-5)]
NOISE = 1.05  # largest ratio of times that counts as no longer
TOLERANCE_HEADER = (
    "model",
    "states",
    "tol",
    "breakpoints",
    "exact: breakpoints",
    "CPU seconds",
    "exact: CPU seconds",
    "ratio",
    f"at most {NOISE}",
)
WORLD_HEADER = ("world", "breakpoints", "seconds", "goal", "met", "warm-up s")


def main() -> None:
    options = _options()
    rows = []
    for n in options.sizes:
        rows += run_arm(n, options.solvers, options.repeats)
    cells = [_cells(row, rows) for row in rows]
    report.show("the whole path of a two-action arm", HEADER, cells)
    if "lazymdp" not in options.solvers:
        return
    world = _fresh_process(time_world, options.repeats)
    world_cells = [_world_cells(world)]
    report.show("the whole path of Key-Door-Treasure", WORLD_HEADER, world_cells)
    grids = [_fresh_process(time_grid, n, tol) for n, tol in SCALING[: 1 if options.quick else None]]
    grid_cells = [_grid_cells(row) for row in grids]
    report.show("the path of a grid", SCALING_HEADER, grid_cells)
    chosen = TOLERANCES[: 1 if options.quick else None]
    within = [_fresh_process(time_tolerance, *model, options.repeats) for model in chosen]
    within_cells = [_tolerance_cells(row) for row in within]
    report.show("a path within a tolerance", TOLERANCE_HEADER, within_cells)
    if options.quick or set(options.sizes) != set(SIZES) or set(options.solvers) != set(SOLVERS):
        print("partial run: nothing written")
        return
    packages = ["lazymdp", "markovianbandit-pkg", "numpy", "scipy", "numba"]
    results = {"circumstances": report.circumstances(packages), "rows": rows, "world": world, "grids": grids}
    results["within"] = within
    report.write("path", "Every eta at once", results, _sections(cells, world_cells, grid_cells, within_cells))


def run_arm(n: int, keys: list[str], repeats: int) -> list[dict]:
    """Measures each solver on one arm, each in a fresh process, and compares their indices."""
    rows = []
    for key in keys:
        package = key.partition(",")[0]
        if package in environment.failures():
            print(f"{package} is not installed: {environment.failures()[package]}")
            continue
        row = {"states": n, "solver": key, **_fresh_process(time_arm, key, n, repeats)}
        print(f"{n} states, {key}: {row['seconds']:.3g} s", flush=True)
        rows.append(row)
    expected = next((row["indices"] for row in rows if row["solver"] != "lazymdp"), None)
    for row in rows:
        found = row.pop("indices")
        if expected is not None:
            row["difference"] = float(np.abs(found - expected).max())
            if not row["difference"] <= AGREEMENT:
                raise SystemExit(f"{n} states: {row['solver']} differs by {row['difference']}")
    return rows


def time_arm(key: str, n: int, repeats: int) -> dict:
    """Times one solver on one arm. Call it in a process of its own."""
    prepare = SOLVERS[key]
    warm_up = _clock(lambda: prepare(*two_action_arm(WARM_UP_SIZE))())["seconds"]
    arm = two_action_arm(n)
    runs, indices = [], None
    for _ in range(repeats):
        task = prepare(*arm)  # a new model for every run, because the peer caches its answer
        run = _clock(task)
        indices = run.pop("answer")
        runs.append(run)
    if not (indices > 0).all():
        raise ValueError("a Whittle index is not positive, so it is not a critical eta: increase the rewards of acting")
    best = min(runs, key=lambda run: run["seconds"])
    return {**best, "runs": runs, "warm_up": warm_up, "indices": indices}


def ours(transitions: np.ndarray, rewards: np.ndarray) -> Callable[[], np.ndarray]:
    """Computes the whole path with lazymdp. The critical eta of a state is its Whittle index."""
    import lazymdp as lz

    mdp = lz.MDP(transitions, rewards, GAMMA)
    always_rest = np.tile([1.0, 0.0], (len(rewards), 1))

    def task() -> np.ndarray:
        path = lz.eta_path(mdp, always_rest)
        if not path.is_indexable:
            raise ValueError("the arm is not indexable: use another seed")
        return path.critical_eta

    return task


def peer(check: bool, transitions: np.ndarray, rewards: np.ndarray) -> Callable[[], np.ndarray]:
    """Computes the indices with markovianbandit-pkg, with or without its check that the arm is indexable."""
    import markovianbandit

    arm = markovianbandit.RestlessBandit(transitions, rewards)
    return partial(arm.whittle_indices, check_indexability=check, discount=GAMMA)


SOLVERS: dict[str, Callable[..., Callable[[], np.ndarray]]] = {
    "lazymdp": ours,
    "markovianbandit-pkg": partial(peer, True),
    "markovianbandit-pkg, unchecked": partial(peer, False),
}


def time_grid(n: int, tol: float | None) -> dict:
    """Times the path of an n x n grid under the uniform default policy, exact or within a tolerance."""
    import resource

    import lazymdp as lz

    def path(size: int) -> lz.EtaPath:
        problem = grid(size)
        mdp = lz.MDP(problem.transitions, problem.rewards, problem.gamma)
        return lz.eta_path(mdp, problem.default, tol=tol)

    path(12)  # compiles
    found = _clock(partial(path, n))
    answer = found.pop("answer")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {
        "n": n,
        "tol": tol,
        "breakpoints": answer.breakpoints.size,
        "switches": len(answer.switches),
        "peak_mb": peak,
        **found,
    }


def time_tolerance(kind: str, n: int, tol: float, repeats: int) -> dict:
    """Times the path of a random model under the uniform default policy, within a tolerance and exact."""
    import lazymdp as lz

    def run(size: int, tol: float | None) -> dict:
        problem = RANDOM[kind](size)
        mdp = lz.MDP(problem.transitions, problem.rewards, GAMMA)
        return _clock(partial(lz.eta_path, mdp, problem.default, tol=tol))

    allowed = {"within": tol, "exact": None}
    for warm_up in (50, n):
        for name in allowed:
            run(warm_up, allowed[name])
    turns = [{name: run(n, allowed[name]) for name in allowed} for _ in range(repeats)]
    row = {"kind": kind, "n": n, "tol": tol}
    for name in allowed:
        row[name] = {
            "breakpoints": turns[0][name]["answer"].breakpoints.size,
            "cpu": float(np.median([turn[name]["cpu"] for turn in turns])),
        }
    row["ratio"] = float(np.median([turn["within"]["cpu"] / turn["exact"]["cpu"] for turn in turns]))
    return row


def time_world(repeats: int) -> dict:
    """Times the whole path of Key-Door-Treasure under the uniform default policy."""
    import gymnasium as gym

    import lazymdp as lz

    mdp = lz.MDP.from_gymnasium(gym.make(WORLD), WORLD_GAMMA)
    default = lz.policies.uniform(mdp)
    task = partial(lz.eta_path, mdp, default)
    first = _clock(task)
    runs = [_clock(task) for _ in range(repeats)]
    seconds = [run["seconds"] for run in runs]
    return {
        "breakpoints": len(first["answer"].breakpoints),
        "policies": len(first["answer"].start_base_values),
        "seconds": min(seconds),
        "runs": seconds,
        "warm_up": first["seconds"] - min(seconds),
    }


def _clock(task: Callable[[], object]) -> dict:
    """Runs a task and returns its wall time, its CPU time over all threads, and its answer."""
    cpu, wall = time.process_time(), time.perf_counter()
    answer = task()
    return {
        "seconds": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "answer": answer,
    }


def _fresh_process(function: Callable[..., dict], *arguments: object) -> dict:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), metavar="STATES")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the smallest arm only, two runs")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.repeats = [min(SIZES)], 2
    return options


def _cells(row: dict, rows: list[dict]) -> list[str]:
    same = [other for other in rows if other["states"] == row["states"]]
    mine = next((other["seconds"] for other in same if other["solver"] == "lazymdp"), None)
    return [
        str(row["states"]),
        row["solver"],
        report.number(row["seconds"]),
        report.number(row["cpu"]),
        report.number(row["seconds"] / mine) if mine else "-",
        f"{row['difference']:.1e}" if "difference" in row else "-",
        report.number(row["warm_up"]),
    ]


def _grid_cells(row: dict) -> list[str]:
    goal = SCALING_GOALS.get((row["n"], row["tol"]))
    met = goal is None or (row["cpu"] <= goal and row["peak_mb"] <= SCALING_MEMORY)
    return [
        f"{row['n']} x {row['n']}",
        f"{row['n'] ** 2:,}",
        "exact" if row["tol"] is None else f"{row['tol']:g}",
        f"{row['breakpoints']:,}",
        f"{row['switches']:,}",
        report.number(row["seconds"]),
        report.number(row["cpu"]),
        f"{row['peak_mb']:,.0f}",
        "-" if goal is None else report.number(goal),
        "-" if goal is None else "yes" if met else "no",
    ]


def _tolerance_cells(row: dict) -> list[str]:
    return [
        row["kind"],
        f"{row['n']:,}",
        f"{row['tol']:g}",
        *(f"{row[name]['breakpoints']:,}" for name in ("within", "exact")),
        *(report.number(row[name]["cpu"]) for name in ("within", "exact")),
        report.number(row["ratio"]),
        "yes" if row["ratio"] <= NOISE else "no",
    ]


def _world_cells(world: dict) -> list[str]:
    met = world["seconds"] < WORLD_SECONDS and world["policies"] == WORLD_POLICIES
    return [
        "Key-Door-Treasure",
        f"{world['breakpoints']}, {world['policies']} policies",
        report.number(world["seconds"]),
        f"{WORLD_POLICIES} policies, {WORLD_SECONDS} s",
        "yes" if met else "no",
        report.number(world["warm_up"]),
    ]


def _sections(
    cells: list[list[str]], world_cells: list[list[str]], grid_cells: list[list[str]], within_cells: list[list[str]]
) -> list[str]:
    return [
        f"The table shows dense random arms with two actions and discount factor {GAMMA}. Each time is the best of "
        "several runs, and each solver runs in its own process. *CPU seconds* is the sum over all threads. The peer "
        "computes the Whittle indices only. lazymdp computes the whole path: it finds every breakpoint, decides "
        "whether the arm is indexable, and supports any number of actions; the Whittle indices are one field of the "
        "result. "
        f"*Difference* is the largest difference from the peer's indices; above {AGREEMENT:.0e} the run stops. The "
        "seconds do not include *warm-up* (imports and compilation).",
        report.markdown(HEADER, cells),
        f"The whole path of `{WORLD}`, gamma {WORLD_GAMMA}, uniform default policy:",
        report.markdown(WORLD_HEADER, world_cells),
        "The path of a slippery N x N grid with one goal, gamma 0.99, uniform default policy. *Peak* is "
        "the resident memory of the whole process, about 180 MB of which are Python and packages. The goals are for "
        "CPU seconds, because other work ran on the machine.",
        report.markdown(SCALING_HEADER, grid_cells, words=1),
        "A path within a tolerance and the exact path of random models (*random*: 4 actions with 10 successors each; "
        f"*dense*: 2 actions), gamma {GAMMA}, uniform default policy, medians of several runs, made in turns. The goal "
        "is that a tolerance never takes longer, apart from 5% of noise. Where solving one price after another would "
        "take longer, a tolerance follows the exact path and bounds its error.",
        report.markdown(TOLERANCE_HEADER, within_cells, words=1),
    ]


if __name__ == "__main__":
    main()
