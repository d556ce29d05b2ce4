"""Training as a run that survives interruption.

The whole state of a run, including environments and random keys, is arrays. A run that continues from a checkpoint
therefore makes the same steps as one that was never interrupted, bit for bit on a CPU. The exception is Atari, whose
emulators cannot be saved: there, a resumed run starts new episodes.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from lazymdp._arguments import check_callable, check_choice, check_number
from lazymdp._progress import say, show_settings, training_bar
from lazymdp.defaults.protocol import BadDefault
from lazymdp.learn.deep.agent import Agent
from lazymdp.learn.deep.compiled_defaults import NoProbabilities, raising_failures
from lazymdp.learn.deep.config import default_config, is_control
from lazymdp.learn.deep.env_failures import EnvironmentFailed
from lazymdp.learn.deep.factory import make_default_policy, make_env
from lazymdp.learn.deep.gymnasium_env import EnvFactory, check_env, measure_reward_scale
from lazymdp.learn.deep.metrics_file import Metrics
from lazymdp.learn.deep.run_folder import CHECKPOINTS, Checkpoint, ReplayPart, RunFolder
from lazymdp.learn.deep.train_config import GIVEN_IN_PYTHON, TrainConfig
from lazymdp.learn.deep.training_run import Diverged, Training
from lazymdp.learn.deep.trust import check_trusted, foreign_code, names_function

ASKED = 20
"""How often a default policy is asked about the same observations to find out whether it returns random actions."""


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
            the run, so `load` and `resume` need them again. If the policy does not tell its probabilities, because it
            returns random actions, and no `form` is given, the form is `augmented` (see `choose_form`).
        seed: Random seed.
        folder: Folder of the run. If it already holds this run, training continues from the last checkpoint. By
            default, nothing is written.
        checkpoint_seconds: Seconds between checkpoints; an interruption loses about this much work.
        show_progress: Show the settings of a new run, and a progress bar, on standard error.
        on_report: Called about every two seconds and at the end, with the run and its new metrics.
        settings: Settings of the algorithm that replace the defaults for this environment, such as `eta` and `steps`;
            see `lz.learn.PQNConfig` and `lz.learn.DQNConfig`.
    """
    run = None if folder is None else RunFolder(folder)
    if default_policy is None:
        raise TypeError("default_policy is None, expected a default policy, such as 'uniform'.")
    if isinstance(default_policy, int | np.integer) and not isinstance(default_policy, bool):
        default_policy = str(int(default_policy))
    named = isinstance(default_policy, str | os.PathLike)
    policy = os.fspath(default_policy) if named else GIVEN_IN_PYTHON
    config = make_config(env, algorithm, settings, policy, seed, env_kwargs)
    if "form" not in settings:
        config = choose_form(config, env, default_policy, run, say if show_progress else None)
    return run_training(
        config,
        env=None if isinstance(env, str) else env,
        default_policy=None if named else default_policy,
        folder=run,
        checkpoint_seconds=checkpoint_seconds,
        show_progress=show_progress,
        on_report=on_report,
    )


def make_config(
    env: str | EnvFactory,
    algorithm: str | None,
    settings: dict[str, Any],
    default_policy: str,
    seed: int,
    env_kwargs: dict[str, Any] | None = None,
) -> TrainConfig:
    """Returns the config of a new run, with the defaults for its environment; called by `train` and the command line.

    Everything else is checked before the rewards of the environment are measured, because its steps may be slow.

    Args:
        env: Id of the environment, or a factory.
        algorithm: `pqn`, `dqn`, or None for the one that suits the environment.
        settings: Settings that replace the defaults.
        default_policy: The default policy as text.
        seed: Random seed.
        env_kwargs: Keyword arguments of `gymnasium.make`.
    """
    check_env(env)
    name = env if isinstance(env, str) else GIVEN_IN_PYTHON
    chosen = default_config(name, algorithm, **settings)
    config = TrainConfig(name, chosen, default_policy, seed, {} if env_kwargs is None else env_kwargs)
    if not is_control(name) or "reward_scale" in settings:
        return config
    scale = measure_reward_scale(env, env_kwargs)
    return replace(config, settings=default_config(name, algorithm, **settings, reward_scale=scale))


def choose_form(
    config: TrainConfig,
    env: str | EnvFactory,
    default_policy: Any,
    folder: RunFolder | None = None,
    tell: Callable[[str], None] | None = None,
) -> TrainConfig:
    """Returns the config of a run for which no form was given, with the form that suits its default policy.

    The structured form needs the probabilities of the default policy. If this policy returns random actions instead,
    the form is `augmented`. It is asked several times about first observations of the environment to find out; what is
    random very rarely may go unnoticed. A run that the folder holds already keeps its form.

    Args:
        config: The config with the default form.
        env: The environment, as given to `train`.
        default_policy: The default policy, as given to `train`.
        folder: Folder of the run.
        tell: Called with a sentence if the form is not the default one.
    """
    if isinstance(default_policy, str | os.PathLike) and not names_function(os.fspath(default_policy)):
        return config  # what else has a name tells its probabilities
    augmented = replace(config, settings=replace(config.settings, form="augmented"))
    if folder is not None and folder.exists:
        return config if folder.config().settings.form == config.settings.form else augmented
    made = make_env(env, 1, env_kwargs=config.env_kwargs)
    try:
        make_default_policy(default_policy, made, times=ASKED)
    except NoProbabilities:
        if tell is not None:
            tell(
                "The default policy returns random actions without their probabilities, which the structured form "
                "needs. The form is therefore augmented."
            )
        return augmented
    finally:
        made.close()
    return config


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
    check_choice(which, "which", CHECKPOINTS)
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
    on_window: Callable[[Training], None] = lambda run: None,
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
        show_progress: Show the settings of a new run, and a progress bar, on standard error.
        on_report: Called at every report with the run and its new metrics.
        report_seconds: Seconds between reports.
        on_window: Called with the run at the end of every window of episodes, when its `quality` is known. Unlike
            reports, windows end after a number of iterations.
        stop: Called after every iteration. If it returns True, the run ends with a report, a checkpoint and
            `KeyboardInterrupt`.
    """
    expected = "a number above 0"
    checkpoint_seconds = check_number(checkpoint_seconds, "checkpoint_seconds", 0.0, math.inf, expected, above=True)
    if on_report is not None:
        check_callable(on_report, "on_report", "a function of the run and its metrics, or None")
    try:
        return _run_training(
            config, env, default_policy, folder, which, extend_to, checkpoint_seconds, show_progress, on_report,
            report_seconds, on_window, stop,
        )  # fmt: skip
    except (EnvironmentFailed, BadDefault, Diverged) as error:
        if folder is None or not folder.exists:
            raise
        where = f"{config.env}: " if isinstance(error, BadDefault) else ""
        raise type(error)(f"{where}{error} {_what_remains(folder, isinstance(error, Diverged))}") from error


def _what_remains(folder: RunFolder, diverged: bool) -> str:
    """Returns in words which checkpoint remains after a failure, and how to go on."""
    step = folder.step()
    if step is None:
        return f"In {folder.path}, no checkpoint was written."
    if diverged:  # a run that continues has the same learning rate
        return f"In {folder.path}, the last good checkpoint is from step {step:,}."
    config = folder.config()
    again = [name for name in ("env", "default_policy") if getattr(config, name) == GIVEN_IN_PYTHON]
    call = f"lazymdp resume {folder.path}{' --trust' if foreign_code(config) else ''}"
    if again:
        call = f"lz.learn.resume({str(folder.path)!r}, {', '.join(f'{name}=...' for name in again)})"
    return f"In {folder.path}, the last good checkpoint is from step {step:,}: correct the cause, then run `{call}`."


def _run_training(
    config: TrainConfig, env: str | EnvFactory | None, default_policy: Any, folder: RunFolder | None, which: str,
    extend_to: int | None, checkpoint_seconds: float, show_progress: bool,
    on_report: Callable[[Training, list[Metrics]], None] | None, report_seconds: float,
    on_window: Callable[[Training], None], stop: Callable[[], bool],
) -> Agent:  # fmt: skip
    """Trains an agent; the arguments are those of `run_training`."""
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
            if checkpoint is None:
                name = config.env if config.env != GIVEN_IN_PYTHON else f"an environment {config.env}"
                more = {"default_policy": config.default_policy, "seed": config.seed}
                show_settings(config.algorithm, name, asdict(config.settings) | more)
            first = 0 if checkpoint is None else checkpoint.step
            bar = closing.enter_context(training_bar(config.total_steps, first))
        state = None if checkpoint is None else checkpoint.arrays
        run = Training(config, state, None if which == "best" else parts, default_policy, env)
        closing.callback(run.close)
        if show_progress and checkpoint is not None:  # now that nothing can be refused
            say(f"Continuing from step {checkpoint.step:,} of {config.total_steps:,}.")
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
            if run.quality is not None:
                on_window(run)
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
