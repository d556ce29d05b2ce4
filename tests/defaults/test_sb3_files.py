"""Files of Stable-Baselines3, as far as they can be read without it."""

import json
import sys
import zipfile

import numpy as np
import pytest
from echo_env import EchoEnv

from lazymdp.wrappers.lazy_action import LazyAction


def write_zip(path, settings):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data", json.dumps(settings))


def test_a_file_that_is_no_model_is_refused(tmp_path):
    other = tmp_path / "model.npz"
    other.write_bytes(b"not a zip")
    with pytest.raises(ValueError, match="model.npz is not a model saved by Stable-Baselines3"):
        LazyAction(EchoEnv(), other)
    np.savez(tmp_path / "arrays.npz", table=np.zeros(3))
    with pytest.raises(ValueError, match="arrays.npz is not a model saved by Stable-Baselines3"):
        LazyAction(EchoEnv(), str(tmp_path / "arrays.npz"))
    for settings in ({}, {"clip_range": 0.2, "policy_class": {"__module__": "sb3_contrib.ppo_mask.policies"}}):
        write_zip(tmp_path / "strange.zip", settings)
        with pytest.raises(ValueError, match="not a PPO, A2C or DQN model: load it yourself"):
            LazyAction(EchoEnv(), tmp_path / "strange.zip")


def test_without_stable_baselines_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    write_zip(
        tmp_path / "m.zip", {"clip_range": 0.2, "policy_class": {"__module__": "stable_baselines3.common.policies"}}
    )
    with pytest.raises(ImportError, match=r'pip install "lazymdp\[sb3\]"'):
        LazyAction(EchoEnv(), str(tmp_path / "m"))
