"""A training run in progress: its state, what it reports, and how it is continued from a checkpoint.

The best checkpoint is chosen by the quality of the run, the mean return after the price. Episodes are collected in
windows. A window ends after a fixed number of iterations, and not at a time of the clock, so that the best checkpoint
of a run depends on its config only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.deep import replay
from lazymdp.learn.deep.agent import Agent
from lazymdp.learn.deep.dqn import DQN, DQNLearner
from lazymdp.learn.deep.factory import make_agent, make_algorithm, warm_start
from lazymdp.learn.deep.gymnasium_env import EnvFactory
from lazymdp.learn.deep.loops import make_loop
from lazymdp.learn.deep.metrics_file import Metrics
from lazymdp.learn.deep.named_arrays import Arrays
from lazymdp.learn.deep.networks import is_finite
from lazymdp.learn.deep.run_folder import Checkpoint, ReplayPart
from lazymdp.learn.deep.train_config import TrainConfig

VALUE_MARGIN = 10.0
"""A run is stopped if a value exceeds both the largest possible return and the initial values by this factor."""
LARGEST_GAMMA = 0.9999
"""Upper limit of the discount factor from which the largest possible return is computed."""
ENOUGH_EPISODES = 20
"""Smallest number of episodes from which a quality is computed."""
WINDOWS = 50
"""Number of windows in a run, before its extensions."""
_NAMES = ("quality.sum", "quality.episodes", "quality.mean")


class Diverged(RuntimeError):
    """Training has diverged: values are not finite, or exceed any possible return."""


class Training:
    """A training run in progress.

    Args:
        config: The run.
        arrays: State to continue from, of a run with the same config.
        parts: Replay buffer of that run, oldest part first. If it is None, the buffer is lost, and it is filled again
            before the run continues: the network acts without learning for as many steps as the buffer held.
        default_policy: Default policy that replaces the config's, in any form that `make_default_policy` accepts.
        env: Environment that replaces the config's: an id or a factory.

    Attributes:
        quality: Mean return after the price of the window of episodes that ended with the last iteration; None if no
            window ended, or if it had too few episodes. See `Quality.close`.
    """

    def __init__(
        self,
        config: TrainConfig,
        arrays: Arrays | None = None,
        parts: Sequence[ReplayPart] | None = (),
        default_policy: Any = None,
        env: str | EnvFactory | None = None,
    ) -> None:
        self.config = config
        self.algorithm = make_algorithm(config, default_policy, env=env)
        parameters = warm_start(self.algorithm) if arrays is None else None
        self._loop = make_loop(self.algorithm, config.seed, parameters, config.ends)
        self.quality: float | None = None
        self._window = Quality(len(config.settings.reported_etas))
        self._unreported: list[NDArray[np.float64]] = []  # [5, K] episodes
        if arrays is not None:
            self._loop.restore(arrays)
            if not is_finite(self._loop.run.learner.parameters):
                raise ValueError("the checkpoint is damaged: the network's weights are not finite.")
            self._window.restore(arrays)
            if parts is None:
                self._refill()
            else:
                self._check_complete(parts)
            for part in parts or ():
                self._put_back(part)

    @property
    def step(self) -> int:
        """Agent steps so far."""
        return self._loop.iteration * self.config.settings.steps_per_iteration

    @property
    def done(self) -> bool:
        """Whether all steps have been made."""
        return self._loop.iteration >= self.config.ends[-1]

    def advance(self) -> None:
        """Makes one iteration."""
        self._loop.advance()
        # Windows end after a number of iterations, so that the best checkpoint does not depend on the clock.
        iteration, every = self._loop.iteration, max(1, self.config.settings.iterations // WINDOWS)
        self.quality = None
        if iteration % every == 0 or iteration in self.config.ends:
            self._collect()
            self.quality = self._window.close()

    def report(self) -> list[Metrics]:
        """Returns metrics of the episodes that ended since the last report; raises `Diverged` if training diverges."""
        self.check_values()
        self._collect()
        _, eta, returns, steps, controls = np.concatenate([np.zeros((5, 0)), *self._unreported], axis=1)
        self._unreported.clear()
        prices, price = self.config.settings.reported_etas, self._nearest(eta)
        metrics = []
        for group in np.unique(price):
            here = price == group
            rate = float(controls[here].sum() / steps[here].sum())
            reported = float(prices[group]) if self.config.settings.is_range else float(eta[here].mean())
            means = float(returns[here].mean()), float(steps[here].mean())
            metrics.append(Metrics(self.step, reported, int(here.sum()), *means, rate))
        return metrics

    def checkpoint(self) -> Checkpoint:
        """Returns a snapshot of the run, without its replay buffer."""
        return Checkpoint(self.arrays(), self.step)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the state of the run by name, without its replay buffer."""
        self._collect()
        return {**self._loop.arrays(), **self._window.arrays()}

    @property
    def replay_rows(self) -> int:
        """Number of steps per environment that the replay buffer holds; 0 if there is no buffer."""
        learner = self._loop.run.learner
        return learner.replay.reward.shape[0] if isinstance(learner, DQNLearner) else 0

    def replay_part(self, since: int = 0) -> ReplayPart | None:
        """Returns the replay buffer from per-environment step `since` on, or None if there is no buffer."""
        learner, stored = self._loop.run.learner, self._stored_steps()
        if not isinstance(learner, DQNLearner):
            return None
        first, last = max(since, stored.start), stored.stop - 1
        return ReplayPart(first, last, replay.to_arrays(learner.replay, first, last))

    def agent(self) -> Agent:
        """Returns the agent as trained so far."""
        run = self._loop.run
        parameters = jax.tree.map(jnp.copy, run.learner.agent)  # the run's own will be donated
        return make_agent(self.algorithm, parameters, float(run.price.low))

    def close(self) -> None:
        """Closes the environments."""
        self._loop.close()

    def _collect(self) -> None:
        """Takes over the episodes that have ended."""
        episodes = self._loop.episodes()
        _, eta, returns, _, controls = episodes
        self._window.add(self._nearest(eta), returns - eta * controls)
        self._unreported.append(episodes)

    def _nearest(self, eta: NDArray[np.float64]) -> NDArray[np.intp]:
        """Returns `[K]` indices of the reported prices that are the nearest to `[K]` prices, on a logarithmic scale."""
        if not self.config.settings.is_range:
            return np.zeros(eta.size, dtype=np.intp)
        prices = np.array(self.config.settings.reported_etas)
        return np.abs(np.log10(eta + 1e-3)[:, None] - np.log10(prices + 1e-3)).argmin(axis=1)

    def _stored_steps(self) -> range:
        """Returns the range of per-environment steps in the replay buffer."""
        now = self._loop.iteration * self.config.settings.rollout
        return range(max(now - self.replay_rows + 1, 0), now + 1) if self.replay_rows else range(0)

    def _refill(self) -> None:
        """Fills a replay buffer that was lost; does nothing if there is no buffer."""
        needed = min(-(-len(self._stored_steps()) // self.config.settings.rollout), self._loop.iteration)
        if isinstance(self.algorithm, DQN) and needed:
            self._loop.refill(self.algorithm.without_updates(), needed)

    def _put_back(self, part: ReplayPart) -> None:
        run = self._loop.run
        if isinstance(run.learner, DQNLearner):
            buffer = replay.from_arrays(run.learner.replay, part.first, part.arrays)
            self._loop.run = run._replace(learner=run.learner._replace(replay=buffer))

    def _check_complete(self, parts: Sequence[ReplayPart]) -> None:
        """Raises an error if steps of the replay buffer are missing."""
        missing = self._stored_steps()
        for part in parts:
            if part.first <= missing.start:
                missing = range(max(missing.start, part.last + 1), missing.stop)
        if missing:
            raise ValueError(
                f"steps {missing.start} to {missing.stop - 1} of every environment are missing from the replay buffer: "
                "replay-*.safetensors of the run's folder, or `parts` of `Training`."
            )

    def check_values(self) -> None:
        """Raises `Diverged` if values or rewards are not finite, or values exceed any possible return."""
        run, gamma = self._loop.run, min(self.config.settings.gamma, LARGEST_GAMMA)
        reward, first, value = (float(x.max()) for x in (run.actors.reward, run.actors.first_value, run.actors.value))
        if not math.isfinite(reward):
            name = getattr(self.algorithm.env, "name", self.config.env)
            raise Diverged(f"{name} returned a reward that is not finite, within {self.step:,} steps.")
        if not is_finite(run.learner.parameters):
            raise Diverged(
                f"the network's weights are not finite after {self.step:,} steps: use a lower learning rate."
            )
        largest = max(1.0, reward) / (1.0 - gamma)
        if value > VALUE_MARGIN * max(largest, first):
            raise Diverged(
                f"values reach {value:.3g} after {self.step:,} steps, although no return can exceed {largest:.3g}: "
                "training diverges. Use a lower learning rate."
            )


class Quality:
    """Mean returns after the price, for each of P reported prices.

    Args:
        count: Number of reported prices, P.
    """

    def __init__(self, count: int) -> None:
        self._sum, self._count = np.zeros(count), np.zeros(count, dtype=np.int64)  # of the current window
        self._mean = np.full(count, np.nan)  # of the last window with episodes at this price

    def add(self, price: NDArray[np.intp], net_return: NDArray[np.float64]) -> None:
        """Adds episodes to the window.

        Args:
            price: `[K]` indices of their reported prices.
            net_return: `[K]` returns after the price.
        """
        for one in np.unique(price):
            # One after the other, so that the sum does not depend on how the episodes are divided among calls.
            self._sum[one] = np.cumsum(np.append(self._sum[one], net_return[price == one]))[-1]
            self._count[one] += (price == one).sum()

    def close(self) -> float | None:
        """Ends the window and returns its quality. With too few episodes, returns None and continues the window.

        The quality is the mean over prices of the mean at each price, so it does not depend on how many episodes
        happened to end at each price. A price without episodes keeps its last mean. The result is None until every
        price has a mean.
        """
        if self._count.sum() < ENOUGH_EPISODES:
            return None
        seen = self._count > 0
        self._mean[seen] = self._sum[seen] / self._count[seen]
        self._sum[:], self._count[:] = 0.0, 0
        return None if np.isnan(self._mean).any() else float(self._mean.mean())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the state by name."""
        return dict(zip(_NAMES, (self._sum.copy(), self._count.copy(), self._mean.copy()), strict=True))

    def restore(self, arrays: Arrays) -> None:
        """Continues from the `arrays` of another instance."""
        if not all(name in arrays and arrays[name].shape == self._sum.shape for name in _NAMES):
            raise ValueError(f"the checkpoint lacks {', '.join(_NAMES)} of this run: it belongs to another version.")
        self._sum, self._count, self._mean = (arrays[name].copy() for name in _NAMES)
