"""Makes the MinAtar study in a folder, part by part; what is complete there is kept, so that it can be interrupted.

    python -m lazymdp.experiments.minatar_study FOLDER [GAME ...]

Processes for different games may run side by side in one folder. `--exploring` adds the dials that play as a prototype
was measured, with 5 % of choices random.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lazymdp._files import locked
from lazymdp._provenance import versions
from lazymdp.experiments import STUDIES, minatar, results_io
from lazymdp.experiments.results_io import Record, Table
from lazymdp.experiments.runner import command, keep, load

LOCK = ".lock"


def make(folder: Path, *games: str, **settings: Any) -> None:
    """Makes the study part by part, all games or some, saving after each; what is there with the same settings is kept.

    Args:
        folder: Of the results.
        games: Only these.
        settings: Of the study.
    """
    config = minatar.Config(**settings)
    if not set(games) <= set(config.games):
        raise ValueError(f"the games are {', '.join(config.games)}, not {', '.join(games)}.")
    asked = json.loads(json.dumps(asdict(config)))
    record = results_io.load_record(folder)
    if record is not None and {**record.settings, "games": asked["games"]} != asked:
        raise ValueError(f"{folder} holds a study with other settings: give another folder.")
    started = time.perf_counter()

    def save(made: Table) -> None:
        nonlocal started
        with locked(folder / LOCK, wait=True):  # several processes may make a game each
            before, told = results_io.load_record(folder), datetime.now(UTC).isoformat(timespec="seconds")
            spent = round((before.seconds if before else 0.0) + time.perf_counter() - started, 1)
            rows = minatar.joined(load(folder)["runs"] if before else None, made)
            settings = {**asked, "games": minatar.complete_games(rows)}
            record = Record("minatar", settings, command("minatar"), spent, versions(), told)
            results_io.save(folder, {"runs": rows}, record)
        started = time.perf_counter()
        _tell(f"{made['game'][0]} {made['method'][0]}: {spent:.0f} s so far")

    folder.mkdir(parents=True, exist_ok=True)
    done = load(folder)["runs"] if record else None
    minatar.run(replace(config, games=games or config.games), None, done, save, _tell)
    _judge(folder)


def explore(folder: Path) -> None:
    """Adds to a study the dials that play as the prototype did, game by game; those that are there are kept."""
    record = results_io.load_record(folder)
    if record is None:
        raise FileNotFoundError(f"{folder} holds no study: make it first, without --exploring.")
    for game, _ in minatar.PROTOTYPE:
        if game not in load(folder).get("exploring", {"game": ()})["game"]:
            made = minatar.part(minatar.EXPLORING, game, "dial", _tell)
            with locked(folder / LOCK, wait=True):
                results_io.save(folder, {"exploring": minatar.joined(load(folder).get("exploring"), made)}, record)
    _judge(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    games = minatar.Config().games
    parser = argparse.ArgumentParser(prog="python -m lazymdp.experiments.minatar_study", description=minatar.TITLE)
    parser.add_argument("folder", type=Path, help="of the results; what is complete there is kept")
    parser.add_argument("games", nargs="*", default=[], metavar="GAME", help=f"only these, of {', '.join(games)}")
    parser.add_argument("--exploring", action="store_true", help="add the dials that play as the prototype did")
    given = parser.parse_intermixed_args(arguments)
    if given.exploring and given.games:
        parser.error("--exploring has games of its own: give none.")
    try:
        explore(given.folder) if given.exploring else make(given.folder, *given.games)
    except (ImportError, ValueError, OSError) as error:
        parser.error(str(error))
    return 0


def _judge(folder: Path) -> None:
    """Draws the games that are complete and says which claims hold."""
    with locked(folder / LOCK, wait=True):
        record = results_io.load_record(folder)
        if record is not None and record.settings["games"]:
            data = load(folder)
            keep(STUDIES["minatar"], data, folder, replace(record, command=command("minatar")))
            held = [claim.holds for claim in minatar.claims(data)]
            _tell(f"{folder}: {', '.join(record.settings['games'])}; {sum(held)} of {len(held)} claims hold")


def _tell(words: str) -> None:
    print(words, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
