"""Stable-Baselines3 models as default policies."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from lazymdp.defaults.forms import Actions, FromPredict, Probabilities, bounds, check_rows, draw


class FromActorCritic:
    """Samples from the probabilities of a Stable-Baselines3 actor-critic (PPO, A2C) with the wrapper's generator."""

    def __init__(self, model: Any, action_space: spaces.Discrete) -> None:
        self.model, self.action_space = model, action_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """Returns `[B]` actions."""
        return draw(self.probabilities(observations, last_actions), rng, self.action_space)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """Returns `[B, A]` probabilities."""
        import torch

        self.model.policy.set_training_mode(False)
        with torch.no_grad():
            tensor, _ = self.model.policy.obs_to_tensor(observations)
            rows = self.model.policy.get_distribution(tensor).distribution.probs
        return check_rows(rows.cpu().numpy().astype(np.float64), self.action_space)


def is_stable_baselines(model: Any) -> bool:
    """Returns whether an object is a Stable-Baselines3 model, without importing the library."""
    library = sys.modules.get("stable_baselines3.common.base_class")
    return library is not None and isinstance(model, library.BaseAlgorithm)


def from_stable_baselines(model: Any, action_space: spaces.Discrete) -> FromPredict | FromActorCritic:
    """Returns a Stable-Baselines3 model as a default policy, and raises an error if its actions are others."""
    made_for = model.action_space
    if not isinstance(made_for, spaces.Discrete) or bounds(made_for) != bounds(action_space):
        raise ValueError(f"default_policy is a model for {made_for}, but this environment has {action_space}.")
    return (FromActorCritic if hasattr(model.policy, "get_distribution") else FromPredict)(model, action_space)


_MARKS = {"PPO": "clip_range", "DQN": "exploration_fraction", "A2C": "gae_lambda"}
"""A setting that identifies the algorithm of a saved model. PPO comes first, because it has A2C's setting too."""


def model_file(path: str | os.PathLike[str]) -> Path | None:
    """Returns the file that a path names, with or without the suffix `.zip`, or None if there is no such file."""
    candidates = (Path(path), Path(f"{os.fspath(path)}.zip"))  # SB3 adds the suffix, too
    return next((file for file in candidates if file.is_file()), None)


def load_stable_baselines(path: str | os.PathLike[str]) -> Any:
    """Loads a PPO, A2C or DQN model that Stable-Baselines3 has saved.

    Load only files that you trust: the loader of Stable-Baselines3 unpickles, so that a file can run any code. (Nothing
    else in lazymdp reads a pickle.) The statistics of `VecNormalize` are not in the file; pass a model that needs them
    as a callable.
    """
    file = model_file(path)
    if file is None:
        given = os.fspath(path)
        run = f" For the agent of a run, give lz.learn.load({given!r}).as_default()." if os.path.isdir(path) else ""
        raise ValueError(
            f"default_policy is {given!r}, expected 'uniform', 'noop', 'repeat', or the path of a model saved by "
            f"Stable-Baselines3 (.zip).{run}"
        )
    try:
        with zipfile.ZipFile(file) as archive:
            settings = json.loads(archive.read("data"))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ValueError(f"{file} is not a model saved by Stable-Baselines3 (.zip): {error}") from error
    name = next((name for name, mark in _MARKS.items() if mark in settings), None)
    if name is None or not settings["policy_class"]["__module__"].startswith("stable_baselines3."):
        raise ValueError(f"{file} is not a PPO, A2C or DQN model: load it yourself and pass the model.")
    try:
        import stable_baselines3
    except ImportError as error:
        raise ImportError(f'{file} needs Stable-Baselines3: pip install "lazymdp[sb3]"') from error
    return getattr(stable_baselines3, name).load(file)
