"""Which of dqn's defaults for control problems matter: one is changed at a time.

    python benchmarks/ablations.py                              # makes the runs that are missing, writes the page
    python benchmarks/ablations.py --variants unscaled_rewards  # makes only some of the runs
    python benchmarks/ablations.py --page                       # writes the page again from the runs

A run trains at price 0 on one core, then plays 100 episodes without exploration, like those of
``benchmarks/control.py``, whose runs of ``dqn`` are the base. A rule is tried only where it changes something: the unit
of rewards on LunarLander (elsewhere it is 1), the scale of observations on MountainCar (whose velocity is below 0.1).
Runs are kept in ``benchmarks/results/ablations.csv``; delete a row to make its run again.
"""

from __future__ import annotations

import environment  # noqa: F401  re-executes this script in benchmarks/.venv, before anything else is needed

# isort: split
import time
from typing import Any

import control
import report

RUNS = report.ROOT / "benchmarks" / "results" / "ablations.csv"
SEEDS = 3
ENVS = ("CartPole-v1", "MountainCar-v0", "LunarLander-v3")
VARIANTS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "no_layer_norm": ("no layer norm", dict(layer_norm=False), ENVS),
    "squared_error": ("the squared error instead of the Huber loss", dict(huber=False), ENVS),
    "half_the_updates": ("one update per two steps", dict(update_interval=2), ENVS),
    "fewer_copies": ("a hundred copies to the target network", {}, ENVS),
    "single_random_actions": ("random actions do not last", dict(exploration_persistence=0.0), ENVS),
    "constant_step": ("a constant step size", dict(final_learning_rate=None), ENVS),
    "unscaled_rewards": ("rewards without a unit", dict(reward_scale=1.0), ("LunarLander-v3",)),
    "unscaled_observations": ("observations as they are", {}, ("MountainCar-v0",)),
}
"""What each variant changes, in words and as settings, and where it is tried."""


def worker(variant: str, env: str, seed: int) -> None:
    """Makes one run and prints its rows."""
    import lazymdp as lz

    steps, settings = control.STEPS[env], dict(VARIANTS[variant][1])
    if variant == "fewer_copies":
        settings["target_update_interval"] = steps // 100
    made = unbounded(env) if variant == "unscaled_observations" else env
    started, cpu = time.perf_counter(), time.process_time()
    trained = lz.learn.train(made, algorithm="dqn", steps=steps, seed=seed, eta=0.0, **settings)
    times = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    returns = trained.evaluate(episodes=control.EPISODES, seed=seed).returns[0]
    row = {**times, "eta": 0.0, "mean_return": returns.mean(), "std_return": returns.std(), "control_rate": 1.0}
    control.print_rows(variant, env, seed, steps, [row])


def unbounded(env: str):
    """Returns a factory of the environment without bounds on its observations, so that nothing is scaled by them."""
    import gymnasium as gym
    import numpy as np

    def make(**options):
        made = gym.make(env, **options)
        space = gym.spaces.Box(-np.inf, np.inf, made.observation_space.shape, np.float32)
        return gym.wrappers.TransformObservation(made, lambda seen: seen, space)

    return make


def write_page(rows: list[dict]) -> None:
    """Writes the page from the runs."""
    from lazymdp.measure.statistics import iqm_interval

    def cell(agent: str, env: str, made: list[dict]) -> str:
        found = [float(row["mean_return"]) for row in made if (row["agent"], row["env"]) == (agent, env)]
        if not found:
            return ""
        interval = iqm_interval(found)
        spread = f" [{interval.low:.4g}, {interval.high:.4g}]" if len(found) > 1 else ""
        return f"{interval.mean:.4g}{spread} ({len(found)})"

    base = ["the defaults", *(cell("dqn", env, control.made()) for env in ENVS)]
    run = {row["agent"] for row in rows}
    named = [(name, words) for name, (words, _, _) in VARIANTS.items() if name in run]
    table = [base, *([words, *(cell(name, env, rows) for env in ENVS)] for name, words in named)]
    sections = [
        "The settings that `DQNConfig.control()` changes, one taken back at a time: `dqn` at price 0 with the steps of "
        "[control problems](control.md), whose runs are the first row. Interquartile means over the seeds (their "
        "number in parentheses) with 95% bootstrap intervals. A cell is empty if the setting changes nothing there: "
        "the unit of rewards is 1 on CartPole and MountainCar, and only MountainCar has observations that are scaled. "
        "The runs of the first row come from a faster machine, so returns can be compared, but not times."
        + (" The other settings have not been run." if len(named) < len(VARIANTS) else ""),
        report.markdown(["changed", *ENVS], table, 1),
    ]
    made = report.circumstances(["lazymdp", "jax", "gymnasium", "box2d"])
    report.write("ablations", "Defaults for control problems, one by one", {"circumstances": made}, sections)


def main() -> None:
    parser = control.options(__doc__)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    given = parser.parse_args()
    if given.worker:
        variant, env, seed = given.worker
        return worker(variant, env, int(seed))
    done = {(row["agent"], row["env"], int(row["seed"])) for row in control.made(RUNS)}
    jobs = [
        (name, env, seed)
        for seed in range(given.seeds or SEEDS)
        for name in given.variants
        for env in VARIANTS[name][2]
    ]
    if not given.page:
        control.make_runs(__file__, [job for job in jobs if job not in done], given.cores, RUNS)
    write_page(control.made(RUNS))


if __name__ == "__main__":
    main()
