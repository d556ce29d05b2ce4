"""Runs on disk: resumed bit for bit, killed, damaged; the commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.checkpoints import RunFolder  # noqa: E402
from lazymdp.cli import main  # noqa: E402
from lazymdp.learn.making import make_default, make_game  # noqa: E402
from lazymdp.learn.saved import Checkpoint, Memory  # noqa: E402
from lazymdp.learn.settings import DialConfig, DQNConfig, TrainConfig, check_settings, for_env  # noqa: E402
from lazymdp.learn.training import Diverged, Training, train  # noqa: E402

SMALL = DialConfig(steps=20_000, n_envs=16, rollout=8, hidden=(16, 16))
DQN_SMALL = DQNConfig(
    steps=6000, eta=0.1, n_envs=4, rollout=32, capacity=800, min_replay=200, target_period=400, hidden=(16,),
    clip_rewards=False, learning_rate=1e-3, control_budget=0.3,
)  # fmt: skip
OPTIONS = ["--n-envs", "16", "--rollout", "8", "--hidden", "16", "16", "--episodes", "8"]
DQN_OPTIONS = ["--learner", "dqn", "--n-envs", "4", "--rollout", "32", "--capacity", "800", "--min-replay", "200",
               "--hidden", "16", "--episodes", "8", "--eta", "0.1"]  # fmt: skip


def same(arrays, other):
    assert arrays.keys() == other.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def everything(run):
    memory = run.memory()
    return {**run.arrays(), **({} if memory is None else memory.arrays)}


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])  # compiled, on the host
@pytest.mark.parametrize("settings", [SMALL, DQN_SMALL])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(env, settings):
    config = TrainConfig(env, default="repeat", settings=settings)
    whole = Training(config)
    while not whole.done:
        whole.advance()
    first, parts = Training(config), []
    for count in range(whole.config.settings.iterations // 3):
        first.advance()
        if settings is DQN_SMALL and count % 5 == 4:
            parts.append(first.memory(parts[-1].last if parts else 0))
    if parts:
        parts.append(first.memory(parts[-1].last))
    second = Training(config, first.arrays(), parts)
    assert second.step == first.step > 0
    same(everything(first), everything(second))
    while not second.done:
        second.advance()
    same(everything(whole), everything(second))
    for run in (whole, first, second):
        run.close()


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


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])  # compiled, on the host
@pytest.mark.parametrize("settings", [replace(SMALL, learning_rate=1e4), replace(DQN_SMALL, learning_rate=1e2)])
def test_values_beyond_every_return_stop_the_run_and_the_last_checkpoint_is_from_before(tmp_path, env, settings):
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(Diverged, match=r"values of up to .* where no return is beyond 1\d\d: learning diverges"):
        train(TrainConfig(env, settings=settings), folder=folder, seconds=0.01, checkpoint_seconds=0.01)
    kept = folder.load()
    assert kept is None or kept.arrays[".extremes.value"] < 2000.0


class Large(gym.Env):
    """Large numbers to see, small rewards."""

    observation_space, action_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(3, 1e5, np.float32), {}

    def step(self, action):
        return np.full(3, 1e5, np.float32), 1.0, bool(self.np_random.random() < 0.1), False, {}


def test_values_that_are_large_from_the_start_are_no_divergence():
    gym.register("lazymdp-tests/Large-v0", Large)
    settings = DQNConfig(steps=4096, n_envs=4, rollout=32, min_replay=2048, hidden=(16,), capacity=8192)
    run = Training(TrainConfig("lazymdp-tests/Large-v0", settings=settings))
    for _ in range(4):
        run.advance()
        run.report()
    assert float(run._run.state.extremes.value) > 10.0 * 1.0 / (1.0 - 0.99)
    run.close()
    falling = dict(eta=200.0, gamma=0.9, control_budget=1.0, budget_step=5.0, structured=True)
    settings = replace(DQN_SMALL, **falling, steps=3000)
    agent = train(TrainConfig("FrozenLake-v1", settings=settings), seconds=0.01)
    assert agent.eta < 20.0


def test_iterations_are_not_put_off():
    """Else reports, checkpoints and interrupts would be late by as many as JAX takes on at once."""
    settings = DialConfig(steps=10**7, n_envs=256, rollout=64, hidden=(512, 512))
    run = Training(TrainConfig("FrozenLake-v1", settings=settings))
    run.advance()
    run.report()
    begun = time.monotonic()
    for _ in range(5):
        run.advance()
    made = time.monotonic()
    run.report()
    assert time.monotonic() - made < made - begun


def test_train_evaluate_and_what_the_folder_holds(tmp_path, capsys):
    folder = tmp_path / "run"
    assert (
        main(["train", "FrozenLake-v1", "-o", str(folder), "--steps", "20000", *OPTIONS, "--json", "--tensorboard"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["etas"][0] == 0.0 and len(found["score"]) == len(found["etas"])
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "metrics.csv", "last.safetensors", "last.json", "best.safetensors", "best.json", "events",
        ".lock",
    }  # fmt: skip
    lines = (folder / "metrics.csv").read_text().splitlines()
    assert lines[0] == "step,eta,episodes,score,length,control" and len(lines) > 3
    assert main(["evaluate", str(folder), "--eta", "0", "0.5", "--episodes", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["etas"] == [0.0, 0.5]
    assert main(["evaluate", str(folder), "--best", "--episodes", "4"]) == 0
    assert "4 episodes at each price" in capsys.readouterr().out
    assert main(["train", "FrozenLake-v1", "-o", str(folder)]) == 2
    assert "lazymdp resume" in capsys.readouterr().err


KILLED = {
    "dial killed": (signal.SIGKILL, "FrozenLake-v1", OPTIONS, 400_000),
    "dial terminated": (signal.SIGTERM, "FrozenLake-v1", OPTIONS, 400_000),
    "dial interrupted": (signal.SIGINT, "FrozenLake-v1", OPTIONS, 400_000),
    "dial killed on the host": (signal.SIGKILL, "CartPole-v1", OPTIONS, 40_960),
    "dqn killed": (signal.SIGKILL, "FrozenLake-v1", DQN_OPTIONS, 40_960),
    "dqn killed on the host": (signal.SIGKILL, "CartPole-v1", DQN_OPTIONS, 10_240),
}


@pytest.mark.parametrize(("how", "env", "options", "total"), KILLED.values(), ids=KILLED)
def test_a_run_that_is_killed_goes_on_and_ends_as_if_nothing_had_happened(tmp_path, how, env, options, total, capsys):
    command = [sys.executable, "-m", "lazymdp", "train", env, *options, "--steps", str(total)]
    command += ["--checkpoint-seconds", "0.3", "-o", str(tmp_path / "killed")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "killed" / "last.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    os.kill(process.pid, how)
    assert process.wait(30) == {signal.SIGKILL: -9, signal.SIGTERM: 130, signal.SIGINT: 130}[how]
    stopped = RunFolder(tmp_path / "killed").load()
    assert 0 < stopped.step < total
    assert main(["resume", str(tmp_path / "killed"), "--episodes", "4"]) == 0
    whole = [*command[3:-1], str(tmp_path / "whole")]
    assert main(whole) == 0
    capsys.readouterr()
    whole, killed = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "killed")
    same(whole.load().arrays, killed.load().arrays)
    same(latest(whole.memory(), 200), latest(killed.memory(), 200))
    steps = [int(line.split(",")[0]) for line in (tmp_path / "killed" / "metrics.csv").read_text().splitlines()[1:]]
    assert steps == sorted(steps) and steps[-1] == total


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_keeps_what_it_has(tmp_path, how):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "lazymdp", "train", "FrozenLake-v1", *OPTIONS, "--steps", "90000000"]
    process = subprocess.Popen(
        [*command, "--checkpoint-seconds", "600", "-o", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not (folder.exists() and len((folder / "metrics.csv").read_text().splitlines()) > 1):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, how)
    said = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 130
    step = RunFolder(folder).load().step
    assert step > 0 and f"Go on from step {step:,} with: lazymdp resume" in " ".join(said.split())


def latest(parts, rows):
    """The last rows of what is remembered, of parts that each begin with the row the part before ended with."""
    joined = {}
    for part in parts:
        for name, array in part.arrays.items():
            joined[name] = np.concatenate([joined[name][:-1], array]) if name in joined else array
    return {name: array[-rows:] for name, array in joined.items()}


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
        ({"settings": {**whole["settings"], "n_envs": "x"}}, "is damaged"),
    ):
        (folder.path / "config.json").write_text(json.dumps({**whole, **changed}))
        with pytest.raises(ValueError, match=message):
            folder.config()
    (folder.path / "config.json").write_text(json.dumps({name: whole[name] for name in whole if name != "env"}))
    with pytest.raises(ValueError, match=r"config\.json is damaged: it lacks 'env'"):
        folder.config()
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


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"eta_low": 0.0}, "expected 0 < eta_low"),
        ({"eta_low": 0.5, "eta_high": 0.1}, r"prices from 0\.5 to 0\.1"),
        ({"gamma": 1.5}, r"gamma is 1\.5"),
        ({"hidden": ()}, "hidden"),
        ({"minibatches": 10_000}, "too many"),
        ({"final_learning_rate": float("nan")}, "final_learning_rate is nan"),
    ],
)
def test_bad_settings_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        check_settings(DialConfig(**changed))


def test_bad_environments_and_defaults_are_refused_and_nothing_is_written(tmp_path, capsys):
    with pytest.raises(ValueError, match="the environment 'nowhere-v0' cannot be made"):
        make_game("nowhere-v0", 2)
    with pytest.raises(ValueError, match=r"Pendulum-v1 has actions Box.*expected Discrete"):
        make_game("Pendulum-v1", 2)
    game = make_game("CartPole-v1", 2)
    with pytest.raises(ValueError, match=r"'7' is neither uniform.* 0 to 1"):
        make_default("7", game)
    with pytest.raises(TypeError, match="needs Discrete observations"):
        make_default(np.ones((4, 2)), game)
    lake = make_game("FrozenLake-v1", 2)
    with pytest.raises(ValueError, match=r"shape \(3, 2\), expected \(16, 4\)"):
        make_default(np.ones((3, 2)), lake)
    with pytest.raises(ValueError, match=r"sum to 28\.0, not 1"):
        make_default(np.full((16, 4), 7.0), lake)
    for wrong in (["--eta", "-1"], ["--default", "9"], ["--control-budget", "2"], ["--gamma", "2"], ["--seed", "-1"],
                  ["--seed", "99999999999"], ["--episodes", "0"], ["--checkpoint-seconds", "nan"],
                  ["--learning-rate", "-1"]):  # fmt: skip
        assert main(["train", "FrozenLake-v1", *wrong, "-o", str(tmp_path / "x")]) == 2
    for wrong in (["--eta", "-1"], ["--warm-start", "nowhere"], ["--capacity", "4"]):
        assert main(["train", "FrozenLake-v1", "--learner", "dqn", *wrong, "-o", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()
    assert "nowhere holds no run" in capsys.readouterr().err


def asked(form, game):
    return np.asarray(make_default(form, game)(np.zeros((2, *game.shape), np.float32), np.array([0, 1])))


def test_every_form_of_default_policy_tells_its_probabilities():
    game = make_game("CartPole-v1", 2)
    assert asked("uniform", game).tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert asked("1", game).tolist() == [[0, 1], [0, 1]]
    assert asked("noop", game).tolist() == [[1, 0], [1, 0]]
    assert asked("repeat", game).tolist() == [[1, 0], [0, 1]]
    np.testing.assert_allclose(asked(lambda seen: np.tile([0.25, 0.75], (len(seen), 1)), game), [[0.25, 0.75]] * 2)
    np.testing.assert_allclose(asked(lz.Mixture("uniform", 1, 0.5), game), [[0.25, 0.75]] * 2)
    for wrong, message in (
        (lambda seen: np.zeros(len(seen), int), "has to tell their probabilities"),
        (lambda seen: np.tile([0.2, 0.2], (len(seen), 1)), r"sum to 0\.4, not 1"),
        (lambda seen: np.ones((len(seen), 3)) / 3.0, r"shape \(1, 3\)"),
        (lambda seen: seen[:, 99], "out of bounds"),
    ):
        with pytest.raises(ValueError, match=f"asked about an observation of zeros: .*{message}"):
            make_default(wrong, game)
    lake = make_game("FrozenLake-v1", 2)
    rows = np.random.default_rng(0).dirichlet(np.ones(4), 16)
    found = make_default(rows, lake)(np.eye(16, dtype=np.float32), np.zeros(16, int))
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    shown = []  # states by their number, as the environment shows them

    def by_number(seen):
        shown.append(seen.tolist())
        return rows[seen]

    found = make_default(by_number, lake)(np.eye(16, dtype=np.float32), np.zeros(16, int))
    np.testing.assert_allclose(found, rows, rtol=1e-5)
    assert shown[-1] == list(range(16))


def test_a_table_for_an_environment_serves_its_model_that_has_a_state_more():
    env = next(name for name in ("Taxi-v3", "Taxi-v4") if name in gym.registry)
    taxi = make_game(env, 1)
    assert taxi.shape == (501,)
    rows = np.random.default_rng(0).dirichlet(np.ones(6), 500)
    found = np.asarray(make_default(rows, taxi)(np.eye(501, dtype=np.float32), np.zeros(501, int)))
    np.testing.assert_allclose(found[:500], rows, rtol=1e-5)
    np.testing.assert_allclose(found[500], 1 / 6, rtol=1e-5)
    asked = np.asarray(make_default(lambda seen: rows[seen], taxi)(np.eye(501, dtype=np.float32), np.zeros(501, int)))
    np.testing.assert_allclose(asked[:500], rows, rtol=1e-5)


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
        code = f"import sys; from lazymdp.cli import main; sys.exit(main(['resume', {str(folder.path)!r}]))"
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


def test_a_default_of_pythons_acts_as_the_same_one_compiled():
    settings = DialConfig(steps=2000, n_envs=4, rollout=8, hidden=(16,))
    config = TrainConfig("FrozenLake-v1", settings=settings)
    compiled, called = Training(config), Training(config, default=lambda seen: np.full((len(seen), 4), 0.25))
    for run in (compiled, called):
        run.advance()
    for name, array in compiled.arrays().items():
        np.testing.assert_allclose(array, called.arrays()[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_over_a_default_that_answers_actions_the_papers_form_can_learn():
    config = TrainConfig("FrozenLake-v1", "2", settings=replace(DQN_SMALL, control_budget=None, structured=False))
    compiled, called = Training(config), Training(config, default=lambda seen: np.full(len(seen), 2))
    for run in (compiled, called):
        for _ in range(5):
            run.advance()
    same(compiled.arrays(), called.arrays())
    with pytest.raises(ValueError, match="it chose action 7, expected 0 to 3"):
        Training(config, default=lambda seen: np.full(len(seen), 7))
    with pytest.raises(ValueError, match=r"only the paper's form can learn over it \(structured=False\)"):
        Training(TrainConfig("FrozenLake-v1", settings=SMALL), default=lambda seen: np.full(len(seen), 2))


def test_a_run_can_be_the_default_of_another_and_start_its_network(tmp_path, capsys):
    first = tmp_path / "first"
    assert main(["train", "FrozenLake-v1", "-o", str(first), "--steps", "4000", *DQN_OPTIONS, "--structured"]) == 0
    agent, game = lz.learn.load(first), make_game("FrozenLake-v1", 2)
    seen = np.eye(16, dtype=np.float32)
    q, none = agent.q(seen), np.zeros(16, int)
    greedy = np.eye(4)[q.argmax(1)]
    np.testing.assert_allclose(make_default(str(first), game)(seen, none), greedy)
    np.testing.assert_allclose(make_default(f"{first}:epsilon=0.2", game)(seen, none), 0.8 * greedy + 0.05, rtol=1e-5)
    soft = np.exp(q / 0.5) / np.exp(q / 0.5).sum(1, keepdims=True)
    np.testing.assert_allclose(make_default(f"{first}:softmax=0.5", game)(seen, none), soft, rtol=1e-4)
    for manner in ("epsilon=2", "softmax=0", "rarely", "epsilon=x"):
        with pytest.raises(ValueError, match="RUN:epsilon=0.1|is no number"):
            make_default(f"{first}:{manner}", game)
    with pytest.raises(ValueError, match=r"trained on observations of shape \(16,\) with 4 actions"):
        make_default(str(first), make_game("CartPole-v1", 2))

    second = tmp_path / "second"
    options = ["--default", f"{first}:epsilon=0.1", "--warm-start", str(first), "--steps", "128"]
    options += ["--min-replay", "100", "--learning-rate", "1e-30"]
    assert main(["train", "FrozenLake-v1", "-o", str(second), *DQN_OPTIONS, *options]) == 0
    started = lz.learn.load(second)  # what it was started from, with a lazy output
    np.testing.assert_allclose(started.q(seen), q, rtol=1e-4, atol=1e-3)
    dial = tmp_path / "dial"
    assert main(["train", "FrozenLake-v1", "-o", str(dial), *OPTIONS, "--steps", "2000", "--default", str(second)]) == 0
    before = np.asarray(lz.learn.load(dial).learner.default(seen, none))
    dial.rename(tmp_path / "moved")
    shutil.rmtree(second)
    dial = tmp_path / "moved"  # has a copy of what it needs
    np.testing.assert_array_equal(lz.learn.load(dial).learner.default(seen, none), before)
    assert main(["train", "FrozenLake-v1", "-o", str(tmp_path / "x"), *DQN_OPTIONS, "--warm-start", str(dial)]) == 2
    assert "is not a run of dqn" in capsys.readouterr().err
    other = ["--warm-start", str(first), "--hidden", "8", "-o", str(tmp_path / "x")]
    assert main(["train", "FrozenLake-v1", *DQN_OPTIONS, *other]) == 2
    assert "give --network and --hidden as there (none, 16)" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    assert main(["evaluate", str(first), "--eta", "0.1", "--episodes", "2"]) == 0
    assert main(["evaluate", str(first), "--eta", "0.5"]) == 2
    assert "for eta 0.1 alone" in capsys.readouterr().err


def test_an_agent_is_a_default_policy_of_the_wrappers(tmp_path):
    import gymnasium as gym

    agent = train(TrainConfig("FrozenLake-v1", settings=DialConfig(steps=2000, n_envs=16, rollout=8, hidden=(16,))))
    env = lz.LazyAction(gym.make("FrozenLake-v1"), agent.as_default(), eta=0.1)
    seen, _ = env.reset(seed=0)
    *_, info = env.step(env.lazy_action)
    assert info["base_action"] == agent.q(np.eye(16, dtype=np.float32)[[seen]]).argmax()
    soft = agent.as_default(temperature=1.0).probabilities(np.arange(16), np.zeros(16, int))
    np.testing.assert_allclose(soft.sum(1), 1.0, rtol=1e-5)
    with pytest.raises(ValueError, match=r"of shape \(2, 5\), expected \[N, \.\.\.\] of \(16,\)"):
        agent.as_default().probabilities(np.zeros((2, 5)), np.zeros(2, int))


def test_dqn_at_the_command_line_reaches_a_budget_and_the_dial_finds_its_price(tmp_path, capsys):
    folder = str(tmp_path / "dqn")
    assert main(["train", "FrozenLake-v1", "-o", folder, *DQN_OPTIONS, "--steps", "4000", "--control-budget", "0.3",
                 "--budget-step", "1", "--target-period", "400", "--json"]) == 0  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert len(found["etas"]) == 1 and abs(found["etas"][0] - 0.1) > 1e-3
    dial = str(tmp_path / "dial")
    assert main(["train", "FrozenLake-v1", "-o", dial, *OPTIONS, "--steps", "4000", "--control-budget", "0.3",
                 "--json"]) == 0  # fmt: skip
    budget = json.loads(capsys.readouterr().out)["budget"]
    assert budget["eta_low"] <= budget["eta"] <= budget["eta_high"]


def test_the_quality_is_that_of_the_episodes_since_the_last_question():
    run = Training(TrainConfig("FrozenLake-v1", settings=SMALL))
    assert run.quality() is None
    tell, told = run._run.episodes, []

    def episodes():
        told.append(tell())
        return told[-1]

    run._run.episodes = episodes
    means = {}
    for _ in range(2):
        told.clear()
        for _ in range(15):
            run.advance()
            run.report()
        _, eta, score, _, controls = np.concatenate(told, axis=1)
        reported = np.array(SMALL.prices)
        price = reported[np.abs(np.log10(eta + 1e-3)[:, None] - np.log10(reported + 1e-3)).argmin(axis=1)]
        means |= {one: (score - eta * controls)[price == one].mean() for one in np.unique(price)}
        assert len(means) == len(reported)
        assert run.quality() == pytest.approx(np.mean(list(means.values())))
        assert run.quality() is None
    told.clear()
    run._run.episodes = lambda: np.array([[1.0, 1.0], [0.0, 0.0], [99.0, 99.0], [1.0, 1.0], [1.0, 1.0]])
    run.report()
    assert run.quality() is None  # two lucky episodes prove nothing
    another = Training(TrainConfig("FrozenLake-v1", settings=SMALL))
    another._run.episodes = lambda: np.tile(np.array([[1.0], [0.0], [99.0], [1.0], [1.0]]), (1, 50))
    another.report()
    assert another.quality() is None  # nor do many at one price alone


def test_prices_shown_are_those_trained_for(tmp_path, capsys):
    for options, etas in (
        (["--eta", "0"], [0.0]),
        (["--eta", "0.3"], [0.3]),
        (["--eta-low", "0.6", "--eta-high", "2"], [0.0, 0.6, 1.0, 2.0]),
        (["--eta-low", "0.03", "--eta-high", "0.2", "--free-share", "0"], [0.03, 0.05, 0.1, 0.2]),
    ):
        folder = tmp_path / "-".join(options)
        small = ["--steps", "128", *OPTIONS, "--json"]
        assert main(["train", "FrozenLake-v1", "-o", str(folder), *options, *small]) == 0
        assert json.loads(capsys.readouterr().out)["etas"] == etas


def test_evaluation_stops_at_its_limit_and_says_so():
    agent = train(TrainConfig("FrozenLake-v1", settings=DialConfig(steps=128, n_envs=16, rollout=8, hidden=(16,))))
    played = agent.frontier([0.0], episodes=20, max_steps=3)
    assert played.steps.max() == 3 and played.unfinished == int((played.steps == 3).sum()) > 10
    assert agent.frontier([0.0], episodes=20).unfinished == 0


def test_prices_told_of_follow_the_range():
    assert DialConfig().prices == (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    assert DialConfig(eta_low=1.0, eta_high=30.0, free_share=0.0).prices == (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
    assert DialConfig(eta_low=0.3, eta_high=0.3, free_share=0.0).prices == (0.3,)
    assert DialConfig(free_share=1.0).prices == (0.0,)
    settings = DialConfig(steps=2000, n_envs=16, rollout=8, hidden=(16,), eta_low=5.0, eta_high=5.0, free_share=0.0)
    told = []
    train(TrainConfig("FrozenLake-v1", settings=settings), on_report=lambda run, metrics: told.extend(metrics))
    assert {row.eta for row in told} == {5.0}


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


def test_wrong_types_are_named():
    for wrong, message in (
        (lambda: train("FrozenLake-v1"), "expected lz.learn.TrainConfig"),
        (lambda: TrainConfig(gym.make("FrozenLake-v1")), "expected the id of an environment"),
        (lambda: TrainConfig("FrozenLake-v1", settings={"steps": 3}), "expected a DialConfig or a DQNConfig"),
    ):
        with pytest.raises(TypeError, match=message):
            wrong()
    with pytest.raises(ValueError, match="nothing would be learned"):
        check_settings(DQNConfig(steps=5999, n_envs=10, rollout=300, min_replay=3000))


def test_settings_depend_on_the_learner_and_the_environment():
    assert TrainConfig("ALE/Breakout-v5").settings == DialConfig.atari() == for_env("ALE/Breakout-v5")
    assert TrainConfig("CartPole-v1").settings == DialConfig()
    assert for_env("minatar/breakout", "dqn") == DQNConfig.minatar()
    assert for_env("ALE/Breakout-v5").n_envs == 512 and for_env("ALE/Breakout-v5").clip_rewards
    assert for_env("minatar/breakout", "dqn").network == "minatar"
    assert for_env("CartPole-v1", "dqn").network is None and not for_env("CartPole-v1", "dqn").clip_rewards
    assert for_env("ALE/Breakout-v5", "dqn").capacity == 1_000_000
    with pytest.raises(ValueError, match="no learner 'sarsa'"):
        for_env("CartPole-v1", "sarsa")
