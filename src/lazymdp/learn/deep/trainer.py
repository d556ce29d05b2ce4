"""Training a deep agent, as a run that can be put down and picked up again.

Everything a run is, environments and random numbers included, is arrays: a run that goes on from `arrays` makes the
same steps as one that was never interrupted, bit for bit on a CPU. The exception is Atari, whose emulators cannot be
put down: there new episodes begin. No files are written here; `lazymdp.learn.deep.run_folder` does that.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lazymdp._progress import training_bar
from lazymdp.learn.deep.agent import Agent
from lazymdp.learn.deep.config import DQNConfig, TrainConfig
from lazymdp.learn.deep.dqn import DQN
from lazymdp.learn.deep.jax_env import Game
from lazymdp.learn.deep.loops import Arrays, Compiled, Hosted, recalled, remembered
from lazymdp.learn.deep.making import GIVEN, finite, make_agent, make_learner, warm_parameters
from lazymdp.learn.deep.saved import Checkpoint, Memory

ENOUGH = 20
"""Episodes on which a judgement of how good a run is must rest at least."""
BEYOND = 10.0
"""How many times larger than any return that the rewards seen allow for, and than at first, a value may be."""
LONGEST = 0.9999
"""Discount for which that return is taken, if the discount is closer to 1."""


class Diverged(RuntimeError):
    """Training went wrong: values are no longer finite, or beyond what any return can be."""


@dataclass(frozen=True)
class Metrics:
    """Episodes that ended since the report before; of the dial, under the nearest of `DialConfig.prices`.

    Attributes:
        step: Agent steps so far.
        eta: The price; of DQN, the mean over these episodes.
        episodes: How many ended.
        score: Mean return, price excluded.
        length: Mean number of steps.
        control: Share of steps in control, exploration included.
    """

    step: int
    eta: float
    episodes: int
    score: float
    length: float
    control: float


class Folder(Protocol):
    """Where a run is kept; see `lazymdp.learn.deep.run_folder.RunFolder`."""

    @property
    def begun(self) -> bool:
        """Whether there is a run."""

    def same(self, config: TrainConfig) -> TrainConfig:
        """The config of the run here; refuses another than that asked for."""

    def create(self, config: TrainConfig) -> None:
        """Begins a run."""

    def claimed(self) -> AbstractContextManager[None]:
        """Nobody else may train here meanwhile."""

    def picked_up(self) -> tuple[Checkpoint | None, list[Memory]]:
        """What the run goes on from."""

    def append(self, metrics: list[Metrics]) -> None:
        """Adds rows to the metrics."""

    def keep(self, run: Training) -> None:
        """Writes a checkpoint."""


class Training:
    """A run under way.

    Args:
        config: What is trained.
        arrays: Of a run with the same config, to go on from.
        memory: What that run remembered, oldest first.
        default: A default policy in place of the config's, in any form that `make_default` knows.
    """

    def __init__(
        self, config: TrainConfig, arrays: Arrays | None = None, memory: Sequence[Memory] = (), default: Any = None
    ) -> None:
        self.config = config
        self.learner = make_learner(config, default)
        start = {}
        if isinstance(self.learner, DQN) and self.learner.config.warm_start and arrays is None:
            start = {"parameters": warm_parameters(self.learner)}
        self._run: Compiled | Hosted
        if isinstance(self.learner.game, Game):
            self._run = Compiled(self.learner, config.seed, **start)
        else:
            self._run = Hosted(self.learner, self.learner.game, config.seed, **start)
        self._worths: dict[float, list[float]] = {}  # of episodes since the last call of `quality`, by price
        self._means: dict[float, float] = {}
        self._prices = (0.0,) if isinstance(config.settings, DQNConfig) else config.settings.prices
        if arrays is not None:
            self._run.restore(arrays)
            if not finite(self._run.state.parameters):
                raise ValueError("the checkpoint is damaged: its network holds no numbers.")
            self._check_memory(memory)
            for part in memory:
                self._run.state = recalled(self._run.state, part.first, part.arrays)

    @property
    def steps_per_iteration(self) -> int:
        """Agent steps of a rollout."""
        return self.config.settings.n_envs * self.config.settings.rollout

    @property
    def step(self) -> int:
        """Agent steps so far."""
        return self._run.iteration * self.steps_per_iteration

    @property
    def done(self) -> bool:
        """Whether all steps are made."""
        return self._run.iteration >= self.config.settings.iterations

    def advance(self) -> None:
        """One rollout and what is learned of it."""
        self._run.advance()

    def report(self) -> list[Metrics]:
        """What ended since the last report; raises `Diverged` where the network cannot be right any more."""
        self._check_values()
        _, eta, score, steps, controls = self._run.episodes()
        one_price = isinstance(self.learner, DQN)
        prices = np.array(self._prices)
        nearest = np.abs(np.log10(eta + 1e-3)[:, None] - np.log10(prices + 1e-3)).argmin(axis=1)
        price = prices[nearest]
        found = []
        for told in np.unique(price):
            here = price == told
            share = float(controls[here].sum() / steps[here].sum())
            means = float(score[here].mean()), float(steps[here].mean())
            paid = float(eta[here].mean()) if one_price else float(told)
            found.append(Metrics(self.step, paid, int(here.sum()), *means, share))
            self._worths.setdefault(float(told), []).extend((score - eta * controls)[here].tolist())
        return found

    def _check_values(self) -> None:
        state, gamma = self._run.state, min(self.config.settings.gamma, LONGEST)
        reward, first, value = map(float, state.extremes)
        if not math.isfinite(reward):
            raise Diverged(f"{self.config.env} gave a reward that is no finite number, within {self.step:,} steps.")
        if not finite(state.parameters):
            raise Diverged(f"the network is no longer finite after {self.step:,} steps; lower the learning rate.")
        largest = max(1.0, reward) / (1.0 - gamma)
        if value > BEYOND * max(largest, first):
            raise Diverged(
                f"values of up to {value:.3g} after {self.step:,} steps, where no return is beyond {largest:.3g}: "
                "learning diverges; lower the learning rate."
            )

    def quality(self) -> float | None:
        """Mean return after the price of the episodes reported since the last answer; None where they are too few.

        The mean of a mean for each price, so that it does not matter at which prices episodes happen to end; a price at
        which none did counts as before. Until there was one at every price, nothing is said.
        """
        if sum(map(len, self._worths.values())) < ENOUGH:
            return None
        self._means |= {price: float(np.mean(of)) for price, of in self._worths.items()}
        self._worths = {}
        return float(np.mean(list(self._means.values()))) if len(self._means) == len(self._prices) else None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything the run is but what it remembers, by name."""
        return self._run.arrays()

    def memory(self, since: int = 0) -> Memory | None:
        """What it remembers of the steps from `since` on, counted for one environment; None if it has no memory."""
        if not isinstance(self.learner, DQN):
            return None
        needed = self._remembered()
        first, last = max(since, needed.start), needed.stop - 1
        return Memory(first, last, remembered(self._run.state, first, last))

    def _remembered(self) -> range:
        """The steps of every environment that the run remembers."""
        if not isinstance(self.learner, DQN):
            return range(0)
        now = self._run.iteration * self.config.settings.rollout
        return range(max(now - self.learner.rows + 1, 0), now + 1)

    def _check_memory(self, memory: Sequence[Memory]) -> None:
        """Refuses memory that lacks a step."""
        wanted = self._remembered()
        for part in memory:
            if part.first <= wanted.start:
                wanted = range(max(wanted.start, part.last + 1), wanted.stop)
        if wanted:
            raise ValueError(
                f"the run remembered what happened at steps {wanted.start} to {wanted.stop - 1} of every environment, "
                "but that is missing: memory-*.safetensors of its folder, or `memory` of `Training`."
            )

    @property
    def remembers(self) -> int:
        """Steps of every environment that are remembered."""
        return self.learner.rows if isinstance(self.learner, DQN) else 0

    def agent(self) -> Agent:
        """What has been learned so far."""
        state = self._run.state
        parameters = jax.tree.map(jnp.copy, state.parameters)  # the run's own are given away
        return make_agent(self.learner, parameters, getattr(state, "eta", None))

    def close(self) -> None:
        """Ends the environments."""
        self._run.close()


def train(
    config: TrainConfig,
    *,
    default: Any = None,
    folder: Folder | None = None,
    checkpoint_seconds: float = 20.0,
    on_report: Callable[[Training, list[Metrics]], None] | None = None,
    seconds: float = 2.0,
    stop: Callable[[], bool] = lambda: False,
    show_progress: bool = False,
) -> Agent:
    """Trains an agent.

    Args:
        config: What is trained on what.
        default: A default policy in place of the config's: a table, a callable, a model, anything `make_default` knows.
        folder: Where the run is kept, `lz.RunFolder("runs/one")`. If it is there already, it goes on from its last
            checkpoint.
        checkpoint_seconds: Between two checkpoints in the folder: what may be lost.
        on_report: Called every `seconds` and at the end with the run and what ended since.
        seconds: Between two reports.
        stop: Asked after every iteration: True ends the run with a last report, a checkpoint and `KeyboardInterrupt`.
        show_progress: A bar on standard error: steps a second, score and control at a price, the time left.

    Returns:
        A `DialAgent` or a `DQNAgent`.
    """
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config is {config!r}, expected lz.learn.TrainConfig(env).")
    if not checkpoint_seconds > 0.0:
        raise ValueError(f"checkpoint_seconds is {checkpoint_seconds}, expected a number above 0.")
    config = config if default is None else replace(config, default=GIVEN)
    if isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder is {folder!r}, expected lz.RunFolder({os.fspath(folder)!r}).")
    checkpoint: Checkpoint | None = None
    memory: list[Memory] = []
    with ExitStack() as ending:
        begun = folder is not None and folder.begun
        if folder is not None and begun:
            ending.enter_context(folder.claimed())
            config = folder.same(config)
            checkpoint, memory = folder.picked_up()
        if show_progress:
            of, first = config.settings, 0 if checkpoint is None else checkpoint.step
            tell = ending.enter_context(training_bar(of.iterations * of.n_envs * of.rollout, first))
        run = Training(config, None if checkpoint is None else checkpoint.arrays, memory, default)
        ending.callback(run.close)
        if folder is not None and not begun:  # nothing is written of what cannot be trained
            ending.enter_context(folder.claimed())
            if folder.begun:
                raise ValueError("another process has just begun a run in the same folder: give another folder.")
            folder.create(config)
        if folder is not None:
            seconds = min(seconds, checkpoint_seconds)
        told = saved = time.monotonic()
        stopped = False
        while not (run.done or stopped):
            run.advance()
            stopped = stop() and not run.done
            last, now = stopped or run.done, time.monotonic()
            if last or now - told >= seconds:
                metrics = run.report()
                if show_progress:
                    tell(run.step, metrics)
                if on_report is not None:
                    on_report(run, metrics)
                if folder is not None:
                    folder.append(metrics)
                    if last or now - saved >= checkpoint_seconds:
                        folder.keep(run)
                        saved = time.monotonic()
                told = time.monotonic()
        if stopped:
            raise KeyboardInterrupt
        return run.agent()
