"""The grid worlds, one after the other."""

from typing import Any

import gymnasium as gym
import pytest

from lazymdp.envs.grid import GridWorld

WORLDS: list[tuple[str, dict[str, Any]]] = [
    ("lazymdp/RiversAndBridges-v0", {}),
    ("lazymdp/RiversAndBridges-v0", {"layout": ["S~G", ".=."]}),
    ("lazymdp/KeyDoorTreasure-v0", {}),
    ("lazymdp/KeyDoorTreasure-v0", {"apple": True}),
    ("lazymdp/KeyDoorTreasure-v0", {"layout": "K.S.D.T"}),
]


@pytest.fixture(params=WORLDS, ids=str)
def env(request: pytest.FixtureRequest) -> GridWorld:
    """Each world in turn, without Gymnasium's wrappers but with its spec."""
    env_id, kwargs = request.param
    world = gym.make(env_id, **kwargs).unwrapped
    assert isinstance(world, GridWorld)
    return world
