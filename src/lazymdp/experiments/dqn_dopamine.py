"""DQN and the dial on Atari: compared with Dopamine's DQN, and how much control their returns take.

Two agents play each game over a uniform default policy, with Dopamine's settings and the same number of frames. *dqn*
is the structured form at price 0, which is plain DQN. *dial* is one network for a range of prices: half of its episodes
are played at price 0, and each replayed step is learned from at several prices. The published numbers are means and
standard deviations over five seeds of training returns in one million frames ("DQN (Adam + MSE in JAX)"); the same is
computed for our runs, for the dial from its episodes at price 0. Afterwards, each network plays whole episodes at each
price, with weights in half precision and 0.1% random choices.

In the first runs the newest network chose the actions and was evaluated; today it is the target network that chooses
(`acts` in the table of runs), and an average of these networks that is evaluated (`average_share`). Claims and figure
use runs of today's kind for the games that have one. The table of speeds has the frames per second of the runs that
were trained side by side, the table of shares how much of plain dqn's return is left with little control.

Return of the dial against its control rate; one point per price, the leftmost is the default policy alone; 95%
intervals over episodes. The cross is plain dqn after the same number of frames (evaluated or while training, whichever
is better), the dotted line Dopamine's DQN (training return). The solid line is a dial with prices up to 0.5, the dashed
line one with prices up to 0.1. Filled points: the target network chose in training; open points: the newest network.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from lazymdp.experiments.atari_runs import evaluated, train_in
from lazymdp.experiments.dqn_dopamine_figure import AGENTS, PUBLISHED, shares, speeds
from lazymdp.experiments.dqn_dopamine_figure import claims as claims
from lazymdp.experiments.dqn_dopamine_figure import plot as plot
from lazymdp.experiments.experiment import Progress, Table, Tables, table
from lazymdp.experiments.jobs import RUNS, run_jobs
from lazymdp.experiments.study import Parts

TITLE = "Atari: DQN and the dial against Dopamine's DQN"
NEEDS_GPU = True
WHOLE_MACHINE = True


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = tuple(PUBLISHED)
    """Atari games; each can be run separately into the same folder."""
    agents: tuple[str, ...] = AGENTS
    """Agents, `dqn` and `dial`."""
    seeds: int = 1
    """Number of runs per agent and game."""
    frames: int = 10_000_000
    """Frames of each run, four per agent step."""
    low: float = 0.001
    """Lowest positive price of the dial."""
    high: float = 0.5
    """Highest price of the dial. (The first runs went up to 0.1, as the table of runs says.)"""
    episodes: int = 30
    """Evaluation episodes per price."""
    max_steps: int = 6750
    """Number of steps after which an evaluation episode is stopped."""


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Train and evaluate every agent on every game; finished runs are saved in `parts`."""
    with tempfile.TemporaryDirectory() as temporary:  # without parts, nothing is kept
        folder = Path(temporary) if parts is None else parts.folder.parent

        def make(job: str) -> Table:
            return make_job(config, job, folder / RUNS / job)

        rows = run_jobs(jobs(config), make, progress, parts)
        return {"runs": rows, "speed": speeds(rows), "shares": shares(rows)}


def jobs(config: Config) -> list[str]:
    """Return the names of the jobs of the study: a game, an agent and a seed."""
    unknown = [game for game in config.games if game not in PUBLISHED]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(PUBLISHED)}.")
    if any(agent not in AGENTS for agent in config.agents):
        raise ValueError(f"agents is {config.agents}, expected one or both of {', '.join(AGENTS)}.")
    # Plain dqn and the dial of a game come after each other, so that they run side by side.
    return [
        f"{game}_{agent}_{seed}" for seed in range(config.seeds) for game in config.games for agent in config.agents
    ]


def make_job(config: Config, job: str, folder: Path) -> Table:
    """Do one job of the study: train an agent, which is kept in `folder`, and evaluate it."""
    game, agent, seed = job.split("_")
    price = {"eta": 0.0} if agent == "dqn" else {"eta": (config.low, config.high), "zero_share": 0.5}
    train_in(folder, f"ALE/{game}-v5", int(seed), config.frames, price)
    rows = evaluated(folder, config.episodes, config.max_steps)
    return table(game=game, agent=agent, high=config.high if agent == "dial" else 0.0, seed=int(seed), **rows)
