"""Tables, claims and records are read from disk as they were written; files are written in one step."""

import numpy as np
import pytest

from lazymdp._files import replacing, write_text
from lazymdp.experiments import Claim, results_io
from lazymdp.experiments.experiment import table
from lazymdp.experiments.results_io import Record


def test_tables_come_back_exactly(tmp_path):
    data = {
        "numbers": table(
            whole=[1, -2, 3],
            real=[0.1, 1e-300, -np.inf],
            missing=[np.nan, 1.0, 2.0],
            truth=[True, False, True],
            words=["a, b", 'quoted "x"', "ü\nnew line"],
            same=7,
        ),
        "nothing": {"empty": np.zeros(0)},
    }
    results_io.save(tmp_path / "deep" / "folder", data, Record("x", {}, "", 1.0, {}, ""))
    read = results_io.load(tmp_path / "deep" / "folder")
    for name, column in data["numbers"].items():
        np.testing.assert_array_equal(read["numbers"][name], column)
    assert read["numbers"]["whole"].dtype.kind == "i"
    assert read["nothing"]["empty"].size == 0


def test_claims_come_back_exactly_and_are_no_table(tmp_path):
    claims = [Claim("one, two", "150", "0.100", True), Claim("three", "<= 1e-3", "", False)]
    record = Record("x", {"etas": [0.1]}, "", 1.0, {}, "")
    results_io.save(tmp_path, {"rows": table(a=[1, 2])}, record, claims)
    assert results_io.load_claims(tmp_path) == claims  # "0.100" is not read as a number
    assert list(results_io.load(tmp_path)) == ["rows"]
    assert results_io.load_record(tmp_path) == record
    results_io.save_claims(tmp_path, [])
    assert results_io.load_claims(tmp_path) == []


def test_a_torn_table_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match=r"t\.csv line 3 has 1 fields, but its header has 2"):
        results_io.load(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    target = tmp_path / "x.txt"
    write_text(target, "old")
    with pytest.raises(RuntimeError), replacing(target) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        write_text(tmp_path / "no" / "x", "")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        write_text(tmp_path, "")
