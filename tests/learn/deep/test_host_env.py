"""Environments on the host: put down and picked up, stacked, and learned from."""

import gymnasium as gym
import numpy as np
import pytest
from small_runs import chain

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import lazymdp as lz  # noqa: E402
from lazymdp.learn.deep.config import DialConfig, DQNConfig, TrainConfig  # noqa: E402
from lazymdp.learn.deep.dqn import DQN  # noqa: E402
from lazymdp.learn.deep.host_env import GymnasiumHost, Seen  # noqa: E402
from lazymdp.learn.deep.loops import Hosted  # noqa: E402
from lazymdp.learn.deep.pqn import Dial  # noqa: E402
from lazymdp.learn.deep.trainer import Training, train  # noqa: E402


class ChainEnv(gym.Env):
    """The chain of the other tests, without its table."""

    def __init__(self):
        self.mdp = chain()
        self.observation_space = gym.spaces.Discrete(self.mdp.n_states)
        self.action_space = gym.spaces.Discrete(self.mdp.n_actions, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.choice(self.mdp.n_states, p=self.mdp.start))
        return self.state, {}

    def step(self, action):
        row = self.state * self.mdp.n_actions + action - 5
        after = self.mdp.transitions[[row]].toarray()[0]
        reward = self.mdp.rewards.ravel()[row]
        self.state = int(self.np_random.choice(self.mdp.n_states, p=after))
        return self.state, reward, bool(self.mdp.absorbing[self.state]), False, {}


class Forgetful(ChainEnv):
    """Shows how many episodes it has begun, whatever the seed: it does not repeat itself."""

    begun = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begun += 1
        return self.begun % self.mdp.n_states, {}

    def step(self, action):
        return self.begun % self.mdp.n_states, 0.0, False, False, {}


gym.register("lazymdp-tests/Chain-v0", entry_point=ChainEnv, max_episode_steps=50)
gym.register("lazymdp-tests/Forgetful-v0", entry_point=Forgetful, max_episode_steps=50)


def played(host, seed, steps):
    generator = np.random.default_rng(seed)
    told = []
    for _ in range(steps):
        seen = host.receive(0)
        told.append(Seen(*(np.array(part) for part in seen)))
        host.send(0, generator.integers(host.n_actions, size=len(seen.reward)))
    return told


def test_environments_are_picked_up_where_they_were_put_down():
    host, other = (GymnasiumHost("CartPole-v1", 3) for _ in range(2))
    host.start(4)
    first = played(host, 0, 90)
    assert first[0].lost.all() and not (first[0].ended | first[0].cut).any() and not first[1].lost.any()
    assert sum(seen.ended.sum() for seen in first) > 3
    starts = {tuple(seen.frame[place]) for seen in first for place in np.flatnonzero(seen.ended)}
    assert len(starts) == sum(seen.ended.sum() for seen in first)  # every episode begins another way
    arrays = host.arrays()
    other.restore(4, arrays)
    for here, there in zip(played(host, 1, 60), played(other, 1, 60), strict=True):
        for a, b in zip(here, there, strict=True):
            np.testing.assert_array_equal(a, b)
    again, another = GymnasiumHost("CartPole-v1", 3), GymnasiumHost("CartPole-v1", 3)
    again.start(4)
    another.start(5)
    np.testing.assert_array_equal(again.receive(0).frame, first[0].frame)
    assert not np.array_equal(another.receive(0).frame, first[0].frame)


def test_episodes_of_evaluation_are_others_than_those_trained_on():
    host = GymnasiumHost("CartPole-v1", 1)
    trained = {host._seed_of(seed, place, episode)
               for seed in range(4) for place in range(4) for episode in range(4)}  # fmt: skip
    assert len(trained) == 64
    evaluated = {host._seed_of(2**32 + seed, place, episode)
                 for seed in range(4) for place in range(4) for episode in range(4)}  # fmt: skip
    assert len(evaluated) == 64 and not trained & evaluated


def test_an_environment_that_does_not_repeat_itself_is_named():
    host = GymnasiumHost("lazymdp-tests/Forgetful-v0", 2)
    host.start(0)
    played(host, 0, 9)
    arrays = host.arrays()
    with pytest.warns(UserWarning, match="Forgetful-v0 does not repeat itself from its seed") as warned:
        host.restore(0, arrays)
    assert ["environment 0" in str(warned[0].message), "environment 1" in str(warned[1].message)] == [True, True]


def test_a_step_that_reaches_the_limit_is_cut_and_not_ended():
    host = GymnasiumHost("lazymdp-tests/Chain-v0", 4)
    assert (host.shape, host.n_actions, host.noop, host.first_action) == ((7,), 2, 0, 5)
    host.start(0)
    host.receive(0)
    for _ in range(60):
        host.send(0, np.zeros(4, dtype=int))  # to the left, away from the end
        seen = host.receive(0)
        assert not (seen.ended & seen.cut).any() and (seen.frame.sum(axis=1) == 1.0).all()
        if seen.cut.any():
            return
    raise AssertionError("no episode reached its limit")


class CountingHost:
    """Two groups of two environments that show how many steps their episode has made, three frames at a time."""

    shape, dtype, stack, n_actions, noop, repeats = (1, 3), np.float32, 3, 2, 0, True
    groups = (slice(0, 2), slice(2, 4))

    def start(self, seed):
        self.generator = np.random.default_rng(seed)
        self.count = np.zeros(4, dtype=np.float32)
        self.told = [[], []]
        self.waiting = [None, None]

    def receive(self, group):
        count, fresh = self.count[self.groups[group]], self.waiting[group] is None
        over = self.generator.random(2) < 0.2
        lost = np.ones(2, bool) if fresh else self.generator.random(2) < 0.05
        ended, cut = over & ~lost, (self.generator.random(2) < 0.1) & ~over & ~lost
        count[:] = np.where(ended | cut | lost, 100.0, count + 1.0)  # a new episode begins at 100
        self.told[group].append((count.copy(), ended | cut | lost))
        return Seen(count[:, None].copy(), count.copy(), ended, cut, lost)

    def send(self, group, actions):
        self.waiting[group] = actions

    def close(self):
        pass


def test_frames_are_stacked_the_same_when_choosing_and_when_remembering():
    config = DQNConfig(steps=400, n_envs=4, rollout=10, capacity=80, min_replay=8, hidden=(8,), clip_rewards=False)
    run = Hosted(DQN(CountingHost(), config), CountingHost(), 0)
    for iteration in range(1, 4):
        run.advance()
        now = 10 * iteration
        for group, part in enumerate(run.host.groups):
            told = run.host.told[group]  # told[t]: what was seen before the choice at time t
            for time in range(max(0, now - 17), now + 1):
                expected = np.zeros((2, 3))
                known = np.ones(2, bool)
                for back in range(3):
                    if time - back >= 0:
                        expected[:, 2 - back] = told[time - back][0] * known
                        known &= ~told[time - back][1]
                env = jnp.arange(part.start, part.stop)
                found = run.learner.seen(run.state.replay, jnp.full(2, time), env)
                np.testing.assert_array_equal(found[:, 0], expected)
            np.testing.assert_array_equal(run.state.stack[part, 0], expected)  # the last one is what was chosen by
    batch = run.learner.sample(run.state.replay, now + 1, jax.random.key(0))
    np.testing.assert_array_equal(batch.after[:, 0, 1], batch.observation[:, 0, 2] * (batch.after[:, 0, 2] != 100.0))


def test_a_run_picked_up_before_its_first_step_is_the_same():
    config = TrainConfig("CartPole-v1", settings=DialConfig(steps=300, n_envs=4, rollout=5, minibatches=2, hidden=(8,)))
    whole, first = Training(config), Training(config)
    second = Training(config, first.arrays())
    for run in (whole, second):
        while not run.done:
            run.advance()
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(array, second.arrays()[name], err_msg=name)
    for run in (whole, first, second):
        run.close()


def test_lessons_hold_what_was_seen_and_chosen():
    host = CountingHost()
    config = DialConfig(steps=4000, n_envs=4, rollout=5, minibatches=2, epochs=1, hidden=(8,))
    run = Hosted(Dial(host, config), host, 0)
    for _ in range(3):
        run.advance()
    lessons = jax.tree.map(np.asarray, run.state.lessons)
    newest = lessons.observation.reshape(5, 4, 3)[..., 2]
    told = np.stack([np.concatenate([host.told[group][time][0] for group in (0, 1)]) for time in range(10, 15)])
    np.testing.assert_array_equal(newest, told)
    assert sorted(lessons.rows.ravel()) == list(range(20))
    after = np.stack([np.concatenate([host.told[group][time][0] for group in (0, 1)]) for time in range(11, 16)])
    assert (lessons.weight.reshape(5, 4)[after != 100.0] == 1.0).all()


@pytest.mark.parametrize("structured", [True, False])
def test_dqn_on_the_host_finds_the_exact_control_set(structured):
    mdp = chain()
    eta = 0.1
    exact = lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), eta)).control
    settings = DQNConfig(
        eta=eta, gamma=mdp.gamma, steps=20_000, structured=structured, n_envs=8, rollout=50, capacity=10_000, batch=64,
        min_replay=500, target_period=200, final_epsilon=1.0, learning_rate=1e-3, hidden=(32,), clip_rewards=False,
    )  # fmt: skip
    agent = train(TrainConfig("lazymdp-tests/Chain-v0", settings=settings))
    found = agent.lazy_gap(np.eye(mdp.n_states, dtype=np.float32), eta) > eta
    np.testing.assert_array_equal(found & ~mdp.absorbing, exact)


def test_the_dial_on_the_host_finds_the_exact_control_sets():
    mdp = chain()
    settings = DialConfig(
        gamma=mdp.gamma, steps=60_000, n_envs=16, rollout=16, minibatches=4, eta_low=0.02, eta_high=0.5,
        hidden=(32, 32), final_epsilon=0.3, learning_rate=2e-3, epochs=2,
    )  # fmt: skip
    agent = train(TrainConfig("lazymdp-tests/Chain-v0", settings=settings))
    seen = np.eye(mdp.n_states, dtype=np.float32)
    for eta in (0.05, 0.1, 0.2):
        exact = lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), eta)).control
        np.testing.assert_array_equal((agent.lazy_gap(seen, eta) > eta) & ~mdp.absorbing, exact)
    played = agent.frontier([0.02, 0.5], episodes=20)
    assert played.control_frequency[0] > played.control_frequency[1]


def test_episodes_are_told_once_and_whole():
    settings = DialConfig(steps=3000, n_envs=4, rollout=10, minibatches=2, hidden=(8,))
    run = Training(TrainConfig("CartPole-v1", settings=settings))
    rows = []
    while not run.done:
        run.advance()
        rows += run.report()
    told = sum(row.episodes * row.length for row in rows)
    assert 2500 < told <= 3000  # what is missing is under way
    assert all(row.score == pytest.approx(row.length) for row in rows)  # CartPole: a point a step
    run.close()
