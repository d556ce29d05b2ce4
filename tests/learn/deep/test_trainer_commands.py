"""`lazymdp train | resume | evaluate`: what they print and write, and runs that are killed and continue.

Here and not in `tests/cli`, because these tests train: `make test` leaves them out, `make test-deep` runs them.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from small_runs import DQN_OPTIONS, OPTIONS, same

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.cli.main import main  # noqa: E402
from lazymdp.learn.deep.config import PQNConfig  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.train_config import TrainConfig  # noqa: E402

LAKE = ["train", "FrozenLake-v1"]


def printed(capsys, command):
    """What a command prints as JSON."""
    assert main([*map(str, command), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, command):
    """The error of a command, as one line."""
    assert main([*map(str, command)]) == 2
    return " ".join(capsys.readouterr().err.split())


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_train_and_evaluate_and_what_the_folder_contains(tmp_path, capsys):
    folder = tmp_path / "run"
    found = printed(capsys, [*LAKE, "-o", folder, "--steps", "20000", *OPTIONS, "--tensorboard"])
    assert found["etas"][0] == 0.0 and len(found["mean_return"]) == len(found["etas"])
    assert {path.name for path in folder.iterdir()} == {
        "config.json", "metrics.csv", "last.safetensors", "last.json", "best.safetensors", "best.json", "events",
        ".lock",
    }  # fmt: skip
    lines = (folder / "metrics.csv").read_text().splitlines()
    assert lines[0] == "step,eta,episodes,mean_return,length,control_rate" and len(lines) > 3
    found = printed(capsys, ["evaluate", folder, "--eta", "0", "0.5", "--episodes", "8"])
    assert found["etas"] == [0.0, 0.5] and found["step"] == 19_968
    assert main(["evaluate", str(folder), "--best", "--episodes", "4"]) == 0
    assert "4 episodes at each price" in capsys.readouterr().out
    assert main(["evaluate", str(folder), "--eta", "9", "--episodes", "1"]) == 0
    shown = capsys.readouterr()
    assert "1 episode at each price" in shown.out and "outside the range trained for" in " ".join(shown.err.split())
    assert "lazymdp resume" in refused(capsys, [*LAKE, "-o", folder])
    again = printed(capsys, ["evaluate", folder, "--control-rate", "0.5", "--episodes", "8"])["for_control_rate"]
    assert again["eta_low"] <= again["eta"] <= again["eta_high"]
    other = shutil.copytree(folder, tmp_path / "other")
    both = ["evaluate", folder, other, "--eta", "0.1", "--episodes", "8"]
    picture = tmp_path / "frontier.png"
    assert main([*map(str, both), "--plot", str(picture)]) == 0
    shown = capsys.readouterr().out
    assert "run: 8 episodes at each price" in shown and "other: 8 episodes" in shown and "default alone" in shown
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*map(str, both), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["run"] for line in lines] == [str(folder), str(other)]
    assert lines[0]["default_alone"] == lines[1]["default_alone"] and lines[0]["doubts"] == lines[1]["doubts"]


def test_all_runs_are_checked_before_the_first_one_is_evaluated(tmp_path, capsys):
    first, second, empty = (tmp_path / name for name in ("first", "second", "empty"))
    assert main([*LAKE, "-o", str(first), "--steps", "128", *OPTIONS]) == 0
    assert main([*LAKE, "-o", str(second), "--steps", "128", *OPTIONS, "--eta", "0.1"]) == 0
    RunFolder(empty).create(TrainConfig("FrozenLake-v1", PQNConfig()))
    capsys.readouterr()
    for other, message in ((empty, "has no last checkpoint"), (second, "was trained for the single price 0.1")):
        assert main(["evaluate", str(first), str(other), "--eta", "0.5", "--episodes", "2"]) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and message in " ".join(shown.err.split())


def test_a_folder_is_named_after_the_algorithm_the_environment_and_the_seed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*LAKE, "--steps", "128", *OPTIONS, "--seed", "3"]) == 0
    assert main([*LAKE, "--steps", "256", *DQN_OPTIONS]) == 0
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"pqn-FrozenLake-v1-3", "dqn-FrozenLake-v1-0"}


def test_a_complete_run_is_not_touched(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*LAKE, "-o", str(folder), "--steps", "4000", *OPTIONS, "--eta", "0.005", "0.5"]) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    capsys.readouterr()
    assert main(["resume", str(folder), "--episodes", "4", "--json"]) == 0
    shown = capsys.readouterr()
    assert "is already complete" in " ".join(shown.err.split()) and len(json.loads(shown.out)["etas"]) == 8
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert all(path.stat().st_mode & 0o777 == 0o666 & ~umask() for path in folder.iterdir())  # others may read it


def test_missing_runs_and_checkpoints_are_named(tmp_path, capsys):
    assert "is not the folder of a run" in refused(capsys, ["resume", tmp_path / "run"])
    RunFolder(tmp_path / "run").create(TrainConfig("FrozenLake-v1", PQNConfig()))
    assert "has no last checkpoint yet" in refused(capsys, ["evaluate", tmp_path / "run"])


def test_a_run_that_diverges_says_what_is_kept(tmp_path, capsys):
    command = [*LAKE, "-o", tmp_path / "run", *OPTIONS, "--steps", "20000"]
    message = refused(capsys, [*command, "--learning-rate", "1e38", "--max-grad-norm", "1e38"])
    assert "no checkpoint was written" in message


BAD = {
    "--eta": [["nan"], ["0.5", "0.1"], ["0.1", "0.2", "0.3"]], "--default-policy": [["9"]], "--gamma": [["2"]],
    "--control-budget": [["2"]], "--control-rate": [["1.5"]], "--seed": [["-1"], ["99999999999"]],
    "--episodes": [["0"]], "--checkpoint-seconds": [["nan"]], "--learning-rate": [["-1"]], "--buffer-size": [["10"]],
}  # fmt: skip
BAD_DQN = {"--eta": [["inf"]], "--warm-start": [["nowhere"]], "--buffer-size": [["4"]], "--lambda": [["0.5"]]}


def test_bad_options_are_refused_and_nothing_is_written(tmp_path, capsys):
    for algorithm, bad in (("pqn", BAD), ("dqn", BAD_DQN)):
        for option, values in bad.items():
            for value in values:
                command = [*LAKE, "--algorithm", algorithm, option, *value, "-o", tmp_path / "x"]
                name = option.strip("-").replace("-", "_")
                assert name in refused(capsys, command).replace("nowhere is", "warm_start is"), option
    assert "control_budget is 0.2 and eta the range" in refused(
        capsys, [*LAKE, "--eta", "0.1", "0.2", "--control-budget", "0.2", "-o", tmp_path / "x"]
    )
    assert "train for a range (--eta LOW HIGH)" in refused(
        capsys, [*LAKE, "--eta", "0.1", "--control-rate", "0.2", "-o", tmp_path / "x"]
    )
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("options", [OPTIONS, DQN_OPTIONS], ids=["pqn", "dqn"])
def test_a_control_budget_moves_the_price(tmp_path, capsys, options):
    command = [*LAKE, "-o", tmp_path / "run", *options, "--eta", "0.1", "--steps", "4000", "--control-budget", "0.3"]
    found = printed(capsys, [*command, "--budget-step", "0.32"])
    assert len(found["etas"]) == 1 and abs(found["etas"][0] - 0.1) > 1e-3
    assert lz.learn.load(tmp_path / "run").eta == pytest.approx(found["etas"][0])


def test_a_dial_finds_the_price_of_a_control_rate(tmp_path, capsys):
    found = printed(capsys, [*LAKE, "-o", tmp_path / "run", *OPTIONS, "--steps", "4000", "--control-rate", "0.3"])
    price = found["for_control_rate"]
    assert price["eta_low"] <= price["eta"] <= price["eta_high"]


PRICES = [
    (["--eta", "0"], [0.0]),
    (["--eta", "0.3"], [0.3]),
    (["--eta", "0.6", "2"], [0.0, 0.6, 1.0, 2.0]),
    (["--eta", "0.03", "0.2", "--zero-share", "0.5"], [0.0, 0.03, 0.05, 0.1, 0.2]),
]


@pytest.mark.parametrize(("options", "etas"), PRICES, ids=lambda x: " ".join(map(str, x)))
def test_the_prices_shown_are_those_trained_for(tmp_path, capsys, options, etas):
    assert printed(capsys, [*LAKE, "-o", tmp_path / "run", *options, "--steps", "128", *OPTIONS])["etas"] == etas


def test_runs_as_default_policies_and_to_start_from(tmp_path, capsys):
    first, second, third, moved = (tmp_path / name for name in ("first", "second", "third", "moved"))
    assert main([*LAKE, "-o", str(first), "--steps", "4000", *DQN_OPTIONS, "--form", "structured"]) == 0
    seen, none = np.eye(16, dtype=np.float32), np.zeros(16, int)
    q = lz.learn.load(first).q(seen)
    options = ["--default-policy", f"{first}:epsilon=0.1", "--warm-start", str(first), "--steps", "128"]
    options += ["--form", "augmented", "--learning-starts", "100", "--learning-rate", "1e-30"]
    assert main([*LAKE, "-o", str(second), *DQN_OPTIONS, *options]) == 0
    started = lz.learn.load(second)  # the network it started from, with a lazy output
    np.testing.assert_allclose(started.q(seen), q, rtol=1e-4, atol=1e-3)
    assert main([*LAKE, "-o", str(third), *OPTIONS, "--steps", "2000", "--default-policy", str(second)]) == 0
    before = np.asarray(lz.learn.load(third).algorithm.default_policy(seen, none))
    third.rename(moved)
    shutil.rmtree(second)
    np.testing.assert_array_equal(lz.learn.load(moved).algorithm.default_policy(seen, none), before)  # has a copy
    elsewhere = ["-o", tmp_path / "x"]
    assert "is not a dqn run" in refused(capsys, [*LAKE, *elsewhere, *DQN_OPTIONS, "--warm-start", moved])
    other = refused(capsys, [*LAKE, *elsewhere, *DQN_OPTIONS, "--warm-start", first, "--hidden", "8"])
    assert "use its --network, --hidden and kind of price (none, 16, eta 0.1)" in other
    assert not (tmp_path / "x").exists()
    assert main(["evaluate", str(first), "--eta", "0.1", "--episodes", "2"]) == 0
    assert "trained for the single price 0.1" in refused(capsys, ["evaluate", first, "--eta", "0.5"])


OWN = """
import gymnasium as gym

class Walk(gym.Env):
    observation_space, action_space = gym.spaces.Box(-9.0, 9.0, (1,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.observation_space.low * 0
        return self.place, {}

    def step(self, action):
        self.place = self.place + (1 if action else -1)
        return self.place, 1.0, bool(abs(self.place[0]) > 3), False, {}

gym.register("Walk-v0", Walk, max_episode_steps=20)

def back(observation):
    return observation[0] < 0
"""


def test_modules_in_the_current_folder_and_functions_that_need_trust(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_walk.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    small = ["--eta", "0.1", "--steps", "256", *OPTIONS]
    assert "module:Id-v0" in refused(capsys, ["train", "Walk-v0", *small])
    assert "defines no forth" in refused(
        capsys, ["train", "own_walk:Walk-v0", "--default-policy", "own_walk:forth", *small]
    )
    assert not (tmp_path / "runs").exists()
    found = printed(capsys, ["train", "own_walk:Walk-v0", "--default-policy", "own_walk:back", *small])
    run = tmp_path / "runs" / "pqn-own_walk-Walk-v0-0"
    assert found["etas"] == [0.1] and RunFolder(run).config().default_policy == "own_walk:back"
    for command in ("evaluate", "resume"):
        said = refused(capsys, [command, run, "--episodes", "2"])
        assert "own_walk:Walk-v0, and to make it imports a module" in said
        assert said.endswith(f"If you trust whoever made it, run: lazymdp {command} {run} --episodes 2 --trust")
    assert printed(capsys, ["evaluate", run, "--trust", "--episodes", "2"])["step"] == 256
    assert printed(capsys, ["resume", run, "--trust", "--steps", "384", "--episodes", "2"])["step"] == 384
    assert str(tmp_path) not in sys.path


def test_a_function_that_draws_random_actions_needs_no_setting(tmp_path, monkeypatch, capsys):
    (tmp_path / "drunk.py").write_text("import random\ndef step(observation): return random.random() < 0.5\n")
    monkeypatch.chdir(tmp_path)
    command = ["train", "CartPole-v1", "-o", "run", "--default-policy", "drunk:step", "--steps", "256", *OPTIONS]
    assert "or use form='augmented'" in refused(capsys, [*command, "--form", "structured"])
    assert main([*command, "--eta", "0.1"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "The form is therefore augmented." in said and "form augmented" in said
    assert RunFolder("run").config().settings.form == "augmented"
    assert printed(capsys, ["resume", "run", "--trust", "--steps", "384", "--episodes", "2"])["step"] == 384
    assert printed(capsys, ["evaluate", "run", "--trust", "--episodes", "2"])["step"] == 384


def test_a_run_is_extended(tmp_path, capsys):
    folder = tmp_path / "run"
    assert main([*LAKE, "-o", str(folder), "--steps", "512", *DQN_OPTIONS]) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "steps is 256, but the run is planned for 512 steps" in refused(capsys, ["resume", folder, "--steps", "256"])
    assert main(["resume", str(folder), "--steps", "512", "--episodes", "2"]) == 0
    assert "is already complete (512 steps). To extend it, give --steps with at least 640." in " ".join(
        capsys.readouterr().err.split()
    )
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert printed(capsys, ["resume", folder, "--steps", "1024", "--episodes", "2"])["step"] == 1024
    run = RunFolder(folder)
    assert (run.config().total_steps, run.config().settings.steps, run.read().step) == (1024, 512, 1024)
    steps = [int(line.split(",")[0]) for line in (folder / "metrics.csv").read_text().splitlines()[1:]]
    assert steps == sorted(steps) and 512 in steps and steps[-1] == 1024


@pytest.mark.parametrize("options", [OPTIONS, DQN_OPTIONS], ids=["pqn", "dqn"])
def test_a_run_that_lost_its_last_checkpoint_continues_from_the_best_one(tmp_path, capsys, options):
    folder = tmp_path / "run"
    assert main([*LAKE, "-o", str(folder), "--steps", "6400", *options, "--eta", "0.1"]) == 0
    run, end = RunFolder(folder), RunFolder(folder).read()
    best = run.read("best")
    assert best.step < end.step
    (folder / "last.safetensors").unlink()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert f"lazymdp resume {folder} --from best" in refused(capsys, ["resume", folder])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    if options is OPTIONS:
        (folder / "metrics.csv").unlink()
    assert printed(capsys, ["resume", folder, "--from", "best", "--episodes", "2"])["step"] == end.step
    again = run.read()
    assert again.step == end.step and run.best_quality >= best.quality
    if options is OPTIONS:  # without a replay buffer, the run is exactly the same once more
        same(again.arrays, end.arrays)
    steps = [int(line.split(",")[0]) for line in (folder / "metrics.csv").read_text().splitlines()[1:]]
    assert steps == sorted(steps) and steps[-1] == end.step
    assert main(["resume", str(folder), "--episodes", "2"]) == 0  # complete, and everything is valid


def read_only_cache():
    """For a process that may be killed: it must not leave half of a compiled program for the next one to read."""
    return {**os.environ, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9"}


def wait_for(process, happened):
    """Waits until something has happened, however slow the machine is; the process must still be running then."""
    deadline = time.monotonic() + 300
    while not happened():
        assert process.poll() is None, "the run ended before"
        assert time.monotonic() < deadline
        time.sleep(0.02)


KILLED = {
    "pqn": ("FrozenLake-v1", OPTIONS, 204_800),
    "pqn on the host": ("CartPole-v1", OPTIONS, 20_480),
    "dqn": ("FrozenLake-v1", DQN_OPTIONS, 65_536),
    "dqn on the host": ("CartPole-v1", DQN_OPTIONS, 5_120),
}


@pytest.mark.parametrize(("env", "options", "total"), KILLED.values(), ids=KILLED)
def test_a_run_that_is_killed_continues_as_if_nothing_had_happened(tmp_path, env, options, total, capsys):
    training = ["train", env, *options, "--steps", str(total), "--checkpoint-seconds", "0.1"]
    command = [sys.executable, "-m", "lazymdp", *training, "-o", str(tmp_path / "killed")]
    assert main([*training, "-o", str(tmp_path / "whole")]) == 0  # first: the other process finds its programs compiled
    whole = RunFolder(tmp_path / "whole")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=read_only_cache())
    last = tmp_path / "killed" / "last.json"
    wait_for(process, lambda: last.exists() and json.loads(last.read_text())["step"] >= total // 8)
    process.kill()
    assert process.wait(300) == -signal.SIGKILL
    stopped = RunFolder(tmp_path / "killed").read()
    assert total // 8 <= stopped.step < total
    assert main(["resume", str(tmp_path / "killed"), "--episodes", "4"]) == 0
    killed = RunFolder(tmp_path / "killed")
    capsys.readouterr()
    same(whole.read().arrays, killed.read().arrays)
    same(latest(whole.replay(), 200), latest(killed.replay(), 200))
    steps = [int(line.split(",")[0]) for line in (tmp_path / "killed" / "metrics.csv").read_text().splitlines()[1:]]
    assert steps == sorted(steps) and steps[-1] == total


def latest(parts, rows):
    """The last rows of a replay buffer in parts, each of which begins with the last row of the part before."""
    joined = {}
    for part in parts:
        for name, array in part.arrays.items():
            joined[name] = np.concatenate([joined[name][:-1], array]) if name in joined else array
    return {name: array[-rows:] for name, array in joined.items()}


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_stop_keeps_what_it_has(tmp_path, how):
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "lazymdp", *LAKE, *OPTIONS, "--steps", "90000000"]
    command += ["--checkpoint-seconds", "600", "-o", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=read_only_cache())
    metrics = folder / "metrics.csv"
    wait_for(process, lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 1)
    os.kill(process.pid, how)
    said = process.communicate(timeout=300)[1].decode()
    assert process.returncode == 130
    step = RunFolder(folder).read().step
    assert step > 0 and f"Continue from step {step:,} with: lazymdp resume" in " ".join(said.split())
