"""Loads models by name: a file of `MDP.save`, a text file with a map, or the id of a Gymnasium environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym

from lazymdp.envs import KeyDoorTreasure, RiversAndBridges, grid
from lazymdp.envs.grid import GridWorld, place
from lazymdp.mdp import MDP

_LARGEST_MAP = 1_000_000  # characters; a longer file is something else, named by mistake


class Source(NamedTuple):
    """A model and its origin.

    Attributes:
        mdp: The model.
        name: A name for titles.
        world: The grid world that the model describes, or None.
    """

    mdp: MDP
    name: str
    world: GridWorld | None


def load_model(source: str | os.PathLike[str], gamma: float | None = None) -> Source:
    """Loads a model.

    Args:
        source: An `.npz` file written by `MDP.save`, a text file with a map of Key-Door-Treasure or Rivers & Bridges,
            or the id of a Gymnasium environment with a transition table `P`.
        gamma: Discount of a map or an environment, by default 0.99; an `.npz` file contains its own.
    """
    path = Path(source)
    if path.suffix == ".npz":
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}.")
        mdp = MDP.load(path)
        if gamma is not None and gamma != mdp.gamma:
            raise ValueError(f"gamma is {gamma}, but {path} was saved with gamma = {mdp.gamma}: omit gamma.")
        return Source(mdp, path.stem, None)
    discount = 0.99 if gamma is None else gamma
    if path.is_file():
        world = read_map(path)
        return Source(MDP.from_gymnasium(world, discount), path.stem, world)
    try:
        env = gym.make(str(source))
    except gym.error.Error as error:
        raise ValueError(
            f"{source} is neither a file nor a Gymnasium environment ({error}). Use an .npz file saved by MDP.save, "
            "a text file with a map, or an id such as FrozenLake-v1."
        ) from error
    base = env.unwrapped
    name_toy_text(base)
    mdp = MDP.from_gymnasium(env, discount)
    return Source(mdp, str(source), base if isinstance(base, GridWorld) else None)


def name_toy_text(env: Any) -> None:
    """Adds names of states and actions to Gymnasium's tabular worlds, which have none."""
    entry = type(env).__name__
    if entry in ("FrozenLakeEnv", "CliffWalkingEnv"):
        shape = env.desc.shape if entry == "FrozenLakeEnv" else env.shape
        cells = [divmod(state, shape[1]) for state in range(shape[0] * shape[1])]
        kinds = {b"S": ", start", b"H": ", hole", b"G": ", goal"}
        drawn = env.desc.ravel().tolist() if entry == "FrozenLakeEnv" else [b""] * len(cells)
        env.state_names = [f"({place(*cell)}){kinds.get(kind, '')}" for cell, kind in zip(cells, drawn, strict=True)]
        env.action_names = ("left", "down", "right", "up") if entry == "FrozenLakeEnv" else grid.ACTION_NAMES
    elif entry == "TaxiEnv":
        stands = ("red", "green", "yellow", "blue")
        where = (*(f"at {stand}" for stand in stands), "aboard")
        decoded = (tuple(env.decode(state)) for state in range(env.observation_space.n))
        env.state_names = [
            f"({row}, {column}), passenger {where[passenger]}, to {stands[destination]}"
            for row, column, passenger, destination in decoded
        ]
        env.action_names = ("south", "north", "east", "west", "pick up", "drop off")


def read_map(path: str | os.PathLike[str]) -> GridWorld:
    """Returns the world of a map in a text file.

    A map with water, a bridge or a goal `G` is Rivers & Bridges; any other is Key-Door-Treasure.
    """
    try:
        if os.path.getsize(path) > _LARGEST_MAP:
            raise ValueError(f"{path} is too large to be a map (over {_LARGEST_MAP:,} characters).")
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text file, so not a map; a saved model ends in .npz.") from error
    try:
        if set(text) & set("~=G"):
            return RiversAndBridges(layout=text)
        return KeyDoorTreasure(layout=text, apple="A" in text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
