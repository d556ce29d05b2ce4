"""The explorer in a real browser: what the reader sees is what the library answers."""

import os
import re
import shutil

import gymnasium as gym
import numpy as np
import pytest
from random_models import random_model
from test_path import NOT_INDEXABLE

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure
from lazymdp.show.explorer import explorer

pytest.importorskip("playwright", reason="needs playwright: pip install playwright")
from playwright.sync_api import sync_playwright

CHROMIUM = os.environ.get("CHROMIUM") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("needs Chromium: none on the path, and CHROMIUM does not name one", allow_module_level=True)

QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
REST = 300  # milliseconds after which the page has written its address


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", *QUIET])
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser, tmp_path):
    """Opens a page from a file; at the end, nothing may have gone wrong and nothing been fetched."""
    troubles, requests, contexts = [], [], []

    def opened(html, *, address="", **settings):
        file = tmp_path / "explorer.html"
        file.write_text(html)
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri() + address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles
    assert requests
    assert all(url.startswith(("file://", "data:")) for url in requests), requests


def uniform_path(env, gamma=0.99):
    mdp = lz.MDP.from_gymnasium(env, gamma)
    return lz.eta_path(mdp, lz.policies.uniform(mdp))


@pytest.fixture(scope="module")
def path():
    return uniform_path(KeyDoorTreasure())


@pytest.fixture(scope="module")
def html(path):
    return explorer(path, world=KeyDoorTreasure(), title="Key-Door-Treasure")


@pytest.fixture(scope="module")
def taxi():
    return uniform_path(gym.make("Taxi-v4"))


def type_eta(page, eta):
    page.fill("#eta", repr(float(eta)))
    page.press("#eta", "Enter")


def slide(page, segment):
    page.locator("#slider").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", segment
    )


def address_eta(page):
    """The price in the address, in full precision."""
    page.wait_for_timeout(REST)
    return float(re.search("#eta=(.*)$", page.url)[1])


def shown_choices(page):
    """[S] what the cells of the map say."""
    cells = page.locator(".cell").evaluate_all(
        "cells => cells.map(cell => [Number(cell.dataset.state), cell.dataset.control === 'true', cell.dataset.choice])"
    )
    return {state: (control, choice) for state, control, choice in cells}


def check_policy(page, path, eta):
    action = path.action_at(eta)
    control = action < path.mdp.n_actions
    assert page.locator('.cell[data-control="true"]').count() == control.sum()
    assert page.text_content("#control-count") == str(control.sum())
    choices = shown_choices(page)
    assert len(choices) == path.mdp.n_states
    for state, (is_control, choice) in choices.items():
        assert is_control == control[state]
        if control[state]:
            assert choice == path.mdp.action_names[action[state]]
        else:
            assert choice == ("end" if path.mdp.absorbing[state] else "lazy")


def number(page, selector):
    return float(page.text_content(selector))


# -- the price ----------------------------------------------------------------------------------------------------


def test_every_stop_of_the_slider_shows_the_optimal_policy(show, html, path):
    page = show(html)
    last = len(path.breakpoints)
    assert page.get_attribute("#slider", "max") == str(last)
    edges = np.concatenate([[0.0], path.breakpoints, [1.2 * path.breakpoints[-1]]])
    for segment in [0, 1, 40, 75, 110, last - 1, last]:
        slide(page, segment)
        eta = address_eta(page)
        assert edges[segment] < eta < edges[segment + 1]
        check_policy(page, path, eta)
        assert number(page, "#return") == pytest.approx(path.start_values[segment], rel=1e-3)
        assert number(page, "#controls") == pytest.approx(path.start_counts[segment], rel=1e-3)
        assert number(page, "#priced") == pytest.approx(path.mdp.start_average(path.value_at(eta)), rel=1e-3, abs=1e-9)


def test_the_count_is_right_at_all_stops(show, html, path):
    """The other test compares whole policies; this one leaves no stop out."""
    page = show(html)
    counts = page.evaluate(
        """() => [...Array(Number(slider.max) + 1).keys()].map(stop => {
            slider.value = stop;
            slider.dispatchEvent(new Event("input"));
            return [document.querySelectorAll('.cell[data-control="true"]').length,
                    Number(document.getElementById("control-count").textContent)];
        })"""
    )
    middles = [0.0, *(0.5 * (path.breakpoints[1:] + path.breakpoints[:-1])), 1.0]
    expected = [int(np.sum(path.action_at(eta) < path.mdp.n_actions)) for eta in middles]
    assert counts == [[count, count] for count in expected]


def test_any_price_can_be_typed_and_a_tie_is_lazy(show, html, path):
    page = show(html)
    for eta in (0.0, 0.02, 0.05, 1.5, path.breakpoints[100], path.breakpoints[-1]):
        type_eta(page, eta)
        assert address_eta(page) == eta
        check_policy(page, path, eta)
    assert "tie is lazy" in page.text_content("#span")
    for nonsense in ("-1", "much", ""):
        page.fill("#eta", nonsense)
        page.press("#eta", "Enter")
        assert page.get_attribute("#eta", "aria-invalid") == "true"
        assert page.text_content("#span") == "expected a number, at least 0"
    check_policy(page, path, path.breakpoints[-1])


def test_arrow_keys_step_one_breakpoint(show, html, path):
    page = show(html)
    type_eta(page, 0.05)
    segment = int(np.searchsorted(path.breakpoints, 0.05, side="right"))
    page.locator("h1").click()
    for key, change in (("ArrowRight", 1), ("ArrowRight", 1), ("ArrowLeft", -1), ("ArrowLeft", -1), ("ArrowLeft", -1)):
        page.keyboard.press(key)
        segment += change
        assert page.input_value("#slider") == str(segment)
        assert f"policy {segment + 1} of 150" in page.text_content("#span")
    check_policy(page, path, address_eta(page))
    page.keyboard.press("End")
    assert page.text_content("#control-count") == "0"
    assert page.is_disabled("#next")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#slider") == "149"
    page.keyboard.press("Home")
    assert page.input_value("#slider") == "0"
    page.focus("#eta")
    page.keyboard.press("ArrowRight")  # in a box the arrows belong to the text
    assert page.input_value("#slider") == "0"
    page.focus("#slider")
    page.keyboard.press("ArrowRight")
    assert page.input_value("#slider") == "1"


def test_a_link_leads_to_its_price(show, html, path):
    page = show(html, address="#eta=0.05")
    check_policy(page, path, 0.05)
    page.evaluate("location.hash = '#eta=0.2'")
    page.wait_for_timeout(REST)
    check_policy(page, path, 0.2)


def test_a_click_on_a_curve_moves_there(show, html, path):
    page = show(html)
    for chart in range(4):
        box = page.locator(".u-over").nth(chart).bounding_box()
        page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 0.5 * box["height"])
        eta = address_eta(page)
        check_policy(page, path, eta)
        dot = page.locator(".now-dot").nth(chart).bounding_box()
        assert dot["x"] + dot["width"] / 2 == pytest.approx(box["x"] + 0.8 * box["width"], abs=2 if chart < 3 else 25)


# -- the budget ------------------------------------------------------------------------------------------------------


def test_a_budget_jumps_to_its_price_and_names_the_mixture(show, html, path):
    page = show(html)
    page.fill("#budget", "10")
    page.press("#budget", "Enter")
    plan = path.for_budget(10)
    assert address_eta(page) == plan.eta
    check_policy(page, path, plan.eta)
    first, weight, second, value, count = re.fullmatch(
        r"Policy (\d+) with probability (\S+), else policy (\d+), drawn once: return (\S+) with (\S+) controls\.",
        page.text_content("#plan"),
    ).groups()
    assert float(weight) == pytest.approx(plan.weight, rel=1e-3)
    assert float(value) == pytest.approx(plan.value, rel=1e-3)
    assert float(count) == pytest.approx(plan.control_count, rel=1e-3)
    middles = [0.0, *(0.5 * (path.breakpoints[1:] + path.breakpoints[:-1])), 1.0]
    for policy, action in zip((first, second), plan.actions, strict=True):
        np.testing.assert_array_equal(path.action_at(middles[int(policy) - 1]), action)
    page.fill("#budget", "1000")
    page.press("#budget", "Enter")
    assert address_eta(page) == 0.0 == path.for_budget(1000).eta
    assert "needs no more" in page.text_content("#plan")
    page.fill("#budget", "0")
    page.press("#budget", "Enter")
    assert address_eta(page) == path.for_budget(0).eta


# -- one state -------------------------------------------------------------------------------------------------------


def test_pointing_at_a_cell_shows_the_numbers_of_the_library(show, html, path):
    page = show(html)
    for eta in (0.005, 0.02, 0.1):
        type_eta(page, eta)
        solution = lz.solve(lz.LazyMDP(path.mdp, path.default_policy, eta), tol=1e-10)
        counts = path.control_count_at(eta)
        for state in (3, 52, 88, 120, 205):
            page.hover(f'.cell[data-state="{state}"]')
            assert page.get_attribute("#card", "data-state") == str(state)
            if path.mdp.absorbing[state]:
                assert "ended here" in page.text_content("#card")
                continue
            assert path.mdp.state_names[state] in page.text_content("#card h2")
            assert number(page, "#card-gap") == pytest.approx(solution.lazy_gap[state], rel=1e-4)
            assert number(page, "#card-value") == pytest.approx(solution.value[state], rel=1e-4)
            assert number(page, "#card-count") == pytest.approx(counts[state], rel=1e-4, abs=1e-9)
            assert number(page, "#card-critical") == pytest.approx(path.critical_eta[state], rel=1e-4)
            rows = page.locator("#card tbody tr")
            assert rows.count() == 4
            for action, name in enumerate(path.mdp.action_names):
                cells = rows.nth(action).locator("th, td").all_text_contents()
                assert cells[0] == name
                assert float(cells[1]) == pytest.approx(solution.q[state, action], rel=1e-4)
                assert float(cells[2]) == 0.25
            words = page.text_content("#card-choice")
            assert words.startswith("takes control" if solution.control[state] else "lazy")
    page.hover("h1")
    assert page.get_attribute("#card", "data-state") == str(int(np.argmax(path.mdp.start)))


def test_the_map_can_show_numbers_and_still_tells_who_acts(show, html, path):
    page = show(html, address="#eta=0.03")
    for mode in ("gap", "critical", "value", "policy"):
        page.click(f"[data-mode={mode}]")
        assert page.get_attribute(f"[data-mode={mode}]", "aria-pressed") == "true"
        assert page.locator('#modes [aria-pressed="true"]').count() == 1
        check_policy(page, path, 0.03)
        painted = page.locator('.cell[style*="background"]').count()
        assert painted == (0 if mode == "policy" else int(np.sum(~path.mdp.absorbing)))


def test_the_page_works_from_the_keyboard_alone(show, html, path):
    page = show(html)
    page.keyboard.press("Tab")
    seen = set()
    for _ in range(40):
        focus = page.evaluate(
            "(a => a.id || a.dataset.mode || (a.matches('.cell') ? 'cell' : a.tagName))(document.activeElement)"
        )
        seen.add(focus)
        if focus == "cell":
            break
        page.keyboard.press("Tab")
    assert {"theme", "slider", "next", "eta", "budget", "gap", "cell"} <= seen
    page.keyboard.press("Shift+ArrowRight")
    start = int(np.argmax(path.mdp.start))
    assert page.get_attribute("#card", "data-state") == str(start + 1)
    page.keyboard.press("Shift+ArrowUp")
    state = int(page.get_attribute("#card", "data-state"))
    row, column = KeyDoorTreasure().cells[start]
    assert tuple(KeyDoorTreasure().cells[state]) == (row - 1, column + 1)
    before = page.input_value("#slider")
    page.keyboard.press("ArrowRight")  # the price moves, the state stays
    assert page.input_value("#slider") == str(int(before) + 1)
    assert page.get_attribute("#card", "data-state") == str(state)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


# -- tables ------------------------------------------------------------------------------------------------------------


def column(page, key):
    return page.locator(f'#states td[data-key="{key}"]').all_text_contents()


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
    assert page.get_attribute("#theme", "aria-pressed") == "true"
    page.click("#theme")
    assert page.get_attribute("html", "data-theme") == "light"
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


def test_control_and_lazy_differ_without_colour(show, html):
    """In light and dark, the two grays are far apart, and each has a glyph of its own."""
    page = show(html, address="#eta=0.03")
    for _ in range(2):
        grays = []
        for control in ("true", "false"):
            cell = page.locator(f'.cell[data-control="{control}"]:not([data-absorbing])').first
            colour = cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
            grays.append(np.dot([0.299, 0.587, 0.114], [int(x) for x in re.findall(r"\d+", colour)[:3]]))
        assert abs(grays[0] - grays[1]) > 40
        clips = page.locator(".glyph").evaluate_all("all => new Set(all.map(g => getComputedStyle(g).clipPath)).size")
        assert clips == 2
        page.click("#theme")
