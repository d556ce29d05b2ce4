"""The command that evaluates deep agents, `lazymdp evaluate`, and how an evaluation is printed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.markup import escape
from rich.table import Table

from lazymdp._progress import progress_bars, say
from lazymdp.cli.output import INTERRUPTED, OUT, print_json
from lazymdp.cli.signals import terminated_like_interrupted
from lazymdp.learn.deep.config import AlgorithmConfig
from lazymdp.learn.deep.run_folder import RunFolder

EPISODES = 100
"""Episodes per price, if nothing else is given."""
_NEAR_BUDGET = 0.02  # largest distance of the control rate from the budget that is not reported

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Runs = Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
Share = Annotated[float | None, tyro.conf.arg(metavar="SHARE", help_behavior_hint="")]
Prices = tuple[float, ...] | None
Plot = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]


def evaluate(
    runs: Runs,
    eta: Annotated[Prices, tyro.conf.arg(metavar="ETA [ETA ...]", help_behavior_hint="")] = None,
    episodes: int = EPISODES,
    control_rate: Share = None,
    epsilon: float = 0.0,
    seed: int = 0,
    best: bool = False,
    plot: Plot = None,
    trust: bool = False,
    json: bool = False,
) -> int:
    """Play whole episodes with trained agents, and report their return and control rate at each price.

    Args:
        runs: Folders of one or more runs.
        eta: Prices; by default those that training reported on.
        episodes: Episodes per price.
        control_rate: Find the price at which a dial takes control in at most this share of steps.
        epsilon: Probability of a random choice; Dopamine evaluates Atari with 0.001.
        seed: Random seed.
        best: Use the best checkpoint instead of the last one.
        plot: Also draw return against control rate, one curve per run (at most 5), into this file (PNG, SVG or PDF).
        trust: Allow runs to run code that they name: modules of their environments and default policies, or pickles
            (Stable-Baselines3 models).
        json: Print JSON, one line per run.
    """
    check_amounts(episodes)
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed is {seed}, expected an integer from 0 to {2**31 - 1}.")
    if not runs:
        raise ValueError("no run is given, expected the folder of at least one run.")
    check_plot(plot, len(runs))
    labels = run_labels(runs)
    for run in runs:
        check_control_rate(control_rate, RunFolder(run).config().settings)
    played: dict[str, Any] = {}
    with terminated_like_interrupted():
        try:
            # Everything is loaded before the first episode: to play them can take long.
            loaded = [_loaded(run, "best" if best else "last", eta, trust) for run in runs]
            for run, label, (agent, step) in zip(runs, labels, loaded, strict=True):
                played[label] = show_evaluation(
                    agent, eta, episodes, seed, json, run, step, epsilon=epsilon, control_rate=control_rate,
                    name=label if len(runs) > 1 else None,
                )  # fmt: skip
        except KeyboardInterrupt:
            say("Interrupted.")
            return INTERRUPTED
    if plot is not None:
        from lazymdp.show import frontier

        draw(lambda: frontier(played).get_figure(), plot)
    return 0


def run_labels(runs: Sequence[Path]) -> list[str]:
    """Return the names of the folders of runs, with as many of their parents as tell them apart.

    Raise an error if a folder is given twice.
    """
    parts = [run.resolve().parts for run in runs]
    for place, found in enumerate(parts):
        if found in parts[:place]:
            same = runs[parts.index(found)]
            raise ValueError(
                f"{runs[place]} is given twice{f', also as {same}' if same != runs[place] else ''}: give each run once."
            )

    def label(mine: tuple[str, ...]) -> str:
        others = [part for part in parts if part != mine]
        count = next(n for n in range(1, len(mine) + 1) if all(part[-n:] != mine[-n:] for part in others))
        return str(Path(*mine[-count:]))

    return [label(mine) for mine in parts]


def _loaded(run: Path, which: str, etas: Prices, trust: bool) -> tuple[Any, int]:
    """Return the agent of a run and the step of its checkpoint; say if a price or the checkpoint is unusual."""
    folder = RunFolder(run)
    config = folder.config()
    settings, agent = config.settings, deep("factory").load(run, which, trust=trust)
    for price in etas or ():
        agent.at(price)  # raises an error for a price that the agent was not trained for
    low, high = settings.eta_range
    outside = [price for price in etas or () if settings.is_range and price != 0.0 and not low <= price <= high]
    if outside:
        say(f"eta {outside[0]:g} is outside the range trained for ({low:g} to {high:g}): the network extrapolates.")
    step = folder.step(which) or 0
    if step < config.total_steps:
        say(f"The checkpoint is from step {step:,} of {config.total_steps:,}.")
    return agent, step


def show_evaluation(
    agent: Any, etas: Prices, episodes: int, seed: int, json: bool, run: Path, step: int, *, epsilon: float = 0.0,
    control_rate: float | None = None, name: str | None = None, seconds: float | None = None,
) -> Any:  # fmt: skip
    """Evaluate an agent, print the result as a table or as JSON, and return it.

    Args:
        agent: The agent.
        etas: Prices; by default those that training reported on.
        episodes: Episodes per price.
        seed: Random seed.
        json: Print JSON.
        run: Folder of the run.
        step: Step of the checkpoint.
        epsilon: Probability of a random choice.
        control_rate: Find the price at which a dial takes control in at most this share of steps.
        name: Name of the run above the table.
        seconds: Time limit, which replaces `etas`, `episodes` and `epsilon`: see `evaluate_within`.
    """
    found = None
    with progress_bars() as bars:
        task = bars.add_task("evaluating", total=None)

        def show(count: int, total: int) -> None:
            bars.update(task, completed=count, total=total)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", deep("evaluation_episodes").DoubtfulFrontier)  # printed as a remark
            if seconds is None:
                played = agent.evaluate(etas, episodes=episodes, seed=seed, epsilon=epsilon, progress=show)
            else:
                further = 0 if control_rate is None else deep("price_search").BISECTIONS
                played = deep("evaluation_time").evaluate_within(
                    agent, seconds, seed=seed, further=further, progress=show
                )
                episodes = played.returns.shape[1]
        if control_rate is not None:
            bars.update(task, description="finding the price", total=None)
            first = played if etas is None else None
            found = agent.for_control_rate(
                control_rate, evaluation=first, episodes=episodes, seed=seed, epsilon=epsilon
            )
        bars.update(task, total=1, completed=1)
    if json:
        _print_json(played, found, {"run": str(run), "step": step, "seed": seed, "epsilon": epsilon})
    else:
        _print_table(agent, played, name)
        for remark in _remarks(agent, played, found, control_rate):
            OUT.print(remark, highlight=False, markup=False)
    return played


def _print_json(played: Any, found: Any, about: dict[str, Any]) -> None:
    (mean, low, high), alone = played.return_interval, played.default_alone.return_interval
    results = {
        **about, "episodes": played.returns.shape[1], "unfinished": int(played.unfinished.sum()), "etas": played.etas,
        "mean_return": mean, "low": low, "high": high, "control_rate": played.control_rate,
        "default_alone": {"mean_return": alone.mean[0], "low": alone.low[0], "high": alone.high[0]},
        "doubts": played.doubts(),
    }  # fmt: skip
    print_json({**results, **({} if found is None else {"for_control_rate": asdict(found)})})


def _print_table(agent: Any, played: Any, name: str | None) -> None:
    episodes = played.returns.shape[1]
    count = "1 episode" if episodes == 1 else f"{episodes} episodes"
    title = f"{count} at each price" if name is None else f"{escape(name)}: {count} at each price"
    table = Table("eta", "return", "95% interval", "control rate", "after the price", title=title)
    alone = played.default_alone
    for part, names in ((played, [f"{eta:.4g}" for eta in played.etas]), (alone, ["default alone"])):
        net = part.net_returns.mean(axis=-1)
        for label, mean, low, high, rate, left in zip(
            names, *part.return_interval, part.control_rate, net, strict=True
        ):
            table.add_row(label, f"{mean:.2f}", f"{low:.2f} to {high:.2f}", f"{rate:.1%}", f"{left:.2f}")
        table.add_section()
    OUT.print(table)


def _remarks(agent: Any, played: Any, found: Any, control_rate: float | None) -> list[str]:
    """Return the remarks to print below the table of an evaluation."""
    remarks, budget = [], agent.algorithm.config.control_budget
    unfinished = int(played.unfinished.sum())
    if unfinished:
        remarks.append(f"{unfinished} episodes were stopped at the time limit of the evaluation.")
    remarks += [f"Warning: {doubt}" for doubt in played.doubts()]
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


def draw(figure: Callable[[], Any], path: Path) -> None:
    """Draw a figure, which a function makes, into a file."""
    import matplotlib

    matplotlib.use("Agg")
    from lazymdp.show import styled

    with styled():
        # Without the date, so that the same data give the same bytes.
        undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix.lower())
        figure().savefig(path, metadata=undated)
    say(f"Drawn: {path}")


def check_plot(plot: Path | None, curves: int = 1) -> None:
    """Raise an error if a picture cannot be written to this file, or cannot show this many curves."""
    if plot is None:
        return
    if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"plot is {plot}, expected a file that ends in .png, .svg or .pdf.")
    if not plot.parent.is_dir():
        raise FileNotFoundError(f"plot is {plot}, but the folder {plot.parent} does not exist.")
    from lazymdp.show.curves import MOST_CURVES

    if curves > MOST_CURVES:
        raise ValueError(f"--plot with {curves} runs, expected at most {MOST_CURVES}, which can be told apart.")


def check_control_rate(control_rate: float | None, settings: AlgorithmConfig) -> None:
    """Raise an error if the price of this control rate cannot be found for a run with these settings."""
    if control_rate is None:
        return
    if not 0.0 <= control_rate <= 1.0:
        raise ValueError(f"control_rate is {control_rate}, expected a share of steps between 0 and 1.")
    if not settings.is_range:
        raise ValueError(
            "--control-rate searches a range of prices, but the run has a single price: train for a range (--eta LOW "
            "HIGH), or steer the price during training (--control-budget SHARE)."
        )


def check_amounts(episodes: int, seconds: float = 1.0, step_timeout: float | None = None) -> None:
    """Raise an error if there are no episodes, or if there is no time between checkpoints or for a step."""
    if episodes < 1:
        raise ValueError(f"episodes is {episodes}, expected at least 1.")
    if not seconds > 0.0:
        raise ValueError(f"checkpoint_seconds is {seconds}, expected a number above 0.")
    if step_timeout is not None and not step_timeout > 0.0:
        raise ValueError(f"step_timeout is {step_timeout}, expected a number above 0.")


def deep(module: str) -> Any:
    """Import a module of `lazymdp.learn.deep` that needs JAX."""
    try:
        return import_module(f"lazymdp.learn.deep.{module}")
    except ImportError as error:
        raise ImportError(f"deep agents need JAX ({error.name} is missing): pip install 'lazymdp[deep]'") from error
