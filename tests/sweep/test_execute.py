"""The execution of a run: its result and its agent, interruptions, damaged checkpoints, and agents of other runs."""

import shutil

import pytest

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.sweep

import lazymdp as lz  # noqa: E402
from lazymdp.sweep.execute import Job, execute  # noqa: E402
from lazymdp.sweep.plan import check_runs  # noqa: E402
from lazymdp.sweep.study_file import StudyError, read_study  # noqa: E402
from lazymdp.sweep.sweep_folder import SweepFolder  # noqa: E402


def never():
    return False


def made(spec, folder, stop=never, beats=None):
    """Executes a run and returns its result."""
    beats = [] if beats is None else beats
    execute(Job((spec,)), folder, lambda *beat: beats.append(beat), stop, 0.01)
    return folder.read_sealed(f"runs/{spec.id}/result.json")


class StopAfter:
    def __init__(self, calls):
        self.left = calls

    def __call__(self):
        self.left -= 1
        return self.left < 0


@pytest.fixture
def spec(write_study):
    return next(iter(read_study(write_study()).specs.values()))


@pytest.fixture
def undisturbed(spec, tmp_path):
    return made(spec, SweepFolder(tmp_path / "undisturbed"))


def test_a_run_leaves_its_result_and_its_agent(spec, tmp_path):
    folder, beats = SweepFolder(tmp_path / "sweep"), []
    result = made(spec, folder, beats=beats)
    assert [row["eta"] for row in result["rows"]] == [0.01, None]
    assert [row["default_alone"] for row in result["rows"]] == [False, True]
    assert result["rows"][0]["episodes"] == 3 and result["spec"] == spec.to_json() and result["seconds"] > 0.0
    assert folder.names(f"runs/{spec.id}") == {"result.json", "agent"}
    agent = lz.learn.load(tmp_path / "sweep" / "runs" / spec.id / "agent")
    assert agent.eta == 0.01
    assert beats[0][2] == "starting" and {"training", "evaluating"} <= {b[2] for b in beats}


@pytest.mark.parametrize("calls", [0, 20, 65])  # at the start, in training, in the evaluation
def test_a_run_that_is_stopped_continues_to_the_same_result(calls, spec, undisturbed, tmp_path):
    folder = SweepFolder(tmp_path / "sweep")
    with pytest.raises(KeyboardInterrupt):
        made(spec, folder, StopAfter(calls))
    assert "training" in folder.names(f"runs/{spec.id}") and folder.read_sealed(f"runs/{spec.id}/result.json") is None
    assert made(spec, folder)["rows"] == undisturbed["rows"]


def test_a_damaged_checkpoint_starts_the_run_again(spec, undisturbed, tmp_path):
    folder = SweepFolder(tmp_path / "sweep")
    with pytest.raises(KeyboardInterrupt):
        made(spec, folder, StopAfter(20))
    last = tmp_path / "sweep" / "runs" / spec.id / "training" / "last.safetensors"
    last.write_bytes(last.read_bytes()[:-100])
    assert made(spec, folder)["rows"] == undisturbed["rows"]


def test_a_full_disk_leaves_the_last_checkpoint(spec, undisturbed, tmp_path, monkeypatch):
    folder = SweepFolder(tmp_path / "sweep")
    with pytest.raises(KeyboardInterrupt):
        made(spec, folder, StopAfter(20))
    training = tmp_path / "sweep" / "runs" / spec.id / "training"
    before = (training / "last.safetensors").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("lazymdp.learn.deep.run_folder.write_arrays", full)
        with pytest.raises(OSError, match="No space left"):
            made(spec, folder)
    assert (training / "last.safetensors").read_bytes() == before
    assert made(spec, folder)["rows"] == undisturbed["rows"]


def test_a_run_uses_the_agent_of_another_run_and_a_run_of_the_user(write_study, undisturbed, spec, tmp_path):
    shutil.copytree(tmp_path / "undisturbed" / "runs" / spec.id / "agent", tmp_path / "mine")
    methods = """
        [methods.first]
        seeds = 1
        [methods.lazy]
        seeds = 1
        default_policies = ["method:first:epsilon=0.1", "mine"]
    """
    study, folder = read_study(write_study(more=methods)), SweepFolder(tmp_path / "sweep")
    check_runs(study)
    study.inputs.send(folder)
    results = [made(one, folder) for one in study.specs.values()]
    assert len(results) == 3 and results[0]["rows"] == undisturbed["rows"]
    alone = [result["rows"][-1]["mean_length"] for result in results]
    assert all(row["mean_length"] > 0 for result in results for row in result["rows"]) and len(alone) == 3


def test_what_cannot_be_made_is_refused_before_anything_starts(write_study):
    study = read_study(write_study(more="\n[methods.a]\ndefault_policies = ['nobody']\n"))
    with pytest.raises(StudyError, match=r"study\.toml: a on FrozenLake-v1 with the default policy nobody: .*expected"):
        check_runs(study)
    with pytest.raises(StudyError, match=r"environments has 'NoSuch-v0'"):
        text = "environments = ['NoSuch-v0']\nalgorithms = ['dqn']\nprices = [0.1]"
        read_study(write_study(text))
