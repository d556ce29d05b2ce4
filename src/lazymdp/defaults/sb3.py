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
    """A Stable-Baselines3 model that knows its probabilities (PPO, A2C), which the wrapper's generator then draws."""

    def __init__(self, model: Any, action_space: spaces.Discrete) -> None:
        self.model, self.action_space = model, action_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """`[B]` actions."""
        return draw(self.probabilities(observations, last_actions), rng, self.action_space)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """`[B, A]`."""
        import torch

        self.model.policy.set_training_mode(False)
        with torch.no_grad():
            tensor, _ = self.model.policy.obs_to_tensor(observations)
            rows = self.model.policy.get_distribution(tensor).distribution.probs
        return check_rows(rows.cpu().numpy().astype(np.float64), self.action_space)


def is_stable_baselines(model: Any) -> bool:
    """Whether this is a model of Stable-Baselines3; if it is, the library is already imported."""
    library = sys.modules.get("stable_baselines3.common.base_class")
    return library is not None and isinstance(model, library.BaseAlgorithm)


def from_stable_baselines(model: Any, action_space: spaces.Discrete) -> FromPredict | FromActorCritic:
    """A model of Stable-Baselines3, checked to be made for these actions."""
    made_for = model.action_space
    if not isinstance(made_for, spaces.Discrete) or bounds(made_for) != bounds(action_space):
        raise ValueError(f"default_policy is a model for {made_for}, but this environment has {action_space}.")
    return (FromActorCritic if hasattr(model.policy, "get_distribution") else FromPredict)(model, action_space)


_MARKS = {"PPO": "clip_range", "DQN": "exploration_fraction", "A2C": "gae_lambda"}
"""A setting by which a saved model shows its algorithm; PPO is asked first, as it has A2C's too."""


def load_stable_baselines(path: str | os.PathLike[str]) -> Any:
    """A PPO, A2C or DQN model saved by Stable-Baselines3.

    The library's own loader unpickles, so a file can run any code: load only files you trust. (Nothing else in
    lazymdp reads a pickle.) Statistics of `VecNormalize` are not in the file; a default that needs them is a callable.
    """
    file = Path(path) if Path(path).is_file() else Path(f"{os.fspath(path)}.zip")  # as SB3 does
    if not file.is_file():
        raise ValueError(
            f"default_policy is {os.fspath(path)!r}, which is neither 'uniform', 'noop' or 'repeat' nor a file: "
            "a path must lead to a model saved by Stable-Baselines3 (.zip)."
        )
    try:
        with zipfile.ZipFile(file) as archive:
            settings = json.loads(archive.read("data"))
    except (zipfile.BadZipFile, KeyError, ValueError) as error:
        raise ValueError(f"{file} is not a model saved by Stable-Baselines3 (.zip): {error}") from error
    name = next((name for name, mark in _MARKS.items() if mark in settings), None)
    if name is None or not settings["policy_class"]["__module__"].startswith("stable_baselines3."):
        raise ValueError(f"{file} is not a PPO, A2C or DQN model: load it yourself and give the model.")
    try:
        import stable_baselines3
    except ImportError as error:
        raise ImportError(f'{file} needs Stable-Baselines3: pip install "lazymdp[sb3]"') from error
    return getattr(stable_baselines3, name).load(file)
