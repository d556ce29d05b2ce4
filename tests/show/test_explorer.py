"""The HTML of the explorer: self-contained, safe with any name, refused if it would be too large."""

import base64
import dataclasses
import json
import re
from importlib import resources

import numpy as np
import pytest
from random_models import NOT_INDEXABLE, random_model

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


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def array_of(packed):
    return np.frombuffer(base64.b64decode(packed["base64"]), dtype="<" + packed["type"])


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


def test_a_page_too_large_is_refused_before_it_is_made(path):
    many = dataclasses.replace(path, breakpoints=np.linspace(0.1, 1.0, 9999))
    with pytest.raises(ValueError, match=r"about 44 MB, more than 20: 43.9 MB for 10000 policies of 206 .*tol="):
        explorer(many)


def test_the_world_must_be_that_of_the_model(path):
    with pytest.raises(ValueError, match="world has 75 states, but the path's model has 206"):
        explorer(path, world=RiversAndBridges())
