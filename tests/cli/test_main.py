"""The command line: what it prints, its exit codes, its errors."""

import json
import subprocess
import sys

import numpy as np
import pytest

import lazymdp as lz
from lazymdp.cli.main import main
from lazymdp.envs.loading import load_model

MAP = """
    #######
    #S..K.#
    ###D###
    #....T#
    #######
"""


def answer(capsys, *arguments):
    """Exit code and JSON."""
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def files(tmp_path):
    world = lz.envs.RiversAndBridges()
    mdp = lz.MDP.from_gymnasium(world, 0.9)
    mdp.save(tmp_path / "rivers.npz")
    (tmp_path / "house.txt").write_text(MAP)
    np.save(tmp_path / "default.npy", lz.policies.optimal(mdp))
    return tmp_path


def test_solve_says_what_the_library_says(capsys):
    code, found = answer(capsys, "solve", "lazymdp/KeyDoorTreasure-v0", "--eta", "0.02")
    assert code == 0
    assert found["control_states"] == 130 == sum(found["per_state"]["control"])
    mdp = lz.MDP.from_gymnasium(lz.envs.KeyDoorTreasure(), 0.99)
    solution = lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.02))
    np.testing.assert_allclose(found["per_state"]["lazy_gap"], solution.lazy_gap)
    assert main(["solve", "lazymdp/KeyDoorTreasure-v0", "--eta", "0.02", "--rows", "3"]) == 0
    shown = capsys.readouterr().out
    assert "130" in shown and "the 3 states that matter most" in shown


def test_path_says_what_the_library_says(capsys):
    code, found = answer(capsys, "path", "FrozenLake-v1", "--budget", "3", "--gamma", "0.95")
    assert code == 0
    mdp = load_model("FrozenLake-v1", 0.95).mdp
    path = lz.eta_path(mdp, lz.policies.uniform(mdp))
    np.testing.assert_allclose(found["per_policy"]["from_eta"][1:], path.breakpoints)
    assert found["budget"]["return"] == pytest.approx(path.for_control_count(3).base_value)
    assert found["eta_min"] == pytest.approx(lz.eta_min(mdp, lz.policies.uniform(mdp)))
    assert main(["path", "FrozenLake-v1", "--budget", "3", "--rows", "4"]) == 0
    assert "At most 3 controls" in capsys.readouterr().out


def test_a_model_is_a_file_a_map_or_an_id(files, capsys):
    _, saved = answer(
        capsys, "solve", str(files / "rivers.npz"), "--eta", "0.1", "--default", str(files / "default.npy")
    )
    assert saved["states"] == 75 and saved["control_states"] == 0  # an optimal default needs no help
    _, drawn = answer(capsys, "solve", str(files / "house.txt"), "--eta", "0.01", "--gamma", "0.9")
    assert drawn["states"] == 22 and drawn["model"] == "house"
    _, action = answer(capsys, "solve", "FrozenLake-v1", "--eta", "0.01", "--default", "down")
    _, number = answer(capsys, "solve", "FrozenLake-v1", "--eta", "0.01", "--default", "1")
    assert action["value"] == number["value"]


@pytest.mark.parametrize("name", ["FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4"])
def test_gymnasiums_worlds_have_names(name):
    mdp = load_model(name).mdp
    assert mdp.state_names is not None and len(set(mdp.state_names)) == mdp.n_states
    assert mdp.action_names is not None


def test_explore_writes_one_page(files, capsys):
    target = files / "page.html"
    assert main(["explore", str(files / "house.txt"), "-o", str(target), "--title", "A <small> house"]) == 0
    assert str(target) in capsys.readouterr().out.replace("\n", "")
    page = target.read_text()
    assert page.startswith("<!doctype html>") and "A &lt;small&gt; house" in page


def test_reproduce_ends_with_1_where_a_claim_fails_and_0_where_all_hold(tmp_path, capsys):
    code, found = answer(capsys, "reproduce", "fig3", "-o", str(tmp_path))
    assert code == 0 and all(claim["holds"] for claim in found["claims"]["fig3"])
    assert main(["reproduce", "fig7", "--seeds", "2", "--episodes", "60", "-o", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "NO" in captured.out and "index.html" in captured.out
    assert "fig7" in captured.err  # the bar
    assert {"fig3", "fig7", "index.html"} == {path.name for path in tmp_path.iterdir()}
    code, found = answer(capsys, "reproduce", "kdt-path", "--checks", "3", "--out", str(tmp_path))
    assert code == 0 and (tmp_path / "explorer.html").stat().st_size > 10_000


def test_list_names_what_the_others_take(capsys):
    code, names = answer(capsys, "list")
    assert code == 0
    assert "fig7" in names["experiments"] and "Taxi-v4" in names["models"] and "second-best" in names["defaults"]
    for name in (model for model in names["models"] if not model.startswith("FILE")):
        load_model(name)
    assert main(["list"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("solve nowhere-v0 --eta 1", "nowhere-v0 is neither a file nor a Gymnasium environment"),
        ("solve CartPole-v1 --eta 1", "CartPoleEnv carries no transition table"),
        ("solve FrozenLake-v1 --eta nan", "eta is nan"),
        ("solve FrozenLake-v1 --eta 1 --gamma 1.5", "gamma"),
        ("solve FrozenLake-v1 --eta 1 --default east", "default policy is 'east', expected uniform"),
        ("solve FrozenLake-v1 --eta 1 --default 9", "default policy is '9', expected uniform"),
        ("solve FrozenLake-v1 --eta 1 --default {tmp}/none.npy", "none.npy"),
        ("solve {tmp}/none.npz --eta 1", "there is no file"),
        ("solve {tmp}/bad.npz --eta 1", "not a model saved by MDP.save"),
        ("solve {tmp}/bad.txt --eta 1", "bad.txt: layout has '?' at row 0, column 1"),
        ("solve {tmp}/binary --eta 1", "not a text file"),
        ("solve {tmp}/rivers.npz --eta 1 --gamma 0.5", "was saved with gamma = 0.9"),
        ("path FrozenLake-v1 --budget -1", "control_count is -1"),
        ("path FrozenLake-v1 --tol 0", "tol is 0"),
        ("explore FrozenLake-v1 -o {tmp}/no/x.html", "there is no folder"),
        ("explore FrozenLake-v1 -o {tmp}", "it is a folder"),
        ("reproduce fig7 --seeds 0 -o {tmp}/out", "seeds is 0"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(files, capsys, arguments, message):
    (files / "bad.npz").write_bytes(b"nothing")
    (files / "bad.txt").write_text("S?G")
    (files / "binary").write_bytes(b"\xff\xfe\x00")
    before = sorted(files.iterdir())
    given = [argument.format(tmp=files) for argument in arguments.split()]
    assert main(given) == 2
    captured = capsys.readouterr()
    lines = [line for line in captured.err.splitlines() if "Error:" in line]
    assert len(lines) == 1 and message in lines[0]
    assert "Traceback" not in captured.err and not captured.out
    assert set(files.iterdir()) - set(before) <= {files / "out"}
    with pytest.raises((ValueError, OSError)):
        main([*given, "--debug"])


def test_a_wrong_option_ends_with_2(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["solve", "FrozenLake-v1", "--ata", "1"])
    assert stopped.value.code == 2
    assert "--ata" in capsys.readouterr().err


def test_an_interruption_ends_with_130(tmp_path, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("lazymdp.cli.main.reproduce", interrupted)
    assert main(["reproduce", "fig3", "-o", str(tmp_path)]) == 130
    assert "goes on from there" in capsys.readouterr().err


def test_python_m_lazymdp_is_the_same_command():
    command = [sys.executable, "-m", "lazymdp"]
    assert subprocess.run([*command, "--version"], check=True, capture_output=True, text=True).stdout.startswith(
        "lazymdp 0"
    )
    assert subprocess.run([*command, "solve", "x", "--eta", "1"], capture_output=True).returncode == 2
    assert "reproduce" in subprocess.run(command, check=False, capture_output=True, text=True).stdout


def test_brackets_in_a_message_are_shown(capsys):
    """Rich would take them for its markup, and `pip install 'lazymdp[deep]'` would lose its extra."""
    assert main(["solve", "[deep].npz", "--eta", "0.1"]) == 2
    assert "there is no file [deep].npz" in capsys.readouterr().err
