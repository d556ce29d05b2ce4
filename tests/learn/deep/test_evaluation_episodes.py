"""Evaluation: whole episodes at several prices that meet the same randomness, their limits, their files."""

import functools
from dataclasses import replace

import numpy as np
import pytest
from small_runs import untrained_agent

jax = pytest.importorskip("jax")

from lazymdp.learn.deep.evaluation_episodes import AgentEvaluation, DoubtfulFrontier, joined  # noqa: E402
from lazymdp.learn.deep.trainer import train  # noqa: E402


@functools.cache
def agent(env, **settings):
    return train(env, **({"algorithm": "pqn", "steps": 2000, "n_envs": 16, "rollout": 8, "hidden": (16,)} | settings))


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
    alone = AgentEvaluation(np.array([np.inf]), numbers[:1], numbers[:1] + 4.0, 0.0 * numbers[:1], numbers[:1] > 4.0)
    whole = AgentEvaluation(made.etas, made.returns, made.steps, made.controls, made.unfinished, alone)
    assert repr(whole).endswith("eta 0.5: return 4 at 50.0% control, default policy alone: return 1)")
    whole.to_csv(tmp_path / "episodes.csv")
    lines = (tmp_path / "episodes.csv").read_text().splitlines()
    assert lines[6:] == ["0.5,2,5.0,9,5,1", "inf,0,0.0,4,0,0", "inf,1,1.0,5,0,0", "inf,2,2.0,6,0,0"]
    np.testing.assert_array_equal(whole.net_returns, numbers - [[0.0], [0.5]] * numbers)
    np.testing.assert_array_equal(alone.net_returns, alone.returns)
    assert joined([whole, made]).default_alone is alone
    both = joined([made, made])
    assert both.returns.shape == (4, 3) and both.etas.tolist() == [0.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1", "ALE/Pong-v5"])  # compiled, a queue, groups
def test_the_default_policy_alone_plays_the_same_episodes(env):
    if env.startswith("ALE"):
        pytest.importorskip("ale_py")
    options = {"episodes": 30} if not env.startswith("ALE") else {"episodes": 2, "max_steps": 3}
    settings = {"network": "mlp"} if env.startswith("ALE") else {}
    played = untrained_agent(env, "repeat", **settings).evaluate([0.0, 0.1], **options)
    alone = played.default_alone
    assert alone.etas.tolist() == [np.inf] and alone.returns.shape == (1, options["episodes"])
    assert not alone.controls.any() and alone.control_rate.tolist() == [0.0] and (alone.steps >= 1.0).all()
    # A network at a high price is always lazy, too, and meets the same random numbers.
    lazy = untrained_agent(env, "repeat", **settings).evaluate([1e3], **options)
    for name in ("returns", "steps"):
        np.testing.assert_array_equal(getattr(lazy, name), getattr(alone, name))


def evaluation(returns, controls, alone=None):
    """An evaluation at the prices 0, 0.1, ... with 50 episodes each, whose returns scatter around a mean."""
    noise = np.random.default_rng(0).normal(size=50)
    returns, controls = np.array(returns)[:, None] + noise, np.array(controls)[:, None] + 0.0 * noise
    etas, steps, none = 0.1 * np.arange(len(returns)), np.full(returns.shape, 10.0), np.zeros(returns.shape, bool)
    other = None
    if alone is not None:
        other = AgentEvaluation(np.array([np.inf]), alone + noise[None], steps[:1], 0.0 * steps[:1], none[:1])
    return AgentEvaluation(etas, returns, steps, controls, none, other)


def test_a_frontier_that_no_good_agent_has_is_doubted():
    assert evaluation([5.0, 4.9, 3.0], [9, 5, 2], alone=1.0).doubts() == []
    assert evaluation([5.0, 5.2, 5.1], [9, 5, 2]).doubts() == []  # rises within the intervals
    (doubt,) = evaluation([3.0, 5.0, 2.0, 4.5], [9, 5, 2, 1], alone=1.0).doubts()
    assert "at eta = 0.1, 0.3 it is higher than at eta = 0, 0.2." in doubt
    (doubt,) = evaluation([5.0, 4.0, 3.5], [9, 9, 9], alone=3.3).doubts()  # 1.7 after the price
    assert doubt.startswith("at eta = 0.2, the agent's return after the price is lower than that of the default")
    assert evaluation([5.0], [9.0]).doubts() == []
    whole = evaluation([3.0, 5.0], [9, 5])
    (doubt,) = replace(whole, unfinished=whole.returns > np.median(whole.returns)).doubts()
    assert doubt.endswith("But first raise max_steps: 50% of the episodes were stopped early.")
    one = evaluation([3.0, 9.0], [9, 5], alone=50.0)
    assert AgentEvaluation(one.etas, *(x[:, :1] for x in (one.returns, one.steps, one.controls, one.unfinished))
                           ).doubts() == []  # fmt: skip


def test_an_agent_that_is_worse_than_its_default_policy_warns():
    worse = untrained_agent("CartPole-v1", seed=1)  # pushes to one side
    with pytest.warns(DoubtfulFrontier, match="at eta = 0, the agent's return after the price is lower"):
        worse.evaluate([0.0], episodes=60)
