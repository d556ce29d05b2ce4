"""The commands for deep agents: `lazymdp train | resume | evaluate`. JAX is imported only when one of them runs."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import asdict, fields, make_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import tyro
from rich.table import Table

from lazymdp._progress import ERR, Rate, progress_bars
from lazymdp.cli.output import INTERRUPTED, OUT, print_json
from lazymdp.cli.signals import stopped_gently, terminated_like_interrupted
from lazymdp.learn.deep.config import ALGORITHMS, AlgorithmConfig, TrainConfig, default_config, is_control
from lazymdp.learn.deep.run_folder import RunFolder
from lazymdp.measure.statistics import mean_interval

_NEAR_BUDGET = 0.02  # largest distance of the control rate from the budget that is not reported

Env = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Out = Annotated[Path | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER", help_behavior_hint="")]
Share = Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint="")]
Prices = tuple[float, ...] | None
_METAVARS = {
    "eta": "ETA | LOW HIGH", "steps": "INT", "zero_share": "SHARE", "control_budget": "SHARE", "budget_step": "FLOAT",
    "form": "{structured,augmented}", "n_envs": "INT", "rollout": "INT", "gamma": "FLOAT", "learning_rate": "FLOAT",
    "exploration_fraction": "SHARE", "final_epsilon": "FLOAT", "clip_rewards": "{True,False}",
    "network": "{nature,minatar,mlp}", "hidden": "INT [INT ...]", "final_learning_rate": "FLOAT", "epochs": "INT",
    "minibatches": "INT", "lambda_": "FLOAT", "max_grad_norm": "FLOAT", "decay_fraction": "SHARE",
    "layer_norm": "{True,False}", "reward_scale": "FLOAT", "exploration_persistence": "FLOAT",
    "adam_epsilon": "FLOAT", "buffer_size": "INT",
    "batch_size": "INT", "learning_starts": "INT", "update_interval": "INT", "target_update_interval": "INT",
    "warm_start": "RUN",
}  # fmt: skip


def _field_docs(config: type[AlgorithmConfig]) -> dict[str, str]:
    """Return the docstrings of the fields of a config, including inherited fields."""
    docs: dict[str, str] = {}
    for kind in reversed(config.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                docs[field.target.id] = " ".join(str(text.value.value).split())  # type: ignore[union-attr]
    return docs


def _defaults(setting: str) -> str:
    """Return the defaults of a setting for each algorithm, as text for the help."""
    found = {name: getattr(config, setting) for name, config in ALGORITHMS.items() if hasattr(config, setting)}
    shown = {name: " ".join(map(str, value)) if isinstance(value, tuple) else value for name, value in found.items()}
    if set(found.values()) == {None}:
        return "" if len(found) == len(ALGORITHMS) else f"({next(iter(found))} only)"
    if len(found) < len(ALGORITHMS):
        return "".join(f"({name} only; default: {value})" for name, value in shown.items())
    if len(set(found.values())) == 1:
        return f"(default: {next(iter(shown.values()))})"
    return f"(default: {', '.join(f'{value} for {name}' for name, value in shown.items())})"


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
    episodes: int = 100,
    control_rate: Share = None,
    checkpoint_seconds: float = 20.0,
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
        episodes: Episodes per price in the evaluation after training.
        control_rate: After training a dial, find the price at which it takes control in at most this share of steps.
        checkpoint_seconds: Seconds between checkpoints; an interruption loses about this much work.
        tensorboard: Also write TensorBoard events to the folder.
        json: Print JSON.
        settings: Settings of the algorithm. The defaults depend on the kind of environment; a run prints those it uses.
    """
    given = {name: value for name, value in vars(settings).items() if value is not None}
    if "eta" in given:
        given["eta"] = given["eta"] if len(given["eta"]) != 1 else given["eta"][0]
    if is_control(env) and "reward_scale" not in given:
        given["reward_scale"] = _deep("host_env").measure_reward_scale(env)
    chosen = default_config(env, algorithm, **given)
    config = TrainConfig(env, chosen, default_policy, seed)
    _check_control_rate(control_rate, chosen)
    _check_amounts(episodes, checkpoint_seconds)
    if tensorboard:
        _summary_writer()
    _deep("factory").check(config)
    folder = RunFolder(out or Path("runs") / f"{chosen.name}-{re.sub('[/:]', '-', env)}-{seed}")
    folder.create(config)
    _say(f"{chosen.name} on {env}: " + ", ".join(f"{name} {_shown(value)}" for name, value in asdict(chosen).items()))
    return _train(folder, config, 0, episodes, checkpoint_seconds, tensorboard, json, control_rate)


def resume(
    run: Run,
    steps: Annotated[int | None, tyro.conf.arg(help_behavior_hint="")] = None,
    episodes: int = 100,
    control_rate: Share = None,
    checkpoint_seconds: float = 20.0,
    tensorboard: bool = False,
    trust: bool = False,
    json: bool = False,
) -> int:
    """Continue an interrupted run from its last checkpoint, or extend a run.

    In an extension, the schedules (epsilon, learning rate) stay at their final values, and the replay buffer is kept.
    An extended run is therefore not equal to a run that was started with more steps.

    Args:
        run: Folder of the run.
        steps: New total number of agent steps, counted from the start of the run.
        episodes: Episodes per price in the evaluation after training.
        control_rate: After training a dial, find the price at which it takes control in at most this share of steps.
        checkpoint_seconds: Seconds between checkpoints; an interruption loses about this much work.
        tensorboard: Also write TensorBoard events to the folder.
        trust: Allow the run to import the function that is its default policy (module:function), which runs code.
        json: Print JSON.
    """
    _check_amounts(episodes, checkpoint_seconds)
    folder = RunFolder(run)
    config = folder.config() if steps is None else folder.config().extended(steps)
    _check_control_rate(control_rate, config.settings)
    _deep("factory").check_trusted(config, trust)
    checkpoint = folder.read("last")
    step, total = 0 if checkpoint is None else checkpoint.step, config.total_steps
    if step >= total:
        _say(f"{run} is already complete ({step:,} steps). To extend it, give a larger number: --steps N.")
        agent = _deep("factory").load(run, trust=trust)
        return _evaluate_after_training(folder, agent, episodes, json, control_rate)
    _say(f"Continuing from step {step:,} of {total:,}.")
    return _train(folder, config, step, episodes, checkpoint_seconds, tensorboard, json, control_rate, steps)


def evaluate(
    run: Run,
    eta: Annotated[Prices, tyro.conf.arg(metavar="ETA [ETA ...]", help_behavior_hint="")] = None,
    episodes: int = 100,
    control_rate: Share = None,
    epsilon: float = 0.0,
    seed: int = 0,
    best: bool = False,
    trust: bool = False,
    json: bool = False,
) -> int:
    """Play whole episodes with a trained agent, and report its return and control rate at each price.

    Args:
        run: Folder of the run.
        eta: Prices; by default those that training reported on.
        episodes: Episodes per price.
        control_rate: Find the price at which a dial takes control in at most this share of steps.
        epsilon: Probability of a random choice; Dopamine evaluates Atari with 0.001.
        seed: Random seed.
        best: Use the best checkpoint instead of the last one.
        trust: Allow the run to import the function that is its default policy (module:function), which runs code.
        json: Print JSON.
    """
    _check_amounts(episodes)
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed is {seed}, expected an integer from 0 to {2**31 - 1}.")
    folder, which = RunFolder(run), "best" if best else "last"
    config = folder.config()
    settings = config.settings
    _check_control_rate(control_rate, settings)
    agent = _deep("factory").load(run, which, trust=trust)
    low, high = settings.eta_range
    outside = [price for price in eta or () if settings.is_range and price != 0.0 and not low <= price <= high]
    if outside:
        _say(f"eta {outside[0]:g} is outside the range trained for ({low:g} to {high:g}): the network extrapolates.")
    checkpoint = folder.read(which)
    step = 0 if checkpoint is None else checkpoint.step
    if step < config.total_steps:
        _say(f"The checkpoint is from step {step:,} of {config.total_steps:,}.")
    with terminated_like_interrupted():
        try:
            _show_evaluation(agent, eta, episodes, seed, json, run, step, epsilon=epsilon, control_rate=control_rate)
        except KeyboardInterrupt:
            _say("Interrupted.")
            return INTERRUPTED
    return 0


def _train(
    folder: RunFolder, config: TrainConfig, first: int, episodes: int, seconds: float, tensorboard: bool, json: bool,
    control_rate: float | None, extend_to: int | None = None,
) -> int:  # fmt: skip
    trainer, rate = _deep("trainer"), Rate(first)
    trusted = " --trust" if _deep("factory").names_function(config.default_policy) else ""
    events: Any = None

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
                extend_to=extend_to,
            )  # fmt: skip
        except KeyboardInterrupt:
            last = folder.read("last")
            where = "the beginning" if last is None else f"step {last.step:,}"
            _say(f"Interrupted. Continue from {where} with: lazymdp resume {folder.path}{trusted}")
            return INTERRUPTED
        except trainer.Diverged as error:
            last = folder.read("last")
            kept = (
                "no checkpoint was written" if last is None else f"the last good checkpoint is from step {last.step:,}"
            )
            raise ValueError(f"{error} In {folder.path}, {kept}.") from error
    _say(f"Trained: {folder.path}")
    return _evaluate_after_training(folder, agent, episodes, json, control_rate)


def _evaluate_after_training(
    folder: RunFolder, agent: Any, episodes: int, json: bool, control_rate: float | None
) -> int:
    with terminated_like_interrupted():
        try:
            total = folder.config().total_steps
            _show_evaluation(agent, None, episodes, 0, json, folder.path, total, control_rate=control_rate)
        except KeyboardInterrupt:
            _say(f"Interrupted. Evaluate the agent with: lazymdp evaluate {folder.path}")
            return INTERRUPTED
    return 0


def _show_evaluation(
    agent: Any, etas: Prices, episodes: int, seed: int, json: bool, run: Path, step: int, *, epsilon: float = 0.0,
    control_rate: float | None = None,
) -> None:  # fmt: skip
    found = None
    with progress_bars() as bars:
        task = bars.add_task("evaluating", total=None)

        def show(count: int, total: int) -> None:
            bars.update(task, completed=count, total=total)

        played = agent.evaluate(etas, episodes=episodes, seed=seed, epsilon=epsilon, progress=show)
        if control_rate is not None:
            bars.update(task, description="finding the price", total=None)
            found = agent.for_control_rate(control_rate, episodes=episodes, seed=seed, epsilon=epsilon)
        bars.update(task, total=1, completed=1)
    intervals = [mean_interval(row) for row in played.returns]
    unfinished = int(played.unfinished.sum())
    if json:
        results = {
            "run": str(run), "step": step, "seed": seed, "epsilon": epsilon, "episodes": episodes,
            "unfinished": unfinished, "etas": played.etas, "mean_return": [one.mean for one in intervals],
            "low": [one.low for one in intervals], "high": [one.high for one in intervals],
            "control_rate": played.control_rate,
        }  # fmt: skip
        print_json({**results, **({} if found is None else {"for_control_rate": asdict(found)})})
        return
    count = "1 episode" if episodes == 1 else f"{episodes} episodes"
    table = Table("eta", "return", "95% interval", "control rate", title=f"{count} at each price")
    for eta, one, rate in zip(played.etas, intervals, played.control_rate, strict=True):
        table.add_row(f"{eta:.4g}", f"{one.mean:.2f}", f"{one.low:.2f} to {one.high:.2f}", f"{rate:.1%}")
    OUT.print(table)
    for remark in _remarks(agent, played, unfinished, found, control_rate):
        OUT.print(remark, highlight=False)


def _remarks(agent: Any, played: Any, unfinished: int, found: Any, control_rate: float | None) -> list[str]:
    """Return the remarks to print below the table of an evaluation."""
    remarks, budget = [], agent.algorithm.config.control_budget
    if unfinished:
        remarks.append(f"{unfinished} episodes were stopped at the time limit of the evaluation.")
    if budget is not None and abs(played.control_rate[0] - budget) > _NEAR_BUDGET:
        remarks.append(
            f"The control budget was {budget:.1%}. Either the price has not settled yet (train longer), or the control "
            "rate jumps at this price and no single price meets the budget."
        )
    if found is not None and control_rate is not None:
        if found.control_rate > control_rate:
            remarks.append(
                f"No price in the range keeps the control rate at or below {control_rate:.1%}: train for higher prices."
            )
        remarks.append(
            f"The control rate is {found.control_rate:.1%} at eta = {found.eta:.4g} (95% interval "
            f"{found.eta_low:.4g} to {found.eta_high:.4g}), with a mean return of {found.mean_return:.2f}."
        )
    return remarks


def _shown(value: Any) -> str:
    return (
        " to ".join(map(str, value)) if isinstance(value, tuple) else f"{value:,}" if type(value) is int else str(value)
    )


def _say(text: str) -> None:
    ERR.print(text, soft_wrap=True, highlight=False, markup=False)


def _summary_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError("TensorBoard events need tensorboardX: pip install 'lazymdp[deep]'") from error
    return SummaryWriter


def _check_control_rate(control_rate: float | None, settings: AlgorithmConfig) -> None:
    if control_rate is None:
        return
    if not 0.0 <= control_rate <= 1.0:
        raise ValueError(f"control_rate is {control_rate}, expected a share of steps between 0 and 1.")
    if not settings.is_range:
        raise ValueError(
            "--control-rate searches a range of prices, but the run has a single price: train for a range (--eta LOW "
            "HIGH), or steer the price during training (--control-budget SHARE)."
        )


def _check_amounts(episodes: int, seconds: float = 1.0) -> None:
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}, expected at least 1.")
    if not seconds > 0.0:
        raise ValueError(f"checkpoint_seconds is {seconds}, expected a number above 0.")


def _deep(module: str) -> Any:
    """Import a module of `lazymdp.learn.deep` that needs JAX."""
    try:
        return import_module(f"lazymdp.learn.deep.{module}")
    except ImportError as error:
        raise ImportError(f"deep agents need JAX ({error.name} is missing): pip install 'lazymdp[deep]'") from error
