"""Agents that are given by name: a run, a model, a Stable-Baselines3 file, or an object in a Python module."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, NamedTuple

from lazymdp import learn
from lazymdp._arguments import check_flag
from lazymdp.defaults.sb3 import load_stable_baselines
from lazymdp.envs.loading import load_model
from lazymdp.envs.model_world import ModelWorld
from lazymdp.learn.deep.run_folder import RunFolder
from lazymdp.learn.deep.trust import CONFIG, FUNCTION, Untrusted


class NamedAgent(NamedTuple):
    """An agent that was found by its name."""

    agent: Any
    """The agent: of `lz.learn`, a model, or any object."""
    name: str | None
    """Description of the agent, if it has none itself."""
    env: Any
    """Environment that belongs to the agent, if one has to be made."""
    default_name: str | None
    """Name of the default policy of a run."""


def find_agent(text: str | os.PathLike[str], gamma: float | None, trust: bool) -> NamedAgent:
    """Finds an agent by its name.

    Args:
        text: The folder of a run; a `.zip` file of Stable-Baselines3; `module:object`; or a model, as an `.npz` file, a
            text file with a map, or the id of an environment with a transition table.
        gamma: Discount of the model of a map or an environment.
        trust: Allow code to run: that of a Stable-Baselines3 file, of a module, or code that a run names.
    """
    path, name = Path(text), os.fspath(text)
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise ValueError(f"agent is {name}, which is not the folder of a run: it has no {CONFIG}.")
        agent = learn.load(path, trust=trust)
        return NamedAgent(agent, None, None, RunFolder(path).config().default_policy)
    if path.suffix == ".zip":
        if not path.is_file():
            raise FileNotFoundError(f"agent is {name}, but there is no such file.")
        _check_trust(f"{name} was not loaded: it is a pickle, and to read it can run code.", trust)
        return NamedAgent(load_stable_baselines(path), f"Stable-Baselines3 {path.name}", None, None)
    if FUNCTION.fullmatch(name) and not path.exists():
        _check_trust(f"{name} was not loaded: to import a module runs its code.", trust)
        return NamedAgent(_imported(name), name, None, None)
    try:
        source = load_model(text, gamma)
    except ValueError as error:
        if path.exists():
            raise
        other = "An agent may also be the folder of a run, a .zip file of Stable-Baselines3, or module:object."
        raise ValueError(f"{error} {other}") from error
    env: Any = source.world if path.is_file() else name
    if env is None:  # the file of a model, which is no environment's
        env = ModelWorld(source.mdp, name=source.name)
    return NamedAgent(source.mdp, None, env, None)


def _check_trust(reason: str, trust: bool) -> None:
    if not check_flag(trust, "trust"):
        raise Untrusted(reason, "give trust=True.")


def _imported(text: str) -> Any:
    module, _, name = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(f"agent is {text!r}, but the module {module} cannot be imported: {error}.") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"agent is {text!r}, but {getattr(found, '__file__', module)} defines no {name}.")
        found = getattr(found, part)
    return found
