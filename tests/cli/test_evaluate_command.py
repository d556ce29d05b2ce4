"""`lazymdp evaluate` as far as it needs no JAX: its errors, the names of runs. What trains is in `tests/learn/deep`."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from lazymdp.cli.evaluate import draw, run_labels
from lazymdp.cli.main import main

WRONG = {
    "plot is frontier.txt, expected a file that ends in .png, .svg or .pdf": ["run", "--plot", "frontier.txt"],
    "the folder nowhere does not exist": ["run", "--plot", "nowhere/frontier.png"],
    "--plot with 99 runs, expected at most": [*["run"] * 99, "--plot", "frontier.png"],
    "expected the folder of at least one run": [],
    "is not the folder of a run": ["run"],
    "run is given twice: give each run once": ["run", "run"],
    "sub/../run is given twice, also as run: give each run once": ["run", "other", "sub/../run"],
    "seed is -1": ["run", "--seed", "-1"],
    "episodes is 0": ["run", "--episodes", "0"],
}


@pytest.mark.parametrize(("message", "options"), WRONG.items(), ids=WRONG)
def test_wrong_arguments_are_named_before_anything_is_loaded(message, options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_run_is_named_after_its_folder_however_it_is_given(tmp_path, monkeypatch):
    for name in ("one", "two", "a/run", "b/run", "b/deep/run"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "one")
    monkeypatch.chdir(tmp_path / "one")
    assert run_labels([Path(), Path("../two")]) == ["one", "two"]
    assert run_labels([Path("../b/deep/.."), Path("../a/run/../../link")]) == ["b", "one"]
    assert run_labels([Path("../a/run"), Path("../b/run"), Path("../b/deep/run")]) == ["a/run", "b/run", "deep/run"]
    with pytest.raises(ValueError, match=r"^\.\./link is given twice, also as \.: give each run once\.$"):
        run_labels([Path(), Path("../link")])


PATHS = st.lists(st.sampled_from("abc"), max_size=4).map(lambda names: Path("/", *names))


@given(st.lists(PATHS, max_size=6, unique=True))
def test_the_names_of_runs_differ_and_are_no_longer_than_needed(runs):
    labels = run_labels(runs)
    assert len(set(labels)) == len(runs)
    for run, label in zip(runs, labels, strict=True):
        count = len(Path(label).parts)
        assert Path(label).parts == run.parts[-count:]
        shorter = [other for other in runs if other.parts[1 - count :] == run.parts[1 - count :]] if count > 1 else []
        assert count == 1 or len(shorter) > 1, "a shorter name would have been enough"


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_same_data_give_the_same_bytes_at_any_time(kind, tmp_path, monkeypatch):
    def figure():
        made = Figure()
        made.subplots().plot([0.0, 1.0], [1.0, 0.0], clip_on=True)
        return made

    drawn = []
    for second in ("1", "1000000000"):  # Matplotlib takes it for the time
        monkeypatch.setenv("SOURCE_DATE_EPOCH", second)
        draw(figure, tmp_path / f"at_{second}.{kind}")
        drawn.append((tmp_path / f"at_{second}.{kind}").read_bytes())
    assert drawn[0] == drawn[1]
