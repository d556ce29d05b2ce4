"""Environments and default policies that misbehave: a line that names them, exit code 2, a checkpoint that stays."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from small_runs import DQN_OPTIONS, DQN_SMALL, SMALL

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from lazymdp.cli.main import main  # noqa: E402
from lazymdp.defaults.protocol import BadDefault  # noqa: E402
from lazymdp.learn.deep.acting import spoiled  # noqa: E402
from lazymdp.learn.deep.env_failures import LARGEST_REWARD, EnvironmentFailed, busy  # noqa: E402
from lazymdp.learn.deep.factory import make_algorithm  # noqa: E402
from lazymdp.learn.deep.gymnasium_env import make_gymnasium_env, measure_reward_scale  # noqa: E402
from lazymdp.learn.deep.host_env import GymnasiumHost  # noqa: E402
from lazymdp.learn.deep.loops import CompiledLoop  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.train_config import TrainConfig  # noqa: E402
from lazymdp.learn.deep.trainer import resume, train  # noqa: E402


class Unruly(gym.Env):
    """A walk that misbehaves at a step of its life, in a way that the class attribute `how` names."""

    observation_space, action_space = gym.spaces.Box(-9.0, 9.0, (2,)), gym.spaces.Discrete(2)
    how, when, steps = "", 5, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.how == "reset" and self.steps >= self.when:
            raise OSError("no connection")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        seen, reward, end = np.full(2, 0.1, np.float32), 1.0, self.steps % 7 == 0
        if self.steps >= self.when:
            seen = {"nan": np.array([0.1, np.nan]), "shape": np.zeros(3), "no array": {"a": 1}}.get(self.how, seen)
            reward = {"reward": float("nan"), "inf": -np.inf, "huge": 1e38, "none": None}.get(self.how, reward)
            end = "no" if self.how == "text" else end
            if self.how == "cut":
                return seen, reward, end, None, {}
            if self.how == "key":
                return {}["missing"]
            if self.how == "exit":
                sys.exit("bye")
            if self.how == "cancelled":
                raise asyncio.CancelledError  # no Exception
            if self.how == "tuple":
                return seen, reward, end, {}
        return seen, reward, end, False, {}


CASES = {
    "nan": r"step 5 of an episode: observation\[1\] is nan, expected a finite number",
    "shape": r"step 5 of an episode: it returned an observation of shape \(3,\), expected \(2,\)",
    "no array": "step 5 of an episode: TypeError",
    "reward": "step 5 of an episode: it returned the reward nan, expected a finite number between",
    "inf": "it returned the reward -inf",
    "huge": r"it returned the reward 1e\+38, expected a finite number between -1e\+12 and 1e\+12",
    "none": "TypeError",
    "text": "step 5 of an episode: it returned terminated = 'no', expected True or False",
    "cut": "step 5 of an episode: it returned truncated = None, expected True or False",
    "key": r"step 5 of an episode: KeyError\('missing'\)",
    "exit": r"SystemExit\('bye'\)",
    "cancelled": "step 5 of an episode: CancelledError",
    "tuple": "step 5 of an episode: ValueError",
    "reset": r"the start of an episode: OSError\('no connection'\)",
}


@pytest.mark.parametrize("how", CASES)
def test_what_an_environment_does_wrong_is_named_with_its_index_and_step(how):
    kinds = iter([type("Tame", (Unruly,), {}), type("Wild", (Unruly,), {"how": how})])
    host = GymnasiumHost(lambda: next(kinds)(), 2)
    host.start(0)
    with pytest.raises(EnvironmentFailed, match=f"^the factory .*, environment 1 of 2 .*{CASES[how]}"):
        for _ in range(9):
            host.send(0, np.zeros(2, int))
            host.receive(0)
    assert not busy


def test_an_environment_that_cannot_be_made_or_tried_is_named():
    def broken():
        raise KeyError("gone")

    with pytest.raises(EnvironmentFailed, match=r"the factory .*broken raised KeyError\('gone'\)"):
        make_gymnasium_env(broken)
    with pytest.raises(EnvironmentFailed, match=r"random step 5 before training: KeyError\('missing'\)"):
        measure_reward_scale(type("Wild", (Unruly,), {"how": "key"}))
    seen = []

    class Watched(Unruly):
        def step(self, action):
            seen.append(*(owner.place_of(place) for owner, (place, _) in busy.items()))
            return super().step(action)

    assert measure_reward_scale(Watched) == 1.0 and not busy
    assert seen[-1].endswith("Watched, random step 1000 before training")


def test_an_error_of_close_does_not_hide_the_reason_why_a_run_ends(tmp_path):
    class Jammed(Unruly):
        how, when = "key", 5

        def close(self):
            raise KeyError("jammed")

    host = GymnasiumHost(Jammed, 2)
    with pytest.warns(UserWarning, match=r"Jammed: close\(\) raised KeyError\('jammed'\)") as warned:
        host.close()
    assert len(warned) == 2
    with pytest.warns(UserWarning, match="jammed"), pytest.raises(EnvironmentFailed, match=r"KeyError\('missing'\)"):
        measure_reward_scale(Jammed)


@pytest.mark.parametrize("how", ["nan", "huge"])
def test_the_checkpoint_from_before_stays_and_the_run_continues_from_it(tmp_path, how):
    wild = type("Wild", (Unruly,), {"how": how, "when": 60})
    settings = dict(algorithm="dqn", eta=0.1, n_envs=2, rollout=8, buffer_size=64, learning_starts=16, hidden=(8,))
    given = dict(folder=tmp_path / "run", steps=160, checkpoint_seconds=1e-6, **settings)
    with pytest.raises(EnvironmentFailed, match=r"environment 0 of 2.* from step 112: .*resume\('.*run', env=...\)`"):
        train(wild, **given)
    kept = RunFolder(tmp_path / "run").read()
    assert 80 < kept.step <= 120
    assert all(np.isfinite(array).all() for name, array in kept.arrays.items() if name != "quality.mean")
    resume(tmp_path / "run", env=Unruly)
    assert RunFolder(tmp_path / "run").read().step == 160


def test_what_a_compiled_game_does_wrong_is_named_once_per_iteration():
    algorithm = make_algorithm(TrainConfig("FrozenLake-v1", SMALL))
    inner = algorithm.env

    def step(state, action, key):
        after, reward, terminated, truncated = inner.step(state, action, key)
        return after, jnp.where(after[1] >= 5, jnp.nan, reward), terminated, truncated

    algorithm.env = replace(inner, step=step)
    loop = CompiledLoop(algorithm, 0)
    loop.advance()
    with pytest.raises(
        EnvironmentFailed, match=r"FrozenLake-v1, environment \d+ of 16 .*agent step 80: .*a reward that"
    ):
        loop.advance()
    for call in (loop.arrays, loop.episodes):
        with pytest.raises(EnvironmentFailed):
            call()


def test_which_steps_cannot_be_learned_from():
    reward = jnp.array([0.0, jnp.nan, -jnp.inf, 2.0 * LARGEST_REWARD, 1.0, LARGEST_REWARD])
    frame = jnp.zeros((6, 2)).at[4, 1].set(jnp.nan)
    np.testing.assert_array_equal(spoiled(reward, frame), [0, 1, 1, 1, 2, 0])
    np.testing.assert_array_equal(spoiled(reward, jnp.zeros((6, 2), jnp.uint8)), [0, 1, 1, 1, 0, 0])


WALK = """
import sys, time
import gymnasium as gym
import numpy as np

class Walk(gym.Env):
    observation_space, action_space = gym.spaces.Box(-9.0, 9.0, (2,)), gym.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.steps += 1
        if HANGS and self.steps > 300:
            time.sleep(10_000)
        return np.zeros(2, np.float32), 1.0, self.steps % 7 == 0, False, {}

gym.register("FailingWalk-v0", Walk, disable_env_checker=True)
calls = 0

def policy(seen):
    global calls
    calls += 1
    if calls > 200:
        raise KeyError("gone")
    return 1
"""
OPTIONS = [*DQN_OPTIONS, "--steps", "4000", "--checkpoint-seconds", "0.001", "-o", "run"]


def test_a_hang_ends_with_exit_code_2_and_the_run_continues(tmp_path, monkeypatch, capsys):
    (tmp_path / "walk_that_hangs.py").write_text(WALK.replace("HANGS", "True"))
    command = [sys.executable, "-m", "lazymdp", "train", "walk_that_hangs:FailingWalk-v0", *OPTIONS]
    command += ["--step-timeout", "2"]
    command += ["--reward-scale", "1"]  # otherwise it would hang in the random steps before training
    began = time.monotonic()
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=dict(os.environ), check=False
    )
    assert done.returncode == 2 and time.monotonic() - began < 200
    said = " ".join(done.stderr.split())
    assert "walk_that_hangs:FailingWalk-v0, environment 0 of 4 (from 0), step" in said and "Traceback" not in said
    assert said.endswith("no answer within 2 s (--step-timeout). To go on: lazymdp resume run --trust")
    assert 0 < RunFolder(tmp_path / "run").read().step <= 1200


def test_a_default_policy_that_fails_during_training_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "walk_with_policy.py").write_text(WALK.replace("HANGS", "False"))
    monkeypatch.chdir(tmp_path)
    given = ["train", "walk_with_policy:FailingWalk-v0", *OPTIONS, "--default-policy", "walk_with_policy:policy"]
    with contextlib.suppress(KeyError):
        sys.modules.pop("walk_with_policy")
    assert main(given) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "Error: walk_with_policy:FailingWalk-v0: the default policy failed on" in said and "KeyError('gone')" in said
    assert "no checkpoint was written" in said or "lazymdp resume run --trust" in said


def test_a_default_policy_that_exits_is_refused(tmp_path):
    def leave(state):
        sys.exit("bye")

    with pytest.raises(BadDefault, match="SystemExit"):
        make_algorithm(TrainConfig("FrozenLake-v1", DQN_SMALL), leave)
