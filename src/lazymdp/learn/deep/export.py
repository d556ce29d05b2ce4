"""Export of trained agents: the network alone, in half precision, in a small folder that can be shared.

The folder of a run also holds what training needs to continue: the state of the optimizer and, for `dqn`, the replay
buffer, which takes gigabytes on Atari. An exported agent is a folder of the same form that holds only the config and
the parameters of the network, rounded to 16 bits. It can be loaded and evaluated, but not resumed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_choice
from lazymdp.learn.deep.run_folder import CHECKPOINTS, Checkpoint, RunFolder
from lazymdp.learn.deep.train_config import TrainConfig

NEWEST, AVERAGE = ".learner.parameters", ".learner.average"
"""Beginnings of the names of parameters: those of the newest network, and those of the average if a run has one."""
_PRICE = ".price.low"


def export(run: str | os.PathLike[str], folder: str | os.PathLike[str], which: str = "last") -> None:
    """Writes the agent of a run, in half precision and without the state of its training, into another folder.

    Args:
        run: Folder of the run.
        folder: Folder to write; it must not hold a run.
        which: The `last` or the `best` checkpoint.
    """
    check_choice(which, "which", CHECKPOINTS)
    source = RunFolder(run)
    config, checkpoint = source.config(), source.read(which)
    if checkpoint is None:
        raise FileNotFoundError(f"{source.path} has no {which} checkpoint yet.")
    source.check_copies()
    write_agent(config, checkpoint.arrays, checkpoint.step, folder)


def write_agent(
    config: TrainConfig, arrays: Mapping[str, NDArray[Any]], step: int, folder: str | os.PathLike[str]
) -> None:
    """Writes an agent, given the config and the state of its run.

    Args:
        config: The run.
        arrays: State of the run, by name.
        step: Agent steps of the run.
        folder: Folder to write; it must not hold a run.
    """
    target = RunFolder(folder)
    with target.claimed():
        if target.step() is not None:
            raise FileExistsError(f"{target.path} holds a run or an agent already: give another folder.")
        target.create(config)
        target.save_agent(Checkpoint(agent_arrays(arrays), step))


def agent_arrays(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns the part of the state of a run that an agent needs: its network, in half precision, and its price."""
    kept = {f"{NEWEST}{name}": _half(name, array) for name, array in agent_parameters(arrays).items()}
    return {**kept, _PRICE: np.asarray(arrays[_PRICE])}


def agent_parameters(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Returns the network parameters of the agent of a run by name: the average if there is one, else the newest."""
    average = any(name.startswith(AVERAGE) for name in arrays)
    prefix = AVERAGE if average else NEWEST
    return {name[len(prefix) :]: leaf for name, leaf in arrays.items() if name.startswith(prefix)}


def _half(name: str, array: NDArray[Any]) -> NDArray[np.float16]:
    """Rounds numbers to half precision; raises an error if they are too large for it."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(array).astype(np.float16)
    if not np.isfinite(rounded).all():
        raise ValueError(f"{name} has the entry {np.abs(array).max():g}, expected at most 65504 for half precision.")
    return rounded
