"""Control problems: our dqn with its defaults against the DQN of Stable-Baselines3 with its zoo's settings.

    python benchmarks/control.py                        # makes the runs that are missing, then writes the page
    python benchmarks/control.py --agents sb3 --seeds 3 # only some of the runs
    python benchmarks/control.py --page                 # writes the page again from the runs

Agents: ``dqn`` and ``sb3`` at price 0; ``dial``; and ``net``, a dial whose return after the price is evaluated by
lazymdp and, in the rows of ``net-sb3``, by Stable-Baselines3.

Every run is a process of its own on one core, two at a time. It trains, then plays 100 episodes with the final network
without exploration. A run that has been made is kept in ``benchmarks/results/control.csv``; delete its row to make it
again. The rules: ``benchmarks/README.md``.
"""

from __future__ import annotations

import environment  # noqa: F401  re-executes this script in benchmarks/.venv, before anything else is needed

# isort: split
import argparse
import csv
import functools
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import report

STEPS = {
    "CartPole-v1": 50_000,
    "Acrobot-v1": 100_000,
    "LunarLander-v3": 200_000,
    "MountainCar-v0": 120_000,
    "FrozenLake-v1": 50_000,
}
EPISODES = 100
NET_ENV, NET_ETAS = "CartPole-v1", (0.1, 0.5, 2.0)
"""Where, and at which prices, lazymdp and Stable-Baselines3 evaluate the same dial."""
RUNS = report.ROOT / "benchmarks" / "results" / "control.csv"
FIELDS = (
    "agent", "env", "seed", "steps", "seconds", "cpu_seconds", "eta", "mean_return", "std_return", "control_rate",
    "machine",
)  # fmt: skip

_WIDE = {"policy_kwargs": {"net_arch": [256, 256]}}
_LANDER = dict(
    learning_rate=6.3e-4, batch_size=128, buffer_size=50_000, learning_starts=0, gamma=0.99, target_update_interval=250,
    train_freq=4, gradient_steps=-1, exploration_fraction=0.12, exploration_final_eps=0.1, **_WIDE,
)  # fmt: skip
_CART = dict(
    learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99,
    target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16,
    exploration_final_eps=0.04, **_WIDE,
)  # fmt: skip
ZOO = {
    "CartPole-v1": _CART,
    "Acrobot-v1": _LANDER,
    "LunarLander-v3": _LANDER,
    "MountainCar-v0": dict(
        learning_rate=4e-3, batch_size=128, buffer_size=10_000, learning_starts=1000, gamma=0.98,
        target_update_interval=600, train_freq=16, gradient_steps=8, exploration_fraction=0.2,
        exploration_final_eps=0.07, **_WIDE,
    ),
    "FrozenLake-v1": _CART,  # the zoo has no settings for it; those of CartPole are its other short problem
}  # fmt: skip
"""Settings of SB3's DQN in its zoo (rl-baselines3-zoo, hyperparams/dqn.yml)."""


def sb3(env: str, seed: int, steps: int) -> list[dict]:
    """Trains and evaluates SB3's DQN with its zoo's settings."""
    import gymnasium as gym
    import numpy as np
    import torch
    from stable_baselines3 import DQN
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    torch.set_num_threads(1)
    model = DQN("MlpPolicy", gym.make(env), seed=seed, device="cpu", **ZOO[env])
    started, cpu = time.perf_counter(), time.process_time()
    model.learn(steps)
    times = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    played = Monitor(gym.make(env))
    played.reset(seed=10_000 + seed)
    returns, _ = evaluate_policy(model, played, EPISODES, return_episode_rewards=True)
    return [{**times, "eta": 0.0, "mean_return": np.mean(returns), "std_return": np.std(returns), "control_rate": 1.0}]


def worker(agent: str, env: str, seed: int) -> None:
    """Makes one run and prints its rows."""
    steps = STEPS[env] * (2 if agent == "dial" else 1)
    make = {"sb3": sb3, "net": net_returns}.get(agent, functools.partial(ours, agent))
    rows = make(env, seed, steps)
    print_rows(agent, env, seed, steps, rows)


def print_rows(agent: str, env: str, seed: int, steps: int, rows: list[dict]) -> None:
    """Prints the rows of a run for the process that started it."""
    head = {"agent": agent, "env": env, "seed": seed, "steps": steps, "machine": report.machine()}
    texts = [{k: v if isinstance(v, str) else round(float(v), 5) for k, v in row.items()} for row in rows]
    print("\n" + json.dumps([{**head, **row} for row in texts]))


def ours(agent: str, env: str, seed: int, steps: int) -> list[dict]:
    """Trains and evaluates lazymdp's dqn, at price 0 or as a dial, with its defaults."""
    import lazymdp as lz

    started, cpu = time.perf_counter(), time.process_time()
    price = {"eta": 0.0} if agent == "dqn" else {}
    trained = lz.learn.train(env, algorithm="dqn", steps=steps, seed=seed, **price)
    times = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    played = trained.evaluate(episodes=EPISODES, seed=seed)
    rows = [_row(times, eta, played, place) for place, eta in enumerate(played.etas)]
    return rows if agent == "dqn" else [*rows, _row(times, math.inf, played.default_alone, 0)]


def net_returns(env: str, seed: int, steps: int) -> list[dict]:
    """Trains a dial and evaluates its return after the price, with lazymdp and with SB3's `evaluate_policy`."""
    import lazymdp as lz

    started, cpu = time.perf_counter(), time.process_time()
    agent = lz.learn.train(env, algorithm="dqn", steps=steps, seed=seed)
    times = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    return net_rows(agent, env, seed, times)


def net_rows(agent, env: str, seed: int, times: dict) -> list[dict]:
    """Returns the rows of a trained dial: from lazymdp and from SB3, at each price."""
    import gymnasium as gym
    import numpy as np
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    rows = []
    for eta in NET_ETAS:
        played = agent.evaluate([eta], episodes=EPISODES, seed=seed)
        wrapped = agent.wrap(gym.make(env), eta)
        wrapped.reset(seed=10_000 + seed)
        theirs, _ = evaluate_policy(agent.at(eta), Monitor(wrapped), EPISODES, return_episode_rewards=True)
        rate = {"control_rate": played.control_rate[0]}
        for name, returns in (("net", played.net_returns[0]), ("net-sb3", np.array(theirs))):
            spread = {"mean_return": returns.mean(), "std_return": returns.std(ddof=1)}
            rows.append({"agent": name, **times, "eta": eta, **spread, **(rate if name == "net" else {})})
    return rows


def _row(times: dict, eta: float, played, place: int) -> dict:
    returns = played.returns[place]
    spread = {"mean_return": returns.mean(), "std_return": returns.std()}
    return {**times, "eta": eta, **spread, "control_rate": played.control_rate[place]}


def make_runs(script: str, jobs: list[tuple[str, str, int]], cores: list[int], runs: Path) -> None:
    """Makes the runs with a script's workers, one per core at a time, and adds their rows to a file as they end."""
    running: dict[int, tuple[tuple[str, str, int], subprocess.Popen]] = {}
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    while jobs or running:
        for core in cores:
            if core not in running and jobs:
                job = jobs.pop(0)
                command = ["taskset", "-c", str(core), sys.executable, script, "--worker", *map(str, job)]
                running[core] = job, subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)
        for core, (job, process) in list(running.items()):
            if process.poll() is None:
                continue
            del running[core]
            output = process.stdout.read()
            if process.returncode:
                raise SystemExit(f"{job} ended with {process.returncode}:\n{output}")
            rows = json.loads(output.strip().splitlines()[-1])
            add_rows(rows, runs)
            print(
                *(f"{row[k]}" for row in rows[:1] for k in ("agent", "env", "seed", "seconds", "mean_return")),
                flush=True,
            )
        time.sleep(0.2)


def add_rows(rows: list[dict], runs: Path) -> None:
    """Appends rows to a file of runs."""
    new = not runs.exists()
    with runs.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows(rows)


def made(runs: Path = RUNS) -> list[dict]:
    """Returns the rows of all runs made so far."""
    if not runs.exists():
        return []
    with runs.open() as file:
        return list(csv.DictReader(file))


def write_page(rows: list[dict]) -> None:
    """Writes the page from the runs."""
    from lazymdp.measure.statistics import iqm_interval, mean_interval

    def found(agent: str, env: str, eta: float = 0.0) -> list[dict]:
        return [row for row in rows if (row["agent"], row["env"], float(row["eta"])) == (agent, env, eta)]

    def column(chosen: list[dict], name: str) -> list[float]:
        return [float(row[name]) for row in chosen]

    def shown(interval) -> str:
        one = interval.low == interval.high
        return f"{interval.mean:.4g}" if one else f"{interval.mean:.4g} [{interval.low:.4g}, {interval.high:.4g}]"

    def times(seconds: list[float]) -> str:
        counted = "1 run" if len(seconds) == 1 else f"{len(seconds)} runs, {min(seconds):.0f} to {max(seconds):.0f}"
        return f"{statistics.median(seconds):.0f} ({counted})"

    plain, dial, frontier, behind, theirs = [], [], [], [], []
    for env, steps in STEPS.items():
        runs = {agent: found(agent, env) for agent in ("dqn", "sb3", "dial")}
        iqm = {agent: iqm_interval(column(made, "mean_return")) for agent, made in runs.items() if made}
        here = {row["machine"] for row in runs["sb3"]}  # times are compared on the machine that made the peer's runs
        timed = {agent: [row for row in made if row["machine"] in here] for agent, made in runs.items()}
        seconds = {agent: column(made, "cpu_seconds") for agent, made in timed.items() if made}
        if "dqn" in iqm and "sb3" in iqm:
            worse = iqm["dqn"].mean < iqm["sb3"].low
            difference = iqm["sb3"].mean - iqm["dqn"].mean
            if difference > 0.0:
                behind.append(f"{env}, by {difference:.3g}")
            theirs.append(f"{env} {', '.join(f'{one:.4g}' for one in sorted(column(runs['sb3'], 'mean_return')))}")
            plain.append(
                [env, f"{steps:,}", f"{shown(iqm['dqn'])} ({len(runs['dqn'])})",
                 f"{shown(iqm['sb3'])} ({len(runs['sb3'])})", "no" if worse else "yes", times(seconds["dqn"]),
                 times(seconds["sb3"]), f"{statistics.median(seconds['sb3']) / statistics.median(seconds['dqn']):.1f}"]
            )  # fmt: skip
        if "dqn" in iqm and "dial" in iqm:
            etas = sorted({float(row["eta"]) for row in rows if (row["agent"], row["env"]) == ("dial", env)})
            at = {eta: found("dial", env, eta) for eta in etas}
            means = {eta: mean_interval(column(made, "mean_return")) for eta, made in at.items()}
            rises = any(means[b].low > means[a].high for a, b in itertools.combinations(etas[:-1], 2))
            top = etas[-2]
            same = means[top].low <= means[math.inf].high and means[math.inf].low <= means[top].high
            within = iqm["dial"].mean >= iqm["dqn"].mean - 0.05 * abs(iqm["dqn"].mean)
            dial.append(
                [env, f"{2 * steps:,}", f"{shown(iqm['dial'])} ({len(runs['dial'])})", shown(iqm["dqn"]),
                 "yes" if within else "no", "one seed" if len(runs["dial"]) < 2 else "no" if rises else "yes",
                 f"{means[top].mean:.4g} at {statistics.mean(column(at[top], 'control_rate')):.1%} control",
                 f"{means[math.inf].mean:.4g}", "yes" if same else "no"]
            )  # fmt: skip
            for eta in etas:
                name = "the default alone" if math.isinf(eta) else f"{eta:g}"
                rate = statistics.mean(column(at[eta], "control_rate"))
                frontier.append([env, name, shown(means[eta]), f"{rate:.1%}"])
    sections = [
        "Every run uses one core and no other: training, then 100 episodes with the final network and without "
        "exploration. lazymdp uses its defaults, the DQN of Stable-Baselines3 the settings of its zoo (for FrozenLake, "
        "which the zoo does not have, those of CartPole). Returns are interquartile means over the seeds (their number "
        "in parentheses) with 95% bootstrap intervals; with two seeds, the interval extends from one to the other. "
        "Most of our runs of `dqn` were made on a machine with 16 cores. Times are medians over the runs on the "
        "machine that made SB3's, with the number of these runs and their range in parentheses: processor time of "
        "training on one core, compilation included, which is the elapsed time of a run that has a core to itself. "
        "(The elapsed times in the file of runs mean nothing, because the machine was not idle and runs were paused.) "
        "Our defaults were chosen in trial runs on the same environments "
        "and partly the same seeds (`benchmarks/results/control_sweeps.csv`); the zoo's settings were tuned on these "
        "environments, too.",
        "## dqn at price 0",
        "*No worse*: our mean is not below the interval of SB3's. With three seeds, that interval extends from SB3's "
        f"worst run to its best, so this is a weak test. SB3's runs, one by one: {'; '.join(theirs)}."
        + (f" SB3's mean is higher on {' and '.join(behind)}." if behind else ""),
        report.markdown(
            ["environment", "steps", "lazymdp dqn", "SB3 DQN", "no worse", "our s", "SB3's s", "times faster"], plain, 1
        ),
    ]  # fmt: skip
    if dial:
        sections += [
            "## The dial",
            "One network for a range of prices, with twice the steps. *Falls*: at no price is the return higher than "
            "at a lower one, beyond the intervals. *Same*: at the highest price, the agent's return is that of the "
            "default policy alone, up to the intervals. These two columns and the frontiers below use means over the "
            "dial's seeds (their number in parentheses) instead of interquartile means.",
            report.markdown(
                ["environment", "steps", "dial at price 0", "dqn", "within 5%", "falls", "highest price",
                 "default alone", "same"], dial, 1
            ),
            "### Frontiers",
            report.markdown(["environment", "eta", "return", "control rate"], frontier, 2),
        ]  # fmt: skip
    else:
        sections += ["## The dial", "Not run yet with the present settings."]
    sections += _net_sections(rows)
    made = report.circumstances(["lazymdp", "jax", "gymnasium", "stable-baselines3", "torch", "box2d"])
    report.write("control", "Control problems", {"circumstances": made, "runs": RUNS.name}, sections)


def _net_sections(rows: list[dict]) -> list[str]:
    """Returns the part of the page that compares lazymdp's evaluation of a dial with SB3's."""
    at = {(row["agent"], float(row["eta"])): row for row in rows if row["agent"] in ("net", "net-sb3")}
    if not at:
        return []

    def interval(agent: str, eta: float) -> tuple[float, float]:
        mean, deviation = (float(at[agent, eta][name]) for name in ("mean_return", "std_return"))
        return mean - 1.96 * deviation / EPISODES**0.5, mean + 1.96 * deviation / EPISODES**0.5

    table = []
    for eta in NET_ETAS:
        ours, theirs = (interval(agent, eta) for agent in ("net", "net-sb3"))
        cells = [
            f"{float(at[agent, eta]['mean_return']):.4g} [{low:.4g}, {high:.4g}]"
            for agent, (low, high) in (("net", ours), ("net-sb3", theirs))
        ]
        overlap = ours[0] <= theirs[1] and theirs[0] <= ours[1]
        rate = f"{float(at['net', eta]['control_rate']):.1%}"
        table.append([NET_ENV, f"{eta:g}", rate, *cells, "yes" if overlap else "no"])
    return [
        "## Evaluated by Stable-Baselines3",
        f"The return after the price (return - eta x controls) of a dial on {NET_ENV}, from `agent.evaluate` and from "
        f"`evaluate_policy(agent.at(eta), agent.wrap(env, eta), {EPISODES})` of Stable-Baselines3, which sees only the "
        f"rewards of the wrapped environment. Means over {EPISODES} episodes each, which are not the same ones, with "
        "95% intervals.",
        report.markdown(
            ["environment", "eta", "control rate", "agent.evaluate", "evaluate_policy", "overlap"], table, 2
        ),
    ]


def options(description: str | None) -> argparse.ArgumentParser:
    """Returns a parser with the options of every benchmark that makes runs."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--cores", nargs="+", type=int, default=sorted(os.sched_getaffinity(0)))
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--agents", nargs="+", default=["dqn", "dial", "sb3", "net"])
    parser.add_argument("--envs", nargs="+", default=list(STEPS))
    given = parser.parse_args()
    if given.worker:
        agent, env, seed = given.worker
        return worker(agent, env, int(seed))
    counts = {"dqn": 10, "dial": 5, "sb3": 3, "net": 1}
    done = {(row["agent"], row["env"], int(row["seed"])) for row in made()}
    wanted = [
        (agent, env, seed)
        for seed in range(max(counts.values()))
        for env in given.envs
        for agent in given.agents
        if seed < (given.seeds or counts[agent]) and (agent, env, seed) not in done
        if agent != "net" or env == NET_ENV
    ]
    if not given.page:
        make_runs(__file__, wanted, given.cores, RUNS)
    write_page(made())


if __name__ == "__main__":
    main()
