"""Checks that `method="auto"` is never much slower than the best method, on a zoo of models of every kind and size.

    python benchmarks/zoo.py                    # run everything and write the table
    python benchmarks/zoo.py --models grid-50   # the models whose names begin with this; writes nothing

Every number is the median of five runs, in seconds of CPU time on one core, so that other work on the machine matters
little. The tolerance is 1e-8 / (1 - gamma), that is 1e-8 of the largest value that rewards of 1 allow. A method that
takes much longer than the best one so far is stopped and not repeated. QuantEcon and Storm get the
explicit model, as in ``exact.py``, and solve it to the same tolerance.
"""

from __future__ import annotations

import environment  # re-executes this script in benchmarks/.venv; must come before imports of installed packages

# isort: split
import argparse
import os
import signal
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

import models
import peers
import report

METHODS = (
    "local_policy_iteration",
    "modified_policy_iteration",
    "policy_iteration",
    "gauss_seidel",
    "value_iteration",
)
REPEATS = 5
LIMIT = 60.0  # seconds for one solve
PEER_STATES = 200_000  # peers are left out above: building their models would take longer than everything else
HEADER = (
    "model",
    "states",
    "gamma",
    "auto chose",
    "auto s",
    "best s",
    "best method",
    "ratio",
    "within",
    "QuantEcon",
    "Storm",
)

MILLION = 1_000_000
ZOO: list[tuple[str, Callable[[], models.Problem], tuple[float, ...]]] = [
    ("grid-3", lambda: models.grid(3), (0.9, 0.9999)),
    ("grid-10", lambda: models.grid(10), (0.5, 0.9, 0.99, 0.999, 0.9999)),
    ("grid-50", lambda: models.grid(50), (0.5, 0.9, 0.99, 0.999, 0.9999)),
    ("grid-200", lambda: models.grid(200), (0.9, 0.99, 0.999)),
    ("grid-1000", lambda: models.grid(1000), (0.9, 0.99)),
    ("goals-1000", lambda: models.grid(1000, spacing=50), (0.9,)),
    ("chain-7", lambda: models.chain(7), (0.5, 0.9, 0.9999)),
    ("chain-100", lambda: models.chain(100), (0.9, 0.99, 0.9999)),
    ("chain-3000", lambda: models.chain(3000), (0.9, 0.999, 0.9999)),
    ("chain-1M", lambda: models.chain(MILLION), (0.99,)),
    ("stiff-100", lambda: models.chain(100, stiff=True), (0.9, 0.99, 0.9999)),
    ("stiff-3000", lambda: models.chain(3000, stiff=True), (0.9, 0.99, 0.9999)),
    ("stiff-100k", lambda: models.chain(100_000, stiff=True), (0.99, 0.999)),
    ("river-30", lambda: models.river(30), (0.99, 0.9999, 0.99999)),
    ("river-300", lambda: models.river(300), (0.99, 0.999, 0.9999, 0.99999)),
    ("river-1000", lambda: models.river(1000), (0.99, 0.999, 0.9999)),
    ("river-3000", lambda: models.river(3000), (0.99, 0.999, 0.9999, 0.99999)),
    ("ring-3000", lambda: models.ring(3000), (0.99, 0.999, 0.99999)),
    ("oneway-1000", lambda: models.ring(1000, one_way=True), (0.99, 0.9999, 0.99999)),
    ("oneway-3000", lambda: models.ring(3000, one_way=True), (0.999, 0.99999)),
    ("queue-3000", lambda: models.queue(3000), (0.99, 0.9999, 0.99999)),
    ("random-5", lambda: models.random_sparse(5), (0.9, 0.9999)),
    ("random-100", lambda: models.random_sparse(100), (0.5, 0.9, 0.99, 0.9999)),
    ("random-1000", lambda: models.random_sparse(1000), (0.5, 0.9, 0.99, 0.999, 0.9999)),
    ("random-10k", lambda: models.random_sparse(10_000), (0.5, 0.9, 0.99, 0.9999)),
    ("random-100k", lambda: models.random_sparse(100_000), (0.9, 0.99, 0.999)),
    ("random-1M", lambda: models.random_sparse(MILLION, 2, 3), (0.9,)),
    ("cycles-1000", lambda: models.random_sparse(1000, 3, 1), (0.9, 0.999, 0.9999)),
    ("absorbed-7", lambda: models.absorbed(7), (0.9, 0.999, 0.9999)),
    ("absorbed-1000", lambda: models.absorbed(1000), (0.9, 0.999, 0.9999)),
    ("blocks-200", lambda: models.blocks(200), (0.9, 0.99, 0.9999)),
    ("blocks-2000", lambda: models.blocks(2000), (0.9, 0.99, 0.999, 0.9999)),
    ("blocks-100k", lambda: models.blocks(100_000), (0.9, 0.99)),
    ("dense-100", lambda: models.dense(100), (0.9, 0.9999)),
    ("dense-1000", lambda: models.dense(1000), (0.5, 0.99, 0.9999)),
]


class Late(Exception):
    """A solve has taken longer than it may."""


def main() -> None:
    options = _options()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    signal.signal(signal.SIGALRM, _late)
    warnings.simplefilter("ignore")
    _warm_up()
    rows = [run(*case, options.peers) for case in _cases(options.models)]
    cells = [_cells(row) for row in rows]
    report.show("auto against every method, CPU seconds", HEADER, cells, words=1)
    met = sum(row["within"] for row in rows)
    print(f"{met} of {len(rows)} within 2 times of the best method, or within 5 ms of it")
    if options.models or not options.peers:
        print("partial run: nothing written")
        return
    packages = ["lazymdp", "quantecon", "stormpy", "numpy", "scipy", "numba"]
    results = {"circumstances": report.circumstances(packages), "rows": rows}
    report.write("zoo", "The automatic choice of the method", results, _sections(cells, met))


def _cases(prefixes: list[str]) -> Iterator[tuple[str, models.Problem]]:
    for name, build, gammas in ZOO:
        if not prefixes or any(name.startswith(prefix) for prefix in prefixes):
            problem = build()
            for gamma in gammas:
                yield name, replace(problem, gamma=gamma)


def run(name: str, problem: models.Problem, with_peers: bool) -> dict:
    """Times every method, auto and the peers on one model."""
    import lazymdp as lz

    mdp = lz.MDP(problem.transitions, problem.rewards, problem.gamma)
    lazy = lz.LazyMDP(mdp, problem.default, problem.eta)
    tol = 1e-8 / (1.0 - problem.gamma)
    best, seconds = LIMIT, {}
    for method in METHODS:
        # Dense factors of large random models: hours.
        if method == "policy_iteration" and mdp.n_states > 3000:
            continue
        seconds[method] = _median(lambda method=method: lz.solve(lazy, tol, method=method), 2.5 * best)
        best = min(best, seconds[method])
    chosen = {}
    mine = _median(lambda: chosen.setdefault("solution", lz.solve(lazy, tol)), LIMIT)
    winner = min(seconds, key=seconds.get)
    row = {
        "model": name,
        "states": mdp.n_states,
        "gamma": problem.gamma,
        "method": chosen["solution"].method,
        "converged": chosen["solution"].converged,
        "auto": mine,
        "seconds": {method: value for method, value in seconds.items() if value < np.inf},
        "best": seconds[winner],
        "winner": winner,
        "within": mine <= max(2.0 * seconds[winner], seconds[winner] + 0.005),
    }
    if with_peers and mdp.n_states <= PEER_STATES:
        row["peers"] = {key: _peer(key, problem, tol, max(10 * mine, 0.5)) for key in ("quantecon", "storm")}
    print(_cells(row), flush=True)
    return row


def _peer(key: str, problem: models.Problem, tol: float, limit: float) -> float | None:
    """Returns the seconds of a peer's fastest settings, or None if it fails or takes longer than the limit."""
    package = peers.SOLVERS[key].package
    if package in environment.failures():
        return None
    peers.TOL = tol
    times = []
    try:
        solver = peers.SOLVERS[key]()
        solver.build(models.explicit(problem))
        for variant in solver.variants:
            solver.prepare(variant)
            times.append(_median(lambda variant=variant: solver.solve(variant), limit, repeats=3))
            limit = min(limit, times[-1])
    except Exception as error:
        print(f"{key}: {type(error).__name__}: {error}")
    fastest = min(times, default=np.inf)
    return fastest if fastest < np.inf else None


def _median(task: Callable[[], object], limit: float, repeats: int = REPEATS) -> float:
    """Returns the median CPU time of a task; inf if a run takes longer than twice `limit` seconds by the clock."""
    times = []
    for _ in range(repeats):
        signal.setitimer(
            signal.ITIMER_REAL, max(2.0 * limit, 0.05)
        )  # wall time: timers of CPU time make its clock coarse
        start = time.process_time()
        try:
            task()
            times.append(time.process_time() - start)
        except (Late, SystemError):  # Numba turns an exception in a signal handler into a SystemError
            return np.inf
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
    return statistics.median(times)


def _late(*_: object) -> None:
    raise Late


def _warm_up() -> None:
    import lazymdp as lz

    for problem in (models.grid(8), models.random_sparse(200), models.random_sparse(300, 3, 1), models.blocks(200)):
        for gamma in (0.9, 0.9999):
            mdp = lz.MDP(problem.transitions, problem.rewards, gamma)
            for method in (*METHODS, "auto"):
                lz.solve(lz.LazyMDP(mdp, problem.default, problem.eta), 1e-4, method=method)
    for key in ("quantecon", "storm"):
        _peer(key, models.grid(8), 1e-6, 60.0)


def _cells(row: dict) -> list[str]:
    found = row.get("peers", {})
    return [
        row["model"],
        f"{row['states']:,}",
        f"{row['gamma']:g}",
        row["method"],
        report.number(row["auto"]),
        report.number(row["best"]),
        row["winner"],
        report.number(row["auto"] / row["best"]),
        "yes" if row["within"] else "no",
        *(report.number(found[key] / row["auto"]) if found.get(key) else "-" for key in ("quantecon", "storm")),
    ]


def _sections(cells: list[list[str]], met: int) -> list[str]:
    return [
        "Median of five runs, in seconds of CPU time on one core. *Best* is the fastest of the five methods. *Within* "
        "says whether `auto` takes at most twice as long as the best method, or at most 5 ms longer: "
        f"{met} of {len(cells)} models. The last columns have the time of QuantEcon and Storm divided by that of "
        "`auto`, for the fastest of their settings and the same proven error (a dash: not run above "
        f"{PEER_STATES:,} states, failed, or stopped after 1 s or 20 times as long). The tolerance is "
        "1e-8 / (1 - gamma). `benchmarks/models.py` has the models.",
        report.markdown(HEADER, cells, words=1),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=[], help="prefixes of the names of models")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    main()
