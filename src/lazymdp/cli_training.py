"""The commands of deep agents: `lazymdp train | resume | evaluate`. JAX is loaded only when one of them runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.table import Table

from lazymdp.checkpoints import Checkpoint, RunFolder
from lazymdp.cli_output import ERR, OUT, print_json, progress_bars
from lazymdp.learn.settings import DialConfig, TrainConfig, check_settings
from lazymdp.measure.statistics import mean_interval

_ETAS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

Env = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENV")]
Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def train(
    env: Env,
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    eta: float | None = None,
    default: str = "uniform",
    seed: int = 0,
    episodes: int = 100,
    checkpoint_seconds: float = 20.0,
    json: bool = False,
    settings: DialConfig = DialConfig(),  # noqa: B008 (frozen)
) -> int:
    """Train one network for every price (the dial); needs the extra `deep`, and `minatar` for its games.

    Interrupted or killed, it goes on with `lazymdp resume`.

    Args:
        env: minatar/GAME, or the id of a Gymnasium environment that carries P.
        out: Folder of the run; runs/NAME-SEED if not given.
        eta: Train for this price alone.
        default: What acts when the agent is lazy: uniform, or the number of an action.
        seed: Of everything random.
        episodes: Of the evaluation at the end, per price.
        checkpoint_seconds: Between two checkpoints: what may be lost.
        json: Print JSON.
        settings: Of the learner.
    """
    if eta is not None:
        if not 0.0 <= eta < float("inf"):
            raise ValueError(f"eta is {eta}, expected a price of at least 0.")
        priced = replace(settings, eta_low=eta, eta_high=eta, free_share=0.0)
        settings = replace(settings, free_share=1.0) if eta == 0.0 else priced
    check_settings(settings)
    folder = RunFolder(out or Path("runs") / f"{env.replace('/', '-')}-{seed}")
    folder.create(TrainConfig(env, default, seed, settings))
    return _go_on(folder, None, episodes, checkpoint_seconds, json)


def resume(run: Run, episodes: int = 100, checkpoint_seconds: float = 20.0, json: bool = False) -> int:
    """Go on with a run that was interrupted, from its last checkpoint.

    Args:
        run: Its folder.
        episodes: Of the evaluation at the end, per price.
        checkpoint_seconds: Between two checkpoints: what may be lost.
        json: Print JSON.
    """
    folder = RunFolder(run)
    folder.config()
    checkpoint = folder.load("last")
    folder.rewind(0 if checkpoint is None else checkpoint.step)
    return _go_on(folder, checkpoint, episodes, checkpoint_seconds, json)


def evaluate(
    run: Run, eta: tuple[float, ...] = _ETAS, episodes: int = 100, seed: int = 0, best: bool = False, json: bool = False
) -> int:
    """Play whole episodes with a trained agent: its return and how often it takes control, price by price.

    Args:
        run: Folder of the run.
        eta: Prices.
        episodes: Per price.
        seed: Of the evaluation.
        best: The best checkpoint instead of the last.
        json: Print JSON.
    """
    folder = RunFolder(run)
    config = folder.config()
    which = "best" if best else "last"
    checkpoint = folder.load(which)
    if checkpoint is None:
        raise FileNotFoundError(f"{run} has no {which} checkpoint yet.")
    agent = _deep().Training(config, checkpoint.arrays).agent()
    _show_frontier(agent, eta, episodes, seed, json, run)
    return 0


def _go_on(folder: RunFolder, checkpoint: Checkpoint | None, episodes: int, seconds: float, json: bool) -> int:
    config = folder.config()
    training = _deep()
    started, first, saved = time.monotonic(), checkpoint.step if checkpoint else 0, time.monotonic()

    with progress_bars() as bars, _terminated_like_interrupted():
        task = bars.add_task("compiling", total=config.settings.steps, completed=first)

        def on_report(run: Any, metrics: list[Any]) -> None:
            nonlocal saved
            folder.append(metrics)
            speed = (run.step - first) / (time.monotonic() - started)
            shown = metrics[0] if metrics else None
            words = f"{speed:,.0f}/s" + (f" score {shown.score:.3g} control {shown.control:.0%}" if shown else "")
            bars.update(task, completed=run.step, description=words)
            if run.done or time.monotonic() - saved >= seconds:
                quality = sum(row.score - row.eta * row.control * row.length for row in metrics) / max(1, len(metrics))
                folder.save(Checkpoint(run.arrays(), run.step, quality))
                saved = time.monotonic()

        arrays = None if checkpoint is None else checkpoint.arrays
        try:
            agent = training.train(config, arrays=arrays, on_report=on_report, seconds=min(2.0, seconds))
        except KeyboardInterrupt:
            ERR.print(f"Interrupted. Go on with: lazymdp resume {folder.path}", soft_wrap=True, highlight=False)
            return 130
        except training.Diverged as error:
            last = folder.load("last")
            kept = "no checkpoint was written" if last is None else f"the last good one is of step {last.step:,}"
            raise ValueError(f"{error} In {folder.path}, {kept}.") from error
    ERR.print(f"Trained: {folder.path}", soft_wrap=True, highlight=False)
    low, high = config.settings.eta_low, config.settings.eta_high
    etas = tuple(eta for eta in _ETAS if low <= eta <= high or (eta == 0.0 and config.settings.free_share > 0.0))
    _show_frontier(agent, etas or (low,), episodes, 0, json, folder.path)
    return 0


def _show_frontier(agent: Any, etas: tuple[float, ...], episodes: int, seed: int, json: bool, run: Path) -> None:
    played = agent.frontier(etas, episodes=episodes, seed=seed)
    scores = [mean_interval(row) for row in played.score]
    if json:
        found = {"etas": etas, "score": [s.mean for s in scores], "low": [s.low for s in scores],
                 "high": [s.high for s in scores], "control": played.control_frequency}  # fmt: skip
        print_json({"run": str(run), "episodes": episodes, **found})
        return
    table = Table("eta", "score", "95 % interval", "control", title=f"{episodes} episodes at each price")
    for eta, score, control in zip(etas, scores, played.control_frequency, strict=True):
        table.add_row(f"{eta:g}", f"{score.mean:.2f}", f"{score.low:.2f} to {score.high:.2f}", f"{control:.1%}")
    OUT.print(table)


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _deep() -> Any:
    try:
        from lazymdp.learn import training
    except ImportError as error:
        raise ImportError(f"deep agents need JAX ({error.name} is missing): pip install 'lazymdp[deep]'") from error
    return training
