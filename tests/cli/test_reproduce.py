"""`lazymdp reproduce`: claims, exit codes, files, interruptions."""

import os
import signal

import pytest

from lazymdp.cli.main import main
from lazymdp.cli.reproduce import All, reproduce
from lazymdp.experiments import EXPERIMENTS, Claim
from lazymdp.experiments.jobs import Unfinished


def test_reproduce_ends_with_1_where_a_claim_fails_and_0_where_all_hold(tmp_path, answer, capsys, monkeypatch):
    monkeypatch.setattr("lazymdp.experiments.runner.find_spec", lambda package: None)  # no report, which takes longest
    code, found = answer("reproduce", "fig3", "-o", str(tmp_path))
    assert code == 0 and all(claim["holds"] for claim in found["claims"]["fig3"])
    assert main(["reproduce", "fig7", "--seeds", "2", "--episodes", "60", "-o", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "NO" in captured.out and "index.html" in captured.out
    assert "fig7" in captured.err  # the bar
    assert {"fig3", "fig7", "index.html"} == {path.name for path in tmp_path.iterdir()}
    code, found = answer("reproduce", "kdt-path", "--checks", "3", "--out", str(tmp_path))
    assert code == 0 and (tmp_path / "explorer.html").stat().st_size > 10_000


def test_a_study_is_redrawn_by_name(tmp_path, capsys):
    assert main(["reproduce", "minatar", "-o", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "13 of 13 claims hold" in shown and "Drawn from saved data: minatar. Use --fresh to run again." in shown
    assert (tmp_path / "minatar" / "figure.png").exists() and (tmp_path / "index.html").exists()


def test_without_a_name_it_makes_what_runs_on_a_cpu(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("lazymdp.cli.reproduce.reproduce_all", lambda configs, *_, **__: asked.append(configs) or [])
    assert main(["reproduce", "-o", str(tmp_path)]) == main(["reproduce", "all", "-o", str(tmp_path)]) == 0
    assert reproduce(All(), tmp_path) == 0
    expected = {name: experiment.config() for name, experiment in EXPERIMENTS.items() if not experiment.needs_gpu}
    assert asked == [expected] * 3


def test_an_interruption_ends_with_130(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lazymdp.cli.reproduce.reproduce_all", interrupted)
    assert main(["reproduce", "fig3", "-o", str(tmp_path)]) == 130
    assert "the same command again to continue" in capsys.readouterr().err


def test_a_study_whose_time_is_over_ends_with_130(tmp_path, monkeypatch, capsys):
    def stopped(configs, out, *, workers, stop_after, **_):
        raise Unfinished(f"x: {workers} of 9 jobs are done after {stop_after:g} s.")

    monkeypatch.setattr("lazymdp.cli.reproduce.reproduce_all", stopped)
    given = ["reproduce", "expert-rules", "--fresh", "--workers", "4", "--stop-after", "60", "-o", str(tmp_path)]
    assert main(given) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert "x: 4 of 9 jobs are done after 60 s. Run the same command again to continue." in said


def test_sigterm_ends_it_as_ctrl_c_does(tmp_path, monkeypatch, capsys):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("lazymdp.cli.reproduce.reproduce_all", lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM))
    assert main(["reproduce", "fig3", "-o", str(tmp_path)]) == 130
    assert "Interrupted. Finished work is kept" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("text", ["a claim with [brackets]", "[/bold] of a claim"])
def test_brackets_in_a_claim_are_printed_as_they_are(tmp_path, monkeypatch, capsys, text):
    outcome = type("Outcome", (), {"experiment": EXPERIMENTS["fig3"], "claims": [Claim(text, "[x]", "[/y]", True)],
                                   "holds": True, "reused": False})  # fmt: skip
    monkeypatch.setattr("lazymdp.cli.reproduce.reproduce_all", lambda *_, **__: [outcome])
    assert main(["reproduce", "fig3", "-o", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert text in shown and "[x]" in shown and "[/y]" in shown


def test_a_study_that_is_run_reports_its_progress_in_a_log(tmp_path, monkeypatch, capsys):
    def run(configs, *_, progress, **__):
        for done in range(0, 201, 20):
            progress("minatar", done, 200)
        return []

    monkeypatch.setattr("lazymdp.cli.reproduce.reproduce_all", run)
    assert main(["reproduce", "minatar", "--fresh", "-o", str(tmp_path)]) == 0
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("minatar: ")] == [
        f"minatar: {percent}%" for percent in range(10, 101, 10)
    ]
