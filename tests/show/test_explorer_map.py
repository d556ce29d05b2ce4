"""The explorer of a grid world in a real browser: the page shows the numbers of the library."""

import re
import time

import numpy as np
import pytest
from reading import check_policy, number, shown_eta, slide, type_eta

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure

pytestmark = pytest.mark.browser

# -- the price ----------------------------------------------------------------------------------------------------


def test_every_stop_of_the_slider_shows_the_optimal_policy(show, html, path):
    page = show(html)
    last = len(path.breakpoints)
    assert page.get_attribute("#slider", "max") == str(last)
    edges = np.concatenate([[0.0], path.breakpoints, [1.2 * path.breakpoints[-1]]])
    for segment in [0, 1, 40, 75, 110, last - 1, last]:
        slide(page, segment)
        eta = shown_eta(page)
        assert edges[segment] < eta < edges[segment + 1]
        check_policy(page, path, eta)
        assert number(page, "#return") == pytest.approx(path.start_base_values[segment], rel=1e-3)
        assert number(page, "#controls") == pytest.approx(path.start_control_counts[segment], rel=1e-3)
        assert number(page, "#priced") == pytest.approx(path.mdp.start_average(path.value_at(eta)), rel=1e-3, abs=1e-9)


def test_the_count_is_right_at_all_stops(show, html, path):
    """The test above compares whole policies at some stops; this one visits every stop."""
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
        assert shown_eta(page) == eta
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
    check_policy(page, path, shown_eta(page))
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


def wait_for(page, expression, arg=None):
    """Waits as `page.wait_for_function` does, which uses `eval`, forbidden by the security policy of the page."""
    deadline = time.monotonic() + 60
    while not page.evaluate(expression, arg):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(20)


def test_a_link_leads_to_its_price_and_the_address_follows(show, html, path):
    page = show(html, address="#eta=0.05")
    check_policy(page, path, 0.05)
    page.evaluate("location.hash = '#eta=0.2'")
    wait_for(page, "document.getElementById('eta').dataset.exact === '0.2'")
    check_policy(page, path, 0.2)
    type_eta(page, path.breakpoints[7])
    wait_for(page, "eta => location.hash === `#eta=${eta}`", float(path.breakpoints[7]))


def test_a_click_on_a_curve_moves_there(show, html, path):
    page = show(html)
    for chart in range(4):
        page.locator(".u-over").nth(chart).scroll_into_view_if_needed()
        box = page.locator(".u-over").nth(chart).bounding_box()
        page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 0.5 * box["height"])
        eta = shown_eta(page)
        check_policy(page, path, eta)
        dot = page.locator(".now-dot").nth(chart).bounding_box()
        assert dot["x"] + dot["width"] / 2 == pytest.approx(box["x"] + 0.8 * box["width"], abs=2 if chart < 3 else 25)


# -- the budget ------------------------------------------------------------------------------------------------------


def test_a_budget_jumps_to_its_price_and_names_the_mixture(show, html, path):
    page = show(html)
    page.fill("#budget", "10")
    page.press("#budget", "Enter")
    plan = path.for_control_count(10)
    assert shown_eta(page) == plan.eta
    check_policy(page, path, plan.eta)
    first, weight, second, value, count = re.fullmatch(
        r"Policy (\d+) with probability (\S+), otherwise policy (\d+), drawn once per episode: return (\S+) with (\S+) "
        r"controls\.",
        page.text_content("#plan"),
    ).groups()
    assert float(weight) == pytest.approx(plan.weight, rel=1e-3)
    assert float(value) == pytest.approx(plan.base_value, rel=1e-3)
    assert float(count) == pytest.approx(plan.control_count, rel=1e-3)
    middles = [0.0, *(0.5 * (path.breakpoints[1:] + path.breakpoints[:-1])), 1.0]
    for policy, action in zip((first, second), plan.actions, strict=True):
        np.testing.assert_array_equal(path.action_at(middles[int(policy) - 1]), action)
    page.fill("#budget", "1000")
    page.press("#budget", "Enter")
    assert shown_eta(page) == 0.0 == path.for_control_count(1000).eta
    assert "needs no more" in page.text_content("#plan")
    page.fill("#budget", "0")
    page.press("#budget", "Enter")
    assert shown_eta(page) == path.for_control_count(0).eta


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
                assert "the episode has terminated" in page.text_content("#card")
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
    assert page.get_attribute("#card", "data-state") == str(int(np.argmax(path.critical_eta)))


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
    row, column = KeyDoorTreasure().cells[int(np.argmax(path.critical_eta))]  # the door, between walls
    for key, move in (("Down", (1, 0)), ("Right", (1, 1)), ("Up", (-1, 1))):  # up, the wall beside the door is skipped
        page.keyboard.press(f"Shift+Arrow{key}")
        state = int(page.get_attribute("#card", "data-state"))
        assert tuple(KeyDoorTreasure().cells[state]) == (row + move[0], column + move[1])
    before = page.input_value("#slider")
    page.keyboard.press("ArrowRight")  # the price moves, the state stays
    assert page.input_value("#slider") == str(int(before) + 1)
    assert page.get_attribute("#card", "data-state") == str(state)
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
