"""Replays of moments with the default policy, on a walk whose answers are known."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("pyarrow")

from lazymdp.explain.record import make_player, record_player
from lazymdp.explain.replays import NOT_REPEATED, _draw_others, what_followed
from lazymdp.measure.statistics import mean_interval
from lazymdp.wrappers.lazy_action import LazyAction


class Walk(gym.Env):
    """Five steps, each worth its action plus noise from the generator of the environment if `noise` is set."""

    observation_space, action_space = gym.spaces.Box(0.0, 9.0, (1,)), gym.spaces.Discrete(2)

    def __init__(self, noise=0.0, forgetful=False):
        self.noise, self.forgetful, self.resets = noise, forgetful, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.resets = 0, self.resets + 1
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        reward = float(action) + self.noise * self.np_random.random() + (self.resets if self.forgetful else 0.0)
        return np.full(1, self.time, np.float32), reward, self.time == 5, False, {}


def always_one(observation):
    return 1


@pytest.fixture
def recorded(tmp_path):
    def make(env, agent=always_one, default_policy=0):
        player = make_player(agent, env, None, default_policy)
        with pytest.warns(UserWarning, match="without frames"):
            return player, record_player(player, tmp_path / "recording", episodes=2)

    return make


def test_one_step_of_the_default_policy_costs_what_it_does_differently(recorded):
    player, recording = recorded(Walk())
    rows = what_followed(player, recording, [(0, 1), (1, 4)], gamma=1.0)
    assert [(row["episode"], row["step"], row["return_agent"], row["return_default"]) for row in rows] == [
        (0, 1, 4.0, 3.0), (1, 4, 1.0, 0.0)]  # fmt: skip
    assert (rows[0]["low"], rows[0]["high"], rows[0]["note"]) == (pytest.approx(1.0), pytest.approx(1.0), None)


def test_both_branches_have_the_same_random_numbers_and_each_repetition_others(recorded):
    player, recording = recorded(Walk(noise=1.0))
    [row] = what_followed(player, recording, [(0, 0)], samples=50, gamma=1.0)
    assert row["return_agent"] - row["return_default"] == pytest.approx(1.0, abs=1e-12)
    assert row["low"] == pytest.approx(1.0) and row["high"] == pytest.approx(1.0)  # of the difference
    assert row == what_followed(player, recording, [(0, 0)], samples=50, gamma=1.0)[0]
    assert row != what_followed(player, recording, [(0, 0)], samples=50, gamma=1.0, seed=1)[0]


def test_returns_are_discounted(recorded):
    player, recording = recorded(Walk())
    [row] = what_followed(player, recording, [(0, 2)], gamma=0.5)
    assert (row["return_agent"], row["return_default"]) == (1.75, 0.75)


def test_a_random_default_policy_is_averaged(recorded):
    player, recording = recorded(Walk(), default_policy="uniform")
    [row] = what_followed(player, recording, [(0, 0)], samples=400, gamma=1.0)
    assert row["return_agent"] == 5.0 and abs(row["return_default"] - 4.5) < 0.1


def test_probabilities_in_single_precision(recorded, monkeypatch):
    """A network gives probabilities whose sum is 1 in single precision only."""
    player, recording = recorded(Walk(), default_policy="uniform")
    steps = recording.steps(0)
    steps["default_probability"] = np.full_like(steps["default_probability"], np.float32(0.5) + 1e-7)
    monkeypatch.setattr(recording, "steps", lambda episode: steps)
    [row] = what_followed(player, recording, [(0, 0)], samples=20, gamma=1.0)
    assert 4.0 < row["return_default"] < 5.0


def test_the_lazy_steps_that_follow_are_drawn_anew(recorded):
    """The agent leaves all steps but the first to a random default policy."""
    env = LazyAction(Walk(), "uniform", 0.1)
    player, recording = recorded(env, lambda observation: 1 if observation[0] == 0 else 2, None)
    [row] = what_followed(player, recording, [(0, 0)], samples=400, gamma=1.0)
    assert row["return_agent"] % 1.0 != 0.0  # not one draw for all repetitions
    assert abs(row["return_agent"] - 3.0) < 0.2 and abs(row["return_default"] - 2.5) < 0.2


class Endless(Walk):
    """Never ends; every step is worth 1."""

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


def test_a_replay_stops_where_rewards_hardly_count(tmp_path):
    player = make_player(always_one, Endless(), None, 0)
    with pytest.warns(UserWarning, match="without frames"):
        recording = record_player(player, tmp_path / "recording", episodes=1, max_steps=10)
    [row] = what_followed(player, recording, [(0, 3)], gamma=0.9)
    assert row["return_agent"] == pytest.approx(10.0 * (1.0 - 0.9**66))  # 0.9 ** 66 < 0.001 < 0.9 ** 65


@pytest.mark.filterwarnings("ignore:.*without frames")
@pytest.mark.parametrize("game, packages", [("ALE/Pong-v5", ["ale_py"]), ("minatar/asterix", ["jax", "pgx"])])
def test_games_with_sticky_actions_are_repeated_and_continue_in_many_ways(tmp_path, game, packages):
    for package in packages:
        pytest.importorskip(package)
    player = make_player(always_one, game, None, "uniform")
    recording = record_player(player, tmp_path / "recording", episodes=1, max_steps=60)
    moment = min(40, recording.summary(0)["length"] - 1)
    with pytest.MonkeyPatch.context() as patch:
        kept = []
        patch.setattr("lazymdp.explain.replays.mean_interval", lambda lead: kept.append(lead) or mean_interval(lead))
        [row] = what_followed(player, recording, [(0, moment)], samples=4, gamma=0.95)
    assert row["note"] is None and np.unique(kept[0]).size > 1
    assert [row] == what_followed(player, recording, [(0, moment)], samples=4, gamma=0.95)


def test_new_random_numbers_leave_the_state_of_the_emulator_as_it_is():
    pytest.importorskip("ale_py")
    env = make_player(always_one, "ALE/Pong-v5", None, "uniform").env
    ale = env.unwrapped.ale

    def played(seed):
        env.reset(seed=1)
        for _ in range(100):
            env.step(2)
        before = ale.getRAM().copy(), ale.getEpisodeFrameNumber()
        _draw_others(env, seed)
        assert (ale.getRAM() == before[0]).all() and ale.getEpisodeFrameNumber() == before[1]
        for step in range(100):
            env.step(2 + step % 2)
        return ale.getRAM().tobytes()

    assert played(5) == played(5) != played(6)


def test_an_episode_that_cannot_be_repeated_is_noted(recorded):
    player, recording = recorded(Walk(forgetful=True))
    [row] = what_followed(player, recording, [(0, 3)])
    assert row["note"] == NOT_REPEATED and row["return_agent"] is None and row["return_default"] is None


def test_bad_arguments_are_refused(recorded):
    player, recording = recorded(Walk())
    with pytest.raises(ValueError, match="samples is 0"):
        what_followed(player, recording, [(0, 0)], samples=0)
