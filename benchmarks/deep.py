"""Training speed of the deep agents: on this CPU against Stable-Baselines3, on a GPU against the goals.

    python benchmarks/deep.py                           # this machine's CPU; writes the tables
    python benchmarks/deep.py --gpu population atari    # a machine with a GPU; writes benchmarks/results/deep_gpu.json
    python benchmarks/deep.py --page                    # writes the page again from the measurements

*population*: MinAtar Breakout, 8 prices x 4 seeds, 128 environments each, as one program. *atari*: Breakout, pqn with
512 environments against ale-py's vector environment alone in the same run, dqn at price 0, and a dial trained with dqn.
`--out FILE` says where to write the measurements of a GPU. The rules: ``benchmarks/README.md``.
"""

from __future__ import annotations

import environment  # noqa: F401  re-executes this script in benchmarks/.venv, before anything else is needed

# isort: split
import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import report
from lazymdp import _cores
from lazymdp.learn.deep.atari import FRAMES_PER_STEP, vector_env
from lazymdp.learn.deep.compiled_defaults import uniform
from lazymdp.learn.deep.config import DQNConfig, PQNConfig
from lazymdp.learn.deep.dqn import DQN
from lazymdp.learn.deep.jax_env import minatar, restart_where
from lazymdp.learn.deep.loops import CompiledLoop
from lazymdp.learn.deep.population import Population
from lazymdp.learn.deep.pqn import PQN
from lazymdp.learn.deep.train_config import TrainConfig
from lazymdp.learn.deep.training_run import Training

GOALS = {"pqn, steps a second": 30_000.0, "pqn, times SB3's DQN": 20.0, "dial, % of dqn's speed": 80.0}
GOAL_DIAL = 90.0
ETAS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
GOAL_POPULATION = 20e6
GOAL_DQN = 30_000.0
GPU_RESULTS = report.ROOT / "benchmarks" / "results" / "deep_gpu.json"


def rate(advance: Callable[[], int], seconds: float) -> float:
    """Steps a second after one call to compile."""
    advance()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        steps += advance()
    return steps / (time.perf_counter() - started)


def breakout(config: PQNConfig) -> PQN:
    """PQN on MinAtar Breakout with a uniform default policy."""
    env = minatar("breakout")
    return PQN(env, config, uniform(env.n_actions))


def pqn(seconds: float) -> float:
    """Iterations of pqn with default settings."""
    config = PQNConfig()
    loop = CompiledLoop(breakout(config), 0)

    def advance() -> int:
        loop.advance()
        jax.block_until_ready(loop.run.iteration)
        return config.steps_per_iteration

    return rate(advance, seconds)


def dqn_and_dial(seconds: float) -> tuple[float, float]:
    """Measures dqn at price 0 and for a range of prices, in turns, so that a noisy machine slows both."""
    env = minatar("breakout")
    loops = [
        CompiledLoop(DQN(env, DQNConfig.minatar(eta=eta), uniform(env.n_actions)), 0) for eta in (0.0, (0.005, 0.5))
    ]
    spent, steps = [0.0, 0.0], [0, 0]
    while sum(spent) < 2 * seconds:
        for place, loop in enumerate(loops):
            started = time.perf_counter()
            for _ in range(10):
                loop.advance()
            jax.block_until_ready(loop.run.iteration)
            if loop.iteration > 10:  # the first call compiles and fills the buffer
                spent[place] += time.perf_counter() - started
                steps[place] += 10 * loop.algorithm.config.steps_per_iteration
    return steps[0] / spent[0], steps[1] / spent[1]


def games_alone(seconds: float) -> float:
    """The same environments with random actions and no learning: the limit."""
    env, n_envs = minatar("breakout"), PQNConfig().n_envs

    @jax.jit
    def many(states, key):
        def step(carry, _):
            states, key = carry
            key, action_key, step_key, start_key = jax.random.split(key, 4)
            actions = jax.random.randint(action_key, (n_envs,), 0, env.n_actions)
            states, _, terminated, truncated = jax.vmap(env.step)(states, actions, jax.random.split(step_key, n_envs))
            starts = jax.vmap(env.reset)(jax.random.split(start_key, n_envs))
            return (jax.vmap(restart_where)(terminated | truncated, starts, states), key), None

        return jax.lax.scan(step, (states, key), None, 100)[0]

    carry = (jax.vmap(env.reset)(jax.random.split(jax.random.key(0), n_envs)), jax.random.key(1))

    def advance() -> int:
        nonlocal carry
        carry = many(*carry)
        jax.block_until_ready(carry[1])
        return 100 * n_envs

    return rate(advance, seconds)


def sb3_dqn(steps: int) -> float:
    """SB3's DQN with its defaults for DQN, an MLP of the same widths, on the wrapped game; learning from step 1,000."""
    import gymnasium as gym
    from minatar.gym import register_envs
    from stable_baselines3 import DQN

    import lazymdp as lz

    register_envs()
    env = lz.LazyAction(gym.make("MinAtar/Breakout-v1"), "uniform", 0.05)
    env = gym.wrappers.TransformObservation(
        env, lambda seen: seen.astype(np.float32), gym.spaces.Box(0.0, 1.0, env.observation_space.shape, np.float32)
    )
    model = DQN("MlpPolicy", env, learning_starts=1_000, buffer_size=100_000, policy_kwargs={"net_arch": [256, 128]})
    model.learn(2_000)
    started = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - started)


def population(seeds: int, seconds: float) -> float:
    """All prices and seeds as one program."""
    config = PQNConfig(steps=5_000_000)
    runs = Population(breakout(config), chunk=20)
    low = min(eta for eta in ETAS if eta > 0.0)
    state = runs.start(range(seeds), [(max(eta, low), max(eta, low), float(eta == 0.0)) for eta in ETAS])

    def advance() -> int:
        nonlocal state
        state, summary = runs.advance(state)
        jax.block_until_ready(summary)
        return 20 * config.steps_per_iteration * len(ETAS) * seeds

    return rate(advance, seconds)


class EmulatorsAlone:
    """Frames a second of ale-py's vector environment, random actions; in a process of its own, as it can hang."""

    def __init__(self, n_envs: int) -> None:
        code = f"import deep; deep.serve_emulators({n_envs})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent,
        )

    def wait(self) -> None:
        """Until the emulators are made, which takes a minute."""
        self.process.stdout.readline()

    def rate(self, seconds: float) -> float:
        print(seconds, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def serve_emulators(n_envs: int) -> None:
    """The other side of `EmulatorsAlone`."""
    env = vector_env("breakout", n_envs, _cores.available())
    env.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, 4, (64, n_envs))
    print("made", flush=True)
    count = 0

    def advance() -> int:
        nonlocal count
        for _ in range(10):
            env.step(actions[count % 64])
            count += 1
        return 10 * n_envs * FRAMES_PER_STEP

    for line in sys.stdin:
        print(rate(advance, float(line)), flush=True)
    os._exit(0)


def atari(settings: PQNConfig | DQNConfig, seconds: float, before: Callable[[], None] = lambda: None) -> float:
    """Frames a second of training on Breakout, once updates are made."""
    run = Training(TrainConfig("ALE/Breakout-v5", settings))
    try:
        while run.step <= max(settings.steers_from, settings.steps_per_iteration):
            run.advance()
        before()

        def advance() -> int:
            run.advance()
            return settings.steps_per_iteration * FRAMES_PER_STEP

        return rate(advance, seconds)
    finally:
        run.close()


def measure_atari(n_envs: int, seconds: float) -> dict[str, float]:
    """Frames a second of the emulators alone, of pqn and of dqn."""
    emulators = EmulatorsAlone(n_envs)
    found = {"pqn": atari(PQNConfig.atari(n_envs=n_envs), seconds, before=emulators.wait)}
    found["emulators"] = emulators.rate(seconds)
    emulators.process.kill()
    print(found, flush=True)
    return {**found, "dqn": atari(DQNConfig.atari(eta=0.0), seconds), "dial": atari(DQNConfig.atari(), seconds)}


def measure_gpu(parts: list[str], out: Path, n_envs: int, seconds: float) -> None:
    """Measures some parts; what `out` holds of the others stays."""
    results = json.loads(out.read_text()) if out.exists() else {}
    for part in parts:
        found = {"steps": population(4, seconds)} if part == "population" else measure_atari(n_envs, seconds)
        made = report.circumstances(["lazymdp", "jax", "equinox", "optax", "pgx", "ale-py"])
        results[part] = {"device": str(jax.devices()[0].device_kind), **made, **found}
        print(results[part], flush=True)
        out.write_text(json.dumps(results, indent=2) + "\n")


def gpu_section() -> list[str]:
    """What was measured on a GPU, as paragraphs of the page."""
    if not GPU_RESULTS.exists():
        return []
    results = json.loads(GPU_RESULTS.read_text())
    rows, where = [], []
    for part, found in results.items():
        machine = f"{found['device']} with {found['cores']} cores, jax {found['versions']['jax']}"
        where.append(f"{part} on an {machine}, {found['date']}")
        if part == "population":
            rows.append(("MinAtar population, M steps/s", found["steps"] / 1e6, GOAL_POPULATION / 1e6))
        else:
            rows.append(
                ("pqn on Atari, share of the emulators alone, %", 100 * found["pqn"] / found["emulators"], 85.0)
            )
            rows.append(("dqn on Atari, frames/s", found["dqn"], GOAL_DQN))
            if "dial" in found:
                rows.append(("a dial on Atari, share of dqn, %", 100 * found["dial"] / found["dqn"], GOAL_DIAL))
            where[-1] += f"; emulators alone {found['emulators']:,.0f} frames/s, pqn {found['pqn']:,.0f}"
    cells = [[n, _short(goal), _short(found), "yes" if found >= goal else "no"] for n, found, goal in rows]
    said = "Written by `python benchmarks/deep.py --gpu ...`: " + "; ".join(where) + "."
    said += (
        " The population makes one pass over each rollout, as the defaults of pqn do; the prototype behind its goal "
        "(13.7 M steps/s) made two."
    )
    return ["## On a GPU", said, report.markdown(("goal", "wanted", "found", "met"), cells, words=1)]


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 1000 else f"{number:.1f}"


def measure_cpu(seconds: float) -> None:
    plain, dial = dqn_and_dial(seconds)
    rates = {
        "lazymdp pqn": pqn(seconds),
        "lazymdp dqn at price 0": plain,
        "lazymdp dqn for a range of prices (a dial)": dial,
        "the environments alone, no learning": games_alone(5.0),
        "SB3 DQN on the wrapped game": sb3_dqn(8_000),
    }
    made = report.circumstances(["lazymdp", "jax", "equinox", "optax", "pgx", "stable-baselines3", "torch", "MinAtar"])
    write_page({"circumstances": made, "rates": rates})


def write_page(results: dict) -> None:
    rates = results["rates"]
    header, goal_header = ("agent", "steps/s"), ("goal", "wanted", "found", "met")
    cells = [[name, f"{found:,.0f}"] for name, found in rates.items()]
    ours, times = rates["lazymdp pqn"], rates["lazymdp pqn"] / rates["SB3 DQN on the wrapped game"]
    share = 100 * rates["lazymdp dqn for a range of prices (a dial)"] / rates["lazymdp dqn at price 0"]
    goals = [
        [name, f"{GOALS[name]:,.0f}", f"{found:,.0f}", "yes" if found >= GOALS[name] else "no"]
        for name, found in zip(GOALS, (ours, times, share), strict=True)
    ]
    report.show("training on MinAtar Breakout, CPU", header, cells, words=1)
    report.show("goals", goal_header, goals, words=1)
    sections = [
        "Agent steps a second, learning included, after one call to compile. SB3's DQN learns on one environment, one "
        "update per four steps, with MinAtar's own Python implementation behind `LazyAction`; pqn and dqn run "
        "compiled. The two runs of dqn take turns.",
        report.markdown(header, cells, words=1),
        "## Goals",
        report.markdown(goal_header, goals, words=1),
        *gpu_section(),
    ]
    report.write("deep", "Deep learning", results, sections)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", nargs="+", choices=["population", "atari"], help="measure these on a GPU")
    parser.add_argument("--out", type=Path, default=GPU_RESULTS, help="where to write what was measured on a GPU")
    parser.add_argument("--page", action="store_true", help="write the page again, from what was measured")
    parser.add_argument("--n-envs", type=int, default=512, help="environments of pqn on Atari")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    if options.gpu:
        measure_gpu(options.gpu, options.out, options.n_envs, options.seconds)
        os._exit(0)  # ale-py can hang at the end
    if options.page:
        write_page(json.loads((report.ROOT / "benchmarks" / "results" / "deep.json").read_text()))
    else:
        measure_cpu(options.seconds)


if __name__ == "__main__":
    main()
