"""The paper's two grid worlds, as Gymnasium environments with a transition table `P`, and any finite model as one.

Importing this package registers the grid worlds, so that `gymnasium.make` finds them by id.
"""

import gymnasium as gym

from lazymdp.envs.key_door_treasure import KeyDoorTreasure
from lazymdp.envs.model_world import ModelWorld
from lazymdp.envs.rivers_and_bridges import RiversAndBridges

__all__ = ["KeyDoorTreasure", "ModelWorld", "RiversAndBridges"]


def __dir__() -> list[str]:
    return __all__


# Entry points are strings, not classes, so that `env.spec.to_json()` works.
gym.register(
    id="lazymdp/RiversAndBridges-v0",
    entry_point="lazymdp.envs.rivers_and_bridges:RiversAndBridges",
    max_episode_steps=1000,
)
gym.register(
    id="lazymdp/KeyDoorTreasure-v0",
    entry_point="lazymdp.envs.key_door_treasure:KeyDoorTreasure",
    max_episode_steps=1000,
)
