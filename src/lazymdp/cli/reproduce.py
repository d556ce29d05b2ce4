"""The command `lazymdp reproduce`: the results of the paper and our own, with a verdict on every claim."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Union

import tyro
from rich.text import Text

from lazymdp._progress import ERR, progress_bars
from lazymdp.cli.output import INTERRUPTED, print_json, show_line, show_table
from lazymdp.cli.signals import terminated_like_interrupted
from lazymdp.experiments.jobs import Unfinished
from lazymdp.experiments.registry import EXPERIMENTS, on_cpu
from lazymdp.experiments.runner import INDEX, Outcome, reproduce_all


@dataclasses.dataclass(frozen=True)
class All:
    """All experiments that run on a CPU, with the settings of the paper."""


def _subcommand(name: str) -> Any:
    """Return an experiment as a subcommand whose options are the fields of its `Config`."""
    experiment = EXPERIMENTS[name]
    note = " (redrawn from saved data; --fresh runs it again, which takes long)" if experiment.needs_gpu else ""
    return Annotated[experiment.config, tyro.conf.subcommand(name, description=experiment.title + note + ".")]


_ALL = "All experiments below that run on a CPU, with the settings of the paper. This takes about a minute and a half."
Which: Any = Union[(Annotated[All, tyro.conf.subcommand("all", description=_ALL)], *map(_subcommand, EXPERIMENTS))]


def reproduce(
    which: Which = All(),
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = Path("reproduced"),
    fresh: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False,
    workers: Annotated[int, tyro.conf.arg(metavar="INT")] = 1,
    stop_after: Annotated[float | None, tyro.conf.arg(metavar="SECONDS", help_behavior_hint="")] = None,
    json: Annotated[bool, tyro.conf.arg(help_behavior_hint="")] = False,
) -> int:
    """Reproduce the results of the paper and our own: data, figures, and whether each claim holds.

    Args:
        which: The experiment to reproduce.
        out: Folder for the results.
        fresh: Run the experiment again even if its data already exist.
        workers: Processes at a time, with --fresh, for a study that consists of independent jobs.
        stop_after: Seconds after which such a study stops; the same command continues it.
        json: Print JSON.
    """
    if isinstance(which, All):
        configs = {name: experiment.config() for name, experiment in on_cpu().items()}
    else:
        configs = {name: which for name, experiment in EXPERIMENTS.items() if isinstance(which, experiment.config)}
    try:
        with terminated_like_interrupted(), progress_bars() as bars:
            tasks: dict[str, Any] = {}
            percent = 0

            def tell(name: str, done: int, total: int) -> None:
                nonlocal percent
                if name not in tasks:
                    tasks[name] = bars.add_task(name)
                bars.update(tasks[name], completed=done, total=total)
                before, percent = percent, 100 * done // total
                is_study = name in EXPERIMENTS and EXPERIMENTS[name].needs_gpu
                if fresh and is_study and not ERR.is_terminal and percent > before:
                    ERR.print(f"{name}: {percent}%")  # a log file shows no bar, and a study takes a long time

            outcomes = reproduce_all(configs, out, fresh=fresh, workers=workers, stop_after=stop_after, progress=tell)
    except KeyboardInterrupt:
        ERR.print("Interrupted. Finished work is kept; run the same command again to continue.", style="bold")
        return INTERRUPTED
    except Unfinished as unfinished:
        ERR.print(f"{unfinished} Run the same command again to continue.", style="bold", markup=False)
        return INTERRUPTED
    index = (out / INDEX).resolve()
    if json:
        claims = {one.experiment.name: [dataclasses.asdict(claim) for claim in one.claims] for one in outcomes}
        print_json({"index": str(index), "claims": claims})
    else:
        _show_claims(outcomes)
        reused = [outcome.experiment.name for outcome in outcomes if outcome.reused]
        if reused:
            show_line(f"Drawn from saved data: {', '.join(reused)}. Use --fresh to run again.")
        show_line(f"Results: {index}")
    return 0 if all(outcome.holds for outcome in outcomes) else 1


def _show_claims(outcomes: Sequence[Outcome]) -> None:
    yes, no = Text("yes", "green"), Text("NO", "bold red")
    rows: list[tuple[str | Text, ...]] = []
    for outcome in outcomes:
        for place, claim in enumerate(outcome.claims):
            name = outcome.experiment.name if place == 0 else ""
            rows.append((name, claim.text, claim.expected, claim.found, yes if claim.holds else no))
        rows.append(())
    claims = [claim for outcome in outcomes for claim in outcome.claims]
    title = f"{sum(claim.holds for claim in claims)} of {len(claims)} claims hold"
    show_table(("", "claim", "expected", "found", "holds"), rows, title)
