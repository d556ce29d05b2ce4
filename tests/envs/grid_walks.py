"""The grid worlds under test, and walks through them."""

from typing import Any

import gymnasium as gym
import numpy as np

from lazymdp.envs import KeyDoorTreasure
from lazymdp.envs.grid import GridWorld

UP, RIGHT, DOWN, LEFT = range(4)


def bare(env: gym.Env[Any, Any]) -> GridWorld:
    """Returns the world inside Gymnasium's wrappers."""
    assert isinstance(env.unwrapped, GridWorld)
    return env.unwrapped


def state_at(env: GridWorld, row: int, column: int, key: bool = False) -> int:
    """Returns the state of a cell; `key` matters only in worlds with a key."""
    on_cell = (env.cells == (row, column)).all(axis=1)
    if isinstance(env, KeyDoorTreasure):
        on_cell &= env.has_key == key
    (state,) = np.flatnonzero(on_cell)
    return int(state)


def walk(env: GridWorld, actions: list[int]) -> tuple[list[int], float, bool]:
    """Returns the states visited from the start, the sum of the rewards, and whether the episode has terminated."""
    states, total, terminated = [env.reset()[0]], 0.0, False
    for action in actions:
        assert not terminated
        state, reward, terminated, _, _ = env.step(action)
        states.append(state)
        total += reward
    return states, total, terminated
