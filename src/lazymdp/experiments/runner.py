"""Runs experiments into folders: data, figures, claims, and one page that shows all of it.

`OUT/NAME/` holds the tables of an experiment as CSV, `claims.csv`, `figure.png`, `figure.svg` and `run.json`;
`OUT/index.html` shows whatever is in `OUT`. A run that is there already, with the same settings and versions, is not
made again, so that what was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from lazymdp._files import replacing, write_text
from lazymdp._provenance import command_line, versions
from lazymdp.experiments import EXPERIMENTS, STUDIES, results_io
from lazymdp.experiments.registry import Claim, Experiment, Progress, check_settings
from lazymdp.experiments.results_io import Record, Tables, table
from lazymdp.show.results_page import Section, results_page

CLAIMS = "claims"
EXPLORER = "explorer.html"
_FORMS = ("png", "svg")


@dataclass(frozen=True)
class Outcome:
    """An experiment that is done.

    Attributes:
        experiment: Which one.
        claims: What should hold, and whether it does.
        record: Settings, versions, time.
        reused: Whether it was there already.
    """

    experiment: Experiment
    claims: list[Claim]
    record: Record
    reused: bool

    @property
    def holds(self) -> bool:
        """Whether every claim does."""
        return all(claim.holds for claim in self.claims)


def reproduce(name: str, config: Any, out: Path, *, fresh: bool = False, progress: Progress | None = None) -> Outcome:
    """Makes one result, or takes the one that is there.

    Args:
        name: Of the experiment.
        config: Its settings, an instance of its `Config`.
        out: Folder of all results.
        fresh: Make it again even if it is there.
        progress: Called with how much is done and how much there is.
    """
    experiment, folder = EXPERIMENTS[name], out / name
    check_settings(config)
    settings = json.loads(json.dumps(asdict(config)))  # as they will be read: tuples become lists
    record = None if fresh else results_io.load_record(folder)
    reused = record is not None and record.settings == settings and record.versions == versions()
    if reused and record is not None:
        data: Tables = load(folder)
        if not all((folder / f"figure.{form}").exists() for form in _FORMS):
            draw(experiment, data, folder)
    else:
        started = time.perf_counter()
        data = experiment.run(config, progress)
        record = Record(
            name,
            settings,
            command_line(),
            round(time.perf_counter() - started, 2),
            versions(),
            datetime.now(UTC).isoformat(timespec="seconds"),
        )
        keep(experiment, data, folder, record)
    return Outcome(experiment, experiment.claims(data), record, reused)


def keep(experiment: Experiment, data: Tables, folder: Path, record: Record) -> None:
    """Writes what was found: the figure, the tables, the claims, and last the record."""
    claims = experiment.claims(data)
    (folder / results_io.RECORD).unlink(missing_ok=True)  # until all is written, the folder is incomplete
    draw(experiment, data, folder)
    judged = table(  # of settings unlike the paper's there may be nothing to say
        claim=[claim.text for claim in claims],
        expected=[claim.expected for claim in claims],
        found=[claim.found for claim in claims],
        holds=[claim.holds for claim in claims],
    )
    results_io.save(folder, {**data, CLAIMS: judged}, record)


def load(folder: Path) -> dict[str, Any]:
    """The tables of a result, without its claims."""
    data = results_io.load(folder)
    data.pop(CLAIMS, None)
    return data


def draw(experiment: Experiment, data: Tables, folder: Path) -> None:
    """Draws the figure into a folder, as PNG and as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = experiment.plot(data)
    for form in _FORMS:
        with replacing(folder / f"figure.{form}") as temporary:
            figure.savefig(temporary, metadata={"Date": None} if form == "svg" else {"Software": None})
    plt.close(figure)


def outcomes(out: Path) -> list[Outcome]:
    """Every complete result in a folder, in the order of the paper."""
    found = []
    for name, experiment in {**EXPERIMENTS, **STUDIES}.items():
        record = results_io.load_record(out / name)
        if record is not None:
            found.append(Outcome(experiment, experiment.claims(load(out / name)), record, True))
    return found


def command(name: str) -> str:
    """What makes a result."""
    return f"lazymdp reproduce {name}" if name in EXPERIMENTS else f"python -m lazymdp.experiments.{name}_study FOLDER"


def write_index(out: Path) -> Path:
    """Writes `OUT/index.html` for whatever is in the folder; it points to `OUT/explorer.html` where there is one."""
    links = {"Turn the dial yourself: the explorer of Key-Door-Treasure": EXPLORER} if (out / EXPLORER).exists() else {}
    sections = [
        Section(
            outcome.experiment.name,
            outcome.experiment.title,
            outcome.experiment.caption,
            f"{outcome.experiment.name}/figure.svg",
            [(claim.text, claim.expected, claim.found, claim.holds) for claim in outcome.claims],
            command(outcome.experiment.name),
            f"{outcome.record.command}, {outcome.record.seconds:g} s, {outcome.record.finished[:10]}",
            sorted(f"{outcome.experiment.name}/{path.name}" for path in (out / outcome.experiment.name).glob("*.csv")),
        )
        for outcome in outcomes(out)
    ]
    target = out / "index.html"
    write_text(target, results_page(sections, versions(), links))
    return target
