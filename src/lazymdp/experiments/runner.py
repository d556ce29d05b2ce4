"""Reproduction of experiments into folders: data, claims, figures, and one page that shows all of them.

`OUT/NAME/` holds the tables of an experiment as CSV files, `claims.csv`, `figure.png`, `figure.svg` and `run.json`;
`OUT/index.html` shows every result in `OUT`, and links to the explorer and the report of Key-Door-Treasure. If a result
with the same settings and versions already exists, its data are reused, so an interrupted command can simply be
repeated. Its claims are checked and its figure is drawn again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt

from lazymdp._files import locked, replacing, write_text
from lazymdp._provenance import versions
from lazymdp.exact import policies
from lazymdp.exact.path import eta_path
from lazymdp.experiments import jobs, paper_worlds, results_io, study
from lazymdp.experiments.experiment import Claim, Experiment, Progress, Tables, check_settings
from lazymdp.experiments.registry import EXPERIMENTS
from lazymdp.experiments.results_io import Record, as_saved
from lazymdp.show import explorer, styled
from lazymdp.show.results_page import Section, results_page

EXPLORER = "explorer.html"
REPORT = "report.html"
INDEX = "index.html"


@dataclass(frozen=True)
class Outcome:
    """A finished experiment.

    Attributes:
        experiment: The experiment.
        claims: Its claims, and whether they hold.
        record: Its settings, versions and run time.
        reused: Whether the data already existed, in the output folder or, for a study, in the repository.
    """

    experiment: Experiment
    claims: list[Claim]
    record: Record
    reused: bool

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(claim.holds for claim in self.claims)


def reproduce_all(
    configs: Mapping[str, Any],
    out: Path,
    *,
    fresh: bool = False,
    workers: int = 1,
    stop_after: float | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Outcome]:
    """Reproduce several experiments, and write `OUT/index.html` and, with `kdt-path`, the explorer and the report.

    The report is left out if the extra `explain` is not installed.

    Args:
        configs: Settings of the experiments, by name.
        out: Folder for all results; it is created if necessary.
        fresh: Run the experiments again even if their data already exist.
        workers: Number of processes for a study that consists of independent jobs.
        stop_after: Seconds after which such a study is stopped with `jobs.Unfinished`; by default it is not.
        progress: Called with the name of an experiment, the amount of work done and the total amount.
    """
    out.mkdir(parents=True, exist_ok=True)
    done = []
    for name, config in configs.items():

        def tell(count: int, total: int, name: str = name) -> None:
            if progress is not None:
                progress(name, count, total)

        tell(0, 1)
        done.append(reproduce(name, config, out, fresh=fresh, workers=workers, stop_after=stop_after, progress=tell))
        tell(1, 1)
    path = next((outcome for outcome in done if outcome.experiment.name == "kdt-path"), None)
    if path is not None and not (path.reused and (out / EXPLORER).exists()):
        write_explorer(out)
    if path is not None and not (path.reused and (out / REPORT).exists()) and _can_explain():
        write_report(out, progress)
    write_index(out)
    return done


def reproduce(
    name: str,
    config: Any,
    out: Path,
    *,
    fresh: bool = False,
    workers: int = 1,
    stop_after: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Reproduce one experiment: run it or reuse its data, check its claims and draw its figure.

    Args:
        name: Name of the experiment.
        config: Its settings, an instance of its `Config`.
        out: Folder for all results.
        fresh: Run it again even if its data already exist.
        workers: Number of processes, if it is a study that consists of independent jobs.
        stop_after: Seconds after which such a study is stopped with `jobs.Unfinished`; by default it is not.
        progress: Called with the amount of work done and the total amount.
    """
    experiment, folder = EXPERIMENTS[name], out / name
    check_settings(config)
    if fresh and (workers > 1 or stop_after is not None):
        jobs.run_in_processes(experiment, config, folder, workers=workers, stop_after=stop_after, progress=progress)
    if experiment.needs_gpu:
        return _reproduce_study(experiment, config, folder, fresh, progress)
    record = None if fresh else results_io.load_record(folder)
    if record is not None and record.settings == as_saved(config) and record.versions == versions():
        return _finish(experiment, results_io.load(folder), record, folder, reused=True)
    started = time.perf_counter()
    data = experiment.run(config, progress)
    record = Record.now(name, as_saved(config), time.perf_counter() - started)
    return _finish(experiment, data, record, folder, reused=False)


def _reproduce_study(
    experiment: Experiment, config: Any, folder: Path, fresh: bool, progress: Progress | None
) -> Outcome:
    if not fresh:
        data, record = study.saved_data(experiment, config, folder)
        return _finish(experiment, data, record, folder, reused=True)
    data, record, parts = study.run(experiment, config, folder, progress)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / study.LOCK, wait=True):  # another process may be adding other games
        data, record = study.merged(experiment, folder, data, record)
        outcome = _finish(experiment, data, record, folder, reused=False)
    parts.remove()
    return outcome


def _finish(experiment: Experiment, data: Tables, record: Record, folder: Path, *, reused: bool) -> Outcome:
    """Check the claims, draw the figure and write everything that is not yet in the folder."""
    claims = experiment.claims(data)
    if reused and results_io.load_record(folder) == record:  # only claims and figure may have changed
        results_io.save_claims(folder, claims)
        draw(experiment, data, folder)
    else:
        (folder / results_io.RECORD).unlink(missing_ok=True)  # the folder is incomplete until everything is written
        draw(experiment, data, folder)
        results_io.save(folder, data, record, claims)
    return Outcome(experiment, claims, record, reused)


def draw(experiment: Experiment, data: Tables, folder: Path) -> None:
    """Draw the figure of an experiment into a folder as PNG and as SVG; the same data give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = experiment.plot(data)
    with styled():  # its svg.hashsalt makes the ids in an SVG file reproducible
        for form, metadata in (("png", {"Software": None}), ("svg", {"Date": None})):
            with replacing(folder / f"figure.{form}") as temporary:
                figure.savefig(temporary, metadata=metadata)
    plt.close(figure)


def saved_outcomes(out: Path) -> list[Outcome]:
    """Return every complete result in a folder, with its saved claims, in the order of the registry."""
    found = []
    for name, experiment in EXPERIMENTS.items():
        record = results_io.load_record(out / name)
        if record is not None:
            found.append(Outcome(experiment, results_io.load_claims(out / name), record, True))
    return found


def write_explorer(out: Path) -> Path:
    """Write `OUT/explorer.html`: the eta-path of Key-Door-Treasure with a uniform default policy."""
    world, mdp = paper_worlds.key_door_treasure()
    path = eta_path(mdp, policies.uniform(mdp))
    write_text(out / EXPLORER, explorer(path, world=world, title="Key-Door-Treasure"))
    return out / EXPLORER


def _can_explain() -> bool:
    """Return whether the packages of the extra `explain` are installed; Pillow comes with matplotlib."""
    return all(find_spec(package) is not None for package in ("pyarrow", "imageio_ffmpeg"))


def write_report(out: Path, progress: Callable[[str, int, int], None] | None = None) -> Path:
    """Write `OUT/report.html`: when the exact agent of Key-Door-Treasure acts, and which moments matter."""
    from lazymdp.explain import explain

    def tell(what: str, done: int, total: int) -> None:
        if progress is not None:
            progress("report", done, total)

    explain("lazymdp/KeyDoorTreasure-v0", path=out / REPORT, eta=0.03, episodes=2, moments=4, progress=tell)
    return out / REPORT


def write_index(out: Path) -> Path:
    """Write `OUT/index.html`, which shows every result in the folder and links to the explorer and the report."""
    pages = {
        "Move the price yourself: the explorer of Key-Door-Treasure": EXPLORER,
        "See when an agent acts, and which moments matter: the report of Key-Door-Treasure": REPORT,
    }
    links = {words: page for words, page in pages.items() if (out / page).exists()}
    sections = [
        Section(
            outcome.experiment.name,
            outcome.experiment.title,
            outcome.experiment.caption,
            f"{outcome.experiment.name}/figure.svg",
            [(claim.text, claim.expected, claim.found, claim.holds) for claim in outcome.claims],
            f"lazymdp reproduce {outcome.experiment.name}",
            f"{outcome.record.command}, {outcome.record.seconds:g} s, {outcome.record.finished[:10]}",
            sorted(f"{outcome.experiment.name}/{path.name}" for path in (out / outcome.experiment.name).glob("*.csv")),
        )
        for outcome in saved_outcomes(out)
    ]
    target = out / INDEX
    write_text(target, results_page(sections, versions(), links))
    return target
