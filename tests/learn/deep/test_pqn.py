"""The dial: its targets, what it learns, its seeds."""

import gymnasium as gym
import numpy as np
import pytest
from small_runs import chain

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import lazymdp as lz  # noqa: E402
from lazymdp.envs.toy_text import read_table  # noqa: E402
from lazymdp.learn.deep.acting import Choice  # noqa: E402
from lazymdp.learn.deep.agent import DialAgent  # noqa: E402
from lazymdp.learn.deep.backup import lazy_backup  # noqa: E402
from lazymdp.learn.deep.config import DialConfig  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp, from_table, minatar  # noqa: E402
from lazymdp.learn.deep.pqn import Dial, Step  # noqa: E402


def trained(game, config, seed=0):
    dial = Dial(game, config)
    learner, iterate = jax.jit(dial.init)(jax.random.key(seed)), jax.jit(dial.iterate, donate_argnums=0)
    for _ in range(config.iterations):
        learner, _ = iterate(learner)
    return dial, learner


def control(mdp, dial, learner, eta):
    """Which states take control according to the network."""
    q = np.asarray(jax.jit(dial.network.apply)(learner.parameters, jnp.eye(mdp.n_states), jnp.full(mdp.n_states, eta)))
    lazy = q.mean(-1) + eta if dial.config.structured else q[:, -1]
    return (q[:, : mdp.n_actions].max(-1) > lazy) & ~mdp.absorbing


def test_the_backup_is_the_same_in_jax():
    generator = np.random.default_rng(0)
    q, default = generator.normal(size=(7, 3)), generator.dirichlet(np.ones(3), size=7)
    given = (q, default, generator.normal(size=7), np.full(7, 0.9), generator.uniform(size=7))
    found = jax.jit(lazy_backup)(*(jnp.asarray(x, dtype=jnp.float32) for x in given))
    np.testing.assert_allclose(found, lazy_backup(*given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("structured", [True, False])
def test_targets_are_the_recursion_written_out(structured):
    generator = np.random.default_rng(1)
    shape, trace, gamma = (6, 5), 0.7, 0.9
    config = DialConfig(structured=structured, trace=trace, gamma=gamma)
    eta = np.broadcast_to(generator.uniform(size=5), shape)
    lazy, greedy, ended, cut = (generator.random(shape) < p for p in (0.4, 0.7, 0.2, 0.1))
    value, reward, last = generator.normal(size=shape), generator.normal(size=shape), generator.normal(size=5)
    choice = Choice(np.zeros(shape, int), np.zeros(shape, int), lazy, greedy, value)
    steps = Step(np.zeros(shape), eta, choice, reward, ended, cut & ~ended)
    given = jax.tree.map(jnp.asarray, steps)
    found = Dial(from_mdp(chain()), config).targets(given, jnp.asarray(last))
    expected = np.empty(shape)
    for env in range(5):
        for t in reversed(range(6)):
            if t == 5:
                after, ahead = last[env], last[env]
            else:
                after = value[t + 1, env]
                back = eta[t + 1, env] if structured and lazy[t + 1, env] else 0.0
                known = greedy[t + 1, env] and not steps.cut[t + 1, env]
                ahead = expected[t + 1, env] + back if known else after
            paid = eta[t, env] if structured or not lazy[t, env] else 0.0
            expected[t, env] = reward[t, env] - paid
            if not ended[t, env]:
                expected[t, env] += gamma * ((1 - trace) * after + trace * ahead)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("structured", [True, False])
def test_on_a_chain_it_finds_the_exact_control_set(structured):
    mdp = chain()
    uniform = lz.policies.uniform(mdp)
    path = lz.eta_path(mdp, uniform)
    middles = np.sqrt(path.breakpoints[1:] * path.breakpoints[:-1])
    wide = np.argsort(path.breakpoints[:-1] / path.breakpoints[1:])[:3]  # the three widest intervals between changes
    settings = dict(gamma=0.95, steps=400_000, n_envs=32, hidden=(64, 64), learning_rate=2e-3, final_epsilon=0.3)
    game = from_mdp(mdp, max_steps=20)
    sizes = set()
    for eta in middles[wide]:
        low, high = (0.5 * middles.min(), 2.0 * middles.max()) if structured else (eta, eta)
        if structured and sizes:
            pass  # one dial serves all prices
        else:
            config = DialConfig(**settings, eta_low=low, eta_high=high, free_share=0.0, structured=structured)
            dial, learner = trained(game, config)
        exact = lz.solve(lz.LazyMDP(mdp, uniform, eta)).control
        np.testing.assert_array_equal(control(mdp, dial, learner, eta), exact, err_msg=f"eta {eta}")
        sizes.add(int(exact.sum()))
    assert len(sizes) == 3


def test_on_key_door_treasure_it_finds_the_exact_control_set():
    base = lz.MDP.from_gymnasium(lz.envs.KeyDoorTreasure(), 0.99)
    mdp = lz.MDP(base.transitions, base.rewards, 0.99)  # any state as start
    uniform = lz.policies.uniform(mdp)
    config = DialConfig(
        steps=3_200_000, hidden=(128, 128), eta_low=0.13, eta_high=0.25, free_share=0.0, final_epsilon=0.5,
        epochs=2, learning_rate=2e-3, final_learning_rate=1e-6,
    )  # fmt: skip
    dial, learner = trained(from_mdp(mdp, max_steps=20), config)
    for eta, count in ((0.149, 8), (0.196, 5), (0.24, 3)):
        exact = lz.solve(lz.LazyMDP(mdp, uniform, eta)).control
        assert exact.sum() == count
        np.testing.assert_array_equal(control(mdp, dial, learner, eta), exact, err_msg=f"eta {eta}")


def test_the_same_seed_gives_the_same_network_and_another_seed_another():
    config = DialConfig(steps=4096, n_envs=16, rollout=8, hidden=(16, 16))
    first, again, other = (trained(from_mdp(chain()), config, seed)[1] for seed in (0, 0, 1))
    for a, b in zip(jax.tree.leaves(first.parameters), jax.tree.leaves(again.parameters), strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(
        not np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(first.parameters), jax.tree.leaves(other.parameters), strict=True)
    )
    assert not np.array_equal(first.game, other.game)


def test_prices_are_drawn_as_asked():
    dial = Dial(from_mdp(chain()), DialConfig(n_envs=4000, eta_low=0.01, eta_high=1.0, free_share=0.25))
    eta = np.asarray(dial.draw_eta(jax.random.key(0), jnp.array([0.01, 1.0, 0.25]), (4000,)))
    assert abs((eta == 0.0).mean() - 0.25) < 0.03
    paid = eta[eta > 0.0]
    assert paid.min() >= 0.0099 and paid.max() <= 1.001
    assert abs((paid < 0.1).mean() - 0.5) < 0.04  # even in the logarithm


def test_an_agent_answers_what_is_asked_of_it():
    mdp = chain()
    uniform = lz.policies.uniform(mdp)
    config = DialConfig(gamma=0.95, steps=400_000, n_envs=32, hidden=(64, 64), learning_rate=2e-3, eta_low=0.02,
                        eta_high=0.8, final_epsilon=0.3)  # fmt: skip
    dial, learner = trained(from_mdp(mdp, max_steps=20), config)
    agent = DialAgent(dial, learner.parameters)
    exact = lz.solve(lz.LazyMDP(mdp, uniform, 0.2))
    alive = ~mdp.absorbing
    np.testing.assert_allclose(agent.q(np.eye(7), 0.2)[alive], exact.q[alive], atol=0.05)
    critical = lz.eta_path(mdp, uniform).critical_eta
    np.testing.assert_allclose(agent.critical_eta(np.eye(7))[alive], critical[alive], atol=0.06)
    played = agent.frontier([0.0, 0.1, 0.8], episodes=64)
    assert played.score.shape == (3, 64) and (np.diff(played.control_frequency) < 0.0).all()
    again = agent.frontier([0.0, 0.1, 0.8], episodes=64)
    np.testing.assert_array_equal(played.score, again.score)
    budget = agent.for_budget(0.5)
    assert budget.eta_low <= budget.eta <= budget.eta_high
    assert budget.control_frequency <= 0.5
    below = agent.frontier([0.9 * budget.eta, budget.eta], episodes=400, seed=1).control_frequency
    assert below[1] < 0.53 < below[0]  # other episodes agree: a little cheaper would be too much control
    with pytest.raises(ValueError, match=r"control_frequency is 1\.5"):
        agent.for_budget(1.5)
    with pytest.raises(ValueError, match="expected a list of prices"):
        agent.frontier([-0.1])


def test_a_model_played_as_a_game_follows_its_probabilities():
    generator = np.random.default_rng(3)
    transitions = generator.dirichlet(np.ones(4), size=(4, 2))
    mdp = lz.MDP(transitions, generator.normal(size=(4, 2)), 0.9, start=[0.5, 0.5, 0.0, 0.0])
    game = from_mdp(mdp)
    keys = jax.random.split(jax.random.key(0), 20_000)
    starts = np.asarray(jax.vmap(game.init)(keys))[:, 0]
    assert abs((starts == 0).mean() - 0.5) < 0.02 and starts.max() == 1
    states = jnp.tile(jnp.array([2, 0]), (20_000, 1))
    after, reward, ended, cut = jax.vmap(game.step)(states, jnp.ones(20_000, int), keys)
    np.testing.assert_allclose(np.bincount(np.asarray(after)[:, 0], minlength=4) / 20_000, transitions[2, 1], atol=0.02)
    np.testing.assert_allclose(reward, mdp.rewards[2, 1], rtol=1e-6)
    assert not ended.any() and not cut.any()


def test_a_table_is_played_with_the_reward_of_the_transition_drawn():
    env = gym.make("FrozenLake-v1", is_slippery=True)
    game = from_table(read_table(env.unwrapped), 100)
    states = jnp.tile(jnp.array([14, 0]), (20_000, 1))  # beside the goal: every direction may slip into it
    keys = jax.random.split(jax.random.key(0), 20_000)
    after, reward, ended, _ = jax.vmap(game.move)(states, jnp.full(20_000, 2), keys)
    goal = np.asarray(after)[:, 0] == 15
    np.testing.assert_array_equal(reward, goal)
    np.testing.assert_array_equal(ended, goal)
    assert abs(goal.mean() - 1.0 / 3.0) < 0.02
    expected = from_mdp(lz.MDP.from_gymnasium(env, 0.9), 100)
    np.testing.assert_allclose(jax.vmap(expected.move)(states, jnp.full(20_000, 2), keys)[1], 1.0 / 3.0, rtol=1e-5)
    table = read_table(gym.make("Taxi-v4").unwrapped)  # with a state more than the environment has
    taxi, mdp = from_table(table), lz.MDP.from_gymnasium(gym.make("Taxi-v4"), 0.9)
    assert taxi.shape == (mdp.n_states,)
    np.testing.assert_allclose(table.gains.sum(axis=1).reshape(mdp.rewards.shape), mdp.rewards, atol=1e-12)


def test_minatar_games_restart_and_unknown_ones_are_named():
    pytest.importorskip("pgx")
    with pytest.raises(ValueError, match="no MinAtar game 'pong'; there are asterix"):
        minatar("pong")
    game = minatar("breakout")
    step = jax.jit(jax.vmap(game.step))
    states, ended = jax.vmap(game.init)(jax.random.split(jax.random.key(0), 8)), 0
    for count in range(60):
        keys = jax.random.split(jax.random.key(count), 8)
        states, _, over, _ = step(states, jnp.zeros(8, int), keys)
        ended += int(over.sum())
    assert ended >= 8 and not bool(states.terminated.any())
