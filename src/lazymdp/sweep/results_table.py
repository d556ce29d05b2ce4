"""The table of results: one Parquet file, with one row per run and price, and one for the default policy alone.

| column | meaning |
|---|---|
| `run` | id of the run, and name of its folder in `runs/` |
| `method` | method of the study, or the algorithm if the study names no methods |
| `env`, `algorithm`, `form`, `default_policy`, `seed`, `steps` | what was trained, and for how many agent steps |
| `price` | the price in training: `0.05`, `0.005 to 0.5` for a dial, `budget 0.1` for a control budget |
| `eta` | the price in this evaluation; null for the default policy alone |
| `default_alone` | whether the default policy acted alone |
| `episodes` | number of evaluation episodes |
| `mean_return`, `std_return` | mean and standard deviation of the return over episodes, price excluded |
| `control_rate` | share of steps in control |
| `mean_controls`, `mean_length` | mean number of steps in control and of all steps per episode |
| `mean_net_return` | mean return after the price |
| `unfinished` | number of episodes that were stopped at the time limit of the evaluation |

The table depends on the results only, not on when or where they were made: equal sweeps have equal files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lazymdp.sweep.extras import pyarrow
from lazymdp.sweep.study_file import PlannedRun
from lazymdp.sweep.sweep_folder import PLAN, RESULT, RESULTS, SweepFolder

_TEXT, _INTEGER, _NUMBER, _TRUTH = "string", "int64", "float64", "bool_"
COLUMNS = {
    "run": _TEXT, "method": _TEXT, "env": _TEXT, "algorithm": _TEXT, "form": _TEXT, "default_policy": _TEXT,
    "price": _TEXT, "seed": _INTEGER, "steps": _INTEGER, "eta": _NUMBER, "default_alone": _TRUTH,
    "episodes": _INTEGER, "mean_return": _NUMBER, "std_return": _NUMBER, "control_rate": _NUMBER,
    "mean_controls": _NUMBER, "mean_length": _NUMBER, "mean_net_return": _NUMBER, "unfinished": _INTEGER,
}  # fmt: skip
"""Columns of the table and their types in pyarrow."""


@dataclass(frozen=True)
class RunLabels:
    """The columns of the table that describe a run."""

    run: str
    method: str
    env: str
    algorithm: str
    form: str
    default_policy: str
    price: str
    seed: int
    steps: int

    @classmethod
    def of(cls, planned: PlannedRun) -> RunLabels:
        """Returns the labels of a run of a study."""
        config = planned.spec.config
        return cls(
            planned.spec.id, planned.method, config.env, config.algorithm, config.settings.form,
            planned.default_policy, planned.price, config.seed, config.total_steps,
        )  # fmt: skip


def write_plan(folder: SweepFolder, runs: Sequence[PlannedRun]) -> None:
    """Writes the list of all runs, from which `sweep status` and the table take their names."""
    folder.write_sealed(PLAN, {"runs": [asdict(RunLabels.of(run)) for run in runs]})


def read_plan(folder: SweepFolder) -> list[RunLabels]:
    """Returns the list of all runs of a sweep."""
    found = folder.read_sealed(PLAN)
    if found is None:
        raise FileNotFoundError(
            f"{folder.shown} is not the folder of a sweep: it has no whole {PLAN}. Start one with `lazymdp sweep run "
            f"STUDY.toml -o {folder.shown} --go`."
        )
    return [RunLabels(**about) for about in found["runs"]]


def read_results(folder: SweepFolder, wanted: set[str]) -> dict[str, dict[str, Any]]:
    """Returns the results of the runs that are done, by id."""
    there = folder.names("runs") & wanted
    found = {name: folder.read_sealed(f"runs/{name}/{RESULT}") for name in sorted(there)}
    return {name: result for name, result in found.items() if result is not None}


def write_table(folder: SweepFolder, runs: Sequence[RunLabels], results: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the table of all results in the order of the study, in one step."""
    arrow = pyarrow()
    rows = [{**asdict(run), **row} for run in runs if run.run in results for row in results[run.run]["rows"]]
    schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in COLUMNS.items()])
    with tempfile.TemporaryDirectory(prefix="lazymdp-sweep-") as scratch:
        made = Path(scratch) / RESULTS
        arrow.parquet.write_table(arrow.Table.from_pylist(rows, schema), made)
        folder.send_file(made, RESULTS)


def read_table(folder: SweepFolder) -> dict[str, list[Any]]:
    """Returns the columns of the table of results."""
    arrow = pyarrow()
    if RESULTS not in folder.names(""):
        raise FileNotFoundError(f"{folder.shown} has no {RESULTS} yet: no run is finished.")
    with folder.local_file(RESULTS) as path:
        columns: dict[str, list[Any]] = arrow.parquet.read_table(path).to_pydict()
    return columns
