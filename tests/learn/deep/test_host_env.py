"""Gymnasium environments on the host: their seeds, their limits, and how their state is saved and restored."""

import gymnasium as gym
import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from echo_env import EchoEnv
from small_runs import same

from lazymdp.learn.deep.host_env import GymnasiumHost, Outcome


def outcomes(host, seed, steps):
    """What so many random actions lead to."""
    generator, found = np.random.default_rng(seed), []
    for _ in range(steps):
        outcome = host.receive(0)
        found.append(Outcome(*(np.array(part) for part in outcome)))
        host.send(0, generator.integers(host.n_actions, size=len(outcome.reward)))
    return found


def test_environments_are_restored_where_they_were():
    host, other = (GymnasiumHost("CartPole-v1", 3) for _ in range(2))
    host.start(4)
    first = outcomes(host, 0, 90)
    assert first[0].lost.all() and not (first[0].terminated | first[0].truncated).any() and not first[1].lost.any()
    assert sum(outcome.terminated.sum() for outcome in first) > 3
    starts = {tuple(outcome.frame[place]) for outcome in first for place in np.flatnonzero(outcome.terminated)}
    assert len(starts) == sum(outcome.terminated.sum() for outcome in first)  # every episode begins differently
    arrays = host.arrays()
    other.restore(4, arrays)
    for here, there in zip(outcomes(host, 1, 60), outcomes(other, 1, 60), strict=True):
        same(here._asdict(), there._asdict())
    again, another = GymnasiumHost("CartPole-v1", 3), GymnasiumHost("CartPole-v1", 3)
    again.start(4)
    another.start(5)
    np.testing.assert_array_equal(again.receive(0).frame, first[0].frame)
    assert not np.array_equal(another.receive(0).frame, first[0].frame)
    assert host.like(7).groups == (slice(0, 7),) and host.max_steps == 500


def test_evaluation_episodes_are_not_those_of_training():
    host = GymnasiumHost("CartPole-v1", 1)
    trained = {host.episode_seed(seed, place, episode)
               for seed in range(4) for place in range(4) for episode in range(4)}  # fmt: skip
    assert len(trained) == 64
    evaluated = {host.episode_seed(2**32 + seed, place, episode)
                 for seed in range(4) for place in range(4) for episode in range(4)}  # fmt: skip
    assert len(evaluated) == 64 and not trained & evaluated


def test_an_environment_that_does_not_repeat_an_episode_is_named():
    host = GymnasiumHost("lazymdp-tests/Unrepeatable-v0", 2)
    host.start(0)
    outcomes(host, 0, 9)
    arrays = host.arrays()
    with pytest.warns(UserWarning, match="Unrepeatable-v0 .* does not repeat an episode from its seed") as warned:
        host.restore(0, arrays)
    assert ["environment 0" in str(warned[0].message), "environment 1" in str(warned[1].message)] == [True, True]


def test_a_step_that_reaches_the_limit_is_truncated_and_not_terminated():
    host = GymnasiumHost("lazymdp-tests/Chain-v0", 4)
    assert (host.shape, host.n_actions, host.noop, host.first_action) == ((7,), 2, 0, 5)
    host.start(0)
    host.receive(0)
    for _ in range(60):
        host.send(0, np.zeros(4, dtype=int))  # to the left, away from the goal
        outcome = host.receive(0)
        assert not (outcome.terminated & outcome.truncated).any() and (outcome.frame.sum(axis=1) == 1.0).all()
        np.testing.assert_array_equal(outcome.restarted, outcome.terminated | outcome.truncated)
        if outcome.truncated.any():
            return
    raise AssertionError("no episode reached its limit")


def test_an_environment_without_discrete_actions_is_refused():
    with pytest.raises(ValueError, match=r"Pendulum-v1 has the action space Box.*expected Discrete"):
        GymnasiumHost("Pendulum-v1", 2)
    with pytest.raises(ValueError, match="env is 'nowhere-v0', which cannot be made"):
        GymnasiumHost("nowhere-v0", 2)


def test_an_environment_is_made_from_an_id_with_arguments_or_from_a_factory(tmp_path, monkeypatch):
    assert GymnasiumHost("CartPole-v1", 1, {"max_episode_steps": 7}).max_steps == 7
    host = GymnasiumHost(lambda: gym.wrappers.TimeLimit(EchoEnv(observations="dict"), 9), 2)
    assert (host.shape, host.n_actions, host.first_action, host.max_steps) == ((14,), 3, 2, 9)
    assert host.like(5).groups == (slice(0, 5),)
    assert host.first_frames(4).shape == (4, 14)
    (tmp_path / "own_cart.py").write_text(
        "import gymnasium as gym\ngym.register('OwnCart-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert GymnasiumHost("own_cart:OwnCart-v0", 1).n_actions == 2


def test_images_stay_bytes_and_other_observations_are_flattened():
    class Image(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 255, (40, 40, 3), np.uint8), gym.spaces.Discrete(2)

    gym.register("lazymdp-tests/Image-v0", entry_point=Image)
    host = GymnasiumHost("lazymdp-tests/Image-v0", 1)
    assert (host.shape, host.frame_shape, host.dtype, host.n_frames) == ((40, 40, 3), (40, 40, 3), np.uint8, 1)
    assert GymnasiumHost("CliffWalking-v1", 1).shape == (48,)
    assert GymnasiumHost("Blackjack-v1", 1).dtype == np.float32
