"""The id of a run: it changes with everything that decides the result, and with nothing else."""

import json
from dataclasses import fields, replace

import pytest

from lazymdp.learn.deep.config import DQNConfig, PQNConfig
from lazymdp.learn.deep.train_config import TrainConfig
from lazymdp.sweep import run_spec
from lazymdp.sweep.run_spec import Evaluation, RunSpec, _hashed, reference

PQN = RunSpec(TrainConfig("minatar/breakout", PQNConfig(eta=0.1)), Evaluation((0.1,)))
DQN = RunSpec(TrainConfig("CartPole-v1", DQNConfig(eta=0.1, warm_start="run:0123abcd")), Evaluation((0.1,)))
DIAL = RunSpec(TrainConfig("minatar/breakout", PQNConfig()), Evaluation((0.0, 0.1)), (0.1, 0.1, 0.0), ("module 00ff",))


@pytest.mark.parametrize("spec", [PQN, DQN, DIAL])
def test_a_spec_survives_json(spec):
    again = RunSpec.from_json(spec.to_json())
    assert again.to_json() == spec.to_json() and again.id == spec.id and len(spec.id) == 16


def test_every_part_of_a_spec_changes_its_id():
    settings = PQN.config.settings
    changed = [
        replace(PQN, config=replace(PQN.config, env="minatar/asterix")),
        replace(PQN, config=replace(PQN.config, seed=1)),
        replace(PQN, config=replace(PQN.config, default_policy="noop")),
        replace(PQN, config=replace(PQN.config, settings=replace(settings, steps=1_000_000))),
        replace(PQN, config=replace(PQN.config, settings=replace(settings, learning_rate=2e-3))),
        replace(PQN, member_price=(0.1, 0.1, 0.0)),
        replace(PQN, code=("module 00ff",)),
    ]
    for field, value in zip(fields(Evaluation), ((0.2,), 50, 1, 0.01, 99), strict=True):
        changed.append(replace(PQN, evaluation=replace(PQN.evaluation, **{field.name: value})))
    ids = {spec.id for spec in changed}
    assert len(ids) == len(changed) and PQN.id not in ids


def test_every_setting_of_a_spec_and_every_keyword_of_the_environment_changes_its_id():
    """A spec has one form only: what its run does not use has its default, see `test_canonical`."""
    for spec in (PQN, DQN):
        about, ids = spec.to_json(), {spec.id}
        for name in about["config"]["settings"]:
            other = json.loads(json.dumps(about))
            other["config"]["settings"][name] = "changed"
            ids.add(_hashed({**other, "algorithm_version": run_spec.ALGORITHM_VERSION}))
        names = {field.name for field in fields(spec.config.settings)}
        assert {*about["config"]["settings"]} == names and len(ids) == 1 + len(names)
    cart = replace(PQN.config, env="CartPole-v1")
    given = ({}, {"sutton_barto_reward": True}, {"sutton_barto_reward": False})
    assert len({replace(PQN, config=replace(cart, env_kwargs=one)).id for one in given}) == 3


def test_another_version_of_the_algorithms_makes_all_runs_again(monkeypatch):
    before = PQN.id
    monkeypatch.setattr(run_spec, "ALGORITHM_VERSION", run_spec.ALGORITHM_VERSION + 1)
    assert replace(PQN).id != before  # a copy: a spec computes its id once


def test_the_id_does_not_depend_on_the_current_folder(tmp_path, monkeypatch):
    text, name = DQN.to_json(), DQN.id
    monkeypatch.chdir(tmp_path)
    assert RunSpec.from_json(text).id == name
    assert RunSpec.from_json(text).needed_runs == ("0123abcd",)


def test_references():
    assert reference("run:0123abcd") == ("run", "0123abcd", "")
    assert reference("/somewhere/input:0123abcd:epsilon=0.1") == ("input", "0123abcd", "epsilon=0.1")
    assert reference("uniform") is None and reference("module:function") is None


def test_runs_are_grouped_if_they_differ_in_seed_and_price_only():
    other = replace(DIAL, config=replace(DIAL.config, seed=3), member_price=(0.01, 0.5, 0.1))
    assert DIAL.group and other.group == DIAL.group and not PQN.group
    assert replace(DIAL, evaluation=Evaluation((0.1,))).group != DIAL.group
