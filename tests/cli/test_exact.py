"""The commands for models print what the library computes."""

import numpy as np
import pytest

import lazymdp as lz
from lazymdp.cli.main import main
from lazymdp.envs.loading import load_model


def test_solve_says_what_the_library_says(answer, capsys):
    code, found = answer("solve", "lazymdp/KeyDoorTreasure-v0", "--eta", "0.02")
    assert code == 0
    assert found["control_states"] == 130 == sum(found["per_state"]["control"])
    mdp = lz.MDP.from_gymnasium(lz.envs.KeyDoorTreasure(), 0.99)
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.02)
    solution = lz.solve(lazy)
    evaluation = lz.evaluate(lazy, solution.action)
    np.testing.assert_allclose(found["per_state"]["lazy_gap"], solution.lazy_gap)
    assert found["return"] == pytest.approx(mdp.start_average(evaluation.base_value))
    assert found["control_count"] == pytest.approx(mdp.start_average(evaluation.control_count))
    assert found["default_policy"] == "uniform"
    assert main(["solve", "lazymdp/KeyDoorTreasure-v0", "--eta", "0.02", "--rows", "3"]) == 0
    shown = capsys.readouterr().out
    assert "130" in shown and "the 3 most important states" in shown
    assert "control count" in shown and "default policy" in shown


def test_path_says_what_the_library_says(answer, capsys):
    code, found = answer("path", "FrozenLake-v1", "--control-count", "3", "--gamma", "0.95")
    assert code == 0
    mdp = load_model("FrozenLake-v1", 0.95).mdp
    path = lz.eta_path(mdp, lz.policies.uniform(mdp))
    np.testing.assert_allclose(found["per_policy"]["from_eta"][1:], path.breakpoints)
    np.testing.assert_allclose(found["per_policy"]["control_count"], path.start_control_counts)
    assert found["plan"]["return"] == pytest.approx(path.for_control_count(3).base_value)
    assert found["plan"]["control_count"] == pytest.approx(3.0)
    assert found["eta_min"] == pytest.approx(lz.eta_min(mdp, lz.policies.uniform(mdp)))
    assert main(["path", "FrozenLake-v1", "--control-count", "3", "--rows", "4"]) == 0
    shown = capsys.readouterr().out
    assert "With at most 3 controls (expected, discounted): return " in shown and ", control count 3, " in shown
    assert "4 of the " in shown


def test_path_finds_the_best_plan_within_a_share_of_steps(answer, capsys):
    code, found = answer("path", "FrozenLake-v1", "--control-rate", "0.2", "--gamma", "0.95")
    assert code == 0
    mdp = load_model("FrozenLake-v1", 0.95).mdp
    plan = lz.eta_path(mdp, lz.policies.uniform(mdp)).for_control_rate(0.2)
    assert found["plan"]["return"] == pytest.approx(plan.base_value)
    assert found["plan"]["control_rate"] == pytest.approx(plan.control_rate)
    assert main(["path", "FrozenLake-v1", "--control-rate", "0.2"]) == 0
    assert "With control in at most 20% of the steps (expected, discounted): return " in capsys.readouterr().out


def test_path_writes_the_best_plan(tmp_path, capsys):
    target = tmp_path / "plan.csv"
    assert main(["path", "FrozenLake-v1", "--control-count", "3", "-o", str(target)]) == 0
    assert str(target) in capsys.readouterr().out.replace("\n", "")
    mdp = load_model("FrozenLake-v1", 0.99).mdp
    lz.eta_path(mdp, lz.policies.uniform(mdp)).for_control_count(3).to_csv(tmp_path / "expected.csv")
    assert target.read_text() == (tmp_path / "expected.csv").read_text()
    assert main(["path", "FrozenLake-v1", "-o", str(tmp_path / "no_limit.csv")]) == 2
    assert "expected --control-count or --control-rate with it" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "no_limit.csv").exists()


def test_a_path_has_one_limit_on_control(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["path", "FrozenLake-v1", "--control-count", "3", "--control-rate", "0.2"])
    assert stopped.value.code == 2
    assert "not allowed together" in capsys.readouterr().err


def test_a_model_is_a_file_a_map_or_an_id(files, answer):
    _, saved = answer(
        "solve", str(files / "rivers.npz"), "--eta", "0.1", "--default-policy", str(files / "default.npy")
    )
    assert saved["states"] == 75 and saved["control_states"] == 0  # an optimal default policy needs no help
    _, drawn = answer("solve", str(files / "house.txt"), "--eta", "0.01", "--gamma", "0.9")
    assert drawn["states"] == 22 and drawn["model"] == "house"
    _, action = answer("solve", "FrozenLake-v1", "--eta", "0.01", "--default-policy", "down")
    _, number = answer("solve", "FrozenLake-v1", "--eta", "0.01", "--default-policy", "1")
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


def test_explore_draws_a_model_with_axes(tmp_path):
    target = tmp_path / "page.html"
    assert main(["explore", "FrozenLake-v1", "-o", str(target), "--axes", "row=4", "column=4"]) == 0
    assert '"axes": [{"name": "row", "size": 4}, {"name": "column", "size": 4}]' in target.read_text()


def test_list_names_what_the_others_take(answer):
    code, names = answer("list")
    assert code == 0
    assert {"fig7", "minatar"} <= set(names["experiments"])
    assert "Taxi-v4" in names["models"] and "second-best" in names["default_policies"]
    for name in (model for model in names["models"] if not model.startswith("FILE")):
        load_model(name)
    assert main(["list"]) == 0


def test_brackets_in_names_are_printed_as_they_are(tmp_path, capsys):
    """Rich would take them for its markup: "[door]" would vanish and "[/bold]" would be an error."""
    names = ["at [door]", "[/bold]", "[red]end :door:"]
    transitions = [[[0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 0, 1]], [[0, 0, 1], [0, 0, 1]]]
    mdp = lz.MDP(transitions, [[0, 1], [0, 2], [0, 0]], 0.9, state_names=names, action_names=["[a]", "[/]"])
    model = tmp_path / "[bold]model :car:.npz"
    mdp.save(model)
    assert main(["solve", str(model), "--eta", "0.01"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*names, "[/]", "[bold]model"))
    assert main(["path", str(model), "--control-count", "0.5"]) == 0
    assert "[bold]model" in capsys.readouterr().out
    assert main(["explore", str(model), "-o", str(tmp_path / "[i]page :car:.html")]) == 0
    assert "[i]page :car:.html" in capsys.readouterr().out.replace("\n", "")
    assert main(["solve", str(tmp_path / "[/bold] :car: none.npz"), "--eta", "0.01"]) == 2
    assert "[/bold] :car: none.npz" in capsys.readouterr().err.replace("\n", "")


def test_control_characters_in_names_do_not_reach_the_terminal(capsys, tmp_path, monkeypatch):
    """They could change its colors or erase what stands above; half of a character cannot be encoded."""
    monkeypatch.setenv("COLUMNS", "120")
    names = ["\x1b[2Jred", "nul\0mid", "tail\0", "\x9b31m\a\b\r", "\ud800"]
    circle = np.roll(np.eye(5), 1, axis=1)[:, None]
    mdp = lz.MDP(circle, np.ones((5, 1)), 0.9, state_names=names, action_names=["\x1bgo"])
    mdp.save(tmp_path / "model.npz")
    assert lz.MDP.load(tmp_path / "model.npz").state_names == tuple(names)
    assert main(["solve", str(tmp_path / "model.npz"), "--eta", "-0.1"]) == 0
    shown = capsys.readouterr().out
    for text in ("\\x1b[2Jred", "nul\\x00mid", "tail\\x00 ", "\\x9b31m\\x07\\x08\\r", "\\ud800", "action 0 \\x1bgo"):
        assert text in shown
    assert main(["solve", str(tmp_path / "\x1b[2J.npz"), "--eta", "0.1"]) == 2
    shown += capsys.readouterr().err
    assert all(one.isprintable() or one == "\n" for one in shown)
