"""A small made-up environment whose answers are known by hand."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class CorridorEnv(gym.Env):
    """An episode of `length` steps; the observation is the step. Action 1 earns the step's worth, action 0 nothing.

    A step whose worth is given as `fatal` ends the episode if action 0 is taken there.
    """

    def __init__(self, worth, fatal=()):
        self.worth, self.fatal = worth, fatal
        self.observation_space, self.action_space = spaces.Discrete(len(worth) + 1), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return 0, {}

    def step(self, action):
        now = self.step_number
        self.step_number += 1
        over = self.step_number == len(self.worth) or (now in self.fatal and action == 0)
        return self.step_number, float(self.worth[now] * action), over, False, {}


class FickleEnv(CorridorEnv):
    """Its rewards do not follow from the seed."""

    noise = np.random.default_rng(0)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward + self.noise.random(), *rest


def always_one(observations):
    return np.ones(len(observations), dtype=int)
