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
from lazymdp.learn.deep.factory import make_algorithm, make_default_policy, make_env  # noqa: E402
from lazymdp.learn.deep.gymnasium_env import make_gymnasium_env, measure_reward_scale  # noqa: E402
from lazymdp.learn.deep.host_env import GymnasiumHost  # noqa: E402
from lazymdp.learn.deep.loops import CompiledLoop  # noqa: E402
from lazymdp.learn.deep.run_folder import RunFolder  # noqa: E402
from lazymdp.learn.deep.train_config import TrainConfig  # noqa: E402
from lazymdp.learn.deep.trainer import resume, train  # noqa: E402


class Mute(Exception):
    """An error that cannot be printed."""

    def __repr__(self):
        raise KeyError("repr")

    __str__ = __repr__


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
            others = {"shape": np.zeros(3), "no array": {"a": 1}, "complex frame": np.array([0.1, 1j])}
            seen = {"nan": np.array([0.1, np.nan]), "large": np.array([1e99, 0.1]), **others}.get(self.how, seen)
            odd = {"reward": float("nan"), "inf": -np.inf, "huge": 1e38, "none": None, "1.5": "1.5", "complex": 1 + 2j}
            reward = odd.get(self.how, reward)
            end = "no" if self.how == "text" else end
            if self.how == "cut":
                return seen, reward, end, None, {}
            if self.how == "key":
                return {}["missing"]
            if self.how == "exit":
                sys.exit("bye")
            if self.how == "cancelled":
                raise asyncio.CancelledError  # no Exception
            if self.how == "mute":
                raise Mute
            if self.how == "tuple":
                return seen, reward, end, {}
        return seen, reward, end, False, {}


CASES = {
    "nan": r"step 5 of an episode: observation\[1\] is nan, expected a finite number",
    "shape": r"step 5 of an episode: it returned an observation of shape \(3,\), expected \(2,\)",
    "no array": r"step 5 of an episode: observation is {'a': 1}, expected numbers",
    "reward": "step 5 of an episode: it returned the reward nan, expected a finite number between",
    "inf": "it returned the reward -inf",
    "huge": r"it returned the reward 1e\+38, expected a finite number between -1e\+12 and 1e\+12",
    "none": "it returned the reward None, expected a number",
    "text": "step 5 of an episode: it returned terminated = 'no', expected True or False",
    "cut": "step 5 of an episode: it returned truncated = None, expected True or False",
    "large": r"observation\[0\] is inf, expected a finite number",
    "complex frame": "step 5 of an episode: observation is array.*, expected numbers",
    "1.5": "step 5 of an episode: it returned the reward '1.5', expected a number",
    "complex": r"step 5 of an episode: it returned the reward \(1\+2j\), expected a number",
    "mute": r"step 5 of an episode: Mute \(its repr\(\) raised KeyError\)\.",
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


class Fixed(gym.Env):
    """Returns the same observation in every step."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, space, seen):
        self.observation_space, self.seen = space, seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.seen, 1.0, False, False, {}


BYTES, INTEGERS = gym.spaces.Box(0, 255, (2,), np.uint8), gym.spaces.Box(0, 9, (2,), np.int64)
CONVERTED = [
    (BYTES, [np.nan, 0], r"observation\[0\] is nan, expected a whole number from 0 to 255"),
    (BYTES, np.array([300, -5]), r"observation\[0\] is 300, expected a whole number"),
    (BYTES, np.array([0.0, 0.5]), r"observation\[1\] is 0.5, expected a whole number"),
    (INTEGERS, np.array([0.0, np.nan]), r"observation\[1\] is nan, expected a whole number"),
    (INTEGERS, np.array([0, 2**24 + 1]), r"observation\[1\] is 16777217, expected an integer from -16777216"),
    (gym.spaces.Discrete(4), -1, "observation is -1, expected an integer from 0 to 3"),
    (gym.spaces.MultiDiscrete([2, 3]), np.array([2, 0]), r"observation\[0\] is 2, expected an entry of MultiDiscrete"),
    (gym.spaces.Dict(a=BYTES), {"a": np.array([0, 256])}, r"observation\['a'\]\[1\] is 256, expected a whole number"),
]


@pytest.mark.parametrize(("space", "seen", "message"), CONVERTED)
def test_an_observation_that_would_become_another_one_is_named(space, seen, message):
    host = GymnasiumHost(lambda: Fixed(space, seen), 2)
    host.start(0)
    host.send(0, np.zeros(2, int))
    with pytest.raises(EnvironmentFailed, match=rf"environment 0 of 2 \(from 0\), step 1 of an episode: {message}"):
        host.receive(0)


@pytest.mark.parametrize(("space", "seen"), [(BYTES, [1.0, 2.0]), (BYTES, np.array([1, 2])), (INTEGERS, [1, 2])])
def test_an_observation_that_loses_nothing_is_accepted(space, seen):
    host = GymnasiumHost(lambda: Fixed(space, seen), 1)
    host.start(0)
    host.send(0, np.zeros(1, int))
    np.testing.assert_array_equal(host.receive(0).frame, [[1, 2]])


def test_every_part_of_an_environment_is_watched():
    seen = []

    def note():
        seen.extend(owner.place_of(place) for owner, (place, _) in busy.items())

    class Watched(Unruly):
        def __init__(self):
            note()

        def reset(self, *, seed=None, options=None):
            note()
            return super().reset(seed=seed)

        def close(self):
            note()

    name = "the factory test_every_part_of_an_environment_is_watched.<locals>.Watched"
    host = GymnasiumHost(Watched, 1)
    host.start(0)
    host.like(1).close()  # as evaluation does
    made, closed = f"{name}, making the environment", f"{name}, close()"
    assert seen == [made, f"{name}, environment 0 of 1 (from 0), reset at the start of an episode", made, closed]
    seen.clear()
    measure_reward_scale(Watched)
    assert seen[:2] == [made, f"{name}, reset at random step 1 before training"] and seen[-1] == closed
    seen.clear()
    make_env("FrozenLake-v1", 1)  # compiled: the environment is made for its table only

    def policy(observation):
        note()
        return 0

    make_default_policy(policy, make_env("FrozenLake-v1", 1))
    assert seen[0] == "the default policy, on first observations of the environment" and not busy


HANG = """
import sys, time
import gymnasium as gym
from lazymdp.learn.deep.env_failures import watched
from lazymdp.learn.deep.gymnasium_env import measure_reward_scale
from lazymdp.learn.deep.host_env import GymnasiumHost

class Slow(gym.Env):
    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Discrete(2)
    def __init__(self):
        self.hang("init")
    def reset(self, *, seed=None, options=None):
        self.hang("reset")
        return self.observation_space.sample(), {}
    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}
    def close(self):
        self.hang("close")
    def hang(self, where):
        if sys.argv[1] == where:
            time.sleep(1000)

with watched(0.3, lambda: "No run was started."):
    measure_reward_scale(Slow)
"""


@pytest.mark.parametrize(
    ("where", "named"),
    [("init", "making the environment"), ("reset", "reset at random step 1 before training"), ("close", "close()")],
)
def test_a_hang_outside_of_a_step_ends_the_process(where, named):
    done = subprocess.run([sys.executable, "-c", HANG, where], capture_output=True, text=True, timeout=100, check=False)
    said = f"Error: the factory Slow, {named}: no answer within 0.3 s (--step-timeout). No run was started."
    assert (done.returncode, done.stderr.strip()) == (2, said)


def test_an_error_that_cannot_be_printed_is_named_with_its_place(capsys):
    def broken(*given):
        raise Mute

    with pytest.raises(EnvironmentFailed, match=r"the factory .*broken raised Mute \(its repr\(\) raised KeyError\)"):
        make_gymnasium_env(broken)
    with pytest.raises(EnvironmentFailed, match=r"random step 5 before training: Mute \("):
        measure_reward_scale(type("Wild", (Unruly,), {"how": "mute"}))
    with pytest.warns(UserWarning, match=r"close\(\) raised Mute \("):
        GymnasiumHost(type("Jammed", (Unruly,), {"close": broken}), 1).close()
    with pytest.raises(BadDefault, match=r"fails on first observations of the environment: .*Mute \("):
        make_default_policy(broken, make_env("FrozenLake-v1", 1))
    gym.register("lazymdp-tests/Mute-v0", broken)
    assert main(["train", "lazymdp-tests/Mute-v0", "--steps", "100"]) == 2
    assert "Mute-v0', which cannot be made: Mute (its repr() raised KeyError)" in capsys.readouterr().err


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
