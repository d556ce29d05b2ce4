"""Models by name: a file, a map, or the id of an environment."""

import numpy as np
import pytest

import lazymdp as lz
from lazymdp.envs.loading import load_model, read_map

MAP = """
    #######
    #S..K.#
    ###D###
    #....T#
    #######
"""


def test_a_saved_model_keeps_its_own_gamma(tmp_path):
    mdp = lz.MDP.from_gymnasium(lz.envs.RiversAndBridges(), 0.9)
    mdp.save(tmp_path / "rivers.npz")
    for gamma in (None, 0.9):
        found = load_model(tmp_path / "rivers.npz", gamma)
        assert (found.mdp.gamma, found.name, found.world) == (0.9, "rivers", None)
        np.testing.assert_array_equal(found.mdp.rewards, mdp.rewards)
    with pytest.raises(ValueError, match=r"gamma is 0\.5, but .*rivers\.npz was saved with gamma = 0\.9"):
        load_model(tmp_path / "rivers.npz", 0.5)
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.npz"):
        load_model(tmp_path / "none.npz")


def test_a_map_says_which_world_it_is(tmp_path):
    (tmp_path / "house.txt").write_text(MAP)
    house = load_model(tmp_path / "house.txt", 0.9)
    assert isinstance(house.world, lz.envs.KeyDoorTreasure)
    assert (house.mdp.n_states, house.mdp.gamma, house.name) == (22, 0.9, "house")
    (tmp_path / "apple.txt").write_text("SA.T")
    assert read_map(tmp_path / "apple.txt").layout == ("SA.T",)
    (tmp_path / "river.txt").write_text("S=G")
    assert isinstance(read_map(tmp_path / "river.txt"), lz.envs.RiversAndBridges)


def test_an_id_gives_the_model_and_the_grid_world_behind_it():
    found = load_model("lazymdp/KeyDoorTreasure-v0")
    assert isinstance(found.world, lz.envs.KeyDoorTreasure) and found.mdp.gamma == 0.99
    lake = load_model("FrozenLake-v1")
    assert lake.world is None and lake.name == "FrozenLake-v1"
    assert lake.mdp.describe_state(15) == "state 15 (row 3, column 3), goal"
    assert lake.mdp.action_names == ("left", "down", "right", "up")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bad.txt", b"S?G", r"bad\.txt: layout has '\?' at row 0, column 1"),
        ("binary", b"\xff\xfe\x00", "binary is not a text file"),
        ("long.txt", b"." * 1_000_001, r"long\.txt is too large to be a map"),
        ("nowhere-v0", None, "nowhere-v0 is neither a file nor a Gymnasium environment"),
    ],
)
def test_anything_else_is_refused_by_name(tmp_path, monkeypatch, name, content, message):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_model(name)
