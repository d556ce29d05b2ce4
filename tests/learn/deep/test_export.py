"""Exported agents: small, loaded like a run, close to the original, and never resumed."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

import lazymdp as lz
from lazymdp.learn.deep.run_folder import Damaged, RunFolder

SETTINGS = dict(
    algorithm="dqn", steps=3000, n_envs=4, rollout=32, hidden=(16,), buffer_size=2000, learning_starts=200, seed=3,
    average_share=0.3,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    lz.learn.train("FrozenLake-v1", folder=folder, **SETTINGS)
    return folder


def test_the_agent_of_a_run_is_its_average(run):
    arrays = RunFolder(run).read("last").arrays
    head, newest = (arrays[f".learner.{name}.head.bias"] for name in ("average", "parameters"))
    np.testing.assert_array_equal(lz.learn.load(run).parameters.head.bias, head)
    assert not np.array_equal(head, newest)


@pytest.fixture
def exported(run, tmp_path):
    lz.learn.export(run, tmp_path / "agent")
    return tmp_path / "agent"


def test_an_exported_agent_has_the_values_of_its_run_in_half_precision(run, exported):
    whole, light = lz.learn.load(run), lz.learn.load(exported)
    observations = np.arange(16)
    for eta in (0.0, 0.01):
        np.testing.assert_allclose(light.q(observations, eta), whole.q(observations, eta), atol=5e-3)
    assert not np.array_equal(light.q(observations, 0.0), whole.q(observations, 0.0))
    size = {path.name: path.stat().st_size for path in exported.iterdir()}
    assert not any(name.startswith("replay") for name in size)
    assert size["last.safetensors"] < (run / "last.safetensors").stat().st_size / 3


def test_it_can_be_evaluated_and_exported_again_but_not_resumed(run, exported, tmp_path):
    light = lz.learn.load(exported)
    assert light.evaluate([0.0], episodes=5).returns.shape == (1, 5)
    lz.learn.export(exported, tmp_path / "again")
    np.testing.assert_array_equal(lz.learn.load(tmp_path / "again").q(np.arange(16), 0.1), light.q(np.arange(16), 0.1))
    before = {path.name: path.read_bytes() for path in exported.iterdir()}
    for call in (lambda: lz.learn.resume(exported), lambda: lz.learn.resume(exported, steps=6000)):
        with pytest.raises(ValueError, match="holds an exported agent, without the state of its training"):
            call()
    assert {path.name: path.read_bytes() for path in exported.iterdir()} == before


def test_damage_is_noticed(exported):
    path = exported / "last.safetensors"
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)
    with pytest.raises(Damaged, match="last.safetensors"):
        lz.learn.load(exported)


def test_bad_arguments_change_nothing(run, exported, tmp_path):
    with pytest.raises(ValueError, match="which is 'newest', expected one of 'last', 'best'"):
        lz.learn.export(run, tmp_path / "new", which="newest")
    with pytest.raises(FileNotFoundError, match="is not the folder of a run"):
        lz.learn.export(tmp_path / "nothing", tmp_path / "new")
    with pytest.raises(FileExistsError, match="holds a run or an agent already: give another folder"):
        lz.learn.export(run, exported)
    assert not (tmp_path / "new").exists()


KEPT = sorted((Path(__file__).parents[3] / "results").glob("*/agents/*"))


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_the_agents_that_are_kept_in_the_repository_act(folder):
    pytest.importorskip("ale_py")
    pytest.importorskip("pgx")
    agent = lz.learn.load(folder)
    n_actions = {"MsPacman": 9, "Breakout": 4, "Pong": 6, "Zaxxon": 18, "breakout": 3}[folder.name.split("-")[0]]
    assert agent.is_dial and agent.lazy_action == n_actions
    black = np.zeros((2, *agent.algorithm.env.shape), agent.algorithm.env.dtype)
    assert np.isfinite(agent.q(black, 0.05)).all() and agent.predict(black, eta=1e6)[0].tolist() == [n_actions] * 2
