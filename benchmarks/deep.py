"""Training steps a second of the dial on MinAtar Breakout: on this CPU against Stable-Baselines3, and as a population.

    python benchmarks/deep.py                # this machine's CPU, against SB3's DQN; writes the tables
    python benchmarks/deep.py --population   # 8 prices x 4 seeds as one program; meant for a GPU, prints only
    python benchmarks/deep.py --atari        # Breakout: the dial and DQN against the emulators alone; prints only

What is measured, and the rules: ``benchmarks/README.md``.
"""

from __future__ import annotations

import environment  # noqa: F401  re-executes this script in benchmarks/.venv, before anything else is needed

# isort: split
import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np

import report
from lazymdp import cores
from lazymdp.learn.atari import FRAMES_PER_STEP, vector_env
from lazymdp.learn.dial import Dial
from lazymdp.learn.games import minatar
from lazymdp.learn.population import Population
from lazymdp.learn.settings import DialConfig, DQNConfig, TrainConfig
from lazymdp.learn.training import Training

GOALS = {"steps a second": 30_000.0, "times SB3's DQN": 20.0}
ETAS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
GOAL_POPULATION = 20e6
GOAL_DQN = 30_000.0


def rate(advance: Callable[[], int], seconds: float) -> float:
    """Steps a second after one call to compile."""
    advance()
    started, steps = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        steps += advance()
    return steps / (time.perf_counter() - started)


def dial(seconds: float) -> float:
    """Rollouts and fits of the dial, default settings."""
    config = DialConfig()
    learner = Dial(minatar("breakout"), config)
    iterate = jax.jit(learner.iterate, donate_argnums=0)
    state = jax.jit(learner.init)(jax.random.key(0))

    def advance() -> int:
        nonlocal state
        state, _ = iterate(state)
        jax.block_until_ready(state.iteration)
        return config.n_envs * config.rollout

    return rate(advance, seconds)


def games_alone(seconds: float) -> float:
    """The same environments with random actions and no learning: the limit."""
    game, n_envs = minatar("breakout"), DialConfig().n_envs

    @jax.jit
    def many(states, key):
        def step(carry, _):
            states, key = carry
            key, action_key, step_key = jax.random.split(key, 3)
            actions = jax.random.randint(action_key, (n_envs,), 0, game.n_actions)
            states, *_ = jax.vmap(game.step)(states, actions, jax.random.split(step_key, n_envs))
            return (states, key), None

        return jax.lax.scan(step, (states, key), None, 100)[0]

    carry = (jax.vmap(game.init)(jax.random.split(jax.random.key(0), n_envs)), jax.random.key(1))

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
    config = DialConfig(steps=5_000_000)
    runs = Population(Dial(minatar("breakout"), config), chunk=20)
    low = min(eta for eta in ETAS if eta > 0.0)
    state = runs.start(range(seeds), [(max(eta, low), max(eta, low), float(eta == 0.0)) for eta in ETAS])

    def advance() -> int:
        nonlocal state
        state, summary = runs.advance(state)
        jax.block_until_ready(summary)
        return 20 * config.n_envs * config.rollout * len(ETAS) * seeds

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
    env = vector_env("breakout", n_envs, cores.available())
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


def atari(settings: DialConfig | DQNConfig, seconds: float, before: Callable[[], None] = lambda: None) -> float:
    """Frames a second of training on Breakout, once updates are made."""
    run = Training(TrainConfig("ALE/Breakout-v5", settings=settings))
    try:
        while run.step <= (settings.min_replay if isinstance(settings, DQNConfig) else run.steps_per_iteration):
            run.advance()
        before()

        def advance() -> int:
            run.advance()
            return run.steps_per_iteration * FRAMES_PER_STEP

        return rate(advance, seconds)
    finally:
        run.close()


def show_atari(n_envs: int, seconds: float) -> None:
    """Each learner against the emulators alone."""
    emulators = EmulatorsAlone(n_envs)
    found = atari(DialConfig.atari(n_envs=n_envs), seconds, before=emulators.wait)
    alone = emulators.rate(seconds)
    emulators.process.kill()
    print(f"{jax.devices()[0]}, {cores.available()} cores: {n_envs} emulators alone {alone:,.0f} frames/s", flush=True)
    show_goal("dial", found, 0.85 * alone, alone)
    show_goal("dqn", atari(DQNConfig(), seconds), GOAL_DQN, alone)


def show_goal(name: str, found: float, goal: float, alone: float) -> None:
    met = "met" if found >= goal else "not met"
    words = f"{name}: {found:,.0f} frames/s, {found / alone:.0%} of the emulators alone; goal {goal:,.0f}: {met}"
    print(words, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--population", action="store_true", help="8 prices x 4 seeds as one program; prints only")
    parser.add_argument("--atari", action="store_true", help="the dial and DQN on Breakout; prints only")
    parser.add_argument("--n-envs", type=int, default=512, help="of the dial on Breakout")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    if options.atari:
        show_atari(options.n_envs, options.seconds)
        os._exit(0)
        return
    if options.population:
        found = population(4, options.seconds)
        met = "met" if found >= GOAL_POPULATION else "not met"
        print(f"{jax.devices()[0]}: {found / 1e6:.1f} M steps/s; goal {GOAL_POPULATION / 1e6:.0f} M: {met}")
        return
    rates = {
        "lazymdp dial": dial(options.seconds),
        "the games alone, no learning": games_alone(5.0),
        "SB3 DQN on the wrapped game": sb3_dqn(8_000),
    }
    header, goal_header = ("learner", "steps/s"), ("goal", "wanted", "found", "met")
    cells = [[name, f"{found:,.0f}"] for name, found in rates.items()]
    ours, times = rates["lazymdp dial"], rates["lazymdp dial"] / rates["SB3 DQN on the wrapped game"]
    goals = [
        [name, f"{GOALS[name]:,.0f}", f"{found:,.0f}", "yes" if found >= GOALS[name] else "no"]
        for name, found in zip(GOALS, (ours, times), strict=True)
    ]
    report.show("training on MinAtar Breakout, CPU", header, cells, words=1)
    report.show("goals", goal_header, goals, words=1)
    made = report.circumstances(["lazymdp", "jax", "equinox", "optax", "pgx", "stable-baselines3", "torch", "MinAtar"])
    sections = [
        "Agent steps a second, learning included, after one call to compile. SB3's DQN learns on one environment, one "
        "update per four steps, with MinAtar's own Python implementation behind `LazyAction`; the dial runs compiled.",
        report.markdown(header, cells, words=1),
        "## Goals",
        report.markdown(goal_header, goals, words=1),
    ]
    report.write("deep", "Deep learning", {"circumstances": made, "rates": rates}, sections)


if __name__ == "__main__":
    main()
