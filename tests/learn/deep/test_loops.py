"""The two loops: any algorithm runs in both, a run follows from its seed, nothing is donated that is still needed."""

import inspect
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from small_envs import CountingHost
from small_runs import DQN_DIAL, DQN_SMALL, SMALL, chain, compiled, same, trained

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep.algorithm import Algorithm  # noqa: E402
from lazymdp.learn.deep.backup import FORMS  # noqa: E402
from lazymdp.learn.deep.compiled_defaults import uniform  # noqa: E402
from lazymdp.learn.deep.config import DQNConfig, PQNConfig  # noqa: E402
from lazymdp.learn.deep.dqn import DQN  # noqa: E402
from lazymdp.learn.deep.host_env import GymnasiumHost  # noqa: E402
from lazymdp.learn.deep.jax_env import from_mdp  # noqa: E402
from lazymdp.learn.deep.loops import CompiledLoop, HostLoop, iterate, make_loop  # noqa: E402
from lazymdp.learn.deep.named_arrays import to_named  # noqa: E402
from lazymdp.learn.deep.networks import q_network  # noqa: E402
from lazymdp.learn.deep.pqn import PQN  # noqa: E402
from lazymdp.learn.deep.replay import _observation, sample  # noqa: E402
from lazymdp.learn.deep.train_config import TrainConfig  # noqa: E402
from lazymdp.learn.deep.trainer import Training  # noqa: E402


class Counted(NamedTuple):
    """What `Counter` has learned: nothing; how often each of its functions was called."""

    parameters: Any
    updates: Any  # updates made
    last_slots: Any  # sum of the slots after which they were made
    rollouts: Any  # rollouts ended
    records: Any  # steps recorded, over all environments


class Counter:
    """The least that an algorithm must offer: it acts at random, counts, and learns nothing."""

    updates_after_steps, updates_carry_over = True, False

    def __init__(self, env, config, default_policy):
        self.env, self.config, self.default_policy = env, config, default_policy
        self.form = FORMS[config.form]
        self.network = q_network(env.shape, env.n_actions, "mlp", (8,), priced=False, norm=False)

    def init(self, key, parameters=None):
        parameters = self.network.init(key) if parameters is None else parameters
        return Counted(parameters, jnp.int32(0), jnp.int32(0), jnp.int32(0), jnp.int32(0))

    def acting(self, learner):
        return learner.parameters

    def epsilon(self, steps):
        return jnp.float32(1.0)

    def record(self, learner, group, iteration, slot, outcome, reward, observation, eta, choice):
        return learner._replace(records=learner.records + group.size)

    def updates_due(self, iteration, slot):
        return 2 * (slot % 3 == 0)

    def copy_due(self, iteration, slot):
        return False

    def update(self, learner, iteration, slot, price, key, count):
        return learner._replace(updates=learner.updates + count, last_slots=learner.last_slots + slot * count)

    def end_rollout(self, learner, iteration, price, key):
        return learner._replace(rollouts=learner.rollouts + 1)


FEW = PQNConfig(steps=400, n_envs=4, rollout=10, minibatches=2, hidden=(8,))


@pytest.mark.parametrize("kind", [PQN, DQN, Counter])
def test_every_algorithm_offers_what_the_protocol_asks_for(kind):
    algorithm = kind(from_mdp(chain()), DQN_SMALL if kind is DQN else FEW, uniform(2))
    for name in Algorithm.__annotations__:
        assert hasattr(algorithm, name), name
    for name, function in inspect.getmembers(Algorithm, inspect.isfunction):
        if not name.startswith("_"):
            wanted, found = (list(inspect.signature(one).parameters) for one in (function, getattr(kind, name)))
            assert found == wanted, name
    assert hasattr(algorithm, "config") and hasattr(algorithm.init(jax.random.key(0)), "parameters")


ENVIRONMENTS = {
    "compiled": (CompiledLoop, lambda: from_mdp(chain(), max_steps=20)),
    "on the host": (HostLoop, lambda: GymnasiumHost("CartPole-v1", 4)),
    "on the host in groups": (HostLoop, CountingHost),
}


@pytest.mark.parametrize(("kind", "make_env"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
def test_an_algorithm_that_learns_nothing_runs_in_both_loops(kind, make_env):
    loop, again = (make_loop(Counter(make_env(), FEW, uniform(2)), seed=0) for _ in range(2))
    assert isinstance(loop, kind)
    before = jax.tree.map(np.array, loop.run.learner.parameters)
    while loop.iteration < FEW.iterations:
        loop.advance()
    learner = loop.run.learner
    assert int(learner.rollouts) == 10 and int(learner.records) == 4 * 101  # the first choices, and 100 steps
    assert int(learner.updates) == 10 * 6 and int(learner.last_slots) == 10 * 2 * (3 + 6 + 9)
    for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(learner.parameters), strict=True):
        np.testing.assert_array_equal(a, b)
    _, eta, returns, steps, controls = loop.episodes()
    assert eta.size > 3 and steps.sum() <= 400 and (controls <= steps).all() and (returns >= 0.0).all()
    assert 0.5 < controls.sum() / steps.sum() < 0.85  # at random, two of three choices take control
    assert loop.episodes().shape == (5, 0)
    again.restore(loop.arrays())
    assert again.iteration == 10
    same(again.arrays(), loop.arrays())
    for one in (loop, again):
        one.close()


def test_environments_on_the_host_are_not_compiled():
    algorithm = Counter(CountingHost(), FEW, uniform(2))
    with pytest.raises(TypeError, match="steps on the host and cannot be compiled"):
        iterate(algorithm, HostLoop(algorithm, 0).run)


SEEDED = {
    "pqn": (PQN, replace(SMALL, steps=4096)),
    "pqn, one price": (PQN, replace(SMALL, steps=4096, eta=0.1, form="augmented")),
    "dqn": (DQN, replace(DQN_SMALL, steps=2000)),
    "dqn, range": (DQN, replace(DQN_DIAL, steps=2000)),
}


@pytest.mark.parametrize(("kind", "config"), SEEDED.values(), ids=SEEDED)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(kind, config):
    algorithm = kind(from_mdp(chain(), max_steps=20), config, uniform(2))
    first, again, other = (trained(algorithm, seed=seed)._replace(key=()) for seed in (0, 0, 1))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(*(jax.tree.leaves(run.learner.parameters) for run in (first, other)), strict=True):
        assert not np.array_equal(a, b)
    assert not np.array_equal(first.env, other.env)
    if kind is DQN:
        assert not np.array_equal(first.learner.replay.observation, other.learner.replay.observation)


@pytest.mark.parametrize(("kind", "config"), [SEEDED["pqn"], SEEDED["dqn"]], ids=["pqn", "dqn"])
def test_given_parameters_are_not_donated(kind, config):
    algorithm = kind(from_mdp(chain(), max_steps=20), config, uniform(2))
    start, advance = compiled(algorithm)
    parameters = algorithm.network.init(jax.random.key(3))
    run = start(jax.random.key(0), None, parameters)
    for a, b in zip(*(jax.tree.leaves(tree) for tree in (run.learner.parameters, parameters)), strict=True):
        np.testing.assert_array_equal(a, b)
    advance(run)
    assert np.isfinite(parameters.head.kernel).all()  # raises if its memory was given away
    host = HostLoop(kind(GymnasiumHost("lazymdp-tests/Chain-v0", config.n_envs), config, uniform(2)), 0, parameters)
    host.advance()
    assert np.isfinite(parameters.head.kernel).all()
    host.close()


def test_frames_are_stacked_the_same_when_choosing_and_when_replaying():
    config = DQNConfig(steps=400, n_envs=4, rollout=10, buffer_size=80, learning_starts=8, eta=0.0, hidden=(8,))
    loop = HostLoop(DQN(CountingHost(), config, uniform(2)), 0)
    for iteration in range(1, 4):
        loop.advance()
        now, learner = 10 * iteration, loop.run.learner
        for group, part in enumerate(loop.env.groups):
            shown = loop.env.shown[group]  # shown[t] is what was seen before the choice at time t
            for time in range(max(0, now - 17), now + 1):
                expected = np.zeros((2, 3))
                known = np.ones(2, bool)
                for back in range(3):
                    if time - back >= 0:
                        expected[:, 2 - back] = shown[time - back][0] * known
                        known &= ~shown[time - back][1]
                env = jnp.arange(part.start, part.stop)
                found = _observation(learner.replay, jnp.full(2, time), env, 3)
                np.testing.assert_array_equal(found[:, 0], expected)
            np.testing.assert_array_equal(loop.run.stack[part, 0], expected)  # the last one is what was chosen by
    batch = sample(learner.replay, jnp.int32(now + 1), 32, 3, jax.random.key(0))
    newest, before = batch.next_observation[:, 0, 2], batch.next_observation[:, 0, 1]
    np.testing.assert_array_equal(before, batch.observation[:, 0, 2] * (newest != 100.0))


class ForgetfulHost(CountingHost):
    """Cannot restore its episodes, like Atari's emulators."""

    repeats = False


@pytest.mark.parametrize("kind", [PQN, DQN])
def test_where_episodes_cannot_be_restored_only_what_depends_on_them_is_skipped(kind):
    settings = dict(steps=400, n_envs=4, rollout=10, eta=0.1, hidden=(8,))
    config = (
        DQNConfig(**settings, buffer_size=80, learning_starts=8)
        if kind is DQN
        else PQNConfig(**settings, minibatches=5)
    )
    loop, again = (HostLoop(kind(ForgetfulHost(), config, uniform(2)), 0) for _ in range(2))
    for _ in range(2):
        loop.advance()
    again.restore(loop.arrays())
    if kind is DQN:
        again.run = again.run._replace(learner=again.run.learner._replace(replay=loop.run.learner.replay))
    before = jax.tree.map(np.array, again.run.learner.parameters)
    again.advance()
    changed = not np.array_equal(before.head.kernel, again.run.learner.parameters.head.kernel)
    assert changed == (kind is DQN)  # the replay buffer was restored; the rollout before was not
    again.advance()
    assert not np.array_equal(before.head.kernel, again.run.learner.parameters.head.kernel)


def test_iterations_are_not_queued():
    """Otherwise reports, checkpoints and interrupts would be late by as many as JAX takes on at once."""
    settings = PQNConfig(steps=10**7, n_envs=128, rollout=32, hidden=(256, 256))
    run = Training(TrainConfig("FrozenLake-v1", settings))
    for _ in range(5):
        run.advance()
    *earlier, _ = run._loop._episodes
    assert len(earlier) == 4 and all(array.is_ready() for array in jax.tree.leaves(earlier))
    run.close()


@pytest.mark.parametrize("config", [SMALL, DQN_SMALL, DQN_DIAL], ids=["pqn", "dqn", "dqn, range"])
def test_the_unit_of_rewards_and_prices_does_not_matter(config):
    config = replace(config, clip_rewards=False, control_budget=None, steps=4 * config.steps_per_iteration)
    eta = tuple(8.0 * price for price in config.eta) if config.is_range else 8.0 * config.eta
    other = replace(config, eta=eta, reward_scale=8.0)
    kind = PQN if isinstance(config, PQNConfig) else DQN
    runs = []
    for settings, factor in ((config, 1.0), (other, 8.0)):
        model = lz.MDP(chain().transitions, factor * chain().rewards, 0.95)
        loop = CompiledLoop(kind(from_mdp(model, 20), settings, uniform(2)), 0)
        for _ in range(4):
            loop.advance()
        runs.append(loop.run)
    first, second = (to_named(run.learner.parameters) for run in runs)
    for name, array in first.items():  # prices are drawn through logarithms, which round differently
        np.testing.assert_allclose(array, second[name], rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(runs[0].actors.action, runs[1].actors.action)
