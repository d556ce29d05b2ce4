"""How a trained agent acts: `predict`, `at`, `wrap` and `make_env`."""

import gymnasium as gym
import numpy as np
import pytest
import small_envs  # noqa: F401 (registers environments)
from small_runs import untrained_agent

pytest.importorskip("jax")

import lazymdp as lz


def by_hand(agent, observations, eta, last=None):
    """The actions that follow from values and lazy-gaps: control where the gap exceeds the price."""
    q, gap = agent.q(observations, eta), agent.lazy_gap(observations, eta, last)
    return agent.algorithm.env.first_action + np.where(gap > eta, q.argmax(1), agent.algorithm.env.n_actions)


@pytest.mark.parametrize("env", ["CartPole-v1", "FrozenLake-v1", "lazymdp-tests/Chain-v0", "minatar/breakout"])
def test_the_action_is_the_best_one_or_lazy(env):
    agent = untrained_agent(env)
    shape, states = agent.algorithm.env.shape, isinstance(agent.algorithm.env.space, gym.spaces.Discrete)
    generator = np.random.default_rng(0)
    seen = np.arange(shape[0]) if states else generator.normal(size=(40, *shape)).astype(np.float32)
    found = []
    for eta in (0.0, 0.05, 5.0):
        actions, state = agent.predict(seen, eta=eta)
        np.testing.assert_array_equal(actions, by_hand(agent, seen, eta))
        assert actions.shape == state.shape == (len(seen),) and actions.dtype == np.int64
        single, one = agent.predict(seen[3], eta=eta)
        assert np.shape(single) == () and single == actions[3] and one.shape == (1,)
        found.append((actions == agent.lazy_action).sum())
    assert found[0] < found[-1] == len(seen)  # at a high price, it is always lazy
    mixed, _ = agent.predict(seen[:2], eta=[0.0, 5.0])
    assert mixed[0] == agent.predict(seen[0], eta=0.0)[0] and mixed[1] == agent.lazy_action


def test_the_lazy_action_is_that_of_the_wrapper():
    agent = untrained_agent("lazymdp-tests/Chain-v0")  # its actions are 5 and 6
    env = agent.wrap(gym.make("lazymdp-tests/Chain-v0"), 0.1)
    assert agent.lazy_action == env.lazy_action == 7
    assert set(agent.predict(np.arange(7), eta=0.0)[0]) <= {5, 6, 7}
    assert (agent.predict(np.arange(7), eta=0.0)[1] < 7).all()  # the state holds actions that can be executed


def test_dict_observations_are_accepted_as_the_environment_returns_them():
    agent = untrained_agent("lazymdp-tests/Dict-v0")
    env = agent.make_env(0.01)
    seen, _ = env.reset(seed=0)
    action, _ = agent.predict(seen, eta=0.01)
    flat = gym.spaces.flatten(env.observation_space, seen)
    assert action == agent.predict(flat[None], eta=0.01)[0][0]
    many = {name: np.stack([part] * 3) for name, part in seen.items()}
    np.testing.assert_array_equal(agent.predict(many, eta=0.01)[0], [action] * 3)
    np.testing.assert_allclose(agent.q(many, 0.01)[0], agent.q(flat[None], 0.01)[0], rtol=1e-5)
    assert env.step(env.lazy_action)[-1]["base_action"] in range(3)


def test_the_state_carries_the_last_action_of_a_default_policy_that_repeats():
    agent = untrained_agent("CartPole-v1", "repeat", seed=3)
    seen, eta = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32), 0.002
    after = [by_hand(agent, seen, eta, np.full(60, action)) for action in (0, 1)]
    assert (after[0] != after[1]).any()  # it matters which action is repeated
    for action in (0, 1):
        actions, state = agent.predict(seen, state=np.full(60, action), eta=eta)
        np.testing.assert_array_equal(actions, after[action])
        np.testing.assert_array_equal(state, np.where(actions == 2, action, actions))  # lazy repeats
    begins = np.arange(60) % 2 == 0
    actions, _ = agent.predict(seen, state=np.ones(60), episode_start=begins, eta=eta)
    np.testing.assert_array_equal(actions, np.where(begins, after[0], after[1]))
    np.testing.assert_array_equal(agent.predict(seen, eta=eta)[0], after[0])  # by default, episodes begin


def test_random_choices_follow_from_the_seed_at_the_rate_of_training():
    agent = untrained_agent("CartPole-v1", final_epsilon=0.2).at(0.5)  # greedily, it would always be lazy
    seen = np.zeros((3000, 4), np.float32)
    first, _ = agent.predict(seen, deterministic=False)
    assert abs((first != 2).mean() - 0.2 * 2 / 3) < 0.02
    agent.set_random_seed(0)
    np.testing.assert_array_equal(agent.predict(seen, deterministic=False)[0], first)
    agent.set_random_seed(1)
    assert (agent.predict(seen, deterministic=False)[0] != first).any()


def test_an_agent_fixed_at_a_price_needs_no_price():
    dial = untrained_agent("CartPole-v1")
    fixed, seen = dial.at(0.05), np.random.default_rng(0).normal(size=(9, 4))
    assert not fixed.is_dial and fixed.eta == 0.05 and dial.is_dial and fixed.at(0.05).eta == 0.05
    np.testing.assert_array_equal(fixed.q(seen), dial.q(seen, 0.05))
    np.testing.assert_array_equal(fixed.predict(seen)[0], dial.predict(seen, eta=0.05)[0])
    assert fixed.evaluate(episodes=2).etas.tolist() == [0.05] and fixed.make_env().eta == 0.05
    for wrong in (lambda: fixed.at(0.1), lambda: fixed.predict(seen, eta=0.1), lambda: fixed.evaluate([0.1])):
        with pytest.raises(ValueError, match=r"eta is 0\.1, but the agent is fixed at the price 0\.05"):
            wrong()
    with pytest.raises(ValueError, match=r"the agent is fixed at the price 0\.05: ask the dial itself"):
        fixed.for_control_rate(0.5)
    for wrong in (lambda: dial.predict(seen), lambda: dial.make_env(), lambda: dial.wrap(gym.make("CartPole-v1"))):
        with pytest.raises(ValueError, match=r"the agent is a dial.*give eta, or fix the agent .*agent\.at\(eta\)"):
            wrong()
    with pytest.raises(ValueError, match="expected one price"):
        dial.at([0.1, 0.2])
    single = untrained_agent("CartPole-v1", eta=0.3)
    assert single.at(0.3).eta == 0.3
    with pytest.raises(ValueError, match=r"eta is 0\.1, but the agent was trained for the single price 0\.3"):
        single.at(0.1)


def leaning(observations):
    return np.eye(2)[(np.atleast_2d(observations)[:, 2] > 0.0).astype(int)]


@pytest.mark.parametrize("named", ["uniform", "noop", "repeat", "1"])
def test_a_wrapped_environment_has_the_default_policy_of_training(named):
    agent = untrained_agent("CartPole-v1", named)
    ours, theirs = (
        wrap(gym.make("CartPole-v1")) for wrap in (lambda env: agent.wrap(env, 0.1), lambda env: over(env, named))
    )
    np.testing.assert_array_equal(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
    for choice in (1, 2, 2, 0, 2, 2):
        (_, reward, *_, info), (*_, other) = ours.step(choice), theirs.step(choice)
        assert reward == (1.0 if choice == 2 else 0.9)
        if named != "uniform" or choice != 2:  # a uniform policy draws its random numbers in another way
            assert info["base_action"] == other["base_action"]


def over(env, named):
    return lz.LazyAction(env, int(named) if named.isdecimal() else named, 0.1)


def test_a_default_policy_written_in_python_acts_in_the_wrapped_environment_too():
    agent = untrained_agent("CartPole-v1", "given in Python", default_policy=leaning)
    env = agent.make_env(0.1)
    seen, _ = env.reset(seed=0)
    for _ in range(8):
        expected = int(seen[2] > 0.0)
        assert agent.predict(seen, eta=0.1)[0] in (0, 1, 2)
        seen, *_, info = env.step(env.lazy_action)
        assert info["base_action"] == expected


def test_an_environment_with_other_actions_is_refused():
    agent = untrained_agent("CartPole-v1")
    with pytest.raises(
        ValueError, match=r"action space Discrete\(3\), but the agent was trained with 2 actions from 0"
    ):
        agent.wrap(gym.make("Acrobot-v1"), 0.1)
    with pytest.raises(TypeError, match=r"default_policy is an Agent: give agent\.as_default\(\)"):
        lz.LazyAction(gym.make("CartPole-v1"), agent)
