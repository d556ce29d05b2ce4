"""What the config of a run may name: files inside its folder, and, if the user trusts the run, code.

A folder may come from someone else. To make an environment `module:Id-v0` or a default policy `module:function` imports
a module, and a Stable-Baselines3 model is a pickle: both run code. Whoever starts a run has named them and needs no
permission. Whoever reads the folder of a run must give it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from lazymdp._arguments import check_flag
from lazymdp.defaults.sb3 import model_file
from lazymdp.learn.deep.train_config import GIVEN_IN_PYTHON, WORDS, TrainConfig

CONFIG = "config.json"
COPIES = ("default", "warm_start")
"""Folders inside the folder of a run that hold its own copies of other runs and models."""
FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
"""A default policy of the form `module:function`."""


class Untrusted(ValueError):
    """A run would run code, and the user has not said that it is trusted.

    Args:
        reason: The code that would run.
        remedy: The call that allows it.

    Attributes:
        reason: The code that would run.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason} If you trust whoever made it: {remedy}")
        self.reason = reason


def check_trusted(
    folder: Path, config: TrainConfig, trust: bool, call: str, *, env: bool = True, default_policy: bool = True
) -> None:
    """Raises `Untrusted` if a run would run code, unless the user trusts it.

    Args:
        folder: Folder of the run.
        config: Its config.
        trust: Whether the user trusts the run.
        call: The name of the function that was called, for the message.
        env: Whether the environment of the run is made.
        default_policy: Whether the default policy of the run is made.
    """
    code = foreign_code(config, env, default_policy)
    if not check_flag(trust, "trust") and code is not None:
        raise Untrusted(f"{folder} was not loaded: {code}.", f"{call}({str(folder)!r}, trust=True)")


def foreign_code(config: TrainConfig, env: bool = True, default_policy: bool = True) -> str | None:
    """Returns which code a run would run, in words, or None if it would run none.

    Args:
        config: The config of the run, as read from its folder.
        env: Whether the environment of the run is made.
        default_policy: Whether the default policy of the run is made.
    """
    if env and names_module(config.env, config.env_kwargs):
        given = f" with {config.env_kwargs}" if config.env_kwargs else ""
        return f"its environment is {config.env}{given}, and to make it imports a module, which runs code"
    if not default_policy or is_known(config.default_policy):
        return None
    if FUNCTION.fullmatch(config.default_policy):
        return f"its default policy is the function {config.default_policy}, and to import it runs code"
    if model_file(config.default_policy) is not None:
        return f"its default policy {Path(config.default_policy).name} is a pickle, and to read it can run code"
    return None


def inside(folder: Path, text: str) -> str:
    """Returns a path that the config in a folder names; raises an error if it leads out of the folder."""
    first, _, file = text.removeprefix("./").partition("/")
    name, path = first.partition(":")[0], os.path.join(folder, first, file) if file else os.path.join(folder, first)
    plain = text.startswith("./") and name in COPIES and file == Path(file).name and file != ".."
    places = folder / name / file, Path(path)  # a folder may have the name `default:epsilon=0.1`
    if not plain or not all(place.resolve().is_relative_to(folder.resolve()) for place in places):
        raise ValueError(
            f"{folder / CONFIG} names {text!r}, which is not a file inside the folder: a run may use only its own "
            f"copies, in {' and '.join(COPIES)}."
        )
    return path


def find_run(default_policy: str) -> tuple[Path, str] | None:
    """Splits a default policy into the folder of a run and the text after the colon; returns None if it is no run."""
    folder, _, manner = default_policy.rpartition(":")
    for path, how in ((default_policy, ""), (folder, manner)):  # the name of the folder may contain a colon
        if path and (Path(path) / CONFIG).is_file():
            return Path(path), how
    return None


def names_module(env: str, env_kwargs: Any = None) -> bool:
    """Returns whether to make an environment would import a module that it names, as in `module:Id-v0`."""
    if isinstance(env_kwargs, dict | list | tuple):
        values = env_kwargs.values() if isinstance(env_kwargs, dict) else env_kwargs
        return ":" in env or any(names_module("", value) for value in values)
    return ":" in env or (isinstance(env_kwargs, str) and ":" in env_kwargs)


def names_function(default_policy: str) -> bool:
    """Returns whether a default policy is a function, `module:function`, and not a run or a file."""
    named = FUNCTION.fullmatch(default_policy)
    return named is not None and find_run(default_policy) is None and model_file(default_policy) is None


def is_known(default_policy: str) -> bool:
    """Returns whether a default policy is a word, an action, or was given in Python."""
    return default_policy in (*WORDS, GIVEN_IN_PYTHON) or re.fullmatch(r"-?\d+", default_policy) is not None
