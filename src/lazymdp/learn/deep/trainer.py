"""Training as a run that survives interruption.

The whole state of a run, including environments and random keys, is arrays. A run that continues from a checkpoint
therefore makes the same steps as one that was never interrupted, bit for bit on a CPU. The exception is Atari, whose
emulators cannot be saved: there, a resumed run starts new episodes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lazymdp._progress import training_bar
from lazymdp.learn.deep import replay
from lazymdp.learn.deep.agent import Agent
from lazymdp.learn.deep.compiled_defaults import raising_failures
from lazymdp.learn.deep.config import default_config, is_control
from lazymdp.learn.deep.dqn import DQNLearner
from lazymdp.learn.deep.factory import make_agent, make_algorithm, warm_start
from lazymdp.learn.deep.host_env import EnvFactory, check_env, measure_reward_scale
from lazymdp.learn.deep.loops import make_loop
from lazymdp.learn.deep.metrics_file import Metrics
from lazymdp.learn.deep.named_arrays import Arrays, is_finite
from lazymdp.learn.deep.quality import WINDOWS, Quality
from lazymdp.learn.deep.run_folder import CHECKPOINTS, Checkpoint, ReplayPart, RunFolder
from lazymdp.learn.deep.train_config import GIVEN_IN_PYTHON, TrainConfig
from lazymdp.learn.deep.trust import check_trusted

VALUE_MARGIN = 10.0
"""A run is stopped if a value exceeds both the largest possible return and the initial values by this factor."""
LARGEST_GAMMA = 0.9999
"""Upper limit of the discount factor from which the largest possible return is computed."""


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
                needed = -(-len(self._stored_steps()) // config.settings.rollout)
                self._loop.refill(min(needed, self._loop.iteration))
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
        parameters = jax.tree.map(jnp.copy, run.learner.parameters)  # the run's own will be donated
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


def train(
    env: str | EnvFactory,
    *,
    env_kwargs: dict[str, Any] | None = None,
    algorithm: str | None = None,
    default_policy: Any = "uniform",
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    checkpoint_seconds: float = 20.0,
    show_progress: bool = False,
    on_report: Callable[[Training, list[Metrics]], None] | None = None,
    **settings: Any,
) -> Agent:
    """Trains an agent.

    Args:
        env: `minatar/GAME`, `ALE/GAME-v5`, the id of any Gymnasium environment with discrete actions (`module:Id-v0`
            imports the module first), or a factory: a function without arguments that returns a new Gymnasium
            environment. A factory is not saved with the run, so `load` and `resume` need it again.
        env_kwargs: Keyword arguments of `gymnasium.make`, such as `{"is_slippery": False}`; only with an id.
        algorithm: `pqn` (parallel Q(lambda); the fastest in compiled environments) or `dqn` (replay and a target
            network; needs fewer samples). By default, `pqn` for MinAtar games and `dqn` for all other environments.
        default_policy: Policy that acts when the agent is lazy, in any form that `lz.LazyAction` accepts: `uniform`,
            `noop`, `repeat`, an action, an `[S, A]` table, a callable for one observation or for a batch, a
            Stable-Baselines3 model, ...; the folder of a run; or `module:function`. Python objects are not saved with
            the run, so `load` and `resume` need them again.
        seed: Random seed.
        folder: Folder of the run. If it already holds this run, training continues from the last checkpoint. By
            default, nothing is written.
        checkpoint_seconds: Seconds between checkpoints; an interruption loses about this much work.
        show_progress: Show a progress bar on standard error.
        on_report: Called about every two seconds and at the end, with the run and its new metrics.
        settings: Settings of the algorithm that replace the defaults for this environment, such as `eta` and `steps`;
            see `lz.learn.PQNConfig` and `lz.learn.DQNConfig`.
    """
    check_env(env)
    if default_policy is None:
        raise TypeError("default_policy is None, expected a default policy, such as 'uniform'.")
    name = env if isinstance(env, str) else GIVEN_IN_PYTHON
    if isinstance(default_policy, int | np.integer) and not isinstance(default_policy, bool):
        default_policy = str(int(default_policy))
    named = isinstance(default_policy, str | os.PathLike)
    if is_control(name) and "reward_scale" not in settings:
        settings["reward_scale"] = measure_reward_scale(env, env_kwargs)
    chosen = default_config(name, algorithm, **settings)
    policy = os.fspath(default_policy) if named else GIVEN_IN_PYTHON
    return run_training(
        TrainConfig(name, chosen, policy, seed, {} if env_kwargs is None else env_kwargs),
        env=None if isinstance(env, str) else env,
        default_policy=None if named else default_policy,
        folder=None if folder is None else RunFolder(folder),
        checkpoint_seconds=checkpoint_seconds,
        show_progress=show_progress,
        on_report=on_report,
    )


def resume(
    folder: str | os.PathLike[str],
    *,
    steps: int | None = None,
    which: str = "last",
    default_policy: Any = None,
    env: EnvFactory | None = None,
    trust: bool = False,
    checkpoint_seconds: float = 20.0,
    show_progress: bool = False,
    on_report: Callable[[Training, list[Metrics]], None] | None = None,
) -> Agent:
    """Continues a run from its last or best checkpoint, and extends it if `steps` is given.

    In an extension, the schedules (epsilon, learning rate) stay at their final values, and the replay buffer is kept.
    An extended run is therefore not equal to a run that was started with more steps.

    Args:
        folder: Folder of the run.
        steps: New total number of agent steps, counted from the start of the run; by default, the run is not extended.
        which: The `last` or the `best` checkpoint. From the best one, the run forgets everything that came after it.
            Its replay buffer is not on disk: `dqn` first fills it again, by acting without learning.
        default_policy: The default policy, if it was given as a Python object.
        env: The environment, if it was given as a factory.
        trust: Allow the run to run code that it names: to import the modules of its environment (`module:Id-v0`) and
            its default policy (`module:function`), and to read a Stable-Baselines3 model, which is a pickle.
        checkpoint_seconds: Seconds between checkpoints.
        show_progress: Show a progress bar on standard error.
        on_report: Called about every two seconds and at the end, with the run and its new metrics.
    """
    run = RunFolder(folder)
    config = run.config()
    for name, given, saved in (("env", env, config.env), ("default_policy", default_policy, config.default_policy)):
        if given is not None and saved != GIVEN_IN_PYTHON:
            raise ValueError(f"{name} is {given!r}, but {run.path} is a run with {name} {saved!r}: leave it out.")
    if which not in CHECKPOINTS:
        raise ValueError(f"which is {which!r}, expected last or best.")
    check_trusted(run.path, config, trust, "lz.learn.resume", env=env is None, default_policy=default_policy is None)
    return run_training(
        config,
        env=env,
        default_policy=default_policy,
        folder=run,
        which=which,
        extend_to=steps,
        checkpoint_seconds=checkpoint_seconds,
        show_progress=show_progress,
        on_report=on_report,
    )


def run_training(
    config: TrainConfig,
    *,
    env: str | EnvFactory | None = None,
    default_policy: Any = None,
    folder: RunFolder | None = None,
    which: str = "last",
    extend_to: int | None = None,
    checkpoint_seconds: float = 20.0,
    show_progress: bool = False,
    on_report: Callable[[Training, list[Metrics]], None] | None = None,
    report_seconds: float = 2.0,
    stop: Callable[[], bool] = lambda: False,
) -> Agent:
    """Trains an agent, given a config; called by `train`, by `resume` and by the command line.

    Args:
        config: The run.
        env: Environment that replaces the config's.
        default_policy: Default policy that replaces the config's.
        folder: Folder of the run. If it already holds this run, training continues from the last checkpoint.
        which: The checkpoint from which a run that the folder holds already continues, `last` or `best`.
        extend_to: New total number of agent steps of a run that the folder holds already.
        checkpoint_seconds: Seconds between checkpoints.
        show_progress: Show a progress bar on standard error.
        on_report: Called at every report with the run and its new metrics.
        report_seconds: Seconds between reports.
        stop: Called after every iteration. If it returns True, the run ends with a report, a checkpoint and
            `KeyboardInterrupt`.
    """
    if not isinstance(checkpoint_seconds, Real) or not checkpoint_seconds > 0.0:
        raise ValueError(f"checkpoint_seconds is {checkpoint_seconds!r}, expected a number above 0.")
    checkpoint: Checkpoint | None = None
    best, best_quality = None, -math.inf  # since the last checkpoint, and of the whole run
    parts: list[ReplayPart] = []
    with ExitStack() as closing:
        exists = folder is not None and folder.exists
        if folder is not None and exists:
            closing.enter_context(folder.claimed())
            here = folder.check_same(config)
            config = here if extend_to is None else here.extended(extend_to)
            if default_policy is None:
                folder.check_copies()
            checkpoint, parts = folder.resume(which)
        bar = None
        if show_progress:
            first = 0 if checkpoint is None else checkpoint.step
            bar = closing.enter_context(training_bar(config.total_steps, first))
        state = None if checkpoint is None else checkpoint.arrays
        run = Training(config, state, None if which == "best" else parts, default_policy, env)
        closing.callback(run.close)
        if folder is not None and exists:  # everything has been read: only now, the folder is changed
            if which == "best":
                folder.save(run.checkpoint(), run.replay_part(), run.replay_rows)
            folder.rewind()
            best_quality = folder.best_quality
            if config != here:  # after this, an interrupted run ends at the new total
                folder.extend(config)
        if folder is not None and not exists:  # only now, so that a run that cannot start writes nothing
            closing.enter_context(folder.claimed())
            if folder.exists:
                raise ValueError(f"another process has just started a run in {folder.path}: give another folder.")
            folder.create(config)
        if folder is not None:
            report_seconds = min(report_seconds, checkpoint_seconds)
        reported = saved = time.monotonic()
        stopped = False
        closing.enter_context(raising_failures(run.algorithm.default_policy))
        while not (run.done or stopped):
            run.advance()
            if folder is not None and run.quality is not None and run.quality >= best_quality:
                run.check_values()
                best, best_quality = Checkpoint(run.arrays(), run.step, run.quality), run.quality
            stopped = stop() and not run.done
            last, now = stopped or run.done, time.monotonic()
            if not last and now - reported < report_seconds:
                continue
            metrics = run.report()
            if bar is not None:
                bar(run.step, metrics)
            if on_report is not None:
                on_report(run, metrics)
            if folder is not None:
                folder.append(metrics)
                if last or now - saved >= checkpoint_seconds:
                    folder.save(run.checkpoint(), run.replay_part(folder.last_replay_step), run.replay_rows, best)
                    best = None
                    saved = time.monotonic()
            reported = time.monotonic()
        if stopped:
            raise KeyboardInterrupt
        return run.agent()
