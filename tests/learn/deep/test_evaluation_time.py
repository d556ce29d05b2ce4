"""The evaluation after training takes no longer than training, whatever an episode takes. No real clock is used."""

import json
import math
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("jax")

from lazymdp.cli import train as cli_train
from lazymdp.cli.main import main
from lazymdp.learn.deep import evaluation_time
from lazymdp.learn.deep.evaluation_episodes import AgentEvaluation
from lazymdp.learn.deep.evaluation_time import FEWEST_EPISODES, MOST_EPISODES, evaluate_within


class Clock:
    now = 0.0

    def monotonic(self):
        return self.now


class FakeAgent:
    """Evaluates nothing, and takes time for it: to compile, and for as many episodes at once as there are slots."""

    def __init__(self, clock, prices, compiling, episode, slots):
        self.clock, self.prices = clock, np.linspace(0.0, 1.0, prices)
        self.compiling, self.episode, self.slots, self.known = compiling, episode, slots, set()

    def evaluate(self, etas=None, *, episodes, seed, max_steps=None, progress=None):
        etas = self.prices if etas is None else etas
        rows = (etas.size + 1) * episodes
        self.clock.now += self.compiling * (rows not in self.known)
        self.clock.now += self.episode * math.ceil(rows / self.slots) * (0.01 if max_steps else 1.0)
        self.known.add(rows)
        made = np.zeros((etas.size, episodes))
        return AgentEvaluation(etas, made, made, made, made.astype(bool))


def within(monkeypatch, seconds, further=0, **agent):
    """The evaluation, and the time it took together with that at the prices to come, one episode after the other."""
    clock = Clock()
    monkeypatch.setattr(evaluation_time, "time", clock)
    played = evaluate_within(FakeAgent(clock, **agent), seconds, further=further)
    return played, clock.now + further * played.returns.shape[1] * agent["episode"] / agent["slots"]


@given(
    seconds=st.floats(0.1, 1000.0), prices=st.integers(1, 13), compiling=st.floats(0.0, 5.0),
    episode=st.floats(1e-3, 30.0), slots=st.integers(1, 128), further=st.sampled_from([0, 6]),
)  # fmt: skip
@example(seconds=20.0, prices=12, compiling=1.0, episode=0.02, slots=1, further=0)
def test_it_takes_no_longer_than_allowed_unless_it_plays_the_least(seconds, prices, compiling, episode, slots, further):
    with pytest.MonkeyPatch.context() as patch:
        agent = dict(prices=prices, compiling=compiling, episode=episode, slots=slots if further == 0 else 1)
        played, spent = within(patch, seconds, further, **agent)
    episodes = played.returns.shape[1]
    assert FEWEST_EPISODES <= episodes <= MOST_EPISODES
    assert played.etas[0] == 0.0 and (prices == 1 or played.etas[-1] == 1.0)
    least = episodes == FEWEST_EPISODES and played.etas.size == min(prices, 2)
    assert least or spent <= seconds * (1.0 + 1e-9)
    assert played.etas.size == prices or episodes == FEWEST_EPISODES


def test_there_are_as_many_episodes_as_there_is_time_for(monkeypatch):
    fast = dict(prices=12, compiling=1.0, episode=0.02, slots=1)  # 0.26 s for an episode at every price, 26 s for 100
    for seconds, episodes, prices in ((1000.0, 100, 12), (30.0, 100, 12), (15.0, 25, 12), (7.0, 10, 12), (4.0, 10, 7)):
        played, _ = within(monkeypatch, seconds, **fast)
        assert played.returns.shape == (prices, episodes), seconds


class SlowEnv(gym.Env):
    """Every step takes a second of a clock that stands still otherwise. An episode has 20 steps."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (2,)), gym.spaces.Discrete(2)
    clock = Clock()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.clock.now += 1.0
        return np.zeros(2, np.float32), float(action), False, False, {}


gym.register("lazymdp-tests/Slow-v0", entry_point=SlowEnv, max_episode_steps=20)
SMALL = ["--algorithm", "pqn", "--n-envs", "16", "--rollout", "8", "--hidden", "8", "--reward-scale", "1"]


def evaluated(tmp_path, monkeypatch, capsys, steps, *options):
    """What `lazymdp train` prints as JSON and on standard error, and the seconds of training and of the evaluation."""
    timer = SimpleNamespace(monotonic=lambda: SlowEnv.clock.now)
    for module in (cli_train, evaluation_time):
        monkeypatch.setattr(module, "time", timer)
    begin, times = SlowEnv.clock.now, []
    show = cli_train.show_evaluation
    monkeypatch.setattr(
        cli_train, "show_evaluation", lambda *a, **k: (times.append(timer.monotonic()), show(*a, **k))[1]
    )
    folder = tmp_path / f"run{steps}{len(options)}"
    command = ["train", "lazymdp-tests/Slow-v0", "-o", folder, "--steps", steps, "--eta", "0.1", "0.5", *SMALL]
    assert main([*map(str, command), *options, "--json"]) == 0
    shown = capsys.readouterr()
    return json.loads(shown.out), " ".join(shown.err.split()), times[0] - begin, timer.monotonic() - times[0]


def test_the_evaluation_after_a_short_training_is_no_longer_than_that(tmp_path, monkeypatch, capsys):
    found, said, trained, spent = evaluated(tmp_path, monkeypatch, capsys, 5120)
    assert 10 < found["episodes"] < 100 and 0.5 * trained < spent <= trained
    count = found["episodes"]
    assert f"Only {count} episodes each, to take no longer than the {trained:.0f} s of training. For 100" in said
    found, said, trained, spent = evaluated(tmp_path, monkeypatch, capsys, 5120, "--control-rate", "0.5")
    assert 10 <= found["episodes"] < 100 and spent <= trained and "for_control_rate" in found
    found, said, *_ = evaluated(tmp_path, monkeypatch, capsys, 640)  # not even time for 10 episodes at every price
    assert found["episodes"] == 10 and found["etas"] == [0.0, 0.5] and "Only 10 episodes each at 2 of 4 prices" in said
    found, said, *_ = evaluated(tmp_path, monkeypatch, capsys, 640, "--episodes", "11")  # the number that was asked for
    assert found["episodes"] == 11 and len(found["etas"]) == 4 and "Only" not in said
