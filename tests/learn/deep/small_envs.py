"""Small environments that several tests of the deep agents share; those with an id are registered when imported."""

import gymnasium as gym
import numpy as np
from small_runs import chain

from lazymdp.learn.deep.host_env import Outcome


class ChainEnv(gym.Env):
    """The chain without its transition table, so that it steps on the host; its actions are 5 and 6.

    Learning tests make tens of thousands of steps, so a step is one search in `[S * A, S]` cumulative probabilities.
    """

    def __init__(self):
        self.mdp = chain()
        self.cumulative = self.mdp.transitions.toarray().cumsum(axis=1)
        self.observation_space = gym.spaces.Discrete(self.mdp.n_states)
        self.action_space = gym.spaces.Discrete(self.mdp.n_actions, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = int(self.np_random.choice(self.mdp.n_states, p=self.mdp.start))
        return self.state, {}

    def step(self, action):
        row = self.state * self.mdp.n_actions + action - 5
        reward = self.mdp.rewards.ravel()[row]
        self.state = int(self.cumulative[row].searchsorted(self.np_random.random(), side="right"))
        return self.state, reward, bool(self.mdp.absorbing[self.state]), False, {}


class UnrepeatableEnv(ChainEnv):
    """Shows how many episodes it has begun, whatever the seed: an episode cannot be repeated."""

    begun = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.begun += 1
        return self.begun % self.mdp.n_states, {}

    def step(self, action):
        return self.begun % self.mdp.n_states, 0.0, False, False, {}


class LargeEnv(gym.Env):
    """Large observations, small rewards."""

    observation_space, action_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.full(3, 1e5, np.float32), {}

    def step(self, action):
        return np.full(3, 1e5, np.float32), 1.0, bool(self.np_random.random() < 0.1), False, {}


class NanEnv(gym.Env):
    """Returns rewards that are not finite."""

    observation_space, action_space = gym.spaces.Box(0.0, 1.0, (2,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float("nan"), False, False, {}


class DictEnv(gym.Env):
    """Dict observations: a position, and which of three lamps is lit. The episode ends after 20 steps."""

    observation_space = gym.spaces.Dict({"lamp": gym.spaces.Discrete(3), "place": gym.spaces.Box(-1.0, 1.0, (2,))})
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.lamp = int(self.np_random.integers(3))
        return self._seen(), {}

    def step(self, action):
        reward = float(action == self.lamp)
        self.lamp = int(self.np_random.integers(3))
        return self._seen(), reward, False, False, {}

    def _seen(self):
        return {"lamp": self.lamp, "place": self.np_random.uniform(-1.0, 1.0, 2).astype(np.float32)}


gym.register("lazymdp-tests/Dict-v0", entry_point=DictEnv, max_episode_steps=20)
gym.register("lazymdp-tests/Chain-v0", entry_point=ChainEnv, max_episode_steps=50)
gym.register("lazymdp-tests/Unrepeatable-v0", entry_point=UnrepeatableEnv, max_episode_steps=50)
gym.register("lazymdp-tests/Large-v0", entry_point=LargeEnv)
gym.register("lazymdp-tests/Nan-v0", entry_point=NanEnv, max_episode_steps=9, disable_env_checker=True)


class CountingHost:
    """Two groups of two environments that show how many steps their episode has made, three frames at a time.

    A new episode begins at 100. `shown[group][time]` is what the group saw at that time: its counts, where a new
    episode had begun, and where the one before had terminated.
    """

    shape, frame_shape, dtype, n_frames = (1, 3), (1,), np.float32, 3
    n_actions, first_action, noop, repeats, max_steps = 2, 0, 0, True, None
    space = gym.spaces.Box(0.0, np.inf, (1, 3))
    groups = (slice(0, 2), slice(2, 4))

    def start(self, seed):
        self.generator = np.random.default_rng(seed)
        self.count = np.zeros(4, dtype=np.float32)
        self.shown = [[], []]
        self.waiting = [None, None]

    def receive(self, group):
        count, fresh = self.count[self.groups[group]], self.waiting[group] is None
        drawn = self.generator.random(2) < 0.2
        lost = np.ones(2, bool) if fresh else self.generator.random(2) < 0.05
        terminated, truncated = drawn & ~lost, (self.generator.random(2) < 0.1) & ~drawn & ~lost
        restarted = terminated | truncated | lost
        count[:] = np.where(restarted, 100.0, count + 1.0)
        self.shown[group].append((count.copy(), restarted, terminated))
        return Outcome(count[:, None].copy(), count.copy(), terminated, truncated, lost)

    def send(self, group, actions):
        self.waiting[group] = actions

    def arrays(self):
        return {"count": self.count.copy()}

    def restore(self, seed, arrays):
        self.start(seed)
        self.count[:] = arrays["count"]

    def close(self):
        pass
