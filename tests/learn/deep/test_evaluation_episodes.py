"""Evaluation: whole episodes at several prices that meet the same randomness, their limits, their files."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from lazymdp.learn.deep.evaluation_episodes import AgentEvaluation, joined  # noqa: E402
from lazymdp.learn.deep.trainer import train  # noqa: E402


@functools.cache
def agent(env, **settings):
    return train(env, steps=2000, n_envs=16, rollout=8, hidden=(16,), **settings)


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])  # compiled, on the host
def test_every_price_meets_the_same_randomness(env):
    together = agent(env).evaluate([0.01, 0.2, 0.01], episodes=40)
    np.testing.assert_array_equal(together.steps[0], together.steps[2])
    np.testing.assert_array_equal(together.controls[0], together.controls[2])
    assert len(set(together.steps[0])) > 2  # but not every episode is the same
    alone = agent(env).evaluate([0.01], episodes=40)
    np.testing.assert_array_equal(together.steps[0], alone.steps[0])
    assert (agent(env).evaluate([0.01], episodes=40, seed=1).steps != alone.steps).any()


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])
def test_evaluation_stops_at_its_limit_and_reports_it(env):
    played = agent(env).evaluate([0.0], episodes=20, max_steps=1)  # within one step no episode can end
    assert (played.steps == 1).all() and played.unfinished.all() and played.unfinished.shape == (1, 20)
    assert not agent(env).evaluate([0.0], episodes=20).unfinished.any()


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])
def test_progress_is_reported_and_random_choices_differ(env):
    calls = []
    played = agent(env).evaluate([0.05, 0.2], episodes=12, epsilon=1.0, progress=lambda *done: calls.append(done))
    assert calls and all(done <= total for done, total in calls)
    assert 0.5 < played.control_rate[0] < 0.85  # two of three choices, or four of five
    np.testing.assert_array_equal(played.control_rate, played.controls.sum(1) / played.steps.sum(1))


def test_an_evaluation_is_short_to_read_and_has_a_row_per_episode_on_disk(tmp_path):
    numbers = np.arange(6.0).reshape(2, 3)
    made = AgentEvaluation(np.array([0.0, 0.5]), numbers, numbers + 4.0, numbers, numbers > 4.0)
    assert repr(made) == (
        "AgentEvaluation(3 episodes each; eta 0: return 1 at 20.0% control, eta 0.5: return 4 at 50.0% control)"
    )
    made.to_csv(tmp_path / "episodes.csv")
    lines = (tmp_path / "episodes.csv").read_text().splitlines()
    assert lines[0] == "eta,episode,return,steps,controls,unfinished"
    assert lines[1] == "0.0,0,0.0,4,0,0" and lines[-1] == "0.5,2,5.0,9,5,1" and len(lines) == 7
    both = joined([made, made])
    assert both.returns.shape == (4, 3) and both.etas.tolist() == [0.0, 0.5, 0.0, 0.5]
