"""Runs on disk: resumed bit for bit, killed, damaged; the commands."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from lazymdp.checkpoints import Checkpoint, RunFolder  # noqa: E402
from lazymdp.cli import main  # noqa: E402
from lazymdp.learn.settings import DialConfig, TrainConfig, check_settings  # noqa: E402
from lazymdp.learn.training import Diverged, Training, make_default, make_game, train  # noqa: E402

SMALL = DialConfig(steps=20_000, n_envs=16, rollout=8, hidden=(16, 16))
OPTIONS = ["--n-envs", "16", "--rollout", "8", "--hidden", "16", "16", "--episodes", "8"]


def same(arrays, other):
    assert arrays.keys() == other.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit():
    config = TrainConfig("FrozenLake-v1", settings=SMALL)
    whole = Training(config)
    while not whole.done:
        whole.advance()
    first = Training(config)
    for _ in range(whole.config.settings.iterations // 3):
        first.advance()
    second = Training(config, first.arrays())
    assert second.step == first.step > 0
    while not second.done:
        second.advance()
    same(whole.arrays(), second.arrays())


def test_reports_cover_every_episode():
    counted, steps = [], []
    agent = train(
        TrainConfig("FrozenLake-v1", settings=SMALL),
        on_report=lambda run, metrics: (counted.extend(metrics), steps.append(run.step)),
        seconds=0.2,
    )
    assert steps[-1] == SMALL.iterations * 128
    assert sum(row.episodes for row in counted) > 1000
    assert all(0.0 <= row.control <= 1.0 and row.length >= 1.0 for row in counted)
    assert agent.frontier([0.0], episodes=4).score.shape == (1, 4)


def test_a_network_that_is_no_longer_finite_stops_the_run(tmp_path, capsys):
    settings = DialConfig(
        steps=20_000, n_envs=16, rollout=8, hidden=(16, 16), learning_rate=1e38, largest_gradient=1e38
    )
    with pytest.raises(Diverged, match="no longer finite after .* lower the learning rate"):
        train(TrainConfig("FrozenLake-v1", settings=settings))
    command = ["train", "FrozenLake-v1", "-o", str(tmp_path / "run"), *OPTIONS, "--steps", "20000"]
    assert main([*command, "--learning-rate", "1e38", "--largest-gradient", "1e38"]) == 2
    assert "no checkpoint was written" in capsys.readouterr().err


def test_train_evaluate_and_what_the_folder_holds(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "FrozenLake-v1", "-o", str(folder), "--steps", "20000", *OPTIONS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["etas"][0] == 0.0 and len(found["score"]) == len(found["etas"])
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "metrics.csv", "last.safetensors", "last.json", "best.safetensors", "best.json",
    }  # fmt: skip
    lines = (folder / "metrics.csv").read_text().splitlines()
    assert lines[0] == "step,eta,episodes,score,length,control" and len(lines) > 3
    assert main(["evaluate", str(folder), "--eta", "0", "0.5", "--episodes", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["etas"] == [0.0, 0.5]
    assert main(["evaluate", str(folder), "--best", "--episodes", "4"]) == 0
    assert "4 episodes at each price" in capsys.readouterr().out
    assert main(["train", "FrozenLake-v1", "-o", str(folder)]) == 2
    assert "lazymdp resume" in capsys.readouterr().err


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_killed_goes_on_and_ends_as_if_nothing_had_happened(tmp_path, how, capsys):
    command = [sys.executable, "-m", "lazymdp", "train", "FrozenLake-v1", *OPTIONS, "--steps", "400000"]
    command += ["--checkpoint-seconds", "0.3", "-o", str(tmp_path / "killed")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed" / "last.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(process.pid, how)
    assert process.wait(30) == {signal.SIGKILL: -9, signal.SIGTERM: 130, signal.SIGINT: 130}[how]
    stopped = RunFolder(tmp_path / "killed").load()
    assert 0 < stopped.step < 400_000
    assert main(["resume", str(tmp_path / "killed"), "--episodes", "4"]) == 0
    whole = [*command[3:-1], str(tmp_path / "whole")]
    assert main(whole) == 0
    capsys.readouterr()
    same(RunFolder(tmp_path / "whole").load().arrays, RunFolder(tmp_path / "killed").load().arrays)
    steps = [int(line.split(",")[0]) for line in (tmp_path / "killed" / "metrics.csv").read_text().splitlines()[1:]]
    assert steps == sorted(steps) and steps[-1] == 399_872 + 128


def test_what_is_damaged_is_named(tmp_path, capsys):
    folder = RunFolder(tmp_path / "run")
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "holds no run" in capsys.readouterr().err
    folder.create(TrainConfig("FrozenLake-v1", settings=SMALL))
    assert folder.config() == TrainConfig("FrozenLake-v1", settings=SMALL)
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "has no last checkpoint yet" in capsys.readouterr().err
    (folder.path / "last.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"last\.safetensors is damaged"):
        folder.load()
    with pytest.raises(ValueError, match="the checkpoint lacks"):
        Training(folder.config(), {})
    arrays = Training(folder.config()).arrays()
    name = next(name for name in arrays if "price" in name)
    with pytest.raises(ValueError, match="other settings"):
        Training(folder.config(), {**arrays, name: np.zeros(3, dtype=np.float32)})
    (folder.path / "config.json").write_text('{"env": "x", "default": "uniform", "seed": 0, "settings": {"old": 1}}')
    with pytest.raises(ValueError, match="of another version of lazymdp"):
        folder.config()


def test_the_best_checkpoint_is_kept(tmp_path):
    folder = RunFolder(tmp_path)
    folder.create(TrainConfig("FrozenLake-v1"))
    for step, quality in ((1, 0.5), (2, 0.9), (3, 0.1)):
        folder.save(Checkpoint({"x": np.array([step])}, step, quality))
    assert folder.load("last").step == 3 and folder.load("best").step == 2
    assert folder.load("best").arrays["x"][0] == 2


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"eta_low": 0.0}, "expected 0 < eta_low"),
        ({"eta_low": 0.5, "eta_high": 0.1}, r"prices from 0\.5 to 0\.1"),
        ({"gamma": 1.5}, r"gamma is 1\.5"),
        ({"hidden": ()}, "hidden"),
        ({"minibatches": 10_000}, "too many"),
    ],
)
def test_bad_settings_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        check_settings(DialConfig(**changed))


def test_bad_environments_and_defaults_are_refused(tmp_path, capsys):
    with pytest.raises(ValueError, match="there is no environment 'nowhere-v0'"):
        make_game("nowhere-v0")
    with pytest.raises(ValueError, match="carries no transition table"):
        make_game("CartPole-v1")
    with pytest.raises(ValueError, match="neither uniform nor an action, 0 to 2"):
        make_default("7", 3)
    assert np.asarray(make_default("1", 3)(np.zeros((2, 4)))).tolist() == [[0, 1, 0], [0, 1, 0]]
    assert main(["train", "FrozenLake-v1", "--eta", "-1", "-o", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()
