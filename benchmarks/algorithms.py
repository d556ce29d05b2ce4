"""Which algorithm when: dqn and pqn with their defaults, and SB3's DQN, after equal steps and after equal time.

    python benchmarks/algorithms.py                   # makes the runs that are missing, then writes the page
    python benchmarks/algorithms.py --page            # writes the page again from the runs

A run trains at price 0 on one core, then plays 100 episodes without exploration. Equal steps are those of
``benchmarks/control.py``, whose runs of dqn and of SB3 are used. For equal time, the number of steps is chosen so that
training takes at most about as long as dqn's equal steps. The Atari game was trained on a GPU: its rows come from
``results/``.
Runs are kept in ``benchmarks/results/algorithms.csv``; delete a row to make its run again.
"""

from __future__ import annotations

import environment  # noqa: F401  re-executes this script in benchmarks/.venv, before anything else is needed

# isort: split
import csv
import json
import statistics
import time

import control
import report

RUNS = report.ROOT / "benchmarks" / "results" / "algorithms.csv"
GPU_SPEED = report.ROOT / "benchmarks" / "results" / "deep_gpu.json"
SEEDS = 3
STEPS = {
    "minatar/breakout": {"dqn": 300_000, "pqn": 300_000, "sb3": 300_000, "pqn-time": 1_500_000, "sb3-time": 35_000},
    "CartPole-v1": {"pqn": 50_000, "pqn-time": 1_200_000, "sb3-time": 44_000},
    "LunarLander-v3": {"pqn": 200_000, "pqn-time": 2_000_000, "sb3-time": 53_000},
}
"""Steps of each run; `-time` marks those that take at most about as long as dqn."""
SB3_MINATAR = dict(
    learning_rate=1e-4, batch_size=32, buffer_size=100_000, learning_starts=10_000, target_update_interval=1000,
    train_freq=4, gradient_steps=1, exploration_fraction=0.1, exploration_final_eps=0.01,
    policy_kwargs={"net_arch": [256, 128]},
)  # fmt: skip
"""The zoo's settings for Atari with an MLP and a shorter start: SB3's convolutions need images of 36 pixels or more."""
ATARI_FRAMES = 4


def worker(agent: str, env: str, seed: int) -> None:
    """Makes one run and prints its rows."""
    steps, kind = STEPS[env][agent], agent.removesuffix("-time")
    rows = sb3(env, seed, steps) if kind == "sb3" else ours(kind, env, seed, steps)
    control.print_rows(agent, env, seed, steps, rows)


def ours(algorithm: str, env: str, seed: int, steps: int) -> list[dict]:
    """Trains and evaluates one of our algorithms at price 0."""
    import lazymdp as lz

    started, cpu = time.perf_counter(), time.process_time()
    trained = lz.learn.train(env, algorithm=algorithm, steps=steps, seed=seed, eta=0.0)
    times = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    returns = trained.evaluate(episodes=control.EPISODES, seed=seed).returns[0]
    spread = {"mean_return": returns.mean(), "std_return": returns.std()}
    return [{**times, "eta": 0.0, **spread, "control_rate": 1.0}]


def sb3(env: str, seed: int, steps: int) -> list[dict]:
    """Trains and evaluates SB3's DQN; MinAtar's games are the same ones as ours."""
    if not env.startswith("minatar/"):
        return control.sb3(env, seed, steps)
    import gymnasium as gym

    from lazymdp.learn.deep.factory import make_env
    from lazymdp.learn.deep.single_env import make_single

    name = "Lazymdp" + env.removeprefix("minatar/").capitalize() + "-v0"
    gym.register(name, lambda: make_single(make_env(env, n_envs=1)))
    control.ZOO[name] = SB3_MINATAR
    return control.sb3(name, seed, steps)


def atari() -> dict[str, list[str]]:
    """Returns the cells of the Atari game: training returns, from the runs in ``results/``."""
    with (report.ROOT / "results" / "dqn-dopamine" / "runs.csv").open() as file:
        wanted = ("Breakout", "dqn", "training", "10000000")
        names = ("game", "agent", "phase", "frames")
        dqn = next(row for row in csv.DictReader(file) if tuple(row[name] for name in names) == wanted)
    with (report.ROOT / "results" / "breakout" / "metrics.csv").open() as file:
        curve = [row for row in csv.DictReader(file) if float(row["eta"]) == 0.0]
    for row in curve:
        row["frames"] = ATARI_FRAMES * int(row["step"])

    def pqn(frames: int) -> str:
        near = [float(row["mean_return"]) for row in curve if 0.95 * frames <= row["frames"] <= 1.05 * frames]
        return f"{statistics.mean(near):.3g}"

    return {"dqn": f"{float(dqn['mean_return']):.3g}", "steps": pqn(10_000_000), "time": pqn(20_000_000)}


def how_equal(ratios: dict[tuple[str, str], float]) -> str:
    """Returns how equal the times in the rows of equal time are, in words.

    Args:
        ratios: dqn's time as a multiple of the time of another agent, by agent and environment.
    """
    (agent, env), largest = max(ratios.items(), key=lambda item: item[1])
    name = {"pqn": "`pqn`", "sb3": "SB3's DQN"}[agent]
    longer = sorted({where for (_, where), ratio in ratios.items() if ratio < 1.0})
    bound = f"longer than `dqn`'s on {', '.join(longer)}" if longer else "at most `dqn`'s"
    return (
        "*Equal time* is not exact, because the number of steps was set before the runs were made. The times in these "
        f"rows are {bound} and may be shorter: `dqn` took up to {largest:.2f} times as long as the agent it is "
        f"compared with ({name} on {env})."
    )


def write_page() -> None:
    """Writes the page from the runs."""
    from lazymdp.measure.statistics import mean_interval

    rows = [*control.made(RUNS), *(row for row in control.made() if row["agent"] in ("dqn", "sb3"))]
    here = {row["machine"] for row in control.made(RUNS)}  # some runs of dqn were made on another machine

    def runs_of(agent: str, env: str) -> list[dict]:
        runs = [row for row in rows if (row["agent"], row["env"]) == (agent, env)]
        return [row for row in runs if int(row["seed"]) < SEEDS and float(row["eta"]) == 0.0]

    def seconds(agent: str, env: str) -> float:
        return statistics.median(float(row["cpu_seconds"]) for row in runs_of(agent, env) if row["machine"] in here)

    def cell(agent: str, env: str) -> str:
        runs = runs_of(agent, env)
        if not runs:
            return "-"
        mean = mean_interval([float(row["mean_return"]) for row in runs])
        seeds = f"{len(runs)} seed" + "s" * (len(runs) > 1)
        return f"{mean.mean:.4g} ({int(runs[0]['steps']):,} steps, {seconds(agent, env):.0f} s, {seeds})"

    table = []
    for env in STEPS:
        table.append([env, "steps", cell("dqn", env), cell("pqn", env), cell("sb3", env)])
        table.append([env, "time", cell("dqn", env), cell("pqn-time", env), cell("sb3-time", env)])
    ratios = {
        (agent.removesuffix("-time"), env): seconds("dqn", env) / seconds(agent, env)
        for env, agents in STEPS.items()
        for agent in agents
        if agent.endswith("-time") and runs_of(agent, env)
    }
    game, speed = atari(), json.loads(GPU_SPEED.read_text())["atari"]
    table.append(["ALE/Breakout-v5", "frames", f"{game['dqn']} (10 M)", f"{game['steps']} (10 M)", ""])
    table.append(["ALE/Breakout-v5", "time", f"{game['dqn']} (10 M)", f"{game['time']} (20 M)", ""])
    sections = [
        "`lazymdp train ENV` without `--algorithm` takes `pqn` for MinAtar, whose games are compiled with the learner, "
        "and `dqn` for everything else, because `dqn` learns from far fewer steps. Where steps cost little, `pqn` "
        "makes many more of them in the same time, and may get further: see the rows of equal time. Returns at price "
        "0, means over the seeds of 100 episodes each. Times are medians of the processor time of training on one "
        "core, compilation included, on the machine named above.",
        report.markdown(["environment", "equal", "dqn", "pqn", "SB3 DQN"], table, 2),
        how_equal(ratios),
        "The row of Atari compares training returns of one seed each on an H200: `dqn` at price 0 "
        "(`results/dqn-dopamine`) and price 0 of a `pqn` dial (`results/breakout`), which is therefore at a "
        "disadvantage. `dqn` trained with the newest network choosing, which is no longer the default. Alone on that "
        f"machine, `dqn` trains at {speed['dqn']:,.0f} frames per second and `pqn` at {speed['pqn']:,.0f} "
        "(`benchmarks/results/deep_gpu.json`), hence 20 M frames in equal time. For SB3 on MinAtar, which its zoo does "
        "not have, we took the zoo's settings for Atari with an MLP.",
    ]
    made = report.circumstances(["lazymdp", "jax", "gymnasium", "stable-baselines3", "torch", "box2d", "pgx"])
    report.write("algorithms", "Which algorithm when", {"circumstances": made, "runs": RUNS.name}, sections)


def main() -> None:
    given = control.options(__doc__).parse_args()
    if given.worker:
        agent, env, seed = given.worker
        return worker(agent, env, int(seed))
    done = {(row["agent"], row["env"], int(row["seed"])) for row in control.made(RUNS)}
    jobs = [
        (agent, env, seed) for seed in range(given.seeds or SEEDS) for env, agents in STEPS.items() for agent in agents
    ]
    if not given.page:
        control.make_runs(__file__, [job for job in jobs if job not in done], given.cores, RUNS)
    write_page()


if __name__ == "__main__":
    main()
