"""Models in files, and the JSON that a command prints."""

import json

import numpy as np
import pytest

import lazymdp as lz
from lazymdp.cli.main import main

MAP = """
    #######
    #S..K.#
    ###D###
    #....T#
    #######
"""


@pytest.fixture
def answer(capsys):
    """A function that runs a command with `--json` and returns its exit code and what it printed."""

    def run(*arguments):
        code = main([*arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def files(tmp_path):
    """A folder with a saved model, a map and a default policy."""
    world = lz.envs.RiversAndBridges()
    mdp = lz.MDP.from_gymnasium(world, 0.9)
    mdp.save(tmp_path / "rivers.npz")
    (tmp_path / "house.txt").write_text(MAP)
    np.save(tmp_path / "default.npy", lz.policies.optimal(mdp))
    return tmp_path
