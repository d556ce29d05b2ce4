"""The execution of a run: its result and its agent, interruptions, damaged checkpoints, and agents of other runs."""

import json
import shutil

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.sweep

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep import run_folder  # noqa: E402
from lazymdp.learn.deep.checked_files import read_arrays  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.sweep.execute import Job, execute  # noqa: E402
from lazymdp.sweep.plan import check_runs  # noqa: E402
from lazymdp.sweep.run_spec import ALGORITHM_VERSION  # noqa: E402
from lazymdp.sweep.study_file import StudyError, read_study  # noqa: E402
from lazymdp.sweep.sweep_folder import SweepFolder  # noqa: E402

PQN_WEIGHTS, DQN_WEIGHTS = 31.10784, 30.47916  # sums of absolute values
# Return, controls and steps of the three episodes of the evaluation, and of the default policy alone.
PLAYED = {"pqn": [(0, 31, 31), (1, 0, 32)], "dqn": [(0, 10, 10), (1, 0, 32)]}


SHORT = "environments = ['FrozenLake-v1']\nalgorithms = ['dqn']\nprices = [0.1]\n"
WARM = SHORT + "warm_start = '{}'"


def never():
    return False


def made(spec, folder, stop=never, beats=None):
    """Executes a run and returns its result."""
    beats = [] if beats is None else beats
    execute(Job((spec,)), folder, lambda *beat: beats.append(beat), stop, 0.01)
    return folder.read_sealed(f"runs/{spec.id}/result.json")


def continued(spec, folder):
    """Executes a run that was interrupted, checks that it makes no step again, and returns its result."""
    name, beats = f"runs/{spec.id}/training/last.json", []
    step = json.loads(folder.read(name))["step"]
    result = made(spec, folder, beats=beats)
    steps = [made for made, _, doing in beats if doing == "training"]
    assert 0 < step <= spec.config.total_steps and steps == sorted(steps)
    assert steps[0] == step if steps else step == spec.config.total_steps
    return result


class StopAfter:
    def __init__(self, calls):
        self.left = calls

    def __call__(self):
        self.left -= 1
        return self.left < 0


@pytest.fixture
def spec(write_study):
    return next(iter(read_study(write_study()).specs.values()))


@pytest.fixture(scope="module")
def sweep_of(tmp_path_factory):
    """A function that executes a run, which nothing disturbs, once for all tests and returns the folder."""

    folders = {}

    def executed(spec):
        if spec.id not in folders:
            folders[spec.id] = SweepFolder(tmp_path_factory.mktemp("undisturbed"))
            made(spec, folders[spec.id])
        return folders[spec.id]

    return executed


@pytest.fixture
def undisturbed(sweep_of, spec):
    return sweep_of(spec).read_sealed(f"runs/{spec.id}/result.json")


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
    assert continued(spec, folder)["rows"] == undisturbed["rows"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("remote", ["s3", "local://"])
def test_a_run_in_a_remote_folder_continues_from_the_checkpoint_that_it_sent(
    remote, spec, undisturbed, tmp_path, request
):
    address = f"local://{tmp_path}/new" if remote == "local://" else request.getfixturevalue("bucket")
    folder = SweepFolder(f"{address}/stopped")
    with pytest.raises(KeyboardInterrupt):
        made(spec, folder, StopAfter(20))
    assert {"config.json", "last.safetensors"} <= folder.names(f"runs/{spec.id}/training")
    assert continued(spec, folder)["rows"] == undisturbed["rows"]
    assert folder.names(f"runs/{spec.id}") == {"result.json", "agent"}


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


@pytest.mark.parametrize("sent", [True, False])  # whether a remote folder has received its config
def test_a_first_checkpoint_of_which_only_the_best_one_was_written_starts_the_run_again(
    sent, spec, undisturbed, tmp_path, monkeypatch
):
    folder = SweepFolder(tmp_path / "sweep")
    write = run_folder.write_arrays

    def full(path, *given):
        if path.name == "last.safetensors":
            raise OSError(28, "No space left on device")
        write(path, *given)

    with monkeypatch.context() as patched:
        patched.setattr(run_folder, "write_arrays", full)
        with pytest.raises(OSError, match="No space left"):
            execute(Job((spec,)), folder, lambda *_: None, never, 1000.0)
    left = folder.names(f"runs/{spec.id}/training")
    assert "best.safetensors" in left and "last.safetensors" not in left
    if not sent:
        folder.remove(f"runs/{spec.id}/training/config.json")
    assert made(spec, folder)["rows"] == undisturbed["rows"]


def test_a_file_that_a_run_misses_leaves_its_checkpoint(spec, undisturbed, tmp_path, monkeypatch):
    folder = SweepFolder(tmp_path / "sweep")
    with pytest.raises(KeyboardInterrupt):
        made(spec, folder, StopAfter(20))
    training = tmp_path / "sweep" / "runs" / spec.id / "training"
    before = (training / "last.safetensors").read_bytes()

    def missing(*_, **__):
        raise FileNotFoundError("the environment misses its map")

    with monkeypatch.context() as patched:
        patched.setattr("lazymdp.learn.deep.trainer.run_training", missing)
        with pytest.raises(FileNotFoundError, match="its map"):
            made(spec, folder)
    assert (training / "last.safetensors").read_bytes() == before
    assert made(spec, folder)["rows"] == undisturbed["rows"]


def test_a_run_uses_the_agent_of_another_run_and_a_run_of_the_user(write_study, sweep_of, undisturbed, spec, tmp_path):
    shutil.copytree(sweep_of(spec).local / "runs" / spec.id / "agent", tmp_path / "mine")
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
    first, lazy, _ = study.specs.values()
    folder.remove(f"runs/{first.id}/agent")
    folder.remove(f"runs/{lazy.id}/result.json")
    with pytest.raises(FileNotFoundError, match=f"agent is missing: delete .*{first.id} and start the sweep again"):
        made(lazy, folder)


def test_a_run_at_price_0_leaves_its_agent_at_half_of_its_final_score_and_others_use_it(write_study, tmp_path):
    methods = """
        [methods.plain]
        prices = [0]
        seeds = 1
        [methods.lazy]
        seeds = 1
        default_policies = ["half:plain"]
    """
    study = read_study(write_study(more=methods))
    plain, lazy = study.specs.values()
    results = {}
    for name, stop in (("calm", never), ("stopped", StopAfter(40))):
        folder = SweepFolder(tmp_path / name)
        if name == "stopped":
            with pytest.raises(KeyboardInterrupt):
                made(plain, folder, stop)
            training = folder.local / "runs" / plain.id / "training"
            shutil.copytree(training, tmp_path / "kept")
            (training / "snapshots" / "000000009999.safetensors").write_text("of a lost attempt, after the checkpoint")
        results[name] = made(plain, folder)
        assert folder.names(f"runs/{plain.id}") == {"result.json", "agent", "half"}
    half = results["calm"]["half"]
    assert results["stopped"]["half"] == half and 0 < half["step"] < plain.config.total_steps
    assert set(half) == {"step", "score", "random_score", "final_score"} and 0.0 <= half["random_score"] <= 1.0
    ours, its = (weights(folder, plain, name) for name in ("half", "agent"))
    assert any((ours[name] != its[name]).any() for name in ours)
    kept = {int(path.stem): path for path in (tmp_path / "kept" / "snapshots").iterdir()}
    if half["step"] in kept:
        snapshot = read_arrays(kept[half["step"]])[0]
        assert all((ours[name] == snapshot[name]).all() for name in ours)
    assert 2 < len(kept) < 50
    made(lazy, folder)
    default = RunFolder(folder.local / "runs" / lazy.id / "agent").path / "default"
    copied = RunFolder(default).read("last").arrays
    assert all((ours[name] == copied[name]).all() for name in ours)


def weights(folder, spec, name):
    """The weights of an agent that a run has left."""
    arrays = RunFolder(folder.local / "runs" / spec.id / name).read("last").arrays
    return {name: array for name, array in arrays.items() if "parameters" in name}


def test_half_of_too_short_a_run_is_refused(write_study, tmp_path):
    methods = """
        [methods.plain]
        prices = [0]
        seeds = 1
        steps = 64
        [methods.lazy]
        seeds = 1
        default_policies = ["half:plain"]
    """
    plain, lazy = read_study(write_study(more=methods)).specs.values()
    folder = SweepFolder(tmp_path / "sweep")
    assert "half" not in made(plain, folder)
    with pytest.raises(FileNotFoundError, match="left no agent at half of its final score.*train it for more steps"):
        made(lazy, folder)


def test_the_version_is_increased_with_every_change_of_results(write_study, tmp_path):
    """Weights and evaluations of two short runs. If they change, increase `ALGORITHM_VERSION`, then take them over."""
    found, played = {}, {}
    for algorithm, more in (("pqn", {}), ("dqn", {"learning_starts": 256, "buffer_size": 1_024, "batch_size": 16})):
        text = write_study().read_text().replace("pqn", algorithm)
        text = text if algorithm == "pqn" else text.replace("minibatches = 2", "")
        text = text.replace(
            "[settings]", "[settings]\n" + "\n".join(f"{name} = {value}" for name, value in more.items())
        )
        spec = next(iter(read_study(write_study(text)).specs.values()))
        folder = SweepFolder(tmp_path / algorithm)
        result = made(spec, folder)
        names = ("mean_return", "mean_controls", "mean_length")
        played[algorithm] = [tuple(round(3 * row[name], 6) for name in names) for row in result["rows"]]
        found[algorithm] = float(sum(np.abs(a.astype(float)).sum() for a in weights(folder, spec, "agent").values()))
    assert ALGORITHM_VERSION == 2
    assert played == PLAYED
    assert found == {"pqn": pytest.approx(PQN_WEIGHTS, rel=2e-4), "dqn": pytest.approx(DQN_WEIGHTS, rel=2e-4)}


def test_what_cannot_be_made_is_refused_before_anything_starts(write_study, tmp_path):
    study = read_study(write_study(more="\n[methods.a]\ndefault_policies = ['nobody']\n"))
    with pytest.raises(StudyError, match=r"study\.toml: a on FrozenLake-v1 with the default policy nobody: .*expected"):
        check_runs(study)
    with pytest.raises(StudyError, match=r"with the default policy : default_policy is ''"):
        check_runs(read_study(write_study(more="default_policies = ['']", text=SHORT)))
    other_network = SHORT + "[methods.good]\n[methods.bad.settings]\nnetwork = 'nature'"
    with pytest.raises(StudyError, match=r"study\.toml: bad on FrozenLake-v1 .*nature"):
        check_runs(read_study(write_study(other_network)))
    pqn = lz.learn.train("FrozenLake-v1", algorithm="pqn", eta=0.1, hidden=[8], n_envs=2, rollout=8, steps=16,
                         minibatches=1, folder=tmp_path / "pqn")  # fmt: skip
    assert not pqn.is_dial
    for name, reason in (("pqn", "is not a dqn run"), ("nowhere", "expected the folder of a dqn run")):
        with pytest.raises(StudyError, match=f"{name}.*{reason}"):
            check_runs(read_study(write_study(WARM.format(name))))
    methods = SHORT + "[methods.a]\n[methods.b]\ndefault_policies = ['method:a:{}']\n"
    for manner, reason in (
        ("epsilon=2", "ends in 'epsilon=2', expected RUN"),
        ("epsilon=", "ends in"),
        ("x=y", "'y' is"),
    ):
        with pytest.raises(
            StudyError, match=f"b on FrozenLake-v1 with the default policy method:a:{manner}: .*{reason}"
        ):
            check_runs(read_study(write_study(methods.format(manner))))
    check_runs(read_study(write_study(methods.format("softmax=0.5"))))
    methods = SHORT + "[methods.b]\nwarm_start = 'method:a'\n[methods.a]\n{}\n"
    wide, scaled = (f"[methods.a.settings]\n{setting}" for setting in ("hidden = [8]", "reward_scale = 3.0"))
    for other, reason in (
        ("algorithms = ['pqn']", "its warm_start is the agent of a pqn run, expected that of a dqn run"),
        ("prices = [[0.1, 0.2]]", "whether its price is a range is False, but True for the run that warm_start na"),
        (wide, r"hidden is \(256, 256\), but \(8,\) for the run that warm_start names: make them equal"),
        (scaled, r"reward_scale is 1\.0, but 3\.0 for"),
    ):
        with pytest.raises(StudyError, match=reason):
            check_runs(read_study(write_study(methods.format(other))))
    check_runs(read_study(write_study(methods.format(""))))
    with pytest.raises(StudyError, match=r"environments has 'NoSuch-v0'"):
        text = "environments = ['NoSuch-v0']\nalgorithms = ['dqn']\nprices = [0.1]"
        read_study(write_study(text))
