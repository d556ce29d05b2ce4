"""The HTML of the explorer: self-contained, safe with any name, refused if it would be too large."""

import re
from importlib import resources

import numpy as np
import pytest
from random_models import NOT_INDEXABLE, random_model
from reading import array_of, data_of

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure, RiversAndBridges
from lazymdp.show.explorer import explorer


def path_of(world, gamma=0.99):
    mdp = lz.MDP.from_gymnasium(world, gamma)
    return lz.eta_path(mdp, lz.policies.uniform(mdp))


@pytest.fixture(scope="module")
def world():
    return KeyDoorTreasure()


@pytest.fixture(scope="module")
def path(world):
    return path_of(world)


@pytest.fixture(scope="module")
def page(path, world):
    return explorer(path, world=world, title="Key-Door-Treasure")


def test_the_page_is_one_small_ascii_document(page):
    assert page.startswith("<!doctype html>")
    assert page.isascii()  # reads the same in whatever encoding it is written
    assert len(page) < 3e6
    assert "@@" not in page
    assert "<title>Key-Door-Treasure</title>" in page


def test_the_page_carries_the_license_of_what_it_embeds(page):
    license = resources.files("lazymdp.show").joinpath("assets", "uPlot.LICENSE").read_text().strip()
    assert "Leon Sorokin" in license
    assert f"<script>/*\n{license}\n*/" in page
    assert f"<pre>{license}</pre>" in page


def test_the_page_refers_to_nothing_outside(page):
    links = re.findall(r"""\b(?:src|href|formaction|poster|srcset)\s*=\s*["']?([^"'\s>]*)""", page)
    assert set(links) == {"data:,"}
    assert not re.search(
        r"url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|\bimport\(|import ", page
    )
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\s\"'<)]*", page)) == {"https://github.com/leeoniya/uPlot"}  # in a comment


def test_the_page_holds_the_path_itself(page, path):
    data = data_of(page)
    for name, expected in (
        ("breakpoints", path.breakpoints),
        ("switches", path.switches),
        ("startValues", path.start_base_values),
        ("startCounts", path.start_control_counts),
        ("criticalEta", path.critical_eta),
        ("rewards", path.mdp.rewards),
        ("defaultPolicy", path.default_policy),
    ):
        np.testing.assert_array_equal(array_of(data[name]), expected.ravel(), err_msg=name)
    np.testing.assert_array_equal(array_of(data["keyframes"]), np.arange(150))  # a small page holds all lines
    values, counts = (array_of(data[name]).reshape(-1, path.mdp.n_states) for name in ("values", "counts"))
    edges = np.concatenate([[0.0], path.breakpoints, [1.0]])
    for segment, eta in enumerate(0.5 * (edges[1:] + edges[:-1])):
        np.testing.assert_allclose(values[segment] - eta * counts[segment], path.value_at(eta), atol=1e-12)
        np.testing.assert_allclose(counts[segment], path.control_count_at(eta), atol=1e-12)


def test_the_layers_of_a_map_hold_each_state_once(page, world):
    shown = data_of(page)["world"]
    assert [layer["name"] for layer in shown["layers"]] == ["without the key", "with the key"]
    for layer, key in zip(shown["layers"], (False, True), strict=True):
        np.testing.assert_array_equal(layer["states"], np.flatnonzero(world.has_key == key))
    rivers = RiversAndBridges()
    (only,) = data_of(explorer(path_of(rivers), world=rivers))["world"]["layers"]
    assert only == {"name": "", "states": list(range(75))}


class Storeys:
    """A world with two states on each cell and no `has_key` that would name the two layers."""

    layout = ("S.", ".G")
    cells = np.array([[0, 0], [0, 1], [1, 0], [0, 0], [0, 1], [1, 0]])
    action_names = ("up", "right", "down")


def test_states_that_share_a_cell_are_spread_over_layers():
    model = random_model(1)
    shown = data_of(explorer(lz.eta_path(model.mdp, model.default), world=Storeys()))["world"]["layers"]
    assert shown == [{"name": "layer 1", "states": [0, 1, 2]}, {"name": "layer 2", "states": [3, 4, 5]}]


def test_names_and_titles_cannot_become_markup():
    evil = "</script><script>alert(1)</script> \"'&\u2028é"
    model = random_model(0, n_states=3)
    mdp = lz.MDP(
        model.transitions,
        model.rewards,
        0.9,
        state_names=[evil, "@@DATA@@", "plain"],
        action_names=[evil, "b", "c"],
    )
    page = explorer(lz.eta_path(mdp, model.default), title=evil)
    assert "alert(1)</script>" not in page
    assert "<title>&lt;/script&gt;&lt;script&gt;alert(1)" in page
    assert page.isascii()
    data = data_of(page)
    assert (data["title"], data["stateNames"], data["actionNames"][0]) == (evil, [evil, "@@DATA@@", "plain"], evil)


def test_states_that_are_not_indexable_come_with_their_intervals():
    path = lz.eta_path(NOT_INDEXABLE.mdp, NOT_INDEXABLE.default)
    assert data_of(explorer(path))["intervals"] == {"1": [list(pair) for pair in path.control_intervals(1)]}


def test_the_world_must_be_that_of_the_model(path):
    with pytest.raises(ValueError, match="world has 75 states, but the path's model has 206"):
        explorer(path, world=RiversAndBridges())


def test_a_page_has_one_map_only(path, world):
    with pytest.raises(ValueError, match="world and axes are both given"):
        explorer(path, world=world, axes={"cell": 206})


def test_the_page_describes_its_axes(path):
    data = data_of(explorer(path, axes={"key": 2, "cell": 103}))
    assert data["axes"] == [{"name": "key", "size": 2}, {"name": "cell", "size": 103}]
    assert data["world"] is None


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        (
            {"wear": 20, "jobs": 6},
            r"axes \(wear, jobs\) give 20 x 6 = 120 states, but the path's model has 206\. Only one",
        ),
        ({"wear": 20}, r"axes \(wear\) give 20 states, but the path's model has 206"),
        ({"wear": 5, "jobs": 41}, r"5 x 41 = 205 states, .* 206.*, but state 205 is not absorbing"),
        ({"wear": 206.0}, r"axes\['wear'\] is 206.0, expected the number of values"),
        ({"wear": 0, "jobs": 206}, r"axes\['wear'\] is 0, expected"),
        ({}, "axes has 0 entries"),
        ({"a": 206, "b": 1, "c": 1, "d": 1}, "axes has 4 entries, but a map has one to 3 axes"),
    ],
)
def test_axes_that_do_not_fit_are_refused(path, axes, message):
    with pytest.raises(ValueError, match=message):
        explorer(path, axes=axes)


def test_one_absorbing_state_may_follow_the_product():
    mdp = lz.MDP(np.eye(5)[[[1, 2], [3, 4], [4, 4], [4, 0], [4, 4]]], [[0.0, 1.0]] * 4 + [[0.0, 0.0]], 0.9)
    explorer(lz.eta_path(mdp, lz.policies.uniform(mdp)), axes={"a": 2, "b": 2})
