"""Run folders: what is in them, damage that is named, one process at a time, runs that continue."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_runs import DQN_DIAL, DQN_SMALL, SMALL, same

jax = pytest.importorskip("jax")

import safetensors  # noqa: E402
import safetensors.numpy  # noqa: E402

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep.checked_files import sealed, unsealed  # noqa: E402
from lazymdp.learn.deep.config import DQNConfig, PQNConfig  # noqa: E402
from lazymdp.learn.deep.metrics_file import Metrics  # noqa: E402
from lazymdp.learn.deep.run_folder import Checkpoint, ReplayPart, RunFolder  # noqa: E402
from lazymdp.learn.deep.train_config import TrainConfig  # noqa: E402
from lazymdp.learn.deep.trainer import Training, run_training, train  # noqa: E402

LAKE = TrainConfig("FrozenLake-v1", SMALL)


@pytest.fixture
def folder(tmp_path):
    """A run without a checkpoint."""
    made = RunFolder(tmp_path / "run")
    made.create(LAKE)
    return made


def test_a_folder_without_a_run_and_a_run_without_a_checkpoint_are_named(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing is not the folder of a run: it has no config\.json"):
        RunFolder(tmp_path / "nothing").config()
    assert folder.config() == LAKE and folder.exists and folder.read() is None
    with pytest.raises(FileNotFoundError, match="run has no last checkpoint yet"):
        lz.learn.load(folder.path)


def test_a_damaged_checkpoint_is_named(folder):
    (folder.path / "last.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"last\.safetensors is damaged .*: restore it from a backup"):
        folder.read()
    with pytest.raises(ValueError, match="the checkpoint lacks"):
        Training(LAKE, {})
    arrays = Training(LAKE).arrays()
    name = next(name for name in arrays if "parameters.price" in name)
    with pytest.raises(ValueError, match="it belongs to a run with other settings"):
        Training(LAKE, {**arrays, name: np.zeros(5, dtype=np.float32)})
    spoiled = {name: np.full_like(array, np.nan) if "parameters" in name else array for name, array in arrays.items()}
    with pytest.raises(ValueError, match="the network's weights are not finite"):
        Training(LAKE, spoiled)
    folder.save(Checkpoint(spoiled, 128), best=Checkpoint(spoiled, 128, 0.0))
    with pytest.raises(ValueError, match="best checkpoint of .* is damaged: the network's weights are not finite"):
        lz.learn.load(folder.path, "best")


def test_a_damaged_config_is_named(folder):
    path = folder.path / "config.json"
    whole = unsealed(path.read_text())
    assert whole["algorithm"] == "pqn" and whole["versions"]
    for changed, message in (
        ({"settings": {"old": 1}}, "was written by another version of lazymdp: this one has no setting old"),
        ({"algorithm": "sarsa"}, "is damaged.*sarsa"),
        ({"seed": "x"}, "is damaged"),
        ({"settings": {**whole["settings"], "n_envs": "x"}}, r"is damaged \(n_envs is 'x', expected an integer"),
        ({"settings": {**whole["settings"], "hidden": 3}}, r"config\.json is damaged \(hidden is 3"),
    ):
        path.write_text(sealed({**whole, **changed}))
        with pytest.raises(ValueError, match=message):
            folder.config()
    path.write_text(sealed({name: whole[name] for name in whole if name != "env"}))
    with pytest.raises(ValueError, match=r"config\.json is damaged: 'env' is missing"):
        folder.config()
    for text in ("{", "[]", json.dumps(whole), sealed(whole).replace('"seed": 0', '"seed": 1')):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"config\.json is damaged .*: restore it from a backup"):
            folder.config()


def test_what_came_after_a_checkpoint_is_deleted_and_files_of_others_are_left_alone(folder):
    path, row = folder.path / "metrics.csv", Metrics(100, 0.1, 5, 1.0, 2.0, 0.5)
    columns = "step,eta,episodes,mean_return,length,control_rate\n"
    folder.append([row])
    folder.save(Checkpoint({"x": np.zeros(2)}, 100), ReplayPart(0, 5, {"x": np.zeros(6)}), 9)
    kept = path.read_text()
    assert kept == columns + "100,0.1,5,1.0,2.0,0.5\n"
    (folder.path / "replay-of-mine.safetensors").write_bytes(b"another's")
    (folder.path / "replay-000000000005-000000000007.safetensors").write_bytes(b"after the checkpoint")
    with open(path, "ab") as file:
        file.write(b"200,0.1,5,1.0,2.0,0.5\n300,\xff\xfe,")
    assert folder.resume()[0].step == 100 and [part.last for part in folder.resume()[1]] == [5]
    assert path.read_bytes() != kept.encode()  # nothing has been changed yet
    folder.rewind()
    assert path.read_text() == kept and folder.last_replay_step == 5
    assert sorted(one.name for one in folder.path.glob("replay-*")) == [
        "replay-000000000000-000000000005.safetensors", "replay-of-mine.safetensors",
    ]  # fmt: skip
    path.write_text(kept.replace("1.0", "1.5"))
    with pytest.raises(ValueError, match=r"metrics\.csv is damaged .*: restore it from a backup, or move it away"):
        folder.resume()
    path.unlink()
    folder.resume()
    folder.rewind()
    assert path.read_text() == columns


@pytest.mark.parametrize(("copied", "to"), [("best", "last"), ("last", "best")])
def test_a_checkpoint_under_the_name_of_the_other_is_refused(folder, copied, to):
    state = Checkpoint({"x": np.arange(4)}, 100, 0.5)
    folder.save(state, best=state)
    shutil.copy(folder.path / f"{copied}.safetensors", folder.path / f"{to}.safetensors")
    for read in (folder.resume, lambda: folder.read(to), lambda: folder.step(to)):
        with pytest.raises(ValueError, match=rf"{to}\.safetensors is damaged \(it is a copy of another checkpoint\): "):
            read()


def test_a_run_whose_checkpoint_is_missing_or_damaged_is_not_started_again(folder):
    folder.append([Metrics(100, 0.1, 5, 1.0, 2.0, 0.5)])
    state = Checkpoint({"x": np.arange(4)}, 100, 0.5)
    folder.save(state, ReplayPart(0, 5, {"x": np.zeros(6)}), 9, best=state)
    last, whole = folder.path / "last.safetensors", (folder.path / "last.safetensors").read_bytes()

    def everything():
        return {path.name: path.read_bytes() for path in folder.path.iterdir()}

    for damaged in (None, whole[:-1], whole.replace(b'"step\\": 100', b'"step\\": 900')):
        assert damaged != whole
        last.unlink() if damaged is None else last.write_bytes(damaged)
        before = everything()
        with pytest.raises(
            (ValueError, FileNotFoundError), match=r"last\.safetensors.*`lazymdp resume .*run --from best`"
        ):
            folder.resume()
        assert everything() == before
        assert folder.resume("best")[0].step == 100
    last.unlink(missing_ok=True)
    for name in ("best.safetensors", "best.json"):
        (folder.path / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=r"no last\.safetensors although there is last\.json: restore it from a"
    ):
        folder.resume()
    last.write_bytes(whole)
    (folder.path / "best.safetensors").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"best\.safetensors is damaged .* to continue the run, move best"):
        folder.resume()


@pytest.mark.parametrize(
    "settings",
    [PQNConfig(), PQNConfig.atari(eta=0.1), DQNConfig(), DQNConfig.minatar(eta=0.0, control_budget=0.2), DQN_DIAL],
)
def test_a_config_is_read_as_it_was_written(tmp_path, settings):
    config = TrainConfig("FrozenLake-v1", settings, "repeat", 7, {"desc": ["SFG"]}, (99_999_999,))
    RunFolder(tmp_path).create(config)
    assert RunFolder(tmp_path).config() == config == RunFolder(tmp_path).check_same(config)


@pytest.mark.parametrize("settings", [SMALL, DQN_SMALL], ids=["pqn", "dqn"])
def test_a_run_is_kept_and_continues_where_it_was(tmp_path, settings):
    config, steps = TrainConfig("FrozenLake-v1", settings, "repeat"), []

    def third():
        steps.append(1)
        return len(steps) == settings.iterations // 3

    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run_training(config, folder=folder, stop=third)
    stopped = folder.read()
    assert stopped.step == len(steps) * settings.n_envs * settings.rollout
    with pytest.raises(ValueError, match=r"run holds another run: its learning_rate is .*, not 0\.5\. Give another"):
        run_training(replace(config, settings=replace(settings, learning_rate=0.5)), folder=folder)
    with pytest.raises(ValueError, match="its default_policy is repeat, not uniform"):
        run_training(replace(config, default_policy="uniform"), folder=folder)
    same(stopped.arrays, folder.read().arrays)
    run_training(config, folder=folder)
    whole = RunFolder(tmp_path / "whole")
    agent = run_training(config, folder=whole, checkpoint_seconds=0.1, report_seconds=0.1)
    same(whole.read().arrays, folder.read().arrays)
    again = run_training(config, folder=whole)  # complete: nothing is trained
    eta = None if not settings.is_range else 0.1
    same({"q": agent.q(np.arange(16), eta)}, {"q": again.q(np.arange(16), eta)})
    same({"q": agent.q(np.arange(16), eta)}, {"q": lz.learn.load(tmp_path / "run").q(np.arange(16), eta)})


def test_a_python_default_policy_is_given_again_and_what_cannot_be_trained_leaves_nothing_behind(tmp_path):
    settings = dict(algorithm="pqn", n_envs=16, rollout=8, hidden=(16, 16), steps=256)
    run = tmp_path / "run"
    with pytest.raises(ValueError, match="shape"):
        train("FrozenLake-v1", default_policy=np.ones((3, 2)), folder=run, **settings)
    with pytest.raises(ValueError, match="checkpoint_seconds is 0"):
        train("FrozenLake-v1", folder=run, checkpoint_seconds=0, **settings)
    assert not run.exists()
    left = np.eye(4)[np.zeros(16, int)]
    agent = train("FrozenLake-v1", default_policy=left, folder=str(run), **settings)
    with pytest.raises(ValueError, match="was given in Python: give it again, as default_policy="):
        lz.learn.load(run)
    loaded = lz.learn.load(run, default_policy=left)
    np.testing.assert_array_equal(loaded.lazy_gap(np.arange(16), 0.1), agent.lazy_gap(np.arange(16), 0.1))
    with RunFolder(run).claimed(), pytest.raises(ValueError, match="another process is training in .*run: stop it"):
        train("FrozenLake-v1", default_policy=left, folder=run, **settings)


def test_a_run_is_extended_on_disk_or_not_at_all(folder, monkeypatch):
    path = folder.path / "config.json"
    before = unsealed(path.read_text())
    longer = LAKE.extended(40_000)
    folder.extend(longer)
    assert unsealed(path.read_text()) == before | {"extended_to": [40_000]}
    assert folder.config() == longer == folder.check_same(LAKE) == folder.check_same(longer)
    written = path.read_bytes()
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("killed")))
    with pytest.raises(OSError, match="killed"):
        folder.extend(longer.extended(60_000))
    assert path.read_bytes() == written
    with pytest.raises(ValueError, match=r"its steps is 20000, not 40000\. Give another folder, or extend the run: lz"):
        folder.check_same(replace(LAKE, settings=replace(SMALL, steps=40_000)))


def test_a_run_from_before_extensions_is_read(folder):
    path = folder.path / "config.json"
    about = unsealed(path.read_text())
    path.write_text(sealed({name: about[name] for name in about if name not in ("env_kwargs", "extended_to")}))
    assert folder.config() == LAKE


def test_what_is_the_same_run_and_what_is_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RunFolder("first").create(TrainConfig("FrozenLake-v1", DQN_SMALL))
    (tmp_path / "first" / "last.safetensors").write_bytes(b"x")
    settings = replace(DQN_SMALL, hidden=[16], warm_start=Path("first"))
    config, folder = TrainConfig("FrozenLake-v1", settings, Path("first"), np.int64(3)), RunFolder("run")
    folder.create(config)
    assert folder.check_same(config) == folder.config() == folder.check_same(folder.config())
    assert folder.config().default_policy == "run/default"
    assert folder.config().settings.warm_start == str(tmp_path / "run" / "warm_start")
    assert (tmp_path / "run" / "warm_start" / "last.safetensors").read_bytes() == b"x"
    for other in ("first:epsilon=0.1", "uniform", "given in Python"):
        with pytest.raises(ValueError, match="holds another run: its default_policy is run/default, not"):
            folder.check_same(replace(config, default_policy=other))
    with pytest.raises(ValueError, match="its algorithm is dqn, not pqn"):
        folder.check_same(replace(config, settings=SMALL))


def test_of_two_runs_that_start_in_a_folder_at_once_one_is_refused(tmp_path, monkeypatch):
    config, folder = TrainConfig("FrozenLake-v1", replace(SMALL, steps=256)), RunFolder(tmp_path / "run")
    begin = Training.__init__

    def meanwhile(self, *arguments):  # another one starts while this one is made
        begin(self, *arguments)
        RunFolder(tmp_path / "run").create(replace(config, seed=1))

    monkeypatch.setattr(Training, "__init__", meanwhile)
    with pytest.raises(ValueError, match="another process has just started a run in .*run: give another folder"):
        run_training(config, folder=folder)
    assert folder.config().seed == 1


def test_the_best_checkpoint_is_kept(folder):
    folder.save(Checkpoint({"x": np.array([0])}, 0))
    assert folder.read("last").step == 0 and folder.read("best") is None and folder.best_quality == -np.inf
    for step, quality in ((1, -0.5), (2, -0.1)):
        folder.save(Checkpoint({"x": np.array([9])}, 9), best=Checkpoint({"x": np.array([step])}, step, quality))
    folder.save(Checkpoint({"x": np.array([3])}, 3))
    assert folder.read("last").step == 3 and folder.read("best").step == 2 and folder.best_quality == -0.1
    assert folder.read("best").arrays["x"][0] == 2 and folder.read("best").quality == -0.1
    assert json.loads((folder.path / "best.json").read_text()) == {"step": 2, "quality": -0.1}


def test_parts_of_the_replay_buffer_that_are_too_old_are_deleted_and_damaged_ones_are_named(folder):
    for first, last in ((0, 40), (40, 80), (80, 120)):
        arrays = {"reward": np.arange(first, last + 1)}
        folder.save(Checkpoint({}, 4 * last), ReplayPart(first, last, arrays), keep=60)
    assert [(part.first, part.last) for part in folder.replay()] == [(40, 80), (80, 120)]
    assert folder.last_replay_step == 120 and len(list(folder.path.glob("replay-*"))) == 2
    part = folder.path / "replay-000000000040-000000000080.safetensors"
    whole = part.read_bytes()
    other = Path(shutil.copy(folder.path / "replay-000000000080-000000000120.safetensors", folder.path / "other"))
    for damaged in (b"x", whole[:-3], whole[:-3] + b"abc", other.read_bytes(), None):
        part.unlink() if damaged is None else part.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"replay-0+40-0+80\.safetensors is damaged .*: the run cannot continue"):
            folder.resume()


def test_only_one_process_trains_in_a_folder(folder):
    with folder.claimed():
        code = f"import sys; from lazymdp.cli.main import main; sys.exit(main(['resume', {str(folder.path)!r}]))"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert other.returncode == 2 and "another process is training in" in " ".join(other.stderr.split())
    with folder.claimed():
        pass  # it is free again


def test_what_a_default_policy_needs_is_copied_to_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.zip").write_bytes(b"a model")
    folder = RunFolder(tmp_path / "run")
    folder.create(TrainConfig("FrozenLake-v1", SMALL, "model.zip"))
    (tmp_path / "model.zip").unlink()
    monkeypatch.chdir("/")
    assert Path(folder.config().default_policy).read_bytes() == b"a model"
    other = RunFolder(tmp_path / "other")
    other.create(TrainConfig("FrozenLake-v1", SMALL, str(tmp_path / "run" / "default" / "model")))  # without .zip
    assert Path(other.config().default_policy).read_bytes() == b"a model"


def test_a_folder_is_a_path(tmp_path):
    assert RunFolder(str(tmp_path)).path == RunFolder(tmp_path).path
    with pytest.raises(TypeError, match="folder is 3, expected a path"):
        RunFolder(3)


def test_a_full_disk_is_named_and_the_checkpoint_before_is_kept(folder, monkeypatch):
    folder.save(Checkpoint({"a": np.zeros(3)}, 1))

    def full(*_, **__):
        raise safetensors.SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(OSError, match=r"last\.safetensors cannot be written \(No space left on device\)"):
        folder.save(Checkpoint({"a": np.ones(3)}, 2))
    assert folder.read().step == 1 and not list(folder.path.glob(".*.part*"))


def test_a_folder_without_a_checkpoint_can_be_used_again(folder, tmp_path):
    folder.create(replace(LAKE, seed=1))
    assert folder.config().seed == 1
    with folder.claimed(), pytest.raises(ValueError, match="another process"):
        RunFolder(folder.path).create(LAKE)
    folder.save(Checkpoint({"x": np.array([0])}, 0))
    with pytest.raises(FileExistsError, match="holds a run already"):
        folder.create(LAKE)
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExistsError, match="is a file"):
        RunFolder(tmp_path / "file").create(LAKE)
