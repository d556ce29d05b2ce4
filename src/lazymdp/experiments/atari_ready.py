"""The 60 Atari games of the paper: does each of them load, step and train?

The paper's study covers the 57 games of the usual benchmark without Defender and Surround, and AirRaid, Carnival,
ElevatorAction, JourneyEscape and Pooyan: the 60 games of Dopamine. Its 200 million frames per run are out of our reach.
This check makes sure that nothing but time is missing: in every game, a dial of `dqn` makes a few hundred steps and a
few updates of its network, with the settings for Atari except for the sizes of the run and of the replay buffer. A
game that shows a single picture in this time is tried again for 16 times as long. (In the first version of this check
it was not, and CrazyClimber and KungFuMaster, which stand still for their first 128 frames, did not pass.)

For every game: the number of actions, and the largest change of a weight of the network, which is above 0 if the
network was trained. Games that fail are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from lazymdp._colors import CONTROL
from lazymdp._provenance import machine
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, table
from lazymdp.experiments.jobs import run_jobs
from lazymdp.experiments.study import Parts
from lazymdp.show import styled

TITLE = "Atari: the 60 games of the paper load, step and train"
NEEDS_GPU = True
GAMES = (
    "AirRaid", "Alien", "Amidar", "Assault", "Asterix", "Asteroids", "Atlantis", "BankHeist", "BattleZone", "BeamRider",
    "Berzerk", "Bowling", "Boxing", "Breakout", "Carnival", "Centipede", "ChopperCommand", "CrazyClimber",
    "DemonAttack", "DoubleDunk", "ElevatorAction", "Enduro", "FishingDerby", "Freeway", "Frostbite", "Gopher",
    "Gravitar", "Hero", "IceHockey", "Jamesbond", "JourneyEscape", "Kangaroo", "Krull", "KungFuMaster",
    "MontezumaRevenge", "MsPacman", "NameThisGame", "Phoenix", "Pitfall", "Pong", "Pooyan", "PrivateEye", "Qbert",
    "Riverraid", "RoadRunner", "Robotank", "Seaquest", "Skiing", "Solaris", "SpaceInvaders", "StarGunner", "Tennis",
    "TimePilot", "Tutankham", "UpNDown", "Venture", "VideoPinball", "WizardOfWor", "YarsRevenge", "Zaxxon",
)  # fmt: skip
"""The 60 games of Dopamine and of the paper."""

LONGER = 16
"""Factor by which a game has more steps if it shows a single picture at first, as some do while they begin."""


@dataclass(frozen=True)
class Config:
    """Settings of the check."""

    games: tuple[str, ...] = GAMES
    """Atari games; each can be run separately into the same folder."""
    steps: int = 256
    """Agent steps per game, over eight emulators."""
    updates: int = 8
    """Updates of the network per game."""


def jobs(config: Config) -> list[str]:
    """Return the names of the jobs: one per game."""
    unknown = [game for game in config.games if game not in GAMES]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(GAMES)}.")
    return list(config.games)


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Try every game; finished games are saved in `parts`."""
    return {"games": run_jobs(jobs(config), lambda job: make_job(config, job), progress, parts)}


def make_job(config: Config, job: str) -> Table:
    """Try one game, with more steps if its picture does not change at first."""
    rows = _train(config, job, config.steps)
    return rows if rows["frames"][0] > 1 else _train(config, job, LONGER * config.steps)


def _train(config: Config, game: str, steps: int) -> Table:
    """Train for a few steps. This is the only function here that uses `lazymdp.learn.deep`."""
    try:
        from lazymdp.learn.deep.config import DQNConfig
        from lazymdp.learn.deep.train_config import TrainConfig
        from lazymdp.learn.deep.training_run import Training
    except ImportError as error:
        raise ImportError(f"training on Atari needs JAX ({error}): pip install 'lazymdp[atari]'") from error

    half = steps // 2
    settings = DQNConfig.atari(
        steps=steps, n_envs=8, rollout=4, buffer_size=2 * steps, learning_starts=half,
        update_interval=max(1, half // config.updates), target_update_interval=half, batch_size=8,
    )  # fmt: skip
    run = Training(TrainConfig(f"ALE/{game}-v5", settings))
    try:
        before = _weights(run)
        while not run.done:
            run.advance()
        after, part = _weights(run), run.replay_part()
        assert part is not None
        seen = part.arrays["observation"].reshape(-1, part.arrays["observation"][0, 0].size)
        change = max(float(np.abs(after[name] - before[name]).max()) for name in after)
        return table(
            game=game, actions=run.algorithm.env.n_actions, steps=run.step, updates=config.updates,
            frames=len(np.unique(seen, axis=0)), weight_change=float(f"{change:.3g}"),
            finite=int(all(np.isfinite(array).all() for array in after.values())), machine=machine(),
        )  # fmt: skip
    finally:
        run.close()


def _weights(run: Any) -> dict[str, Any]:
    return {name: np.array(array) for name, array in run.arrays().items() if name.startswith(".learner.parameters")}


def claims(data: Tables) -> list[Claim]:
    """Check that all games were tried and trained."""
    rows = data["games"]
    stepped = [game for game, frames in zip(rows["game"], rows["frames"], strict=True) if frames > 1]
    changed = (rows["weight_change"] > 0.0) & (rows["finite"] == 1)
    missing = sorted(set(GAMES) - set(rows["game"].tolist()))
    words = f"{len(rows['game'])}" + (f", without {', '.join(missing)}" if missing else "")
    return [
        Claim("Games of the paper that load", "60", words, not missing),
        Claim("Games that step: they show more than one picture", "60", f"{len(stepped)}",
              set(stepped) == set(GAMES)),
        Claim("Games in which updates change the network and leave it finite", "60", f"{int(changed.sum())}",
              not missing and bool(changed.all())),
    ]  # fmt: skip


def plot(data: Tables) -> Figure:
    """Draw the number of actions and the change of the weights of every game."""
    rows = data["games"]
    order = np.argsort(rows["game"])
    with styled():
        figure, axes = plt.subplots(2, 1, figsize=(9.0, 4.2), sharex=True)
        for ax, name, label in zip(axes, ("actions", "weight_change"), ("actions", "change of a weight"), strict=True):
            ax.bar(np.arange(order.size), rows[name][order], color=CONTROL, width=0.7)
            ax.set_ylabel(label)
        axes[1].set_xticks(np.arange(order.size), rows["game"][order], rotation=90, fontsize=6)
    return figure
