"""Sweeps under faults: a Ray cluster whose nodes and workers are killed, the overhead of a sweep, and its scaling.

    python benchmarks/sweep.py faults --runs 40     # 40 runs of at least 10 s; about 10 minutes on two idle cores
    python benchmarks/sweep.py overhead
    python benchmarks/sweep.py scaling

Each writes its figures to ``benchmarks/results/sweep.json``, and all of them to ``docs/benchmarks/sweep.md``; what
*faults* prints is kept in ``benchmarks/results/sweep_faults.txt``. Needs ``pip install 'lazymdp[ray]'``.

*faults*: the study has both algorithms, and one of its runs has a default policy that raises an error. It is run once
on this machine by plain processes, undisturbed, and once on a Ray cluster of four nodes (separate raylets, object
stores and session folders, one of them the head). While the second runs, one node is killed (SIGKILL to all of its
processes at once) and one process that executes a run is killed (SIGKILL). All other runs must be done, the poisoned
one must be reported, and the two tables must be equal byte for byte.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import report
from lazymdp.sweep.run_sweep import Prepared, Where, run_sweep
from lazymdp.sweep.supervise import Limits

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "sweep.json"
_COMMON = """
environments = ["slow_lake:SlowLake-v0"]
steps = {steps}

[settings]
n_envs = 4
rollout = 16
hidden = [16]
reward_scale = 1.0

[settings_by_algorithm.dqn]
buffer_size = 800
learning_starts = 128
batch_size = 8
update_interval = 4

[settings_by_algorithm.pqn]
minibatches = 2

[evaluation]
prices = [0, 0.01, 0.1]
episodes = 5
max_steps = 40
"""
_LIMITS = Limits(checkpoint_seconds=2.0, hang_seconds=300.0)


def study(folder: Path, prices: list, seeds: int, steps: int, poison: bool = True) -> Path:
    """Writes a study with both algorithms, one run of which is poisoned, and returns its path."""
    text = _COMMON.format(steps=steps)
    text += f"\n[methods.dqn]\nalgorithms = ['dqn']\nprices = {prices}\nseeds = {seeds}\n"
    if prices[:-1]:
        text += f"\n[methods.pqn]\nalgorithms = ['pqn']\nprices = {prices[:-1]}\nseeds = {seeds}\n"
    left = list(range(seeds - 1 if poison else seeds))
    text += f"\n[methods.pqn_last]\nalgorithms = ['pqn']\nprices = {prices[-1:]}\nseeds = {left}\n"
    if poison:
        text += (
            f"\n[methods.poisoned]\nalgorithms = ['pqn']\nprices = {prices[-1:]}\nseeds = [{seeds - 1}]\n"
            "default_policies = ['slow_lake:poisoned']\n"
        )
    path = folder / f"study-{len(prices) * seeds * 2}.toml"
    path.write_text(text)
    return path


def cluster_of(nodes: int, cores: int):
    """Starts a Ray cluster: a head without cores, and nodes with some cores each."""
    import ray
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **small})
    for _ in range(nodes):
        cluster.add_node(num_cpus=cores, object_store_memory=80 * 2**20)
    cluster.wait_for_nodes()
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    return cluster


def stop_cluster(cluster) -> None:
    import ray

    ray.shutdown()
    cluster.shutdown()


def faults(runs: int, steps: int, workers: int, say: Callable[[str], None] = print) -> dict:
    """Runs the study on this machine and on a cluster with faults, and compares the tables."""
    prices, seeds = ([0.01, [0.01, 0.5], 0.05, 0.1], runs // 8) if runs >= 16 else ([[0.01, 0.5]], runs // 2)
    with tempfile.TemporaryDirectory(prefix="lazymdp-sweep-faults-") as scratch:
        place = Path(scratch)
        path = study(place, prices, seeds, steps)
        calm = _timed(path, place / "calm", Where(workers, limits=_LIMITS), lambda text: None)
        told = "{done} done, {set_aside} set aside, {wall:.0f} s"
        say(f"undisturbed, {workers} processes: {told.format(**calm)}")
        cluster = cluster_of(3, max(1, workers // 3))
        killed: list[str] = []
        chaos = threading.Thread(target=_disturb, args=(cluster, place / "hard", runs, killed, say), daemon=True)
        chaos.start()
        try:
            hard = _timed(path, place / "hard", Where(None, cluster.address, limits=_LIMITS), say)
        finally:
            stop_cluster(cluster)
        say(f"on a cluster with faults: {told.format(**hard)}")
        same = filecmp.cmp(place / "calm" / "results.parquet", place / "hard" / "results.parquet", shallow=False)
        reasons = list(hard.pop("reasons").values())
        calm.pop("reasons")
    found = {
        "runs": runs, "steps": steps, "shortest_run_s": calm["shortest"], "undisturbed": calm, "disturbed": hard,
        "faults": killed, "reported": reasons, "tables_equal": same,
    }  # fmt: skip
    say(f"reported: {reasons}")
    say(f"tables equal byte for byte: {'yes' if same else 'NO'}")
    return found


def _timed(path: Path, folder: Path, where: Where, say: Callable[[str], None]) -> dict:
    began = time.monotonic()
    sweep = run_sweep(Prepared(path, folder), where, tell=say)
    wall = time.monotonic() - began
    seconds = [result["seconds"] for result in sweep.results.values()]
    return {
        "wall": round(wall, 1), "done": len(sweep.results), "set_aside": len(sweep.set_aside),
        "own": round(sum(seconds), 1), "shortest": round(min(seconds), 1), "reasons": sweep.set_aside,
    }  # fmt: skip


def _disturb(cluster, folder: Path, runs: int, killed: list[str], say: Callable[[str], None]) -> None:
    """Kills a node once an eighth of the runs is done, and the process of a run once a quarter is done."""
    _wait_for(folder, max(1, runs // 8))
    nodes = [node.all_processes["raylet"][0].process.pid for node in cluster.worker_nodes]
    while not any(jobs := [_jobs_of(raylet) for raylet in nodes]):  # a node that executes runs at this moment
        time.sleep(0.2)
    raylet = nodes[jobs.index(max(jobs))]
    processes = [raylet, *_descendants(raylet)]
    for pid in processes:  # as if the machine were switched off
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    killed.append(f"SIGKILL to a node that executed {max(jobs)} runs, all {len(processes)} processes at once")
    say(f"--- {killed[-1]}")
    _wait_for(folder, max(2, runs // 4))
    workers: list[int] = []
    while not workers:
        time.sleep(0.2)
        workers = [pid for pid in _processes("lazymdp.sweep.worker") if _age(pid) > 3.0]
    os.kill(workers[0], signal.SIGKILL)
    killed.append(f"SIGKILL to the process of a run (process {workers[0]})")
    say(f"--- {killed[-1]}")


def _wait_for(folder: Path, done: int) -> None:
    while len(list(folder.glob("runs/*/result.json"))) < done:
        time.sleep(0.2)


def _processes(module: str) -> list[int]:
    """Returns the processes that run a module, started by descendants of this process only."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            mine = b"SLOW_LAKE_MARK=" + MARK.encode() in (entry / "environ").read_bytes() if command else False
        except OSError:
            continue
        if mine and module.encode() in command:
            found.append(int(entry.name))
    return sorted(found)


def _descendants(pid: int) -> list[int]:
    """Returns the processes that a process has started, and those that they have started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _jobs_of(raylet: int) -> int:
    """Returns how many runs a node executes."""
    return len({*_processes("lazymdp.sweep.worker")} & {*_descendants(raylet)})


def _age(pid: int) -> float:
    try:
        return time.time() - Path(f"/proc/{pid}").stat().st_ctime
    except OSError:
        return 0.0


def overhead(runs: int, steps: int) -> dict:
    """Compares a sweep of one worker with the same runs as one command each, and with their own time."""
    with tempfile.TemporaryDirectory(prefix="lazymdp-sweep-overhead-") as scratch:
        place = Path(scratch)
        path = study(place, [0.01], runs // 2, steps, poison=False)
        # Compile everything first, so that neither side pays for it.
        _timed(path, place / "warm", Where(2, limits=Limits()), str)
        whole = _timed(path, place / "sweep", Where(1, limits=Limits()), str)
        began = time.monotonic()
        for number, (algorithm, seed) in enumerate((a, s) for a in ("dqn", "pqn") for s in range(runs // 2)):
            own = {"dqn": "--buffer-size 800 --learning-starts 128 --batch-size 8 --update-interval 4",
                   "pqn": "--minibatches 2"}[algorithm]  # fmt: skip
            command = (
                f"train slow_lake:SlowLake-v0 --algorithm {algorithm} --seed {seed} --eta 0.01 --steps {steps} "
                f"--n-envs 4 --rollout 16 --hidden 16 --reward-scale 1.0 {own} --episodes 5 -o {place / str(number)}"
            )
            alone = os.environ | {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
            whole_command = [sys.executable, "-m", "lazymdp", *command.split()]
            subprocess.run(whole_command, check=True, capture_output=True, cwd=HERE, env=alone)
        commands = time.monotonic() - began
    whole.pop("reasons")
    return {
        "runs": runs, "steps": steps, "sweep_s": whole["wall"], "commands_s": round(commands, 1),
        "own_s": whole["own"], "more_than_commands_%": round(100.0 * (whole["wall"] / commands - 1.0), 1),
        "more_than_own_%": round(100.0 * (whole["wall"] / whole["own"] - 1.0), 1),
    }  # fmt: skip


def scaling(runs: int, steps: int) -> dict:
    """Compares one node of one core with two."""
    walls = {}
    for nodes in (1, 2):
        with tempfile.TemporaryDirectory(prefix="lazymdp-sweep-scaling-") as scratch:
            place = Path(scratch)
            path = study(place, [0.01], runs // 2, steps, poison=False)
            cluster = cluster_of(nodes, 1)
            try:
                found = _timed(path, place / "out", Where(None, cluster.address, limits=Limits()), str)
            finally:
                stop_cluster(cluster)
            walls[nodes] = found["wall"]
    return {"runs": runs, "steps": steps, "one_node_s": walls[1], "two_nodes_s": walls[2],
            "times_as_fast": round(walls[1] / walls[2], 2)}  # fmt: skip


MARK = f"{os.getpid()}-{time.time_ns()}"


def prepare() -> None:
    """Lets the processes of runs find the environment, and marks them as ours."""
    os.environ["SLOW_LAKE_MARK"] = MARK
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.path.insert(0, str(HERE))
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "lazymdp-jax-benchmark"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default 15: every other process of the machine goes first


def page(results: dict) -> None:
    """Writes the results and the page of the documentation."""
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    about_faults = __doc__.split("*faults*: ")[1].strip()
    lines = ["# Sweeps under faults", "", about_faults[0].upper() + about_faults[1:], ""]
    for name, found in results.items():
        about = found["circumstances"]
        packages = ", ".join(f"{package} {version}" for package, version in about["versions"].items())
        lines += [f"## {name.capitalize()}", ""]
        lines += [
            f"Written by `{about['command']}` on {about['date']}: {about['cpu']}, {about['cores']} cores, load average "
            f"{about['load']:g} at the start, Python {about['python']}, {packages}{about.get('settings', '')}.",
            "",
        ]
        rows = [(key.replace("_", " "), _cell(value)) for key, value in found.items() if key != "circumstances"]
        lines += [report.markdown(("", "found"), rows, 1), ""]
    lines += [NOTE]
    (HERE.parent / "docs" / "benchmarks" / "sweep.md").write_text("\n".join(lines))


NOTE = """The environment pauses for 5 ms in every step, so runs cost wall time rather than CPU time, and several nodes
fit on one machine. The figures show what the sweep adds, and not how fast networks are trained. `own` is the sum of the
wall times of the runs, from the start of training to the written result; after a fault it is that of the last attempt.
The time of a sweep includes reading and checking the study. The goals are at most 5% more than the runs' own time and
at least 1.8 times the speed with two nodes. What *faults* printed is in `benchmarks/results/sweep_faults.txt`.
"""


def _cell(value) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {entry}" for key, entry in value.items())
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return (
        "; ".join(map(str, value))
        if isinstance(value, list)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("faults", "overhead", "scaling"))
    parser.add_argument("--runs", type=int, default=0, help="number of runs: 40, 4 or 6")
    parser.add_argument("--steps", type=int, default=2_048, help="agent steps per run")
    parser.add_argument("--workers", type=int, default=6, help="runs at a time, for faults")
    given = parser.parse_args()
    prepare()
    about = report.circumstances(("jax", "ray", "lazymdp", "gymnasium")) | {"load": round(os.getloadavg()[0], 1)}
    if os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS"):
        about["settings"] = f", JAX_DISABLE_MOST_OPTIMIZATIONS={os.environ['JAX_DISABLE_MOST_OPTIMIZATIONS']}"
    good = True
    if given.what == "faults":
        runs, lines = given.runs or 40, []

        def say(text: str) -> None:
            lines.append(text)
            print(text, flush=True)

        found = faults(runs, given.steps, given.workers, say)
        good = found["tables_equal"] and all(
            (found[name]["done"], found[name]["set_aside"]) == (runs - 1, 1) for name in ("undisturbed", "disturbed")
        )
        (HERE / "results" / "sweep_faults.txt").write_text("\n".join(lines) + "\n")
    else:
        found = {"overhead": overhead, "scaling": scaling}[given.what](given.runs or 4, given.steps)
        print(json.dumps(found, indent=2))
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    page(results | {given.what: found | {"circumstances": about}})
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
