"""Folders of other people: the code and the paths that a config may name."""

import shutil
import sys
import zipfile
from dataclasses import asdict, replace

import numpy as np
import pytest
from small_runs import SMALL

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.cli.main import main  # noqa: E402
from lazymdp.learn.deep.checked_files import sealed, unsealed  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.train_config import TrainConfig  # noqa: E402
from lazymdp.learn.deep.trainer import train  # noqa: E402
from lazymdp.learn.deep.trust import Untrusted, foreign_code, names_module  # noqa: E402

LAKE = TrainConfig("FrozenLake-v1", SMALL)
EVIL = "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\n\n\ndef act(state):\n    return 0\n"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run in FrozenLake."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    train("FrozenLake-v1", algorithm="pqn", folder=folder, steps=128, n_envs=16, rollout=8, hidden=(8,))
    return folder


@pytest.fixture
def run(trained, tmp_path):
    """A copy of that run."""
    return shutil.copytree(trained, tmp_path / "run")


def rewrite(run, **changes):
    """Changes the config as someone would who wants harm: with a valid checksum."""
    path = run / "config.json"
    path.write_text(sealed(unsealed(path.read_text()) | changes))


CODE = {
    "environment": (dict(env="evil_module:Lake-v0"), "its environment is evil_module:Lake-v0"),
    "keyword argument": (dict(env_kwargs={"a": [{"env_id": "evil_module:X"}]}), "imports a module"),
    "function": (dict(default_policy="evil_module:act"), "its default policy is the function evil_module:act"),
    "pickle": (dict(default_policy="./default/model.zip"), "model.zip is a pickle"),
}


@pytest.mark.parametrize(("changes", "said"), CODE.values(), ids=CODE)
def test_a_run_that_names_code_is_refused_with_the_command_that_allows_it(
    run, tmp_path, monkeypatch, capsys, changes, said
):
    (tmp_path / "evil_module.py").write_text(EVIL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (run / "default").mkdir()
    with zipfile.ZipFile(run / "default" / "model.zip", "w") as archive:
        archive.writestr("data", "{}")
    rewrite(run, **changes)
    for call in (lz.learn.load, lz.learn.resume):
        with pytest.raises(Untrusted, match=rf"{said}.* lz.learn.{call.__name__}\('.*run', trust=True\)"):
            call(run)
    for command in (["evaluate", "run"], ["resume", "run", "--steps", "256"]):
        assert main(command) == 2
        error = " ".join(capsys.readouterr().err.split())
        assert said in error and error.endswith(f"run: lazymdp {' '.join(command)} --trust")
    assert not (tmp_path / "ran").exists() and "evil_module" not in sys.modules
    if "default_policy" in changes:
        assert lz.learn.load(run, default_policy="uniform").lazy_action == 4  # does not need the code


PATHS = ["/etc/passwd", "../other", "./default/../../other", "./default/a/b", "./other", "other.zip", "./default/.."]


@pytest.mark.parametrize("path", PATHS)
def test_paths_that_lead_out_of_the_folder_are_refused_even_if_the_run_is_trusted(run, tmp_path, monkeypatch, path):
    (tmp_path / "other.zip").write_bytes(b"x")
    monkeypatch.chdir(tmp_path)
    rewrite(run, default_policy=path)
    with pytest.raises(ValueError, match=r"config\.json names .*which is not a file inside the folder"):
        lz.learn.load(run, trust=True)
    settings = asdict(lz.learn.DQNConfig()) | {"warm_start": path}
    rewrite(run, default_policy="uniform", algorithm="dqn", settings=settings)
    with pytest.raises(ValueError, match=r"config\.json names .*which is not a file inside the folder"):
        RunFolder(run).config()


@pytest.mark.parametrize("link", ["default", "default/model.zip", "default:x"])
def test_links_that_lead_out_of_the_folder_are_refused(run, tmp_path, link):
    (tmp_path / "model.zip").write_bytes(b"x")
    (run / link).parent.mkdir(exist_ok=True)
    (run / link).symlink_to(tmp_path / "model.zip" if link.endswith(".zip") else tmp_path)
    rewrite(run, default_policy=f"./{link.partition('/')[0]}/model.zip")
    with pytest.raises(ValueError, match="not a file inside the folder"):
        lz.learn.load(run, trust=True)
    rewrite(run, default_policy="uniform")
    if link == "default":
        with pytest.raises(ValueError, match="not a file inside the folder"):
            lz.learn.load(run)


def test_metrics_that_are_a_link_out_of_the_folder_are_refused(run, tmp_path):
    """A run appends to its metrics and cuts off what came after the checkpoint: here, in a file of the user."""
    mine = tmp_path / "mine.csv"
    mine.write_bytes((run / "metrics.csv").read_bytes() + b"precious")
    (run / "metrics.csv").unlink()
    (run / "metrics.csv").symlink_to(mine)
    with pytest.raises(ValueError, match=r"metrics\.csv is a link to a file outside the folder"):
        lz.learn.resume(run, steps=256)
    assert mine.read_bytes().endswith(b"precious")


def test_a_damaged_or_missing_copy_is_named(tmp_path, run):
    other = tmp_path / "other"
    train("FrozenLake-v1", algorithm="pqn", folder=other, steps=128, n_envs=16, rollout=8, hidden=(8,),
          default_policy=run)  # fmt: skip
    copy = other / "default" / "last.safetensors"
    whole = copy.read_bytes()
    for damaged in (whole[:-1], None):
        copy.unlink() if damaged is None else copy.write_bytes(damaged)
        for call in (lz.learn.load, lz.learn.resume):
            with pytest.raises(ValueError, match=r"default/last\.safetensors is damaged .*: restore it from a backup"):
                call(other)
    copy.write_bytes(whole)
    # A module that the copy names as its environment is not imported, because its environment is not needed.
    rewrite(other / "default", env="evil_module:Lake-v0")
    about = unsealed((other / "config.json").read_text())
    rewrite(other, copies={name: mark for name, mark in about["copies"].items() if "config" not in name})
    assert lz.learn.load(other).q(np.arange(16), 0.1).shape == (16, 4)


def test_a_model_must_be_the_one_that_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.zip").write_bytes(b"a model")
    config, folder = TrainConfig("FrozenLake-v1", SMALL, "model.zip"), RunFolder(tmp_path / "run")
    folder.create(config)
    assert folder.check_same(config) == folder.config()
    (tmp_path / "run" / "default" / "model.zip").write_bytes(b"another")
    with pytest.raises(ValueError, match="its default_policy is another model than model.zip"):
        folder.check_same(config)


def test_trust_is_true_or_false(run):
    """Issue 14: trust="no" was trust."""
    rewrite(run, env="evil_module:Lake-v0")
    for wrong in ("no", "False", 1, None):
        for call in (lz.learn.load, lz.learn.resume):
            with pytest.raises(ValueError, match="^trust is .*, expected True or False"):
                call(run, trust=wrong)


def test_what_a_run_would_run():
    assert foreign_code(LAKE) is None and foreign_code(replace(LAKE, default_policy="3")) is None
    assert foreign_code(replace(LAKE, default_policy="a:b")) and not foreign_code(
        replace(LAKE, default_policy="a:b"), default_policy=False
    )
    own = replace(LAKE, env="a:B-v0")
    assert foreign_code(own) and not foreign_code(own, env=False)
    assert names_module("x", {"a": ("b", ["c:d"])}) and not names_module("x", {"a": ("b", [3, None])})
