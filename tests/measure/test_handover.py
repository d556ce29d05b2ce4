"""Episodes with steps handed over: who acts, what is recorded, and clear errors."""

import gymnasium as gym
import numpy as np
import pytest
from corridor_env import CorridorEnv, always_one

from lazymdp.measure.handover import AGENT, DEFAULT, RECORDED, Player, episode_seeds, uniforms


def corridor():
    return CorridorEnv([1.0, 2.0, 4.0])


class Predicts:
    def predict(self, observations, deterministic=False):
        assert deterministic
        return np.asarray(observations) % 2, None


def test_the_rule_decides_who_acts():
    player = Player(always_one, corridor, 0, 0.5, None)

    def rule(step, episodes, scores):
        np.testing.assert_array_equal(scores, np.full(episodes.size, 10.0 * step))
        return np.where((episodes == 0) & (step == 1), DEFAULT, AGENT)

    first, second = player.play([5, 6], rule, lambda observations: 10 * observations)
    np.testing.assert_array_equal(first.actions, [1, 0, 1])
    np.testing.assert_array_equal(first.handed, [False, True, False])
    np.testing.assert_array_equal(first.importance, [0.0, 10.0, 20.0])
    assert (first.total, second.total, first.seed) == (1.0 + 4.0 / 4, 1.0 + 2.0 / 2 + 4.0 / 4, 5)
    np.testing.assert_array_equal(second.actions, [1, 1, 1])


def test_recorded_actions_are_repeated():
    player = Player(Predicts(), corridor, 1, 1.0, None)
    recorded = player.play([0])
    np.testing.assert_array_equal(recorded[0].actions, [0, 1, 0])
    player.agent = always_one
    [again] = player.play(
        [0], lambda step, episodes, scores: np.full(1, RECORDED if step < 2 else AGENT), None, recorded
    )
    np.testing.assert_array_equal(again.actions, [0, 1, 1])


def test_many_episodes_and_a_limit_of_steps():
    player = Player(always_one, corridor, "uniform", 1.0, 2)
    episodes = player.play(range(150))
    assert len(episodes) == 150 and {episode.actions.size for episode in episodes} == {2}
    assert [episode.seed for episode in episodes] == list(range(150))
    player.close()


def test_an_agent_of_lz_learn_is_told_the_executed_actions():
    class WithState:
        def predict(self, observations, state=None, deterministic=True):
            told.append(None if state is None else state.tolist())
            return np.ones(len(observations), dtype=int), np.zeros(len(observations), dtype=np.int64)

    told = []
    Player(WithState(), corridor, 0, 1.0, None).play([0], lambda step, *_: np.full(1, DEFAULT if step == 1 else AGENT))
    assert told == [None, [1], [0]]


def test_observations_of_every_space_are_batched():
    env = gym.wrappers.TransformObservation(
        corridor(), lambda step: {"step": step}, gym.spaces.Dict(step=gym.spaces.Discrete(4))
    )
    [episode] = Player(lambda batch: batch["step"] % 2, lambda: env, 0, 1.0, None).play([0])
    np.testing.assert_array_equal(episode.actions, [0, 1, 0])


def test_random_numbers_do_not_depend_on_who_is_still_running():
    np.testing.assert_array_equal(uniforms(3, 1, np.array([2]), 5), uniforms(3, 1, np.arange(5), 5)[[2]])
    assert len(set(episode_seeds(0, 100))) == 100


@pytest.mark.parametrize(
    ("agent", "importance", "error", "words"),
    [
        (lambda batch: np.full(len(batch), 7), None, ValueError, "do not fit.*chose action 7, expected 0 to 2"),
        (lambda batch: np.zeros((len(batch), 2)), None, ValueError, r"expected integers of shape \(1,\)"),
        (3, None, TypeError, "agent is 3, expected an object with predict"),
        (always_one, lambda batch: np.nan * batch, ValueError, "expected 1 finite numbers: one per observation"),
        (always_one, lambda batch: 0.5, ValueError, "importance returned"),
    ],
)  # fmt: skip
def test_errors_name_the_value(agent, importance, error, words):
    with pytest.raises(error, match=words):
        Player(agent, corridor, 0, 1.0, None).play([0], None, importance)


def test_a_recurrent_agent_and_a_missing_environment_are_refused():
    class Recurrent:
        def predict(self, observations, deterministic=True):
            return np.zeros(len(observations), dtype=int), (np.zeros(3), np.zeros(3))

    with pytest.raises(TypeError, match="recurrent state"):
        Player(Recurrent(), corridor, 0, 1.0, None).play([0])
    with pytest.raises(TypeError, match="env is 3, expected the id of an environment"):
        Player(always_one, 3, 0, 1.0, None)


def test_an_observation_that_would_become_another_one_is_refused():
    class Odd(CorridorEnv):
        def step(self, action):
            return -1, *super().step(action)[1:]  # would be the last state

    player = Player(always_one, lambda: Odd([1.0, 1.0]), "uniform", 0.9, None)
    with pytest.raises(
        ValueError, match="Odd, step 1 of the episode: observation is -1, expected an integer from 0 to 2"
    ):
        player.play([0])
