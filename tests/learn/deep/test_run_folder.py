"""Runs on disk: kept, picked up, damaged, claimed by one process."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_runs import DQN_SMALL, OPTIONS, SMALL, same

jax = pytest.importorskip("jax")

import safetensors  # noqa: E402
import safetensors.numpy  # noqa: E402

import lazymdp as lz  # noqa: E402
from lazymdp.cli.main import main  # noqa: E402
from lazymdp.learn.deep.config import TrainConfig  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.saved import Checkpoint, Memory  # noqa: E402
from lazymdp.learn.deep.trainer import Training, train  # noqa: E402


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
    spoiled = {name: np.full_like(array, np.nan) if "parameters" in name else array for name, array in arrays.items()}
    with pytest.raises(ValueError, match="holds no numbers"):
        Training(folder.config(), spoiled)
    folder.save(Checkpoint(spoiled, 128, 0.0))
    with pytest.raises(ValueError, match="best checkpoint of .* is damaged: its network holds no numbers"):
        lz.learn.load(folder.path, "best")
    whole = json.loads((folder.path / "config.json").read_text())
    for changed, message in (
        ({"settings": {"old": 1}}, "of another version of lazymdp"),
        ({"learner": "sarsa"}, "is damaged.*sarsa"),
        ({"seed": "x"}, "is damaged"),
        ({"settings": {**whole["settings"], "n_envs": "x"}}, r"is damaged \(n_envs is 'x', expected a whole number"),
        ({"settings": {**whole["settings"], "hidden": 3}}, r"config\.json is damaged"),
    ):
        (folder.path / "config.json").write_text(json.dumps({**whole, **changed}))
        with pytest.raises(ValueError, match=message):
            folder.config()
    (folder.path / "config.json").write_text(json.dumps({name: whole[name] for name in whole if name != "env"}))
    with pytest.raises(ValueError, match=r"config\.json is damaged: it lacks 'env'"):
        folder.config()
    (folder.path / "metrics.csv").write_bytes(b"step,eta,episodes,score,length,control\n0,\xff\xfe,1,1,1,1\n\xff")
    (folder.path / "memory-of-mine.safetensors").write_bytes(b"another's")
    folder.rewind(0, 0)
    assert folder.remembered == 0 and len((folder.path / "metrics.csv").read_text().splitlines()) == 2
    (folder.path / "metrics.csv").unlink()
    folder.rewind(0, 0)
    assert (folder.path / "metrics.csv").read_text().startswith("step,eta")


@pytest.mark.parametrize("settings", [SMALL, DQN_SMALL])
def test_in_python_a_run_is_kept_and_goes_on_where_it_was(tmp_path, settings):
    config, steps = TrainConfig("FrozenLake-v1", "repeat", settings=settings), []

    def third():
        steps.append(1)
        return len(steps) == settings.iterations // 3

    with pytest.raises(KeyboardInterrupt):
        train(config, folder=RunFolder(tmp_path / "run"), stop=third)
    stopped = RunFolder(tmp_path / "run").load()
    assert stopped.step == len(steps) * settings.n_envs * settings.rollout
    with pytest.raises(ValueError, match=r"run holds another run: its learning_rate is .*, not 0\.5\. Give another"):
        train(replace(config, settings=replace(settings, learning_rate=0.5)), folder=RunFolder(tmp_path / "run"))
    with pytest.raises(ValueError, match="its default is repeat, not uniform"):
        train(replace(config, default="uniform"), folder=RunFolder(tmp_path / "run"))
    same(stopped.arrays, RunFolder(tmp_path / "run").load().arrays)
    train(config, folder=lz.RunFolder(str(tmp_path / "run")))
    agent = train(config, folder=RunFolder(tmp_path / "whole"), checkpoint_seconds=0.1, seconds=0.1)
    same(RunFolder(tmp_path / "whole").load().arrays, RunFolder(tmp_path / "run").load().arrays)
    again = train(config, folder=RunFolder(tmp_path / "whole"))  # complete: nothing is trained
    same({"q": agent.q(np.arange(16))}, {"q": again.q(np.arange(16))})
    same({"q": agent.q(np.arange(16))}, {"q": lz.learn.load(tmp_path / "run").q(np.arange(16))})


def test_a_default_given_in_python_is_asked_for_again_and_nothing_is_written_of_what_cannot_be_trained(tmp_path):
    config = TrainConfig("FrozenLake-v1", settings=replace(SMALL, steps=256))
    with pytest.raises(ValueError, match="shape"):
        train(config, default=np.ones((3, 2)), folder=RunFolder(tmp_path / "run"))
    with pytest.raises(ValueError, match="checkpoint_seconds is 0"):
        train(config, folder=RunFolder(tmp_path / "run"), checkpoint_seconds=0)
    with pytest.raises(TypeError, match=r"folder is 'x', expected lz\.RunFolder\('x'\)"):
        train(config, folder="x")
    assert not (tmp_path / "run").exists()
    with pytest.raises(TypeError, match=r"default is of type ndarray.*lz\.learn\.train\(default=\) takes other forms"):
        TrainConfig("FrozenLake-v1", np.ones((16, 4)))
    left = np.eye(4)[np.zeros(16, int)]
    agent = train(config, default=left, folder=RunFolder(tmp_path / "run"))
    with pytest.raises(ValueError, match="was given in Python: give it again, as default="):
        lz.learn.load(tmp_path / "run")
    loaded = lz.learn.load(tmp_path / "run", default=left)
    np.testing.assert_array_equal(loaded.lazy_gap(np.arange(16)), agent.lazy_gap(np.arange(16)))
    with RunFolder(tmp_path / "run").claimed(), pytest.raises(ValueError, match="is being trained by another process"):
        train(config, default=left, folder=RunFolder(tmp_path / "run"))


def test_what_is_the_same_run_and_what_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RunFolder("first").create(TrainConfig("FrozenLake-v1", settings=DQN_SMALL))
    (tmp_path / "first" / "last.safetensors").write_bytes(b"x")
    settings = replace(DQN_SMALL, hidden=[16], warm_start=Path("first"))
    config, folder = TrainConfig("FrozenLake-v1", Path("first"), np.int64(3), settings), RunFolder("run")
    folder.create(config)
    assert folder.same(config) == folder.config() == folder.same(folder.config())
    assert folder.config().default == "run/default" and folder.config().settings.warm_start == str(tmp_path / "first")
    for other in ("first:epsilon=0.1", "uniform", "given in Python"):
        with pytest.raises(ValueError, match="holds another run: its default is run/default, not"):
            folder.same(replace(config, default=other))


def test_of_two_that_begin_in_a_folder_at_once_one_is_refused(tmp_path, monkeypatch):
    config, folder = TrainConfig("FrozenLake-v1", settings=replace(SMALL, steps=256)), RunFolder(tmp_path / "run")
    begin = Training.__init__

    def meanwhile(self, *arguments):  # another begins while this one is made
        begin(self, *arguments)
        RunFolder(tmp_path / "run").create(replace(config, seed=1))

    monkeypatch.setattr(Training, "__init__", meanwhile)
    with pytest.raises(ValueError, match="another process has just begun a run in the same folder"):
        train(config, folder=folder)
    assert folder.config().seed == 1


def test_the_best_checkpoint_is_kept(tmp_path):
    folder = RunFolder(tmp_path)
    folder.create(TrainConfig("FrozenLake-v1"))
    folder.save(Checkpoint({"x": np.array([0])}, 0, None))
    assert folder.load("last").step == 0 and folder.load("best") is None  # no episode has ended
    for step, quality in ((1, -0.5), (2, -0.1), (3, None), (3, -0.9)):
        folder.save(Checkpoint({"x": np.array([step])}, step, quality))
    assert folder.load("last").step == 3 and folder.load("best").step == 2
    assert folder.load("best").arrays["x"][0] == 2
    (tmp_path / "best.safetensors").write_bytes(b"damaged")
    folder.save(Checkpoint({"x": np.array([4])}, 4, -0.95))  # the run goes on, and there is a best one again
    assert folder.load("best").step == 4


def test_a_run_without_its_memory_is_not_picked_up():
    config = TrainConfig("FrozenLake-v1", settings=DQN_SMALL)
    run = Training(config)
    for _ in range(3):
        run.advance()
    whole = run.memory()
    parts = [Memory(0, 40, {}), Memory(40, 60, {}), Memory(61, 96, {})]
    Training(config, run.arrays(), [whole])._check_memory(parts)
    with pytest.raises(ValueError, match=r"steps 0 to 96 of every environment"):
        Training(config, run.arrays())
    with pytest.raises(ValueError, match=r"steps 41 to 96 of every environment"):
        run._check_memory([parts[0], parts[2]])


def test_only_one_process_trains_in_a_folder(tmp_path, capsys):
    folder = RunFolder(tmp_path / "run")
    folder.create(TrainConfig("FrozenLake-v1", settings=SMALL))
    with folder.claimed():
        code = f"import sys; from lazymdp.cli.main import main; sys.exit(main(['resume', {str(folder.path)!r}]))"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert other.returncode == 2 and "is being trained by another process" in " ".join(other.stderr.split())
    with folder.claimed():
        pass  # given back


def test_what_a_default_needs_is_kept_with_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.zip").write_bytes(b"a model")
    folder = RunFolder(tmp_path / "run")
    folder.create(TrainConfig("FrozenLake-v1", "model.zip", settings=SMALL))
    (tmp_path / "model.zip").unlink()
    monkeypatch.chdir("/")
    assert Path(folder.config().default).read_bytes() == b"a model"


def test_a_disk_that_is_full_is_named_and_the_checkpoint_before_it_kept(tmp_path, monkeypatch):
    folder = RunFolder(tmp_path / "run")
    folder.create(TrainConfig("FrozenLake-v1", settings=SMALL))
    folder.save(Checkpoint({"a": np.zeros(3)}, 1, None))

    def full(*_, **__):
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(OSError, match=r"last\.safetensors cannot be written \(No space left on device\)"):
        folder.save(Checkpoint({"a": np.ones(3)}, 2, None))
    assert folder.load().step == 1 and not list(folder.path.glob(".*.part*"))


def test_a_run_that_is_complete_is_not_touched(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "FrozenLake-v1", "-o", str(folder), "--steps", "4000", *OPTIONS]) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    assert main(["resume", str(folder), "--episodes", "4", "--json"]) == 0
    told = capsys.readouterr()
    assert "Complete already" in told.err and len(json.loads(told.out)["etas"]) == 8
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert all(path.stat().st_mode & 0o777 == 0o666 & ~umask() for path in folder.iterdir())  # others may read it


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_folder_that_never_came_to_a_checkpoint_can_be_used_again(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.create(TrainConfig("FrozenLake-v1", settings=SMALL))
    folder.create(TrainConfig("FrozenLake-v1", seed=1, settings=SMALL))
    assert folder.config().seed == 1
    with folder.claimed(), pytest.raises(ValueError, match="another process"):
        RunFolder(tmp_path / "run").create(TrainConfig("FrozenLake-v1", settings=SMALL))
    folder.save(Checkpoint({"x": np.array([0])}, 0, None))
    with pytest.raises(FileExistsError, match="holds a run already"):
        folder.create(TrainConfig("FrozenLake-v1", settings=SMALL))
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="is a file"):
        RunFolder(tmp_path / "file").create(TrainConfig("FrozenLake-v1", settings=SMALL))
