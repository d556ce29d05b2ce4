"""The commands that train deep agents: `lazymdp train | resume`. JAX is imported only when one of them runs."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import time
from dataclasses import fields, make_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from lazymdp._progress import Rate, say
from lazymdp.cli.evaluate import EPISODES, Prices, Run, Share, check_amounts, check_control_rate, deep, show_evaluation
from lazymdp.cli.output import INTERRUPTED
from lazymdp.cli.signals import stopped_gently, terminated_like_interrupted
from lazymdp.learn.deep.config import ALGORITHMS, AlgorithmConfig, default_config
from lazymdp.learn.deep.env_failures import watched
from lazymdp.learn.deep.run_folder import RunFolder
from lazymdp.learn.deep.train_config import TrainConfig
from lazymdp.learn.deep.trust import check_trusted, foreign_code

Env = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
Seconds = Annotated[float | None, tyro.conf.arg(metavar="SECONDS", help_behavior_hint="")]
Episodes = Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")]
Out = Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="")]
_METAVARS = {
    "eta": "ETA | LOW HIGH", "steps": "INT", "zero_share": "SHARE", "zero_fraction": "SHARE",
    "prices_per_step": "INT", "control_budget": "SHARE", "budget_step": "FLOAT",
    "form": "{structured,augmented}", "n_envs": "INT", "rollout": "INT", "gamma": "FLOAT", "learning_rate": "FLOAT",
    "exploration_fraction": "SHARE", "final_epsilon": "FLOAT", "clip_rewards": "{True,False}",
    "network": "{nature,minatar,mlp}", "hidden": "INT [INT ...]", "final_learning_rate": "FLOAT", "epochs": "INT",
    "minibatches": "INT", "lambda_": "FLOAT", "max_grad_norm": "FLOAT", "decay_fraction": "SHARE",
    "layer_norm": "{True,False}", "huber": "{True,False}", "reward_scale": "FLOAT", "exploration_persistence": "FLOAT",
    "adam_epsilon": "FLOAT", "buffer_size": "INT", "act_with_target": "{True,False}",
    "batch_size": "INT", "learning_starts": "INT", "update_interval": "INT", "target_update_interval": "INT",
    "warm_start": "RUN",
}  # fmt: skip

_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "control": ("CartPole-v1", {"reward_scale": 1.0}),
    "MinAtar": ("minatar/breakout", {}),
    "Atari": ("ALE/Pong-v5", {}),
}
"""An environment of each kind, and what is measured in it."""


def _field_docs(config: type[AlgorithmConfig]) -> dict[str, str]:
    """Return the docstrings of the fields of a config, including inherited fields."""
    docs: dict[str, str] = {}
    for kind in reversed(config.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                docs[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[union-attr]
    return docs


def defaults_by_kind(setting: str) -> tuple[str | None, dict[str, Any]]:
    """Return the only algorithm that has a setting, or None, and its default for each kind of environment."""
    only = [name for name, config in ALGORITHMS.items() if hasattr(config, setting)]
    algorithm = only[0] if len(only) == 1 else None
    made = {kind: default_config(env, algorithm, **measured) for kind, (env, measured) in _KINDS.items()}
    found = {kind: getattr(config, setting) for kind, config in made.items()}
    return algorithm, found | ({"control": "measured"} if setting == "reward_scale" else {})


def _defaults(setting: str) -> str:
    """Return the defaults of a setting, as text for the help."""
    algorithm, found = defaults_by_kind(setting)
    kinds: dict[str, list[str]] = {}
    for kind, value in found.items():
        values = value if isinstance(value, tuple) else (value,)
        shown = " ".join(f"{one:.4g}" if isinstance(one, float) else str(one) for one in values)
        kinds.setdefault(shown, []).append(kind)
    for_kinds = [f"{shown} for {' and '.join(same)}" for shown, same in kinds.items()]
    listed = ", ".join(for_kinds if len(kinds) > 1 else kinds)
    words = [f"{algorithm} only"] * (algorithm is not None) + [f"default: {listed}"] * (listed != "None")
    return f"({'; '.join(words)})" if words else ""


def _options() -> type[Any]:
    """Return a dataclass with the settings of all algorithms as options, each None unless it is given."""
    options: dict[str, tuple[str, Any, Any]] = {}
    for config in ALGORITHMS.values():
        hints, docs = get_type_hints(config), _field_docs(config)
        for field in fields(config):
            kind = Prices if field.name == "eta" else hints[field.name] | None
            argument = tyro.conf.arg(
                name=field.name.strip("_"),
                help=docs[field.name],
                metavar=_METAVARS.get(field.name),
                help_behavior_hint=_defaults(field.name),
            )
            options[field.name] = (field.name, Annotated[kind, argument], None)
    return make_dataclass("Settings", list(options.values()), frozen=True)


Settings = _options()


def train(
    env: Env,
    algorithm: Annotated[Literal["pqn", "dqn"] | None, tyro.conf.arg(help_behavior_hint="")] = None,
    out: Out = None,
    default_policy: str = "uniform",
    seed: int = 0,
    episodes: Episodes = None,
    control_rate: Share = None,
    checkpoint_seconds: float = 20.0,
    step_timeout: Seconds = None,
    tensorboard: bool = False,
    json: bool = False,
    settings: Settings = Settings(),  # type: ignore[valid-type]  # noqa: B008 (frozen)
) -> int:
    """Train an agent. This needs the extra `deep`, and `minatar` or `atari` for their games.

    With a range of prices (the default), the agent is a dial: one network for all prices. With a single price, it is a
    specialist. Settings that are not given have the default of the algorithm for this environment. `lazymdp resume`
    continues an interrupted run.

    Args:
        env: minatar/GAME, ALE/GAME-v5, or the id of any Gymnasium environment with discrete actions. module:Id-v0 first
            imports a module, which may be a file in the current folder.
        algorithm: pqn (parallel Q(lambda); the fastest in compiled environments) or dqn (replay and a target network;
            needs fewer samples); by default pqn for MinAtar games and dqn for all other environments.
        out: Folder of the run; by default runs/ALGORITHM-ENV-SEED.
        default_policy: Policy that acts when the agent is lazy: uniform, noop, repeat, the number of an action, the
            folder of a run (RUN, RUN:epsilon=0.1, RUN:softmax=0.5), the file of a Stable-Baselines3 model, or a
            function of the observation (module:function).
        seed: Random seed.
        episodes: Episodes per price in the evaluation after training; by default 10 to 100, as many as take no longer
            than the training did. If 10 take longer, prices are left out.
        control_rate: After training a dial, find the price at which it takes control in at most this share of steps.
        checkpoint_seconds: Seconds between checkpoints; an interruption loses about this much work.
        step_timeout: End with exit code 2 if the environment takes longer than this to be made, reset, stepped or
            closed, or the default policy to answer, in seconds; by default there is no limit.
        tensorboard: Also write TensorBoard events to the folder.
        json: Print JSON.
        settings: Settings of the algorithm. The defaults depend on the kind of environment: MinAtar, Atari, or control
            (all others, here with rewards of size 1 and the default number of steps). They are those of the algorithm
            that is chosen without --algorithm. A run prints the settings that it uses.
    """
    given = {name: value for name, value in vars(settings).items() if value is not None}
    if "eta" in given:
        given["eta"] = given["eta"] if len(given["eta"]) != 1 else given["eta"][0]
    check_amounts(EPISODES if episodes is None else episodes, checkpoint_seconds, step_timeout)
    with watched(step_timeout, lambda: _way_on(folder)):
        folder = RunFolder(out or Path("runs"))
        config = deep("trainer").make_config(env, algorithm, given, default_policy, seed)
        check_control_rate(control_rate, config.settings)
        if "form" not in given:
            config = deep("trainer").choose_form(config, env, default_policy, tell=say)
        if tensorboard:
            _summary_writer()
        deep("factory").check(config)
        folder = RunFolder(out or Path("runs") / f"{config.algorithm}-{re.sub('[/:]', '-', env)}-{seed}")
        folder.create(config)
        return _train(folder, config, 0, episodes, checkpoint_seconds, tensorboard, json, control_rate)


def resume(
    run: Run,
    steps: Annotated[int | None, tyro.conf.arg(help_behavior_hint="")] = None,
    from_: Annotated[Literal["last", "best"], tyro.conf.arg(name="from")] = "last",
    episodes: Episodes = None,
    control_rate: Share = None,
    checkpoint_seconds: float = 20.0,
    step_timeout: Seconds = None,
    tensorboard: bool = False,
    trust: bool = False,
    json: bool = False,
) -> int:
    """Continue an interrupted run from its last checkpoint, or extend a run.

    Everything in the folder is verified before anything in it is changed.

    In an extension, the schedules (epsilon, learning rate) stay at their final values, and the replay buffer is kept.
    An extended run is therefore not equal to a run that was started with more steps.

    Args:
        run: Folder of the run.
        steps: New total number of agent steps, counted from the start of the run.
        from_: Checkpoint to continue from. From the best one, what came after it is deleted, and dqn first fills its
            replay buffer again, by acting without learning.
        episodes: Episodes per price in the evaluation after training; by default 10 to 100, as many as take no longer
            than the training did. If 10 take longer, prices are left out.
        control_rate: After training a dial, find the price at which it takes control in at most this share of steps.
        checkpoint_seconds: Seconds between checkpoints; an interruption loses about this much work.
        step_timeout: End with exit code 2 if the environment takes longer than this to be made, reset, stepped or
            closed, or the default policy to answer, in seconds; by default there is no limit.
        tensorboard: Also write TensorBoard events to the folder.
        trust: Allow the run to run code that it names: modules of its environment and default policy, or a pickle (a
            Stable-Baselines3 model).
        json: Print JSON.
    """
    check_amounts(EPISODES if episodes is None else episodes, checkpoint_seconds, step_timeout)
    folder = RunFolder(run)
    config = folder.config() if steps is None else folder.config().extended(steps)
    check_control_rate(control_rate, config.settings)
    check_trusted(folder.path, config, trust, "lz.learn.resume")
    if folder.step(from_) is None:
        folder.resume(from_)  # raises an error if a checkpoint is missing
    step, total = folder.step(from_) or 0, config.total_steps
    if step >= total:
        least = total + config.settings.steps_per_iteration
        say(f"{run} is already complete ({step:,} steps). To extend it, give --steps with at least {least}.")
        with watched(
            step_timeout, lambda: f"The run is complete. To evaluate it: lazymdp evaluate {run}{_trust(folder)}"
        ):
            agent = deep("factory").load(run, from_, trust=trust)
            return _evaluate_after_training(folder, agent, episodes, json, control_rate, None)
    with watched(step_timeout, lambda: _way_on(folder)):
        return _train(folder, config, step, episodes, checkpoint_seconds, tensorboard, json, control_rate, steps, from_)


def _train(
    folder: RunFolder, config: TrainConfig, first: int, episodes: int | None, seconds: float, tensorboard: bool,
    json: bool, control_rate: float | None, extend_to: int | None = None, which: str = "last",
) -> int:  # fmt: skip
    trainer, rate = deep("trainer"), Rate(first)
    trusted = _trust(folder)
    events: Any = None
    started = time.monotonic()

    with stopped_gently() as stop:

        def on_report(run: Any, metrics: list[Any]) -> None:
            nonlocal events
            stop.gently = True  # from now on, there is progress to save
            if tensorboard:
                events = events or _summary_writer()(str(folder.path / "events"), purge_step=first + 1)
                for row in metrics:
                    for name in ("mean_return", "length", "control_rate", "eta"):
                        tag = f"{name}/eta={row.eta:g}" if config.settings.is_range else name
                        events.add_scalar(tag, getattr(row, name), row.step)
                events.add_scalar("steps per second", rate(run.step), run.step)
                events.flush()

        try:
            agent = trainer.run_training(
                config, folder=folder, checkpoint_seconds=seconds, on_report=on_report, stop=stop, show_progress=True,
                extend_to=extend_to, which=which,
            )  # fmt: skip
        except KeyboardInterrupt:
            where = "the beginning" if (step := folder.step()) is None else f"step {step:,}"
            say(f"Interrupted. Continue from {where} with: lazymdp resume {folder.path}{trusted}")
            return INTERRUPTED
    say(f"Trained: {folder.path}")
    trained = time.monotonic() - started
    return _evaluate_after_training(folder, agent, episodes, json, control_rate, trained)


def _evaluate_after_training(
    folder: RunFolder, agent: Any, episodes: int | None, json: bool, control_rate: float | None, trained: float | None
) -> int:
    """Evaluate an agent; if no number of episodes is given, in no more time than the training took, in seconds."""
    with terminated_like_interrupted():
        try:
            total, seconds = folder.config().total_steps, trained if episodes is None else None
            played = show_evaluation(
                agent, None, episodes or EPISODES, 0, json, folder.path, total, control_rate=control_rate,
                seconds=seconds,
            )  # fmt: skip
            count, prices = played.returns.shape[1], len(agent.algorithm.config.reported_etas)
            if seconds is not None and count < EPISODES:
                fewer = f" at {played.etas.size} of {prices} prices" if played.etas.size < prices else ""
                say(
                    f"Only {count} episodes each{fewer}, to take no longer than the {seconds:.0f} s of training. For "
                    f"{EPISODES} episodes at all prices: lazymdp evaluate {folder.path}{_trust(folder)}"
                )
        except KeyboardInterrupt:
            say(f"Interrupted. Evaluate the agent with: lazymdp evaluate {folder.path}{_trust(folder)}")
            return INTERRUPTED
    return 0


def _way_on(folder: RunFolder) -> str:
    """Return how to go on after a hang, in words."""
    return f"To go on: lazymdp resume {folder.path}{_trust(folder)}" if folder.exists else "No run was started."


def _trust(folder: RunFolder) -> str:
    """Return the option that commands need to read this run, or nothing."""
    return " --trust" if foreign_code(folder.config()) else ""


def _summary_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard events need tensorboardX: pip install 'lazymdp[deep]'") from error
    return SummaryWriter
