"""Training: resumed bit for bit, killed, diverged; the commands and their settings."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from small_runs import DQN_OPTIONS, DQN_SMALL, OPTIONS, SMALL, same

jax = pytest.importorskip("jax")

from lazymdp.cli.main import main  # noqa: E402
from lazymdp.learn.deep.config import DialConfig, DQNConfig, TrainConfig, check_settings, for_env  # noqa: E402
from lazymdp.learn.deep.making import make_default, make_game  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.trainer import Diverged, Training, train  # noqa: E402


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


def test_reports_cover_every_episode(capsys):
    counted, steps = [], []
    agent = train(
        TrainConfig("FrozenLake-v1", settings=SMALL),
        on_report=lambda run, metrics: (counted.extend(metrics), steps.append(run.step)),
        seconds=0.2,
    )
    assert capsys.readouterr() == ("", "")
    assert steps[-1] == SMALL.iterations * 128
    assert sum(row.episodes for row in counted) > 1000
    assert all(0.0 <= row.control <= 1.0 and row.length >= 1.0 for row in counted)
    assert agent.frontier([0.0], episodes=4).score.shape == (1, 4)


def test_progress_is_shown_if_asked_for(capsys):
    train(TrainConfig("FrozenLake-v1", settings=SMALL), show_progress=True)
    out, shown = capsys.readouterr()
    assert not out and re.search(r"[\d,]+/s, eta 0: return [\d.]+, control \d+%", " ".join(shown.split()))


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


class Nothing(gym.Env):
    """Gives rewards that are no numbers."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (2,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float("nan"), False, False, {}


gym.register("lazymdp-tests/Nothing-v0", entry_point=Nothing, max_episode_steps=9, disable_env_checker=True)


def test_rewards_that_are_no_numbers_are_told_from_a_learning_rate():
    run = Training(TrainConfig("lazymdp-tests/Nothing-v0", settings=SMALL))
    for _ in range(3):
        run.advance()
    with pytest.raises(Diverged, match="Nothing-v0 gave a reward that is no finite number"):
        run.report()
    run.close()


def test_iterations_are_not_put_off():
    """Else reports, checkpoints and interrupts would be late by as many as JAX takes on at once."""
    settings = DialConfig(steps=10**7, n_envs=256, rollout=64, hidden=(512, 512))
    run = Training(TrainConfig("FrozenLake-v1", settings=settings))
    for _ in range(5):
        run.advance()
    *earlier, _ = run._run._episodes
    assert len(earlier) == 4 and all(array.is_ready() for array in jax.tree.leaves(earlier))
    run.close()


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


def anew():
    """For a process that compiles for itself: what is killed may not be what was compiled here, and leaves no half."""
    return {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}


def wait_for(process, happened):
    """Until something happened, however slow the machine; the process must still be running then."""
    deadline = time.monotonic() + 300
    while not happened():
        assert process.poll() is None, "the run ended before"
        assert time.monotonic() < deadline
        time.sleep(0.02)


KILLED = {
    "dial killed": (signal.SIGKILL, "FrozenLake-v1", OPTIONS, 400_000),
    "dial terminated": (signal.SIGTERM, "FrozenLake-v1", OPTIONS, 400_000),
    "dial interrupted": (signal.SIGINT, "FrozenLake-v1", OPTIONS, 400_000),
    "dial killed on the host": (signal.SIGKILL, "CartPole-v1", OPTIONS, 40_960),
    "dqn killed": (signal.SIGKILL, "FrozenLake-v1", DQN_OPTIONS, 163_840),
    "dqn killed on the host": (signal.SIGKILL, "CartPole-v1", DQN_OPTIONS, 10_240),
}


@pytest.mark.parametrize(("how", "env", "options", "total"), KILLED.values(), ids=KILLED)
def test_a_run_that_is_killed_goes_on_and_ends_as_if_nothing_had_happened(tmp_path, how, env, options, total, capsys):
    command = [sys.executable, "-m", "lazymdp", "train", env, *options, "--steps", str(total)]
    command += ["--checkpoint-seconds", "0.1", "-o", str(tmp_path / "killed")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=anew())
    last = tmp_path / "killed" / "last.json"
    wait_for(process, lambda: last.exists() and json.loads(last.read_text())["step"] >= total // 8)
    os.kill(process.pid, how)
    assert process.wait(300) == {signal.SIGKILL: -9, signal.SIGTERM: 130, signal.SIGINT: 130}[how]
    stopped = RunFolder(tmp_path / "killed").load()
    assert total // 8 <= stopped.step < total
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
    command += ["--checkpoint-seconds", "600", "-o", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=anew())
    metrics = folder / "metrics.csv"
    wait_for(process, lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 1)
    os.kill(process.pid, how)
    said = process.communicate(timeout=300)[1].decode()
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (DialConfig(steps="10"), "steps is '10', expected a whole number"),
        (DialConfig(structured="no"), "structured is 'no', expected True or False"),
        (DialConfig(gamma=True), "gamma is True, expected a number"),
        (DQNConfig(target_period=1.5), r"target_period is 1\.5, expected a whole number"),
        (DQNConfig(clip_rewards=1), "clip_rewards is 1, expected True or False"),
    ],
)
def test_settings_of_another_type_are_refused(settings, message):
    with pytest.raises(TypeError, match=message):
        check_settings(settings)


def test_in_python_the_settings_are_those_of_the_command_line():
    made = for_env("CartPole-v1", "dqn", eta=0.1)
    assert (made.eta, made.network, made.clip_rewards, made.capacity) == (0.1, None, False, 100_000)
    assert for_env("ALE/Pong-v5", "dqn", eta=0.1) == DQNConfig(eta=0.1)
    assert for_env("ALE/Pong-v5", steps=9) == DialConfig.atari(steps=9)


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
    played = agent.frontier([0.0], episodes=20, max_steps=1)  # from the start no hole can be reached
    assert (played.steps == 1).all() and played.unfinished == 20
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
