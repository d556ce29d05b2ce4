"""An environment that echoes the action it executed, so that what a wrapper does to it is one table."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class EchoEnv(gym.Env):
    """Actions `start .. start + n - 1`; the reward is 10 times the executed action; ends after `length` steps.

    The observation is the vector (executed action, steps so far, noise of the env's own generator), or the steps so
    far if `observations` is "discrete", or both by name if it is "dict".
    """

    def __init__(self, n=3, start=2, length=5, observations="vector"):
        self.action_space = spaces.Discrete(n, start=start)
        box = spaces.Box(-np.inf, np.inf, (3,), np.float64)
        count = spaces.Discrete(length + 1)
        self.observation_space = {
            "vector": box,
            "discrete": count,
            "dict": spaces.Dict(vector=box, both=spaces.Tuple([count, spaces.Text(5)])),
        }[observations]
        self.length, self.observations = length, observations

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(-1), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        return self._observe(action), 10.0 * action, self.steps == self.length, False, {"echo": int(action)}

    def _observe(self, action):
        vector = np.array([action, self.steps, self.np_random.random()])
        if self.observations == "dict":
            return {"vector": vector, "both": (self.steps, "a" * self.steps)}
        return self.steps if self.observations == "discrete" else vector


class MaskedEchoEnv(EchoEnv):
    """Knows what its actions mean and which are allowed: all but the first, both ways."""

    def get_action_meanings(self):
        return ["FIRE", "NOOP", "LEFT"]

    def action_masks(self):
        return np.array([False, True, True])

    def reset(self, *, seed=None, options=None):
        observation, info = super().reset(seed=seed)
        return observation, info | {"action_mask": np.array([0, 1, 1], dtype=np.int8)}

    def step(self, action):
        *rest, info = super().step(action)
        return *rest, info | {"action_mask": np.array([0, 1, 1], dtype=np.int8)}
