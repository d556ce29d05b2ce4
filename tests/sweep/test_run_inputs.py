"""The files that runs read: their content decides the id of a run, and neither names nor paths do."""

import pytest

from lazymdp.sweep.execute import Job, execute
from lazymdp.sweep.run_inputs import Inputs
from lazymdp.sweep.study_file import read_study
from lazymdp.sweep.sweep_folder import SweepFolder


def ids(write_study, more):
    return [run.spec.id for run in read_study(write_study(more=more, text=TEXT)).runs]


TEXT = "environments = ['minatar/breakout']\nalgorithms = ['pqn']\nprices = [0.1]\n"


@pytest.mark.parametrize("kind", ["input", "run", "half"])
def test_a_reference_is_not_taken_for_a_function(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{kind}.py").write_text("a module of the user that has nothing to do with it")
    assert Inputs(tmp_path).code_of("minatar/breakout", f"{kind}:abcdef0123456789") == ()


def test_a_model_is_named_by_its_content_and_not_by_its_file(write_study, tmp_path):
    (tmp_path / "ppo.zip").write_bytes(b"a model")
    before = ids(write_study, "default_policies = ['ppo.zip']")
    study = read_study(tmp_path / "study.toml")
    folder = SweepFolder(tmp_path / "sweep")
    study.inputs.send(folder)
    (tmp_path / "ppo.zip").rename(tmp_path / "teacher.zip")
    assert ids(write_study, "default_policies = ['teacher.zip']") == before
    moved = read_study(tmp_path / "study.toml")
    moved.inputs.send(folder)
    policy = moved.runs[0].spec.config.default_policy
    assert len(folder.names(f"inputs/{policy.partition(':')[2]}")) == 1  # not a second copy with the other name
    (tmp_path / "teacher.zip").write_bytes(b"another model")
    assert ids(write_study, "default_policies = ['teacher.zip']") != before


def test_a_run_does_not_start_with_other_code_than_its_id_stands_for(write_study, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "policies_of_inputs_test.py"
    path.write_text("def act(observation): return 0")
    study = read_study(write_study(more="default_policies = ['policies_of_inputs_test:act']", text=TEXT))
    path.write_text("def act(observation): return 1")
    folder = SweepFolder(tmp_path / "sweep")
    with pytest.raises(ValueError, match="the module policies_of_inputs_test is not as it was when the sweep was star"):
        execute(Job((study.runs[0].spec,)), folder, lambda *_: None, lambda: False)
    assert folder.names("runs") == set()
