"""`lazymdp evaluate` as far as it needs no JAX: its errors. Tests that train are in `tests/learn/deep`."""

import pytest

from lazymdp.cli.main import main

WRONG = {
    "plot is frontier.txt, expected a file that ends in .png, .svg or .pdf": ["run", "--plot", "frontier.txt"],
    "the folder nowhere does not exist": ["run", "--plot", "nowhere/frontier.png"],
    "--plot with 99 runs, expected at most": [*["run"] * 99, "--plot", "frontier.png"],
    "expected the folder of at least one run": [],
    "is not the folder of a run": ["run"],
    "seed is -1": ["run", "--seed", "-1"],
    "episodes is 0": ["run", "--episodes", "0"],
}


@pytest.mark.parametrize(("message", "options"), WRONG.items(), ids=WRONG)
def test_wrong_arguments_are_named_before_anything_is_loaded(message, options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
