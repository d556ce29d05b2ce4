"""PQN: its targets, what it learns from a rollout, its exploration and its schedule of updates."""

from dataclasses import replace

import numpy as np
import pytest
from small_envs import CountingHost
from small_runs import SMALL, chain

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from lazymdp.learn.deep.compiled_defaults import uniform  # noqa: E402
from lazymdp.learn.deep.config import PQNConfig  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.loops import HostLoop  # noqa: E402
from lazymdp.learn.deep.pqn import PQN, Lessons, Rollout  # noqa: E402
from lazymdp.learn.deep.prices import initial  # noqa: E402


def made(config, env=None):
    return PQN(env or from_mdp(chain()), config, uniform(2))


@pytest.mark.parametrize("form", ["structured", "augmented"])
def test_targets_are_the_recursion_written_out(form):
    generator = np.random.default_rng(1)
    shape, lambda_, gamma = (6, 5), 0.7, 0.9
    config = PQNConfig(form=form, lambda_=lambda_, gamma=gamma)
    eta = np.broadcast_to(generator.uniform(size=5), shape)
    lazy, greedy, terminated, truncated = (generator.random(shape) < p for p in (0.4, 0.7, 0.2, 0.1))
    value, reward, last = generator.normal(size=shape), generator.normal(size=shape), generator.normal(size=5)
    truncated &= ~terminated
    steps = Rollout(np.zeros(shape), eta, np.zeros(shape, int), lazy, greedy, value, reward, terminated, truncated, ())
    found = made(config).targets(jax.tree.map(jnp.asarray, steps), jnp.asarray(last))
    expected = np.empty(shape)
    for env in range(5):
        for t in reversed(range(6)):
            if t == 5:
                after, trace = last[env], last[env]
            else:
                after = value[t + 1, env]
                back = eta[t + 1, env] if form == "structured" and lazy[t + 1, env] else 0.0
                follows = greedy[t + 1, env] and not truncated[t + 1, env]
                trace = expected[t + 1, env] + back if follows else after
            paid = eta[t, env] if form == "structured" or not lazy[t, env] else 0.0
            expected[t, env] = reward[t, env] - paid
            if not terminated[t, env]:
                expected[t, env] += gamma * ((1 - lambda_) * after + lambda_ * trace)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["structured", "augmented"])
def test_a_rollout_is_learned_from_at_other_prices(form):
    generator = np.random.default_rng(2)
    n_steps, n_envs, n_actions, n_prices, gamma, lambda_ = 6, 5, 2, 3, 0.9, 0.7
    config = PQNConfig(form=form, lambda_=lambda_, gamma=gamma, n_envs=n_envs, rollout=n_steps, minibatches=1,
                       prices_per_step=n_prices, hidden=(8,))  # fmt: skip
    pqn = made(config)
    learner, size = pqn.init(jax.random.key(1)), (n_steps + 1, n_envs)
    states = generator.integers(7, size=size)
    lazy, terminated, truncated = (generator.random(size) < p for p in (0.5, 0.2, 0.1))
    truncated &= ~terminated
    executed = generator.integers(n_actions, size=size)
    taught = np.where(lazy, n_actions, executed) if form == "augmented" else executed
    likely = generator.dirichlet(np.ones(n_actions), size)
    own, reward = np.broadcast_to(generator.uniform(0.01, 0.3, n_envs), size), generator.normal(size=size)
    played = Rollout(np.eye(7)[states], own, taught, lazy, lazy, reward, reward, terminated, truncated, likely)
    learner = learner._replace(rollout=jax.tree.map(jnp.asarray, played))
    lessons = jax.jit(pqn.lessons)(learner, initial(config), jax.random.key(3))
    eta = np.asarray(lessons.eta).reshape(n_steps, n_envs, n_prices)
    np.testing.assert_allclose(eta[..., 0], own[:-1], rtol=1e-6)
    assert (eta == eta[:1]).all() and len(np.unique(eta[0, :, 1:])) > n_envs  # drawn for each environment

    for env in range(n_envs):
        for price in range(n_prices):
            q = np.asarray(pqn.network.apply(learner.parameters, jnp.eye(7), jnp.full(7, eta[0, env, price])), float)
            after, trace = None, None
            for t in reversed(range(n_steps + 1)):
                e, outputs = eta[0, env, price], q[states[t, env]]
                idle = outputs[n_actions] if form == "augmented" else outputs @ likely[t, env] + e
                best = outputs[:n_actions].max()
                if t < n_steps:
                    paid = e if form == "structured" or not lazy[t, env] else 0.0
                    y = reward[t, env] - paid
                    if not terminated[t, env]:
                        y += gamma * ((1.0 - lambda_) * after + lambda_ * trace)
                    found = np.asarray(lessons.target).reshape(eta.shape)[t, env, price]
                    np.testing.assert_allclose(found, y, rtol=1e-4, atol=1e-4)
                # The trace goes on only if the agent would have chosen the same at this price.
                if idle >= best:
                    same = lazy[t, env]
                else:
                    same = not lazy[t, env] and executed[t, env] == outputs[:n_actions].argmax()
                after = trace = max(best, idle)
                if t < n_steps and same and not truncated[t, env]:
                    trace = y + (e if form == "structured" and lazy[t, env] else 0.0)
    np.testing.assert_array_equal(lessons.weight.reshape(n_steps, n_envs), 1.0 - truncated[:-1])


def test_a_truncated_step_is_not_learned_from():
    pqn = made(replace(SMALL, minibatches=1, max_grad_norm=1e9))
    learner, generator = pqn.init(jax.random.key(0)), np.random.default_rng(0)
    seen, taught = jnp.eye(7)[generator.integers(7, size=6)], jnp.asarray(generator.integers(2, size=6))
    weight = jnp.array([1.0, 0.0, 1.0, 1.0, 0.0, 1.0])
    batch = Lessons(seen, jnp.full(6, 0.1), taught, jnp.asarray(generator.normal(size=6)), weight, ())
    descend = jax.jit(pqn.descend)
    whole = descend(learner.parameters, learner.optimizer, batch)[0]
    spoiled = descend(
        learner.parameters, learner.optimizer, batch._replace(target=jnp.where(weight, batch.target, 9e6))
    )
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(spoiled[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(whole.head.kernel, learner.parameters.head.kernel)
    nothing = descend(learner.parameters, learner.optimizer, batch._replace(weight=jnp.zeros(6)))[0]
    for a, before in zip(jax.tree.leaves(nothing), jax.tree.leaves(learner.parameters), strict=True):
        np.testing.assert_array_equal(a, before)


def test_exploration_falls_over_its_share_of_the_run_and_is_constant_during_a_rollout():
    config = PQNConfig(steps=100 * 4096, exploration_fraction=0.5, final_epsilon=0.1)
    pqn = made(config)
    found = [float(pqn.epsilon(jnp.int32(4096 * iteration))) for iteration in (0, 10, 25, 50, 99)]
    np.testing.assert_allclose(found, [1.0, 0.82, 0.55, 0.1, 0.1], rtol=1e-5)
    assert float(pqn.epsilon(jnp.int32(4096 * 11 - 1))) == float(pqn.epsilon(jnp.int32(4096 * 10)))


@pytest.mark.parametrize("rollout", [3, 8, 20])
def test_on_the_host_gradient_steps_are_spread_over_the_next_rollout(rollout):
    config = PQNConfig(steps=200, n_envs=4, rollout=rollout, minibatches=4, epochs=2, hidden=(8,))
    pqn = made(config, CountingHost())
    due = [pqn.updates_due(1, slot) for slot in range(1, rollout + 1)]
    assert sum(due) == 8 and max(due) - min(due) <= 1
    assert not any(pqn.updates_due(0, slot) for slot in range(1, rollout + 1))  # there is no rollout before the first
    assert pqn.updates_carry_over and not made(config).updates_carry_over
    assert not any(made(config).updates_due(1, slot) for slot in range(1, rollout + 1))  # compiled: all at the end


def test_lessons_hold_what_was_seen_and_chosen():
    host = CountingHost()
    config = PQNConfig(steps=4000, n_envs=4, rollout=5, minibatches=2, epochs=1, hidden=(8,))
    loop = HostLoop(made(config, host), 1)
    for _ in range(3):
        loop.advance()
    lessons = jax.tree.map(np.asarray, loop.run.learner.lessons)
    newest = lessons.observation.reshape(5, 4, 3)[..., 2]

    def shown(times, column=0):
        return np.stack([np.concatenate([host.shown[group][time][column] for group in (0, 1)]) for time in times])

    np.testing.assert_array_equal(newest, shown(range(10, 15)))
    assert sorted(lessons.rows.ravel()) == list(range(20))
    restarted, terminated = (shown(range(11, 16), column) for column in (1, 2))
    weight = lessons.weight.reshape(5, 4)
    assert (weight[~restarted] == 1.0).all()
    np.testing.assert_array_equal(weight, 1.0 - (restarted & ~terminated))
    assert terminated.any() and (weight == 0.0).any()


def test_the_network_of_one_price_does_not_see_the_price():
    single, dial = (made(PQNConfig(eta=eta, hidden=(16, 8))) for eta in (0.1, (0.05, 0.2)))
    for pqn, differs in ((single, False), (dial, True)):
        parameters = pqn.init(jax.random.key(0)).parameters
        found = [np.asarray(pqn.network.apply(parameters, jnp.eye(7), jnp.full(7, eta))) for eta in (0.05, 0.1)]
        assert (parameters.price is not None) == differs
        assert np.array_equal(*found) != differs
