"""Memory of recordings: records a dial that plays Pong for more and more steps, each number of steps in a new process.

    python benchmarks/recording.py            # 3,000, 9,000 and 27,000 steps; writes results/recording.csv
    python benchmarks/recording.py 300 600    # other numbers of steps; prints, and writes nothing

It needs the extras `deep`, `atari` and `explain`, and the agents in `results/dqn-dopamine/agents`. An episode of Pong
is much shorter than 27,000 steps, so games are played one after the other as a single episode: an episode is what a
recorder that kept its steps in memory would keep.
"""

from __future__ import annotations

import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gymnasium as gym

ROOT = Path(__file__).parents[1]
AGENT = ROOT / "results" / "dqn-dopamine" / "agents" / "Pong-dial-0"
RESULTS = Path(__file__).parent / "results" / "recording.csv"
STEPS = (3_000, 9_000, 27_000)
ETA = 0.02


class Endless(gym.Wrapper):
    """Starts the next game where one ends, so that an episode lasts until it is truncated."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            observation, info = self.env.reset()
        return observation, reward, False, False, info


def record(steps: int) -> dict[str, Any]:
    """Record one episode of so many steps in this process, and return what it took."""
    import lazymdp as lz

    agent = lz.learn.load(AGENT)
    env = Endless(agent.make_env(ETA, render_mode="rgb_array").env)
    with tempfile.TemporaryDirectory() as folder:
        started, cpu = time.perf_counter(), time.process_time()
        made = lz.explain.record(agent, env, folder=Path(folder) / "recording", eta=ETA, max_steps=steps)
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        assert made.summary(0)["length"] == steps
        size = sum(file.stat().st_size for file in made.folder.iterdir())
    return {
        "steps": steps,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "cpu_seconds": round(cpu),
        "seconds": round(seconds),
        "disk_mib": round(size / 2**20, 1),
    }


def main(numbers: list[str]) -> None:
    """Measure each number of steps in a process of its own."""
    rows = []
    for steps in map(int, numbers) if numbers else STEPS:
        done = subprocess.run([sys.executable, __file__, "--one", str(steps)], check=True, stdout=subprocess.PIPE)
        rows.append(json.loads(done.stdout))
        print(rows[-1], flush=True)
    if not numbers:
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(record(int(sys.argv[2]))))
    else:
        main(sys.argv[1:])
