"""Steps of tabular Q-learning a second on Key-Door-Treasure: ours, a Python loop, a package, and the bare limit.

    python benchmarks/tabular.py            # everything, writes the tables
    python benchmarks/tabular.py --quick    # without the full experiment, writes nothing

What is measured, and the rules: ``benchmarks/README.md``.
"""

from __future__ import annotations

import environment  # noqa: F401  re-executes this script in benchmarks/.venv, before anything else is needed

# isort: split
import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import numba
import numpy as np

import lazymdp as lz
import report
from lazymdp.envs import KeyDoorTreasure
from lazymdp.learn import q_learning

ETA, GAMMA, ALPHA, EPSILON, MAX_STEPS = 0.03, 0.99, 0.5, 0.1, 1_000
EPISODES = 100_000
GOALS = {"python": 300.0, "bare": 2.0, "cores": 1.8}


def python_loop(episodes: int) -> int:
    """What one writes first: numpy tables, a loop through the environment, the paper's augmented backup."""
    env = gym.make("lazymdp/KeyDoorTreasure-v0", apple=True)
    rng = np.random.default_rng(0)
    n_actions = int(env.action_space.n)
    q = np.zeros((env.observation_space.n, n_actions + 1))
    steps = 0
    for episode in range(episodes):
        epsilon = EPSILON * (1 - episode / episodes)
        state, _ = env.reset(seed=0 if episode == 0 else None)
        for _ in range(MAX_STEPS):
            if rng.random() < epsilon:
                choice = int(rng.integers(n_actions + 1))
            else:
                choice = n_actions if q[state, -1] >= q[state, :-1].max() else int(q[state, :-1].argmax())
            action = choice if choice < n_actions else int(rng.integers(n_actions))
            following, reward, terminated, truncated, _ = env.step(action)
            price = ETA if choice < n_actions else 0.0
            target = reward - price + GAMMA * (0.0 if terminated else q[following].max())
            q[state, choice] += ALPHA * (target - q[state, choice])
            steps += 1
            state = following
            if terminated or truncated:
                break
    return steps


def toolbox(mdp: lz.MDP, steps: int) -> tuple[int, float]:
    """Steps and seconds of pymdptoolbox's QLearning on the explicit model: one step an iteration."""
    import mdptoolbox.mdp

    explicit = lz.LazyMDP(mdp, lz.policies.uniform(mdp), ETA).to_mdp()
    shape = (explicit.n_states, explicit.n_actions, explicit.n_states)
    transitions = np.ascontiguousarray(explicit.transitions.toarray().reshape(shape).transpose(1, 0, 2))
    learner = mdptoolbox.mdp.QLearning(transitions, np.array(explicit.rewards), GAMMA, n_iter=steps)
    started = time.perf_counter()
    learner.run()
    return steps, time.perf_counter() - started


@numba.njit(cache=True)
def bare(next_state: np.ndarray, absorbing: np.ndarray, start: int, steps: int, stream: np.ndarray) -> int:
    """Transitions and random numbers (the same generator as ours), and nothing else."""
    a, b = stream[0], stream[1]
    four, state, ended = np.uint64(4), np.uint64(start), 0
    for _ in range(steps):
        bits = a + b
        b ^= a
        a = ((a << np.uint64(24)) | (a >> np.uint64(40))) ^ b ^ (b << np.uint64(16))
        b = (b << np.uint64(37)) | (b >> np.uint64(27))
        following = np.uint64(next_state[state * four + (((bits & np.uint64(0xFFFFFFFF)) * four) >> np.uint64(32))])
        if absorbing[following]:
            ended += 1
            state = np.uint64(start)
        else:
            state = following
    return ended


def best(task: Callable[[], int], repeats: int) -> tuple[float, int]:
    """Steps a second, best of several, after one run to warm up; and the steps of a run."""
    task()
    rates = []
    for _ in range(repeats):
        started = time.perf_counter()
        steps = task()
        rates.append(steps / (time.perf_counter() - started))
    return max(rates), steps


def measure(repeats: int) -> list[dict]:
    """Every row of the table."""
    mdp = lz.MDP.from_gymnasium(KeyDoorTreasure(apple=True), GAMMA)
    only = mdp.transitions.indices.astype(np.uint32)  # deterministic: one successor a row
    stream, start = np.array([1, 2], dtype=np.uint64), int(mdp.start.argmax())
    rows = []

    def add(name: str, task: Callable[[], int], repeats: int = repeats) -> None:
        rate, steps = best(task, repeats)
        rows.append({"solver": name, "steps_per_second": rate, "steps": steps})
        print(f"{name}: {rate / 1e6:.3g} M steps/s", flush=True)

    def ours(backup: str, seeds: int, workers: int) -> int:
        options = dict(alpha=ALPHA, epsilon=EPSILON, episodes=EPISODES, max_steps=MAX_STEPS)
        return q_learning(mdp, None, ETA, backup=backup, seed=range(seeds), workers=workers, **options).steps

    for backup in ("augmented", "structured"):
        for workers in (1, 2):
            add(f"lazymdp {backup}, {workers} core{'s' * (workers > 1)}", lambda b=backup, w=workers: ours(b, 4, w))
    add("bare numba loop", lambda: bare(only, mdp.absorbing, start, 50_000_000, stream) * 0 + 50_000_000)
    add("Python loop through Gymnasium", lambda: python_loop(2_000), 2)
    steps, seconds = toolbox(mdp, 100_000)
    rows.append({"solver": "pymdptoolbox QLearning", "steps_per_second": steps / seconds, "steps": steps})
    print(f"pymdptoolbox: {steps / seconds / 1e6:.3g} M steps/s", flush=True)
    return rows


def figure_7() -> dict:
    """The whole experiment: 100 seeds x 100,000 episodes x 3 prices."""
    world = KeyDoorTreasure(apple=True)
    mdp = lz.MDP.from_gymnasium(world, GAMMA)
    options = dict(
        alpha=ALPHA, epsilon=EPSILON, episodes=EPISODES, max_steps=MAX_STEPS, seed=range(100), backup="augmented"
    )
    started = time.perf_counter()
    plain = q_learning(mdp, lazy=False, event=world.has_key, **options)
    lazy = q_learning(mdp, None, [0.03, 0.05], event=world.has_key, **options)
    seconds = time.perf_counter() - started
    scores = [float(x) for x in (plain.score[0, :, -1].mean(), *lazy.score[..., -1].mean(axis=1))]
    control = [float(x) for x in lazy.control_frequency[..., -1].mean(axis=1)]
    return {"seconds": seconds, "steps": plain.steps + lazy.steps, "scores": scores, "control": control}


def goals(rows: list[dict]) -> list[list[str]]:
    """One line per goal."""
    rate = {row["solver"]: row["steps_per_second"] for row in rows}
    lines = []
    for backup in ("augmented", "structured"):
        one = rate[f"lazymdp {backup}, 1 core"]
        for name, found, wanted, met in (
            ("times a Python loop", one / rate["Python loop through Gymnasium"], GOALS["python"], True),
            ("bare loop, times ours", rate["bare numba loop"] / one, GOALS["bare"], False),
            ("two cores, times one", rate[f"lazymdp {backup}, 2 cores"] / one, GOALS["cores"], True),
        ):
            reached = found >= wanted if met else found <= wanted
            lines.append([f"{backup}: {name}", report.number(wanted), report.number(found), "yes" if reached else "no"])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="without the full experiment; writes nothing")
    options = parser.parse_args()
    rows = measure(2 if options.quick else options.repeats)
    header, goal_header = ("solver", "M steps/s", "steps of a run"), ("goal", "wanted", "found", "met")
    cells = [[row["solver"], report.number(row["steps_per_second"] / 1e6), f"{row['steps']:,}"] for row in rows]
    report.show("tabular Q-learning on Key-Door-Treasure with the apple", header, cells, words=1)
    report.show("goals", goal_header, goals(rows), words=1)
    if options.quick:
        return
    experiment = figure_7()
    summary = (
        f"Fig. 7 in full (100 seeds x {EPISODES:,} episodes x 3 prices, {experiment['steps']:,} steps) took "
        f"{experiment['seconds']:.0f} s on all cores. Final scores: plain {experiment['scores'][0]:.3f}, eta 0.03 "
        f"{experiment['scores'][1]:.3f}, eta 0.05 {experiment['scores'][2]:.3f} with control in "
        f"{experiment['control'][1]:.1%} of steps."
    )
    print(summary)
    made = report.circumstances(["lazymdp", "numba", "numpy", "pymdptoolbox", "gymnasium"])
    sections = [
        "Steps a second, best of several runs after one to warm up, learning included; one environment step is one "
        "step. The bare loop does transitions and random numbers and nothing else.",
        report.markdown(header, cells, words=1),
        "## Goals",
        report.markdown(goal_header, goals(rows), words=1),
        "## The paper's experiment",
        summary,
    ]
    results = {"circumstances": made, "rows": rows, "figure_7": experiment}
    report.write("tabular", "Tabular learning", results, sections)


if __name__ == "__main__":
    main()
