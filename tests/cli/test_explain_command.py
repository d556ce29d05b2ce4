"""The commands that record an agent and show what it does."""

import json

import pytest

import lazymdp as lz
from lazymdp.cli.main import main

pytest.importorskip("pyarrow")
WORLD = "lazymdp/KeyDoorTreasure-v0"


@pytest.fixture
def recording(tmp_path, capsys):
    assert main(["record", WORLD, "--eta", "0.03", "--episodes", "2", "-o", str(tmp_path / "kdt"), "--json"]) == 0
    return tmp_path / "kdt", json.loads(capsys.readouterr().out)


def test_record_prints_what_was_recorded(recording, capsys):
    folder, said = recording
    assert said["episodes"] == 2 and said["mean_return"] == 1.0 and said["eta"] == 0.03 and said["env"] == WORLD
    assert 0 < said["control_rate"] < 1 and said["per_episode"][1]["seed"] == 1
    assert lz.explain.load(folder).episodes == 2
    assert main(["record", WORLD, "--eta", "0.03", "-o", str(folder)]) == 2
    assert "holds a recording already" in capsys.readouterr().err


def test_strip_and_video(recording, tmp_path, capsys):
    folder, _ = recording
    assert main(["strip", str(folder), "-o", str(tmp_path / "s.png"), "--steps", "3", "1", "--episode", "1"]) == 0
    assert "Steps 3, 1 of episode 1" in capsys.readouterr().out
    assert main(["strip", str(folder), "-o", str(tmp_path / "t.png"), "--by", "critical_eta", "--frames", "3"]) == 0
    assert main(["video", str(folder), "-o", str(tmp_path / "v.mp4"), "--episode", "1"]) == 0
    assert str(tmp_path / "v.mp4") in capsys.readouterr().out
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("s.png", "t.png", "v.mp4"))
    assert main(["strip", str(folder), "-o", str(tmp_path / "s.png"), "--by", "nothing"]) == 2
    assert "by is 'nothing', expected one of 'lazy_gap'" in capsys.readouterr().err


def test_an_agent_that_runs_code_needs_trust(tmp_path, capsys, monkeypatch):
    (tmp_path / "some_agents.py").write_text("def left(observation):\n    return 0\n")
    monkeypatch.chdir(tmp_path)  # modules in the current folder are found
    given = ["record", "some_agents:left", "CartPole-v1", "--default-policy", "1", "--max-steps", "5"]
    assert main(given) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "some_agents:left was not loaded" in said and "--trust" in said
    assert main([*given, "--trust"]) == 0
    recording = lz.explain.load("recording")
    assert recording.about["default_policy"] == "1" and recording.summary(0)["truncated"]


def test_a_run_that_is_interrupted_keeps_whole_episodes(tmp_path, capsys, monkeypatch):
    (tmp_path / "tired_agents.py").write_text(
        "calls = []\n\ndef tired(observation):\n    calls.append(1)\n    if len(calls) == 4:\n"
        "        raise KeyboardInterrupt\n    return 0\n"
    )
    monkeypatch.chdir(tmp_path)
    given = ["record", "tired_agents:tired", "CartPole-v1", "--max-steps", "2", "--episodes", "9", "--trust"]
    assert main(given) == 130
    assert "Interrupted. 1 whole episode in recording." in " ".join(capsys.readouterr().err.split())
    assert lz.explain.load("recording").episodes == 1


@pytest.mark.parametrize("command", ["record", "explain", "fidelity"])
def test_an_agent_whose_actions_do_not_fit(command, tmp_path, capsys, monkeypatch):
    (tmp_path / "odd_agents.py").write_text("def seven(observation):\n    return 7\n")
    monkeypatch.chdir(tmp_path)
    assert main([command, "odd_agents:seven", "CartPole-v1", "--trust"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.endswith("the agent chose action 7, but the environment has the actions 0 to 1.")
    assert "\n" not in said  # no progress bar is left


@pytest.mark.parametrize("name", ["episode-00001.parquet", "episode-00001.zip", "recording.json"])
def test_a_truncated_recording(recording, name, tmp_path, capsys):
    folder, _ = recording
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    for command in ("strip", "video"):
        assert main([command, str(folder), "-o", str(tmp_path / "out.png")]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"{name} is damaged: " in said and said.endswith("Record the agent again.")


@pytest.mark.filterwarnings("default:.*without frames")
def test_an_environment_that_cannot_render(tmp_path, capsys, monkeypatch):
    (tmp_path / "blind_agents.py").write_text(
        "import gymnasium as gym\nfrom echo_env import EchoEnv\n\ngym.register('Blind-v0', EchoEnv)\n\n\n"
        "def two(observation):\n    return 2\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["record", "blind_agents:two", "Blind-v0", "--trust", "-o", "blind"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert (
        "Warning: Blind-v0 is recorded without frames, because it cannot be rendered: its render mode is None" in said
    )
    for command in ("strip", "video"):
        assert main([command, "blind"]) == 2
        said = capsys.readouterr().err.strip()
        assert said.endswith("blind has no frames: its environment could not be rendered.") and "\n" not in said


def test_a_missing_recording(tmp_path, capsys):
    assert main(["video", str(tmp_path)]) == 2
    assert "there is no recording in" in capsys.readouterr().err


def test_fidelity_prints_and_draws_both_modes(tmp_path, capsys):
    given = ["fidelity", WORLD, "--eta", "0.03", "--episodes", "2"]
    assert main([*given, "--plot", str(tmp_path / "f.png")]) == 0
    assert (tmp_path / "f.png").stat().st_size > 10_000
    said = " ".join(capsys.readouterr().out.split())
    assert "beyond that of random steps; larger is better" in said and "importance advice" in said
    assert "random steps" in said and "handed over, %" in said and "for the top 5 / 10 / 20 / 30 / 40 %" in said
    assert main([*given, "--mode", "keep", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["measure"] for row in rows] == ["lazy_gap", "action_gap", "importance_advice"]
    for row in rows:
        assert row["mode"] == "keep" and row["shares"] == [0.05, 0.1, 0.2, 0.3, 0.4]
        saved = [b - a for a, b in zip(row["loss_top"], row["loss_random"], strict=True)]
        between = [(a + b) / 2 * step for a, b, step in zip(saved[:-1], saved[1:], (0.05, 0.1, 0.1, 0.1), strict=True)]
        for kind in ("top", "random", "bottom"):
            assert len(row[f"handed_{kind}"]) == 5 and all(0.0 <= share <= 1.0 for share in row[f"handed_{kind}"])
        assert row["area_mean"] == pytest.approx(sum(between) / 0.35)
    assert main([*given, "--plot", "f.txt"]) == 2
    assert "plot is f.txt, expected a file that ends in .png" in " ".join(capsys.readouterr().err.split())


@pytest.mark.filterwarnings("default:.*without frames")
def test_a_saved_model_needs_no_environment(tmp_path, capsys):
    lz.MDP([[[0.9, 0.1], [0.5, 0.5]], [[0.0, 1.0]] * 2], [[1.0, 0.0], [0.0, 0.0]], 0.9).save(tmp_path / "mine.npz")
    given = [str(tmp_path / "mine.npz"), "--eta", "0.1"]
    assert main(["record", *given, "-o", str(tmp_path / "r"), "--max-steps", "9", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["env"] == "mine" and "mine is recorded without frames" in " ".join(said.err.split())
    assert main(["fidelity", *given, "--episodes", "1", "--json"]) == 0
    assert main(["strip", str(tmp_path / "r")]) == 2
    assert capsys.readouterr().err.strip().endswith("has no frames: its environment could not be rendered.")
