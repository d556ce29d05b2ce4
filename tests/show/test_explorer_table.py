"""The explorer of any other model in a real browser, and how the page looks."""

import re

import numpy as np
import pytest
from random_models import NOT_INDEXABLE, random_model
from reading import column, type_eta

import lazymdp as lz
from lazymdp.show.explorer import explorer

pytestmark = pytest.mark.browser


def test_a_model_without_a_map_gets_a_table_that_sorts(show, taxi):
    page = show(explorer(taxi, title="Taxi"))
    assert page.is_hidden("#map-panel")
    assert page.is_visible("#states")
    eta = 30.0
    type_eta(page, eta)
    control = taxi.action_at(eta) < 6
    assert page.text_content("#control-count") == str(control.sum())
    assert page.locator("#states tbody tr").count() == 200
    np.testing.assert_array_equal(
        [int(s) for s in column(page, "number")], np.lexsort((np.arange(501), -taxi.critical_eta))[:200]
    )
    page.click("#more")
    page.click("#more")
    assert page.is_hidden("#more")
    assert page.locator('#states tr[data-control="true"]').count() == control.sum()
    values = taxi.value_at(eta)
    for key, expected in (("value", values), ("count", taxi.control_count_at(eta)), ("number", np.arange(501.0))):
        for order in ("first", "second"):
            page.click(f'#states th[data-key="{key}"] button')
            falling = page.get_attribute(f'#states th[data-key="{key}"]', "aria-sort") == "descending"
            assert falling == ((order == "first") == (key != "number"))
            found = np.array([int(s) for s in column(page, "number")])
            assert sorted(found) == list(range(501))
            steps = np.diff(expected[found])
            assert ((steps <= 1e-9) if falling else (steps >= -1e-9)).all()
            np.testing.assert_allclose([float(x) for x in column(page, key)], expected[found], rtol=1e-3, atol=1e-9)
    page.fill("#filter", "lazy")
    assert page.text_content("#matches") == f"{500 - control.sum()} of 501 states"
    page.fill("#filter", "17")
    assert column(page, "number") == ["17"]
    page.focus("#states tbody tr")
    assert page.get_attribute("#card", "data-state") == "17"


def test_names_are_shown_as_text(show):
    evil = "<script>document.title='taken'</script><b>&amp; \u00e9\u4e2d"
    model = random_model(3, n_states=5)
    mdp = lz.MDP(
        model.transitions,
        model.rewards,
        0.9,
        state_names=[evil, "a", "b", "c", "d"],
        action_names=[evil, "x", "y"],
    )
    page = show(explorer(lz.eta_path(mdp, model.default), title=evil))
    assert page.title() == evil
    assert page.text_content("h1") == evil
    assert evil in column(page, "name")
    page.hover('#states tr[data-state="0"]')
    assert page.text_content("#card h2").startswith(evil)
    assert page.locator("b, #card script, #states script").count() == 0


def test_a_state_that_is_not_indexable_shows_its_intervals(show):
    path = lz.eta_path(NOT_INDEXABLE.mdp, NOT_INDEXABLE.default)
    page = show(explorer(path))
    assert "1 state not indexable" in page.text_content("#facts")
    assert page.locator("#states td[data-key='critical']", has_text="*").count() == 1
    for eta in (0.0, 0.1, *path.breakpoints, 0.6, 1.2, 1.5):
        type_eta(page, eta)
        action = path.action_at(eta)
        assert page.locator('#states tr[data-control="true"]').count() == np.sum(action < 2)
        choice = page.text_content('#states tr[data-state="1"] td[data-key="choice"]')
        assert choice == ("lazy" if action[1] == 2 else f"action {action[1]}")
    page.hover('#states tr[data-state="1"]')
    assert "takes control from 0 to 0.1744 and 1.087 to 1.349" in page.text_content("#card")


def test_a_model_that_is_always_lazy_has_one_policy(show):
    mdp = lz.MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[1.0], [0.0]], 0.9)
    page = show(explorer(lz.eta_path(mdp, [[1.0], [1.0]])))
    assert "whatever the price" in page.text_content("#span")
    assert page.text_content("#control-count") == "0"
    page.fill("#budget", "3")
    page.press("#budget", "Enter")
    assert "needs no more" in page.text_content("#plan")


def test_a_path_with_a_tolerance_says_so(show):
    model = random_model(5, n_states=30)
    page = show(explorer(lz.eta_path(model.mdp, model.default, tol=0.05)))
    assert "values proven within 0.05" in page.text_content("#facts")
    assert "values proven within 0.05" in page.text_content("#exactness")


# -- how it looks ------------------------------------------------------------------------------------------------------


def test_dark_and_light_follow_the_system_and_the_button(show, html):
    page = show(html, color_scheme="dark")

    def background():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    dark = background()
    assert page.text_content("#theme") == "Light"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
    assert page.text_content("#theme") == "Dark"
    assert background() != dark
    page.click("#theme")
    assert background() == dark


@pytest.mark.parametrize("model", ["map", "table"])
def test_nothing_sticks_out_on_a_phone(show, html, taxi, model):
    page = show(
        html if model == "map" else explorer(taxi),
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
    )
    for action in (None, "End", "Home"):
        if action:
            page.keyboard.press(action)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    small = page.locator("button:visible:not(.cell), input:visible, summary:visible").evaluate_all(
        "all => all.filter(e => e.getBoundingClientRect().height < 40).map(e => e.outerHTML)"
    )
    assert not small
    target = ".cell" if model == "map" else "#states tbody tr"
    page.locator(target).nth(30).tap()
    state = page.locator(target).nth(30).get_attribute("data-state")
    assert page.get_attribute("#card", "data-state") == state


def test_control_and_lazy_differ_without_color(show, html):
    """In both themes, the two differ in brightness and have different glyphs."""
    page = show(html, address="#eta=0.03")
    for _ in range(2):
        grays = []
        for control in ("true", "false"):
            cell = page.locator(f'.cell[data-control="{control}"]:not([data-absorbing])').first
            color = cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
            grays.append(np.dot([0.299, 0.587, 0.114], [int(x) for x in re.findall(r"\d+", color)[:3]]))
        assert abs(grays[0] - grays[1]) > 40
        clips = page.locator(".glyph").evaluate_all("all => new Set(all.map(g => getComputedStyle(g).clipPath)).size")
        assert clips == 2
        page.click("#theme")
