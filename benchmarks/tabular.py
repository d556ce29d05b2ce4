"""Steps per second of tabular Q-learning on Key-Door-Treasure: lazymdp, a Python loop, a package and the bare limit.

    python benchmarks/tabular.py            # everything, writes the tables
    python benchmarks/tabular.py --quick    # without the full experiment, writes nothing

Times are CPU times where one thread works, and wall times where several do.
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
PYTHON_GOAL, SECONDS_GOAL = 1_000.0, 5.0
"""At least so many times the speed of a Python loop, on one core; at most so many seconds for Fig. 7, on two cores."""
FORMS = ("augmented", "structured")


def python_loop(form: str, episodes: int) -> int:
    """A first implementation: NumPy tables and a loop through the environment. Returns the number of steps."""
    env = gym.make("lazymdp/KeyDoorTreasure-v0", apple=True)
    rng = np.random.default_rng(0)
    n_states, n_actions = int(env.observation_space.n), int(env.action_space.n)
    default_policy = np.full((n_states, n_actions), 1.0 / n_actions)
    q = np.zeros((n_states, n_actions + (form == "augmented")))
    steps = 0
    for episode in range(episodes):
        epsilon = EPSILON * (1 - episode / episodes)
        state, _ = env.reset(seed=0 if episode == 0 else None)
        for _ in range(MAX_STEPS):
            if rng.random() < epsilon:
                choice = int(rng.integers(n_actions + 1))
            else:
                lazy_value = q[state, -1] if form == "augmented" else default_policy[state] @ q[state] + ETA
                choice = n_actions if lazy_value >= q[state, :n_actions].max() else int(q[state, :n_actions].argmax())
            action = choice if choice < n_actions else int(rng.integers(n_actions))
            next_state, reward, terminated, truncated, _ = env.step(action)
            value = q[next_state].max()
            if form == "structured":
                value = max(value, default_policy[next_state] @ q[next_state] + ETA)
            column = choice if form == "augmented" else action
            price = ETA if column < n_actions else 0.0
            target = reward - price + GAMMA * (0.0 if terminated else value)
            q[state, column] += ALPHA * (target - q[state, column])
            steps += 1
            state = next_state
            if terminated or truncated:
                break
    return steps


def toolbox(mdp: lz.MDP, steps: int) -> tuple[int, float]:
    """Runs pymdptoolbox's QLearning on the explicit model, one step per iteration. Returns steps and seconds."""
    import mdptoolbox.mdp

    explicit = lz.LazyMDP(mdp, lz.policies.uniform(mdp), ETA).to_mdp()
    shape = (explicit.n_states, explicit.n_actions, explicit.n_states)
    transitions = np.ascontiguousarray(explicit.transitions.toarray().reshape(shape).transpose(1, 0, 2))
    learner = mdptoolbox.mdp.QLearning(transitions, np.array(explicit.rewards), GAMMA, n_iter=steps)
    started = time.process_time()
    learner.run()
    return steps, time.process_time() - started


@numba.njit(cache=True)
def bare(next_state: np.ndarray, absorbing: np.ndarray, start: int, steps: int, stream: np.ndarray) -> int:
    """Makes transitions with random actions and nothing else. Returns the number of terminated episodes."""
    a, b = stream[0], stream[1]
    four, state, terminated = np.uint64(4), np.uint64(start), 0
    for _ in range(steps):
        bits = a + b
        b ^= a
        a = ((a << np.uint64(24)) | (a >> np.uint64(40))) ^ b ^ (b << np.uint64(16))
        b = (b << np.uint64(37)) | (b >> np.uint64(27))
        following = np.uint64(next_state[state * four + (((bits & np.uint64(0xFFFFFFFF)) * four) >> np.uint64(32))])
        if absorbing[following]:
            terminated += 1
            state = np.uint64(start)
        else:
            state = following
    return terminated


def best(task: Callable[[], int], repeats: int, clock: Callable[[], float]) -> tuple[float, int]:
    """Runs a task once to warm up, then repeatedly. Returns the best steps per second, and the steps per run."""
    task()
    rates = []
    for _ in range(repeats):
        started = clock()
        steps = task()
        rates.append(steps / (clock() - started))
    return max(rates), steps


def measure(repeats: int) -> list[dict]:
    """Returns the rows of the table."""
    mdp = lz.MDP.from_gymnasium(KeyDoorTreasure(apple=True), GAMMA)
    successors = mdp.transitions.indices.astype(np.uint32)  # deterministic: one successor per row
    stream, start = np.array([1, 2], dtype=np.uint64), int(mdp.start.argmax())
    rows = []

    def add(
        name: str, task: Callable[[], int], repeats: int = repeats, clock: Callable[[], float] = time.process_time
    ) -> None:
        rate, steps = best(task, repeats, clock)
        rows.append({"solver": name, "steps_per_second": rate, "steps": steps})
        print(f"{name}: {rate / 1e6:.3g} M steps/s", flush=True)

    def ours(form: str, workers: int) -> int:
        options = dict(alpha=ALPHA, epsilon=EPSILON, episodes=EPISODES, max_steps=MAX_STEPS)
        return q_learning(mdp, None, ETA, form=form, seed=range(4), workers=workers, **options).steps

    for form in FORMS:
        add(f"lazymdp {form}, 1 core", lambda form=form: ours(form, 1))
        add(f"lazymdp {form}, 2 cores", lambda form=form: ours(form, 2), clock=time.perf_counter)
        add(f"Python loop {form}", lambda form=form: python_loop(form, 2_000), 3)
    add("bare numba loop", lambda: bare(successors, mdp.absorbing, start, 50_000_000, stream) * 0 + 50_000_000)
    steps, seconds = toolbox(mdp, 100_000)
    rows.append({"solver": "pymdptoolbox QLearning", "steps_per_second": steps / seconds, "steps": steps})
    print(f"pymdptoolbox: {steps / seconds / 1e6:.3g} M steps/s", flush=True)
    return rows


def figure_7() -> dict:
    """Runs the whole experiment: 100 seeds x 100,000 episodes x 3 prices."""
    mdp = lz.MDP.from_gymnasium(KeyDoorTreasure(apple=True), GAMMA)
    options = dict(
        alpha=ALPHA, epsilon=EPSILON, episodes=EPISODES, max_steps=MAX_STEPS, seed=range(100), form="augmented"
    )
    started, cpu_started = time.perf_counter(), time.process_time()
    plain = q_learning(mdp, lazy=False, **options)
    lazy = q_learning(mdp, None, [0.03, 0.05], **options)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    returns = [float(x) for x in (plain.mean_return[0, :, -1].mean(), *lazy.mean_return[..., -1].mean(axis=1))]
    control = [float(x) for x in lazy.control_rate[..., -1].mean(axis=1)]
    steps = plain.steps + lazy.steps
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "steps": steps, "returns": returns, "control": control}


def goals(rows: list[dict], experiment: dict | None) -> list[list[str]]:
    """Returns one line per goal."""
    rate = {row["solver"]: row["steps_per_second"] for row in rows}
    lines = []
    for form in FORMS:
        times = rate[f"lazymdp {form}, 1 core"] / rate[f"Python loop {form}"]
        lines.append([f"{form}: one core, times a Python loop", f"at least {PYTHON_GOAL:,.0f}", report.number(times),
                      "yes" if times >= PYTHON_GOAL else "no"])  # fmt: skip
    if experiment is not None:
        seconds = experiment["seconds"]
        lines.append(["Fig. 7 in full, seconds", f"at most {SECONDS_GOAL:g}", f"{seconds:.1f}",
                      "yes" if seconds <= SECONDS_GOAL else "no"])  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="without the full experiment; writes nothing")
    options = parser.parse_args()
    rows = measure(3 if options.quick else options.repeats)
    header, goal_header = ("solver", "M steps/s", "steps per run"), ("goal", "wanted", "found", "met")
    cells = [[row["solver"], report.number(row["steps_per_second"] / 1e6), f"{row['steps']:,}"] for row in rows]
    report.show("tabular Q-learning on Key-Door-Treasure with the apple", header, cells, words=1)
    experiment = None if options.quick else figure_7()
    report.show("goals", goal_header, goals(rows, experiment), words=1)
    if experiment is None:
        return
    summary = (
        f"Fig. 7 in full (100 seeds x {EPISODES:,} episodes x 3 prices, {experiment['steps']:,} steps) took "
        f"{experiment['seconds']:.1f} s on all cores ({experiment['cpu_seconds']:.1f} s of CPU time). Final returns: "
        f"plain {experiment['returns'][0]:.3f}, eta 0.03 {experiment['returns'][1]:.3f}, eta 0.05 "
        f"{experiment['returns'][2]:.3f} with control in {experiment['control'][1]:.1%} of steps."
    )
    print(summary)
    made = report.circumstances(["lazymdp", "numba", "numpy", "pymdptoolbox", "gymnasium"])
    sections = [
        "Steps per second including learning, the best of several runs after one to warm up. Times are CPU times, "
        "except on two cores. The Python loop is a NumPy table and a loop through the environment, in the same form. "
        "The bare loop makes transitions with random actions and nothing else.",
        report.markdown(header, cells, words=1),
        "## Goals",
        report.markdown(goal_header, goals(rows, experiment), words=1),
        "## The paper's experiment",
        summary,
    ]
    results = {"circumstances": made, "rows": rows, "figure_7": experiment}
    report.write("tabular", "Tabular learning", results, sections)


if __name__ == "__main__":
    main()
