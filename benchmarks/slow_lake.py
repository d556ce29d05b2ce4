"""FrozenLake with a pause in every step, like a simulator that computes, and a default policy that fails.

The environment costs wall time but almost no CPU time, so that a cluster of several nodes fits on a small machine.
"""

from __future__ import annotations

import os
import time
from typing import Any

import gymnasium as gym

PAUSE = float(os.environ.get("SLOW_LAKE_PAUSE", "0.005"))
"""Seconds per step."""


class Slow(gym.Wrapper):
    """Waits in every step."""

    def step(self, action: Any) -> Any:
        time.sleep(PAUSE)
        return self.env.step(action)


def make() -> gym.Env:
    return Slow(gym.make("FrozenLake-v1", max_episode_steps=60))


gym.register("SlowLake-v0", make)


def poisoned(observation: Any) -> int:
    """A default policy that raises an error in state 9, which no episode begins in."""
    if int(observation) == 9:
        raise RuntimeError("poisoned")
    return int(observation) % 4
