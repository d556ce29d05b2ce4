"""Models, measures and the regulator of the experiment `fidelity-truth`."""

import gymnasium as gym
import numpy as np
import pytest

import lazymdp as lz
from lazymdp.experiments import fidelity_worlds
from lazymdp.measure.handover import AGENT, DEFAULT, Player


def test_the_regulator_balances_the_pole():
    agent = fidelity_worlds.CartPoleRegulator()
    episodes = Player(agent, "CartPole-v1", "uniform", 1.0, None).play(range(20))
    assert {episode.total for episode in episodes} == {500.0}
    observations = np.random.default_rng(0).normal(size=(10, 4)) / 10.0
    q = agent.q(observations)
    np.testing.assert_allclose(2.0 * agent.lazy_gap(observations), lz.action_gap(q))
    np.testing.assert_allclose(lz.action_gap(q), lz.importance_advice(q))


def test_the_model_of_the_regulator_is_that_of_gymnasium():
    """Linearized at the upright position, where the observation after a push is linear in the one before."""
    agent, env = fidelity_worlds.CartPoleRegulator(), gym.make("CartPole-v1").unwrapped
    env.reset(seed=0)
    for action, push in ((0, -1.0), (1, 1.0)):
        state = np.array([0.01, -0.02, 0.001, 0.02])
        env.state = state.copy()
        following = env.step(action)[0]
        np.testing.assert_allclose(agent.a @ state + push * agent.b, following, atol=1e-4)


def test_negative_entropy_by_hand():
    """Advantages 0 and -2 in one state and 0 and 0 in the other; their standard deviation is sqrt(3) / 2."""
    q = np.array([[3.0, 1.0], [5.0, 5.0], [0.0, 9.0]])
    found = fidelity_worlds.negative_entropy(q, np.array([True, True, False]))
    p = 1.0 / (1.0 + np.exp(-2.0 / (np.sqrt(3.0) / 2.0)))
    assert found[:2] == pytest.approx([p * np.log(p) + (1 - p) * np.log(1 - p), -np.log(2.0)])


def test_a_random_model_has_one_absorbing_state_and_few_successors():
    mdp = fidelity_worlds.random_model(np.random.default_rng(0), 12, 3, 2, 0.9)
    assert mdp.absorbing.tolist() == [False] * 11 + [True]
    assert mdp.max_successors == 2 and mdp.start[0] == 1.0
    everywhere = fidelity_worlds.from_everywhere(mdp)
    np.testing.assert_allclose(everywhere.start, np.append(np.full(11, 1 / 11), 0.0))


def test_measures_that_know_the_start_follow_it():
    mdp = fidelity_worlds.model("FrozenLake 4x4")
    best = fidelity_worlds.optimum(mdp)
    moved = fidelity_worlds.with_visits(best, fidelity_worlds.from_everywhere(mdp))
    assert not np.allclose(best.measures["visits"], moved.measures["visits"])
    np.testing.assert_array_equal(best.measures["value"], moved.measures["value"])
    assert set(best.measures) == set(fidelity_worlds.MEASURES) - {"mask", "mask_optimum", "random"}


def test_the_exact_loss_is_what_play_shows():
    """The state with the largest exact loss is handed over in 1,500 episodes of FrozenLake."""
    mdp = fidelity_worlds.model("FrozenLake 4x4")
    policy, default = lz.policies.optimal(mdp), lz.policies.uniform(mdp)
    exact = lz.measure.removal_loss(mdp, policy, default)
    state, action = int(exact.argmax()), policy.argmax(axis=1)
    player = Player(
        action.__getitem__, lambda: gym.make("FrozenLake-v1", max_episode_steps=1000), "uniform", mdp.gamma, None
    )

    def rule(step, episodes, scores):
        return np.where(scores == state, DEFAULT, AGENT)

    seeds = range(1500)
    alone, changed = player.play(seeds), player.play(seeds, rule, lambda observations: observations)
    losses = np.array([one.total - other.total for one, other in zip(alone, changed, strict=True)])
    assert losses.mean() == pytest.approx(exact[state], abs=4.0 * losses.std() / np.sqrt(losses.size))
    assert losses.std() / np.sqrt(losses.size) < 0.05 * exact.max()
