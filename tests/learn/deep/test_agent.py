"""What is asked of a trained network: chance shared by all prices, budgets, and what cannot be meant."""

from types import SimpleNamespace

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from lazymdp.learn.deep.agent import DialAgent  # noqa: E402
from lazymdp.learn.deep.config import DialConfig, TrainConfig  # noqa: E402
from lazymdp.learn.deep.evaluation_episodes import Played  # noqa: E402
from lazymdp.learn.deep.trainer import train  # noqa: E402


@pytest.fixture(scope="module")
def lake():
    settings = DialConfig(steps=4000, n_envs=16, rollout=8, hidden=(16,))
    return train(TrainConfig("FrozenLake-v1", settings=settings))


@pytest.mark.parametrize("env", ["FrozenLake-v1", "CartPole-v1"])  # compiled, on the host
def test_every_price_meets_the_same_chance(env):
    agent = train(TrainConfig(env, settings=DialConfig(steps=2000, n_envs=16, rollout=8, hidden=(16,))))
    together = agent.frontier([0.01, 0.2, 0.01], episodes=40)
    np.testing.assert_array_equal(together.steps[0], together.steps[2])
    np.testing.assert_array_equal(together.controls[0], together.controls[2])
    assert len(set(together.steps[0])) > 2  # but not every episode the same
    alone = agent.frontier([0.01], episodes=40)
    np.testing.assert_array_equal(together.steps[0], alone.steps[0])
    assert (agent.frontier([0.01], episodes=40, seed=1).steps != alone.steps).any()


class Sketch(DialAgent):
    """An agent whose control falls with the price, in each episode at another pace."""

    def __init__(self, spread):
        self.spread, self.learner = spread, SimpleNamespace(config=DialConfig())

    def frontier(self, etas, *, episodes=100, seed=0, epsilon=0.0):
        generator = np.random.default_rng(seed)
        pace = np.exp(self.spread * generator.normal(size=episodes))
        steps = np.tile(1.0 + generator.poisson(30.0 * pace), (len(etas), 1))
        noise = generator.normal(size=episodes)  # the same chance at every price
        share = np.clip(1.0 / (1.0 + np.asarray(etas)[:, None] / (0.05 * pace)) + 0.05 * noise, 0.0, 1.0)
        none = np.zeros(steps.shape, bool)
        return Played(np.asarray(etas), np.zeros(steps.shape), steps, np.round(share * steps), none)


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.8])  # at 0.8, some episodes are ten times as long as others
def test_the_price_of_a_budget_keeps_to_it_and_its_interval_holds_the_truth(spread):
    agent = Sketch(spread)
    many = agent.frontier(np.geomspace(0.05, 0.5, 501), episodes=20_000)
    truth = many.etas[np.argmax(many.control_frequency <= 0.3)]
    held = []
    for seed in range(300):
        found = agent.for_budget(0.3, seed=seed + 1)
        assert found.control_frequency <= 0.3
        assert found.eta_low <= found.eta <= found.eta_high
        held.append(found.eta_low <= truth <= found.eta_high)
    assert 0.91 < np.mean(held) < 0.99  # 95 % are asked for; 300 trials of 100 episodes


def test_a_budget_no_price_keeps_is_answered_by_the_dearest_price():
    found = Sketch(0.0).for_budget(0.01)
    assert found.eta == 0.5 and found.control_frequency > 0.01
    assert Sketch(0.0).for_budget(1.0).eta == 0.0


@pytest.mark.parametrize(
    "settings", [DialConfig(free_share=1.0), DialConfig(free_share=0.0, eta_low=0.1, eta_high=0.1)]
)
def test_an_agent_of_one_price_is_not_asked_for_another(settings):
    agent = Sketch(0.0)
    agent.learner.config = settings
    with pytest.raises(ValueError, match=r"was trained for price 0(\.1)? alone"):
        agent.for_budget(0.3)
    with pytest.raises(ValueError, match="alone"):
        agent.critical_eta(np.eye(3))
    agent.learner.config = DialConfig(free_share=0.0)
    assert agent._prices(9)[0] == DialConfig().eta_low  # price 0 was not trained for


def test_states_are_understood_by_their_number_and_other_shapes_are_named(lake):
    np.testing.assert_array_equal(lake.q(np.arange(16)), lake.q(np.eye(16)))
    np.testing.assert_array_equal(lake.lazy_gap([3, 4]), lake.lazy_gap(np.eye(16)[[3, 4]]))
    for wrong in (np.zeros(16), np.zeros((2, 5)), 3):
        with pytest.raises(ValueError, match=r"expected \[N, \.\.\.\] of \(16,\)"):
            lake.q(wrong)


def test_numbers_that_cannot_be_meant_are_refused(lake):
    for wrong in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="epsilon is"):
            lake.frontier([0.0], epsilon=wrong)
        with pytest.raises(ValueError, match="epsilon is"):
            lake.as_default(epsilon=wrong)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="temperature is"):
            lake.as_default(temperature=wrong)
    for wrong in ([], [-0.1], [float("inf")], 0.1):
        with pytest.raises(ValueError, match="expected a list of prices"):
            lake.frontier(wrong)
