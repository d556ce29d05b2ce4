"""Trained agents: values, lazy-gaps, the price of a control rate, agents as default policies, bad arguments."""

import functools
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from small_runs import chain, exact_solution, trained

jax = pytest.importorskip("jax")

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep.agent import Agent  # noqa: E402
from lazymdp.learn.deep.compiled_defaults import uniform  # noqa: E402
from lazymdp.learn.deep.config import PQNConfig  # noqa: E402
from lazymdp.learn.deep.evaluation_episodes import AgentEvaluation  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.pqn import PQN  # noqa: E402
from lazymdp.learn.deep.trainer import train  # noqa: E402


@functools.cache
def small_agent(env="FrozenLake-v1", **settings):
    small = {"algorithm": "pqn", "eta": (0.005, 0.5), "steps": 2000, "n_envs": 16, "rollout": 8, "hidden": (16,)}
    return train(env, **(small | settings))


def single_price(eta):
    """An agent trained, for a moment, with DQN for one price."""
    settings = dict(n_envs=4, rollout=32, buffer_size=800, learning_starts=100, steps=256)
    return small_agent(algorithm="dqn", eta=eta, **settings)


@pytest.mark.learning
def test_an_agent_knows_the_exact_values_critical_prices_and_control_rates(seed):
    mdp = chain()
    config = PQNConfig(
        gamma=0.95, steps=400_000, n_envs=32, hidden=(64, 64), learning_rate=2e-3, eta=(0.02, 0.8), final_epsilon=0.3
    )
    pqn = PQN(from_mdp(mdp, max_steps=20), config, uniform(2))
    agent = Agent(pqn, trained(pqn, seed=seed).learner.parameters, None)
    exact, alive = exact_solution(mdp, 0.2), ~mdp.absorbing
    np.testing.assert_allclose(agent.q(np.eye(7), 0.2)[alive], exact.q[alive], atol=0.05)
    np.testing.assert_allclose(agent.lazy_gap(np.arange(7), 0.2)[alive], exact.lazy_gap[alive], atol=0.05)
    critical = lz.eta_path(mdp, lz.policies.uniform(mdp)).critical_eta
    np.testing.assert_allclose(agent.critical_eta(np.eye(7))[alive], critical[alive], atol=0.06)
    played = agent.evaluate([0.0, 0.1, 0.8], episodes=64)
    assert played.returns.shape == (3, 64) and (np.diff(played.control_rate) < 0.0).all()
    again = agent.evaluate([0.0, 0.1, 0.8], episodes=64)
    np.testing.assert_array_equal(played.returns, again.returns)
    found = agent.for_control_rate(0.5)
    assert found.eta_low <= found.eta <= found.eta_high
    assert found.control_rate <= 0.5
    below = agent.evaluate([0.9 * found.eta, found.eta], episodes=400, seed=1).control_rate
    assert below[1] < 0.53 < below[0]  # other episodes agree: at a lower price there would be too much control
    with pytest.raises(ValueError, match=r"share is 1\.5, expected a share of steps between 0 and 1"):
        agent.for_control_rate(1.5)
    with pytest.raises(ValueError, match="expected prices from 0 to"):
        agent.evaluate([-0.1])


class Sketch(Agent):
    """An agent whose control rate falls with the price, in each episode at another pace."""

    def __init__(self, spread, config=None):
        self.spread, self.algorithm = spread, SimpleNamespace(config=config or PQNConfig())
        self.eta = None if self.algorithm.config.is_range else self.algorithm.config.eta
        self._price_is = "was trained for the single price"

    def _played(self, etas, episodes, seed=0, epsilon=0.0):
        generator = np.random.default_rng(seed)
        pace = np.exp(self.spread * generator.normal(size=episodes))
        steps = np.tile(1.0 + generator.poisson(30.0 * pace), (len(etas), 1))
        noise = generator.normal(size=episodes)  # the same randomness at every price
        share = np.clip(1.0 / (1.0 + np.asarray(etas)[:, None] / (0.05 * pace)) + 0.05 * noise, 0.0, 1.0)
        none = np.zeros(steps.shape, bool)
        return AgentEvaluation(np.asarray(etas), np.zeros(steps.shape), steps, np.round(share * steps), none)


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.8])  # at 0.8, some episodes are ten times as long as others
def test_the_price_of_a_control_rate_keeps_within_it_and_its_interval_contains_the_truth(spread):
    agent = Sketch(spread)
    many = agent._played(np.geomspace(0.05, 0.5, 501), 20_000)
    truth = many.etas[np.argmax(many.control_rate <= 0.3)]
    held = []
    for seed in range(300):
        found = agent.for_control_rate(0.3, seed=seed + 1)
        assert found.control_rate <= 0.3
        assert found.eta_low <= found.eta <= found.eta_high
        held.append(found.eta_low <= truth <= found.eta_high)
    assert 0.91 < np.mean(held) < 0.99  # the level is 95 %; 300 trials of 100 episodes


def test_a_rate_that_no_price_meets_is_answered_by_the_highest_price():
    found = Sketch(0.0).for_control_rate(0.01)
    assert found.eta == 0.5 and found.control_rate > 0.01
    assert Sketch(0.0).for_control_rate(1.0).eta == 0.0


@pytest.mark.parametrize("form", ["structured", "augmented"])
def test_critical_prices_are_those_of_the_lazy_gap_at_single_prices(form, monkeypatch):
    agent = small_agent(form=form, default_policy="repeat")
    monkeypatch.setattr("lazymdp.learn.deep.agent._MOST_ROWS", 9 * 5)  # 5 rows at once, so that 16 take 4 calls
    states, last = np.arange(16), np.arange(16) % 4
    prices = agent._price_grid(9)
    excess = np.array([agent.lazy_gap(states, price, last) - price for price in prices])
    expected = [0.0] * 16
    for state in range(16):
        above = np.flatnonzero(excess[:, state] > 0.0)
        if above.size:
            here = slice(above[-1], above[-1] + 2)
            expected[state] = np.interp(0.0, -excess[here, state], prices[here])
    assert max(expected) > 0.0
    np.testing.assert_allclose(agent.critical_eta(states, last_actions=last, points=9), expected, atol=1e-5)


@pytest.mark.parametrize("eta", [0.0, 0.1])
def test_an_agent_of_one_price_has_no_others(eta):
    agent = Sketch(0.0, PQNConfig(eta=eta))
    for question in (lambda: agent.for_control_rate(0.3), lambda: agent.critical_eta(np.eye(3))):
        with pytest.raises(ValueError, match=rf"was trained for the single price {eta:g}: train one for a range"):
            question()
    trained_once = single_price(eta)
    assert not trained_once.is_dial and trained_once.eta == eta and f"eta {eta:g}" in repr(trained_once)
    assert trained_once.evaluate(episodes=4).etas.tolist() == [eta]
    np.testing.assert_array_equal(trained_once.q([3]), trained_once.q([3], eta))
    with pytest.raises(ValueError, match=rf"eta is 0\.5, but the agent was trained for the single price {eta:g}"):
        trained_once.q([3], 0.5)


def test_a_dial_knows_every_price_of_its_range_and_0():
    agent = small_agent()
    assert agent.is_dial and "a dial for eta from 0.005 to 0.5" in repr(agent)
    grid = agent._price_grid(9)
    assert (grid[0], grid[1], grid[-1]) == (0.0, 0.005, 0.5) and grid.size == 9
    with pytest.raises(ValueError, match="the agent is a dial, trained for a range of prices: give eta"):
        agent.q([3])
    np.testing.assert_allclose(agent.q([3, 3], [0.1, 0.2])[1], agent.q([3], 0.2)[0], rtol=1e-5)
    assert agent.evaluate(episodes=2).etas.tolist() == [0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]


def test_states_may_be_numbers_and_other_shapes_are_refused():
    lake = small_agent()
    np.testing.assert_array_equal(lake.q(np.arange(16), 0.1), lake.q(np.eye(16), 0.1))
    np.testing.assert_array_equal(lake.lazy_gap([3, 4], 0.1), lake.lazy_gap(np.eye(16)[[3, 4]], 0.1))
    for wrong in (np.zeros(15), np.zeros((2, 5)), 3.0):
        with pytest.raises(ValueError, match=r"observations have shape \(.*\), expected \[N, 16\], as in training"):
            lake.q(wrong, 0.1)
    with pytest.raises(ValueError, match="observations have the state 16, expected states from 0 to 15"):
        lake.q([3, 16], 0.1)


@pytest.mark.parametrize("single", [3, np.eye(16)[3]], ids=["state", "one-hot"])
def test_a_single_observation_has_a_single_answer(single):
    lake = small_agent(eta=(0.01, 0.5))
    assert lake.q(single, 0.1).tolist() == lake.q([3], 0.1)[0].tolist()
    assert lake.lazy_gap(single, 0.1) == lake.lazy_gap([3], 0.1)[0]
    assert lake.critical_eta(single) == lake.critical_eta([3])[0]


def test_numbers_out_of_range_are_refused():
    lake = small_agent()
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="epsilon is"):
            lake.evaluate([0.0], epsilon=wrong)
        with pytest.raises(ValueError, match="epsilon is"):
            lake.as_default(epsilon=wrong)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="temperature is"):
            lake.as_default(temperature=wrong)
    with pytest.raises(ValueError, match="temperature is"):
        lake.as_default(temperature=1.0, epsilon=0.1)
    with pytest.raises(ValueError, match="expected a list of prices"):
        lake.evaluate([])
    with pytest.raises(ValueError, match=r"eta is -0\.1, expected prices from 0 to 1e\+12"):
        lake.evaluate([-0.1])
    with pytest.raises(ValueError, match=r"eta is 1e\+50, expected prices from 0 to"):  # infinite in single precision
        lake.q([0], 1e50)
    with pytest.raises(ValueError, match="eta is inf, expected"):
        lake.evaluate([float("inf")])
    for name in ("episodes", "max_steps"):
        for wrong in (0, 2.5, True, "3", float("nan"), 10**20):
            with pytest.raises(ValueError, match=f"{name} is .*, expected .* an integer of at least 1"):
                lake.evaluate([0.0], **{name: wrong})
    with pytest.raises(ValueError, match="points is 2, expected at least 3"):
        lake.critical_eta([0], points=2)


def test_no_argument_is_converted_that_was_meant_differently():
    """Issue 14: text was a price, any true value was trust, and a matrix as a seed ended the process."""
    lake = small_agent()
    for wrong in ("0.1", True, [[0.1], [0.1, 0.2]], np.ma.masked_array([0.1], [True])):
        with pytest.raises(ValueError, match="eta (is|are) .*, expected|eta is a masked array"):
            lake.q([0], wrong)
    with pytest.raises(ValueError, match=r"eta has shape \(3,\), expected one price, or \[2\]"):
        lake.q([0, 1], [0.1, 0.2, 0.3])
    for wrong in (np.eye(2).view(np.matrix), -1, 2**64, 0.5, None):
        with pytest.raises(ValueError, match=r"^seed is .*, expected an integer"):
            lake.set_random_seed(wrong)
        with pytest.raises(ValueError, match=r"^seed is .*, expected an integer"):
            lake.evaluate([0.0], seed=wrong)
    for wrong in ([4], [-1], [0.5], [np.nan], [np.inf], [0, 1], "0", [True]):
        with pytest.raises(ValueError, match=r"^last_actions is .*, expected"):
            lake.lazy_gap([0], 0.1, last_actions=wrong)
        with pytest.raises(ValueError, match=r"^state is .*, expected"):
            lake.predict([0], wrong, eta=0.1)
    for wrong in ([True, False], "yes", [np.nan], [2], [[True]]):
        for state in (None, [0]):
            with pytest.raises(ValueError, match=r"^episode_start is .*, expected \[1\] flags"):
                lake.predict([0], state, wrong, eta=0.1)
    with pytest.raises(ValueError, match="deterministic is 'no', expected True or False"):
        lake.predict([0], deterministic="no", eta=0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_no_action_is_chosen_for_an_observation_that_is_not_finite(bad):
    """Issue 14: the network's values were nan, and the first action was taken."""
    lake, seen = small_agent(), np.eye(16)[:2]
    seen[1, 3] = bad
    for question in (lake.q, lake.lazy_gap, lambda seen, eta: lake.predict(seen, eta=eta)):
        with pytest.raises(ValueError, match=rf"observations have {bad} at \(1, 3\), expected finite numbers"):
            question(seen, 0.1)


def test_an_agent_is_a_default_policy_of_the_wrappers():
    agent = small_agent()
    env = lz.LazyAction(gym.make("FrozenLake-v1"), agent.as_default(), eta=0.1)
    seen, _ = env.reset(seed=0)
    *_, info = env.step(env.lazy_action)
    assert info["base_action"] == agent.q(np.eye(16, dtype=np.float32)[[seen]], 0.0).argmax()
    soft = agent.as_default(temperature=1.0).probabilities(np.arange(16), np.zeros(16, int))
    np.testing.assert_allclose(soft.sum(1), 1.0, rtol=1e-5)
    with pytest.raises(ValueError, match=r"shape \(2, 5\), expected \[N, 16\]"):
        agent.as_default().probabilities(np.zeros((2, 5)), np.zeros(2, int))


def test_as_a_default_policy_an_agent_numbers_actions_as_the_environment_does():
    agent = small_agent("lazymdp-tests/Chain-v0", steps=128)  # its actions are 5 and 6
    policy, q = agent.as_default(), agent.q(np.arange(7), 0.0)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(policy.sample(np.arange(7), rng, np.full(7, 5)), 5 + q.argmax(1))
    env = lz.LazyAction(gym.make("lazymdp-tests/Chain-v0"), policy, eta=0.1)
    env.reset(seed=0)
    assert env.step(env.lazy_action)[-1]["base_action"] in (5, 6)
