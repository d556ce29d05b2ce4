"""The commands of deep agents: `lazymdp train | resume | evaluate`. JAX is loaded only when one of them runs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from importlib import import_module
from itertools import pairwise
from math import isclose
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.table import Table

from lazymdp._progress import ERR, Rate, progress_bars
from lazymdp.cli.output import INTERRUPTED, OUT, print_json
from lazymdp.cli.signals import stopped_gently, terminated_like_interrupted
from lazymdp.learn.deep.config import DialConfig, DQNConfig, TrainConfig, check_settings, for_env
from lazymdp.learn.deep.run_folder import RunFolder
from lazymdp.measure.statistics import mean_interval

_FAMILIES = ("ALE/", "minatar/")
_NEAR = 0.02  # how far from its budget DQN's control may be

Env = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def train_dial(
    env: Env,
    learner: Literal["dial", "dqn"] = "dial",
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    eta: float | None = None,
    control_budget: float | None = None,
    default: str = "uniform",
    seed: int = 0,
    episodes: int = 100,
    checkpoint_seconds: float = 20.0,
    tensorboard: bool = False,
    json: bool = False,
    settings: DialConfig = DialConfig(),  # noqa: B008 (frozen)
) -> int:
    """Train an agent; needs the extra `deep`, and `minatar` or `atari` for their games.

    The dial is one network for every price; `--learner dqn` is the paper's DQN for one price, with options of its own
    (`lazymdp train --learner dqn --help`). Interrupted or killed, a run goes on with `lazymdp resume`.

    Args:
        env: minatar/GAME, ALE/GAME-v5, or the id of any Gymnasium environment with discrete actions.
        learner: What learns: the dial, or dqn.
        out: Folder of the run; runs/NAME-SEED if not given.
        eta: Train for this price alone.
        control_budget: Find the price at which control is taken in at most this share of steps, after training.
        default: What acts when the agent is lazy: uniform, noop, repeat, the number of an action, or the folder of a
            run (RUN, RUN:epsilon=0.1, RUN:softmax=0.5).
        seed: Of everything random.
        episodes: Of the evaluation at the end, per price.
        checkpoint_seconds: Between two checkpoints: what may be lost.
        tensorboard: Write events for TensorBoard into the folder, too.
        json: Print JSON.
        settings: Of the learner.
    """
    if eta is not None:
        if not 0.0 <= eta < float("inf"):
            raise ValueError(f"eta is {eta}, expected a price of at least 0.")
        priced = replace(settings, eta_low=eta, eta_high=eta, free_share=0.0)
        settings = replace(settings, free_share=1.0) if eta == 0.0 else priced
    _check_budget(control_budget, settings)
    made = _created(env, learner, out, default, seed, settings, episodes, checkpoint_seconds, tensorboard)
    return _go_on(*made, 0, episodes, checkpoint_seconds, tensorboard, json, control_budget)


def train_dqn(
    env: Env,
    learner: Literal["dial", "dqn"] = "dqn",
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    default: str = "uniform",
    seed: int = 0,
    episodes: int = 100,
    checkpoint_seconds: float = 20.0,
    tensorboard: bool = False,
    json: bool = False,
    settings: DQNConfig = DQNConfig(),  # noqa: B008 (frozen)
) -> int:
    """Train the paper's DQN for one price; needs the extra `deep`, and `minatar` or `atari` for their games.

    Interrupted or killed, a run goes on with `lazymdp resume`.

    Args:
        env: minatar/GAME, ALE/GAME-v5, or the id of any Gymnasium environment with discrete actions.
        learner: What learns: the dial, or dqn.
        out: Folder of the run; runs/NAME-SEED if not given.
        default: What acts when the agent is lazy: uniform, noop, repeat, the number of an action, or the folder of a
            run (RUN, RUN:epsilon=0.1, RUN:softmax=0.5).
        seed: Of everything random.
        episodes: Of the evaluation at the end.
        checkpoint_seconds: Between two checkpoints: what may be lost.
        tensorboard: Write events for TensorBoard into the folder, too.
        json: Print JSON.
        settings: Of the learner.
    """
    made = _created(env, learner, out, default, seed, settings, episodes, checkpoint_seconds, tensorboard)
    return _go_on(*made, 0, episodes, checkpoint_seconds, tensorboard, json, None)


def train_command(arguments: Sequence[str]) -> Callable[..., int]:
    """The command `train` as these arguments ask for it: its options depend on the learner and the environment."""
    spread = [part for argument in arguments for part in argument.split("=", 1)]
    follows = dict(pairwise(spread))
    paths = ("-o", "--out", "--default", "--warm-start")
    env = next((now for before, now in pairwise(spread) if now.startswith(_FAMILIES) and before not in paths), "")
    learner = "dqn" if follows.get("--learner") == "dqn" else "dial"
    command: Callable[..., int] = train_dqn if learner == "dqn" else train_dial
    return functools.partial(command, settings=for_env(env, learner))


def resume(
    run: Run,
    control_budget: float | None = None,
    episodes: int = 100,
    checkpoint_seconds: float = 20.0,
    tensorboard: bool = False,
    json: bool = False,
) -> int:
    """Go on with a run that was interrupted, from its last checkpoint.

    Args:
        run: Its folder.
        control_budget: Of a dial: find the price at which control is taken in at most this share of steps, at the end.
        episodes: Of the evaluation at the end, per price.
        checkpoint_seconds: Between two checkpoints: what may be lost.
        tensorboard: Write events for TensorBoard into the folder, too.
        json: Print JSON.
    """
    _check_amounts(episodes, checkpoint_seconds)
    folder = RunFolder(run)
    config = folder.config()
    _check_budget(control_budget, config.settings)
    checkpoint = folder.load("last")
    step = 0 if checkpoint is None else checkpoint.step
    if step >= _total(config.settings):
        _say(f"Complete already: {run}, {step:,} steps.")
        return _play_at_the_end(folder, _deep("making").load(run), episodes, json, control_budget)
    _say(f"From step {step:,} of {_total(config.settings):,}.")
    return _go_on(folder, config, step, episodes, checkpoint_seconds, tensorboard, json, control_budget)


def evaluate(
    run: Run,
    eta: tuple[float, ...] | None = None,
    episodes: int = 100,
    seed: int = 0,
    epsilon: float = 0.0,
    control_budget: float | None = None,
    best: bool = False,
    json: bool = False,
) -> int:
    """Play whole episodes with a trained agent: its return and how often it takes control, price by price.

    Args:
        run: Folder of the run.
        eta: Prices; those trained for if not given.
        episodes: Per price.
        seed: Of the evaluation.
        epsilon: Share of random choices; Dopamine evaluates Atari with 0.001.
        control_budget: Find the price at which the dial takes control in at most this share of steps.
        best: The best checkpoint instead of the last.
        json: Print JSON.
    """
    _check_amounts(episodes)
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed is {seed}, expected a whole number from 0 to {2**31 - 1}.")
    settings = RunFolder(run).config().settings
    _check_budget(control_budget, settings)
    agent = _deep("making").load(run, "best" if best else "last")
    if isinstance(settings, DQNConfig):
        if eta is not None and (len(eta) != 1 or not isclose(eta[0], agent.eta, rel_tol=1e-4)):
            raise ValueError(f"{run} was trained by dqn for eta {agent.eta:g} alone: leave --eta out.")
    elif eta is not None:
        odd = [one for one in eta if one not in settings.prices and not settings.eta_low <= one <= settings.eta_high]
        if odd:
            known = ", ".join(f"{price:g}" for price in settings.prices)
            _say(f"Not trained for eta {odd[0]:g}: the network guesses. It knows {known}, and what lies between.")
    step = int(RunFolder(run).load("best" if best else "last").step)  # type: ignore[union-attr]
    if step < _total(settings):
        _say(f"After {step:,} of {_total(settings):,} steps.")
    etas = _etas(settings, agent) if eta is None else eta
    with terminated_like_interrupted():
        try:
            _show_frontier(agent, etas, episodes, seed, json, run, step, epsilon=epsilon, control_budget=control_budget)
        except KeyboardInterrupt:
            _say("Interrupted.")
            return INTERRUPTED
    return 0


def _created(
    env: str, learner: str, out: Path | None, default: str, seed: int, settings: DialConfig | DQNConfig,
    episodes: int, seconds: float, tensorboard: bool,
) -> tuple[RunFolder, TrainConfig]:  # fmt: skip
    """The folder of a new run, and what is trained; nothing is made if it could not be run."""
    check_settings(settings)
    _check_amounts(episodes, seconds)
    if tensorboard:
        _summary_writer()
    config = TrainConfig(env, default, seed, settings)
    _deep("making").check(config)
    family = "" if learner == "dial" else f"{learner}-"
    folder = RunFolder(out or Path("runs") / f"{family}{re.sub('[/:]', '-', env)}-{seed}")
    folder.create(config)
    return folder, config


def _go_on(
    folder: RunFolder,
    config: TrainConfig,
    first: int,
    episodes: int,
    seconds: float,
    tensorboard: bool,
    json: bool,
    control_budget: float | None,
) -> int:
    training, rate = _deep("trainer"), Rate(first)
    events: Any = None

    with stopped_gently() as stop:

        def on_report(run: Any, metrics: list[Any]) -> None:
            nonlocal events
            stop.gently = True  # there is something to keep
            if tensorboard:
                events = events or _summary_writer()(str(folder.path / "events"), purge_step=first + 1)
                one_price = isinstance(config.settings, DQNConfig)
                for row in metrics:
                    for name in ("score", "length", "control", *(["eta"] if one_price else [])):
                        tag = name if one_price else f"{name}/eta={row.eta:g}"
                        events.add_scalar(tag, getattr(row, name), row.step)
                events.add_scalar("steps per second", rate(run.step), run.step)
                events.flush()

        try:
            agent = training.train(
                config, folder=folder, checkpoint_seconds=seconds, on_report=on_report, seconds=min(2.0, seconds),
                stop=stop, show_progress=True,
            )  # fmt: skip
        except KeyboardInterrupt:
            last = folder.load("last")
            where = "the beginning" if last is None else f"step {last.step:,}"
            _say(f"Interrupted. Go on from {where} with: lazymdp resume {folder.path}")
            return INTERRUPTED
        except training.Diverged as error:
            last = folder.load("last")
            kept = "no checkpoint was written" if last is None else f"the last good one is of step {last.step:,}"
            raise ValueError(f"{error} In {folder.path}, {kept}.") from error
    _say(f"Trained: {folder.path}")
    return _play_at_the_end(folder, agent, episodes, json, control_budget)


def _play_at_the_end(folder: RunFolder, agent: Any, episodes: int, json: bool, control_budget: float | None) -> int:
    with terminated_like_interrupted():
        try:
            etas = _etas(folder.config().settings, agent)
            total = _total(folder.config().settings)
            _show_frontier(agent, etas, episodes, 0, json, folder.path, total, control_budget=control_budget)
        except KeyboardInterrupt:
            _say(f"Interrupted. Play it with: lazymdp evaluate {folder.path}")
            return INTERRUPTED
    return 0


def _total(settings: DialConfig | DQNConfig) -> int:
    """Agent steps of a whole run."""
    return settings.iterations * settings.n_envs * settings.rollout


def _say(words: str) -> None:
    ERR.print(words, soft_wrap=True, highlight=False, markup=False)


def _etas(settings: DialConfig | DQNConfig, agent: Any) -> tuple[float, ...]:
    """The prices to show of an agent: those it was trained for."""
    return (agent.eta,) if isinstance(settings, DQNConfig) else settings.prices


def _show_frontier(
    agent: Any,
    etas: tuple[float, ...],
    episodes: int,
    seed: int,
    json: bool,
    run: Path,
    step: int,
    *,
    epsilon: float = 0.0,
    control_budget: float | None = None,
) -> None:
    budget = None
    with progress_bars() as bars:
        task = bars.add_task("playing", total=None)

        def tell(count: int, total: int) -> None:
            bars.update(task, completed=count, total=total)

        played = agent.frontier(etas, episodes=episodes, seed=seed, epsilon=epsilon, progress=tell)
        if control_budget is not None:
            bars.update(task, description="finding the price", total=None)
            budget = agent.for_budget(control_budget, episodes=episodes, seed=seed, epsilon=epsilon)
        bars.update(task, total=1, completed=1)
    scores = [mean_interval(row) for row in played.score]
    if json:
        found = {"etas": etas, "score": [s.mean for s in scores], "low": [s.low for s in scores],
                 "high": [s.high for s in scores], "control": played.control_frequency}  # fmt: skip
        asked = {} if budget is None else {"budget": asdict(budget)}
        print_json(
            {
                "run": str(run),
                "step": step,
                "seed": seed,
                "epsilon": epsilon,
                "episodes": episodes,
                "unfinished": played.unfinished,
                **found,
                **asked,
            }
        )
        return
    many = "an episode" if episodes == 1 else f"{episodes} episodes"
    table = Table("eta", "score", "95 % interval", "control", title=f"{many} at each price")
    for eta, score, control in zip(etas, scores, played.control_frequency, strict=True):
        table.add_row(f"{eta:.4g}", f"{score.mean:.2f}", f"{score.low:.2f} to {score.high:.2f}", f"{control:.1%}")
    OUT.print(table)
    if played.unfinished:
        OUT.print(f"{played.unfinished} episodes were still going on and count as they were.", highlight=False)
    steered = getattr(agent.learner.config, "control_budget", None)
    if steered is not None and abs(played.control_frequency[0] - steered) > _NEAR:
        OUT.print(
            f"The budget was {steered:.1%}: the price is not there yet (train longer), or control jumps there and no "
            "price meets it.",
            highlight=False,
        )
    if budget is not None and control_budget is not None and budget.control_frequency > control_budget:
        OUT.print(
            f"No price trained for keeps control within {control_budget:.1%} of steps: train with a larger --eta-high.",
            highlight=False,
        )
    if budget is not None:
        OUT.print(
            f"Control in {budget.control_frequency:.1%} of steps at eta = {budget.eta:.4g} (95 % interval "
            f"{budget.eta_low:.4g} to {budget.eta_high:.4g}): score {budget.score:.2f}.",
            highlight=False,
        )


def _summary_writer() -> Any:
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise ImportError("events for TensorBoard need tensorboardX: pip install 'lazymdp[deep]'") from error
    return SummaryWriter


def _check_budget(control_budget: float | None, settings: DialConfig | DQNConfig) -> None:
    if control_budget is None:
        return
    if not 0.0 <= control_budget <= 1.0:
        raise ValueError(f"control_budget is {control_budget}, expected a share between 0 and 1.")
    if isinstance(settings, DQNConfig):
        raise ValueError("the run is of dqn, for one price: --control-budget belongs to its training.")
    if settings.free_share == 1.0 or (settings.free_share == 0.0 and settings.eta_low == settings.eta_high):
        raise ValueError("--control-budget looks for a price, but the run is for one price alone: train for a range.")


def _check_amounts(episodes: int, seconds: float = 1.0) -> None:
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}, expected at least 1.")
    if not seconds > 0.0:
        raise ValueError(f"checkpoint_seconds is {seconds}, expected a number above 0.")


def _deep(module: str) -> Any:
    """A module of `lazymdp.learn` that needs JAX."""
    try:
        return import_module(f"lazymdp.learn.deep.{module}")
    except ImportError as error:
        raise ImportError(f"deep agents need JAX ({error.name} is missing): pip install 'lazymdp[deep]'") from error
