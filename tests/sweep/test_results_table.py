"""The table of results: its columns are documented, and pandas and DuckDB read it."""

import re
from pathlib import Path

import pytest

from lazymdp.sweep import results_table
from lazymdp.sweep.results_table import COLUMNS, RunLabels, read_plan, read_table, write_plan, write_table
from lazymdp.sweep.study_file import read_study
from lazymdp.sweep.sweep_folder import SweepFolder

pytest.importorskip("pyarrow")
TEXT = """
environments = ["minatar/breakout"]
algorithms = ["pqn"]
prices = [0.01]
seeds = 2
"""
ROW = {
    "eta": 0.01, "default_alone": False, "episodes": 1, "mean_return": 0.1 + 0.2, "std_return": 0.0,
    "control_rate": 0.5, "mean_controls": 1.0, "mean_length": 2.0, "mean_net_return": 0.29, "unfinished": 0,
}  # fmt: skip


def test_the_table_is_in_the_order_of_the_study_and_others_read_it(write_study, tmp_path):
    study, folder = read_study(write_study(TEXT)), SweepFolder(tmp_path / "sweep")
    write_plan(folder, study.runs)
    labels = read_plan(folder)
    assert labels == [RunLabels.of(run) for run in study.runs]
    rows = [ROW, ROW | {"eta": None, "default_alone": True}]
    finished = {name: {"rows": rows} for name in reversed(study.specs)}  # in another order
    write_table(folder, labels, finished)
    table = read_table(folder)
    assert list(table) == list(COLUMNS) and table["seed"] == [0, 0, 1, 1] and table["eta"] == [0.01, None] * 2
    assert table["mean_return"][0] == 0.1 + 0.2
    file = tmp_path / "sweep" / "results.parquet"
    before = file.read_bytes()
    write_table(folder, labels, finished)
    assert file.read_bytes() == before
    pandas, duckdb = pytest.importorskip("pandas"), pytest.importorskip("duckdb")
    assert pandas.read_parquet(file).groupby("seed").mean_return.count().tolist() == [2, 2]
    with duckdb.connect() as database:
        query = f"SELECT count(*) FROM '{file}' WHERE NOT default_alone"
        assert database.execute(query).fetchall() == [(2,)]


@pytest.mark.parametrize("text", [results_table.__doc__, "guide"])
def test_every_column_is_documented(text):
    guide = Path(__file__).parents[2] / "docs" / "guides" / "sweep.md"
    text = guide.read_text().split("## Results")[1].split("## Faults")[0] if text == "guide" else text
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    assert {name for cell in cells for name in re.findall(r"`(\w+)`", cell)} == set(COLUMNS)
