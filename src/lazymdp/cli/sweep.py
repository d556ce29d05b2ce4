"""The commands for studies of many runs: `lazymdp sweep run | status | plot`."""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import tyro
from rich.console import Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from lazymdp._progress import ERR, printable, say
from lazymdp.cli.evaluate import check_plot
from lazymdp.cli.output import INTERRUPTED, OUT, literal, print_json, show_line

Study = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="STUDY.toml")]
Folder = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
Out = Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
Number = Annotated[float | None, tyro.conf.arg(metavar="FLOAT", help_behavior_hint="")]
_ROWS, _REASON = 20, 400


def run(
    study: Study,
    out: Out,
    go: bool = False,
    workers: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None,
    address: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", help_behavior_hint="")] = None,
    cores: int = 1,
    gpus: float = 0.0,
    device: Literal["cpu", "gpu"] = "cpu",
    price_per_hour: Number = None,
    retry: bool = False,
    checkpoint_seconds: float = 60.0,
    hang_seconds: float = 900.0,
    json: bool = False,
) -> int:
    """Print the plan of a study: its runs, their order, and an estimate of time and cost. With --go, run it.

    Runs that are done are not made again. Ctrl-C stops all runs with a checkpoint; the same command continues.

    Args:
        study: The study file.
        out: Folder of the sweep: a local folder, or an address such as s3://bucket/study.
        go: Start the runs.
        workers: Runs at a time; by default as many as there are cores for.
        address: Address of a Ray cluster, such as auto; by default, runs are processes on this machine.
        cores: Cores per run.
        gpus: GPUs per run on a cluster; a fraction lets runs share one.
        device: Device for which the time is estimated.
        price_per_hour: Price of one worker for one hour, to estimate the cost.
        retry: Try runs again that were set aside.
        checkpoint_seconds: Seconds between checkpoints; an interruption loses about this much work.
        hang_seconds: Kill and retry a run that shows no sign of life for this long.
        json: Print JSON.
    """
    _check_numbers(workers, cores, gpus, price_per_hour, checkpoint_seconds, hang_seconds)
    if gpus and address is None:
        raise ValueError(f"gpus is {gpus:g}, but only a cluster assigns GPUs to runs: give --address too.")
    from lazymdp.sweep.plan import check_runs
    from lazymdp.sweep.run_sweep import Prepared, Where, run_sweep
    from lazymdp.sweep.supervise import Limits

    prepared = Prepared(study, out, retry=retry, device=device)
    where = Where(workers, address, gpus, Limits(checkpoint_seconds, hang_seconds, cores))
    count = workers if address is not None else where.local_workers
    if not json:
        _show_plan(prepared, count, price_per_hour)
    if not go:
        check_runs(prepared.study)
        if json:
            print_json(_plan_json(prepared, count, price_per_hour))
        else:
            show_line("Every environment and default policy can be made. Add --go to start.")
        return 0
    # Ray reports a lost node on standard output, which belongs to the result.
    with _stopped_by_signals() as stop, redirect_stdout(sys.stderr):
        sweep = run_sweep(prepared, where, tell=say, stop=stop)
    facts = {"done": len(sweep.results), "set_aside": sweep.set_aside, "stopped": sweep.stopped}
    if json:
        print_json(facts)
    else:
        show_line(f"{len(sweep.results)} of {prepared.plan.total} runs are done, {len(sweep.set_aside)} set aside.")
        for name, reason in sweep.set_aside.items():
            show_line(f"  {name}: {reason}")
        show_line(f"Results: {prepared.folder.shown}/results.parquet")
    if sweep.table_error:
        raise OSError(f"the table of results was not written: {sweep.table_error}. Run the same command again.")
    if sweep.stopped:
        say("Stopped. Run the same command again to continue.")
        return INTERRUPTED
    return 1 if sweep.set_aside else 0


def status(folder: Folder, once: bool = False, json: bool = False) -> int:
    """Show the state of a sweep: running, done, set aside, time left. In a terminal, the display is live.

    Args:
        folder: Folder of the sweep, local or remote.
        once: Print the state once, also in a terminal.
        json: Print JSON.
    """
    from lazymdp.sweep.sweep_status import StatusReader

    reader = StatusReader(folder)
    found = reader.read()
    if json:
        print_json(dataclasses.asdict(found))
        return 0
    if once or not OUT.is_terminal:
        OUT.print(_display(found))
        return 0
    with Live(_display(found), console=OUT, refresh_per_second=4) as live:
        while found.done + len(found.set_aside) < found.total:
            time.sleep(2.0)
            found = reader.read()
            live.update(_display(found))
    return 0


def plot(
    folder: Folder, out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FILE")] = Path("sweep.png")
) -> int:
    """Draw the frontiers of a sweep: return against control rate, one panel per environment.

    Points are interquartile means over seeds with 95% bootstrap intervals. An environment with more than five curves
    has several panels.

    Args:
        folder: Folder of the sweep, local or remote.
        out: File to draw into (PNG, SVG or PDF).
    """
    check_plot(out)
    import matplotlib

    matplotlib.use("Agg")
    from lazymdp.sweep.frontier_plot import plot_frontiers
    from lazymdp.sweep.results_table import read_table
    from lazymdp.sweep.sweep_folder import SweepFolder

    undated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(out.suffix.lower())
    plot_frontiers(read_table(SweepFolder(folder))).savefig(out, metadata=undated)
    say(f"Drawn: {out}")
    return 0


ACTIONS: dict[str, Callable[..., int]] = {"run": run, "status": status, "plot": plot}
_SUBCOMMANDS = [Annotated[Any, tyro.conf.subcommand(name, constructor=one)] for name, one in ACTIONS.items()]
Action: Any = Union[tuple(_SUBCOMMANDS)]  # noqa: UP007 (made from a list)


def sweep(action: Action) -> int:
    """Run a study of many training runs, on this machine or on a cluster."""
    return int(action)


def _check_numbers(
    workers: int | None, cores: int, gpus: float, price: float | None, checkpoint_seconds: float, hang_seconds: float
) -> None:
    for name, value, low in (
        ("workers", workers, 1),
        ("cores", cores, 1),
        ("gpus", gpus, 0),
        ("price_per_hour", price, 0),
    ):
        if value is not None and not value >= low:
            raise ValueError(f"{name} is {value}, expected at least {low}.")
    for name, seconds in (("checkpoint_seconds", checkpoint_seconds), ("hang_seconds", hang_seconds)):
        if not seconds > 0.0:
            raise ValueError(f"{name} is {seconds}, expected a number above 0.")


def _show_plan(prepared: Any, workers: int | None, price: float | None) -> None:
    plan, runs = prepared.plan, prepared.study.runs
    show_line(f"{prepared.study.path.name}: {_count(plan.total, 'run')}")
    for method in dict.fromkeys(run.method for run in runs):
        show_line(f"  {_method_line(method, [run for run in runs if run.method == method])}")
    jobs = _count(len(plan.jobs), "job")
    show_line(f"{plan.done:,} done, {plan.set_aside:,} set aside, {plan.runs:,} to do in {jobs}.")
    seeds = list(dict.fromkeys(run.spec.config.seed for run in runs))
    show_line(f"Order: all runs of seed {seeds[0]} first" + (f", then seed {seeds[1]}, ..." if seeds[1:] else "."))
    for source in plan.sources:
        show_line(f"Speed of {source}.")
    if plan.jobs:
        show_line(_estimate(plan, workers, price))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _method_line(method: str, runs: Sequence[Any]) -> str:
    """Return a method as the product of its lists, such as `dial: pqn, 5 environments x 10 seeds = 50 runs`."""
    configs = [run.spec.config for run in runs]
    counts = {
        "environment": len({config.env for config in configs}),
        "price": len({run.price for run in runs}),
        "default": len({run.default_policy for run in runs}),
        "algorithm": len({config.algorithm for config in configs}),
        "seed": len({config.seed for config in configs}),
    }
    names = {"default": ("default policy", "default policies")}
    factors = [
        f"{count} {names.get(name, (name, name + 's'))[count > 1]}"
        for name, count in counts.items()
        if count > 1 or name in ("environment", "price")
    ]
    steps = sorted({config.total_steps for config in configs})
    length = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    algorithms = " and ".join(sorted({config.algorithm for config in configs}))
    name = method if method == algorithms else f"{method} ({algorithms})"
    return f"{name}: {' x '.join(factors)} = {_count(len(runs), 'run')} of {length} steps"


def _estimate(plan: Any, workers: int | None, price: float | None) -> str:
    seconds, wall = plan.machine_seconds, plan.wall_seconds(workers or 1)
    if seconds is None or wall is None:
        return "Time: unknown. Once the first runs are finished, their speed is used."
    many = f", {_duration(wall)} with {workers}" if workers is not None and workers > 1 else ""
    words = f"Time: {_duration(seconds)} with one worker{many}."
    return (
        words if price is None else f"{words} Cost: {seconds / 3600.0 * price:,.2f}, at {price:g} per worker and hour."
    )


def _plan_json(prepared: Any, workers: int | None, price: float | None) -> dict[str, Any]:
    plan = prepared.plan
    seconds = plan.machine_seconds
    return {
        "runs": plan.total, "done": plan.done, "set_aside": plan.set_aside, "to_do": plan.runs, "jobs": len(plan.jobs),
        "seconds": seconds, "wall_seconds": plan.wall_seconds(workers or 1), "workers": workers,
        "cost": None if seconds is None or price is None else seconds / 3600.0 * price,
        "order": [spec.id for job in plan.jobs for spec in job.specs],
    }  # fmt: skip


def _display(status: Any) -> Group:
    """Return the state of a sweep as text and a table."""
    left = "unknown" if status.seconds_left is None else f"about {_duration(status.seconds_left)}"
    waiting = status.total - status.done - len(status.set_aside) - sum(one.runs for one in status.running)
    head = Text(
        f"{status.done} of {status.total} done, {sum(one.runs for one in status.running)} running, {max(0, waiting)} "
        f"waiting, {len(status.set_aside)} set aside." + (f" Time left: {left}." if waiting or status.running else "")
    )
    labels = [*(one.label for one in status.running), *(label for label, _ in status.set_aside)]
    # The algorithm and the default policy are shown where they tell runs apart.
    names = ["method", *_differing(labels, "algorithm"), "env", *_differing(labels, "default_policy"), "price", "seed"]
    headers = ("run", *({"env": "environment"}.get(name, name.replace("_", " ")) for name in names), "state")
    table = Table(*(Column(name, overflow="fold", no_wrap=name in ("run", "price", "seed")) for name in headers))
    for one in status.running[:_ROWS]:
        more = f" ({one.runs} runs)" if one.runs > 1 else ""
        table.add_row(*_literal(one.label, names), Text(f"{one.doing} {one.share:.0%}{more}"))
    for label, _ in status.set_aside[:_ROWS]:
        table.add_row(*_literal(label, names), Text("set aside", "red"))
    # The cells of a narrow terminal are too small for reasons.
    reasons = [Text(printable(f"{label.run}: {_shortened(reason)}")) for label, reason in status.set_aside[:_ROWS]]
    if hidden := max(0, len(status.running) - _ROWS) + max(0, len(status.set_aside) - _ROWS):
        reasons.append(Text(f"{hidden} more runs are not shown: --json prints all."))
    reasons += [Text(printable(status.obstacle))] if status.obstacle else []
    return Group(head, *([table] if table.rows else []), *reasons)


def _shortened(reason: str) -> str:
    return reason if len(reason) <= _REASON else f"{reason[: _REASON // 2]} ... {reason[-_REASON // 2 :]}"


def _differing(labels: Sequence[Any], name: str) -> list[str]:
    """Return the name of a column, in a list, if runs of one method differ in it; otherwise an empty list."""
    return (
        [name]
        if len({(one.method, getattr(one, name)) for one in labels}) > len({one.method for one in labels})
        else []
    )


def _literal(label: Any, names: Sequence[str]) -> list[Text]:
    """Return what a run is called, cell by cell; names of the user may contain square brackets."""
    return [literal(getattr(label, name)) for name in ("run", *names)]


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


@contextmanager
def _stopped_by_signals() -> Iterator[Any]:
    """Yield a function that says whether Ctrl-C or SIGTERM has asked the sweep to stop; a second Ctrl-C ends it now."""
    asked = False

    def ask(*_: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        ERR.print("Stopping all runs with a checkpoint. Press Ctrl-C again to stop now.", style="bold")

    before = {one: signal.signal(one, ask) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for one, old in before.items():
            signal.signal(one, old)
