"""The explorer of models with axes, and its sentences and explanations, in a real browser."""

import numpy as np
import pytest
from reading import check_policy, shown_choices, shown_eta, slide, type_eta

import lazymdp as lz
from lazymdp.envs.loading import load_model
from lazymdp.show.explorer import explorer

pytestmark = pytest.mark.browser

WEAR, JOBS = 20, 6
ACTIONS = ("run on", "repair in place", "replace")


@pytest.fixture(scope="module")
def machine():
    """A machine that wears out while jobs arrive; the default policy runs it, and repairs it one time in ten."""
    transitions = np.zeros((WEAR * JOBS, 3, WEAR * JOBS))
    rewards = np.zeros((WEAR * JOBS, 3))
    for wear, jobs in np.ndindex(WEAR, JOBS):
        state = wear * JOBS + jobs
        for arrival, chance in ((1, 0.4), (0, 0.6)):
            done = max(jobs - 1 + arrival, 0)
            waiting = min(jobs + arrival, JOBS - 1)
            transitions[state, 0, min(wear + 1, WEAR - 1) * JOBS + done] += 0.6 * chance
            transitions[state, 0, wear * JOBS + done] += 0.4 * chance
            transitions[state, 1, max(wear - 6, 0) * JOBS + waiting] += chance
            transitions[state, 2, waiting] += chance
        rewards[state] = [(jobs > 0) - 0.02 * wear - 3.0 * (wear == WEAR - 1), -0.5, -2.0]
    mdp = lz.MDP(transitions, rewards, 0.97, start=0, action_names=ACTIONS)
    return lz.eta_path(mdp, np.tile([0.9, 0.1, 0.0], (WEAR * JOBS, 1)))


def lines(page, selector):
    return page.locator(selector).all_text_contents()


def test_two_axes_are_drawn_as_rows_and_columns(show, machine):
    page = show(explorer(machine, axes={"wear": WEAR, "jobs": JOBS}))
    assert page.is_visible("#map-panel")
    assert lines(page, ".row-name") == ["wear"] and lines(page, ".column-name") == ["jobs"]
    assert lines(page, ".ticks.below span") == [str(jobs) for jobs in range(JOBS)]
    assert lines(page, ".ticks.beside span") == [str(wear) for wear in range(WEAR)]
    boxes = {state: page.locator(f'.cell[data-state="{state}"]').bounding_box() for state in (0, 1, 6, 119)}
    assert boxes[1]["x"] > boxes[0]["x"] and boxes[1]["y"] == boxes[0]["y"]  # the last axis changes fastest
    assert boxes[6]["y"] > boxes[0]["y"] and boxes[6]["x"] == boxes[0]["x"]
    for segment in (0, 40, len(machine.breakpoints)):
        slide(page, segment)
        check_policy(page, machine, shown_eta(page))
    page.hover('.cell[data-state="27"]')
    assert page.text_content("#card h2").startswith("wear 4, jobs 3")
    tick = page.locator(".ticks.beside span").nth(4).bounding_box()
    cell = page.locator('.cell[data-state="27"]').bounding_box()
    assert tick["y"] + tick["height"] / 2 == pytest.approx(cell["y"] + cell["height"] / 2, abs=3)


WRITTEN = """(() => {
    const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
    window.written = [];
    Object.assign(CanvasRenderingContext2D.prototype, {
        clearRect(...box) { // begins to draw a curve again
            written = written.filter(([canvas]) => canvas !== this.canvas);
            clearRect.apply(this, box);
        },
        fillText(text, x, y) {
            const { a, b, e, f } = this.getTransform();
            const [middle, half] = [a * x + e, (a * this.measureText(text).width) / 2];
            if (b === 0 && /^[0-9]/.test(text)) written.push([this.canvas, middle - half, middle + half, y + f, text]);
            fillText.apply(this, arguments);
        },
    });
})()"""
OVERLAPS = """() => written.filter(([canvas, left, , row, text], i) => written.some(([other, from, to, at, label], j) =>
    j !== i && canvas === other && row === at && label !== text && from <= left && left < to)).map((each) => each[4])"""


@pytest.mark.parametrize("width", [1280, 390])
def test_the_labels_of_an_axis_do_not_overlap(show, width):
    """The prices of this model span two decades, in which 1, 2 and 5 have labels if there is room."""
    mdp = load_model("FrozenLake8x8-v1").mdp
    page = show(explorer(lz.eta_path(mdp, lz.policies.uniform(mdp))), viewport={"width": width, "height": 900})
    page.add_init_script(WRITTEN)
    page.reload()
    page.wait_for_function("() => written.length > 12")
    assert page.evaluate(OVERLAPS) == []


def test_one_axis_is_a_strip_and_three_are_small_multiples(show, machine):
    page = show(explorer(machine, axes={"state": 120}))
    assert len(shown_choices(page)) == 120
    page = show(explorer(machine, axes={"wear": 20, "half": 2, "job": 3}))
    assert lines(page, "#maps figcaption") == [f"wear {wear}" for wear in range(20)]
    for figure in (0, 7):
        states = page.locator("#maps figure").nth(figure).locator(".cell")
        assert states.evaluate_all("all => all.map(cell => Number(cell.dataset.state))") == [
            6 * figure + state for state in range(6)
        ]
    page.hover('.cell[data-state="44"]')
    assert page.text_content("#card h2").startswith("wear 7, half 0, job 2")


def test_the_state_after_the_product_has_no_cell(show):
    mdp = lz.MDP(np.eye(5)[[[1, 2], [3, 4], [4, 4], [4, 0], [4, 4]]], [[0.0, 1.0]] * 4 + [[0.0, 0.0]], 0.9)
    page = show(explorer(lz.eta_path(mdp, lz.policies.uniform(mdp)), axes={"a": 2, "b": 2}))
    assert sorted(shown_choices(page)) == [0, 1, 2, 3]
    page.click("#table-panel summary")
    page.click('#states tr[data-state="4"]')
    assert page.text_content("#card h2").startswith("end")
    assert "the episode has terminated" in page.text_content("#card")


def test_actions_are_named_in_full(show, machine):
    page = show(explorer(machine, axes={"wear": WEAR, "jobs": JOBS}))
    for segment in range(0, len(machine.breakpoints), 10):
        slide(page, segment)
        assert set(lines(page, ".cell .glyph")) == {""}  # a sign, and no letters of a name
    used = [ACTIONS[action] for action in np.unique(machine.switches[:, 2]) if action < 3]
    assert lines(page, "#legend .entry") == [*used, "lazy"]
    assert len(used) >= 2
    shapes = page.locator("#legend .control .glyph").evaluate_all("all => all.map(g => getComputedStyle(g).clipPath)")
    assert len(set(shapes)) == len(used)


# -- sentences ---------------------------------------------------------------------------------------------------------


def test_the_headline_says_how_few_controls_keep_most_of_the_gain(show, machine, html, path):
    for page, shown in ((show(explorer(machine)), machine), (show(html), path)):
        returns, counts = shown.start_base_values, shown.start_control_counts
        shares = (returns - returns[-1]) / (returns[0] - returns[-1])
        most, many = (int(np.flatnonzero(shares >= least)[-1]) for least in (0.99, 0.9))
        unit = "per episode" if shown.mdp.absorbing.any() else "from the start"
        words = page.text_content("#headline")
        assert words.startswith(f"With {counts[most]:.3g} interventions {unit}, you keep {int(100 * shares[most])}% of")
        assert words.endswith(f"the gain; with {counts[many]:.3g}, {int(100 * shares[many])}%.")
        assert f"which returns {returns[-1]:.4g}" in page.text_content("#gain")
        assert f"{shown.mdp.gamma}\u1d57" in page.text_content("#gain")
        page.locator(".jump").first.click()
        assert page.input_value("#slider") == str(most)


def test_a_default_policy_that_is_optimal_gains_nothing(show, machine):
    page = show(explorer(lz.eta_path(machine.mdp, lz.policies.optimal(machine.mdp))))
    assert page.text_content("#headline") == "The default policy is already optimal: taking control never pays."
    assert page.text_content("#card-important") == "Control never pays here."


def test_the_card_opens_on_the_most_important_state(show, machine, html, path):
    for page, shown in ((show(explorer(machine)), machine), (show(html), path)):
        assert page.get_attribute("#card", "data-state") == str(int(np.argmax(shown.critical_eta)))
        assert "This is the most important state" in page.text_content("#card-important")
    second = int(np.argsort(-path.critical_eta)[1])
    page.hover(f'.cell[data-state="{second}"]')
    assert f"number 2 of {np.sum(~path.mdp.absorbing)} states" in page.text_content("#card-important")


def test_the_card_says_what_the_default_policy_does(show, machine):
    table = np.tile([0.9, 0.1, 0.0], (WEAR * JOBS, 1))
    table[1] = [0.0, 0.0, 1.0]
    table[2] = [0.5, 0.0, 0.5]
    page = show(explorer(lz.eta_path(machine.mdp, table), axes={"wear": WEAR, "jobs": JOBS}))
    for state, words in (
        (0, "The default policy chooses run on with probability 90% and repair in place with probability 10% here."),
        (1, "The default policy always chooses replace here."),
        (2, "The default policy chooses run on or replace at random here."),
    ):
        page.hover(f'.cell[data-state="{state}"]')
        assert page.text_content("#card-default").startswith(words)


def test_moves_are_made_and_not_chosen(show, html):
    page = show(html)
    words = "The default policy moves up, right, down or left at random here."
    assert page.text_content("#card-default").startswith(words)


# -- explanations ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("term", ["eta", "gap", "critical", "control", "default policy", "return", "value", "controls"])
def test_terms_are_explained_on_the_spot(show, html, term):
    page = show(html, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    button = page.locator(f'[data-term="{term}"]').last
    button.scroll_into_view_if_needed()
    button.tap()
    assert button.get_attribute("aria-expanded") == "true"
    assert len(page.text_content("#tip")) > 60
    box = page.locator("#tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    button.tap()
    assert page.text_content("#tip") == ""


def test_explanations_open_and_close_from_the_keyboard(show, html):
    page = show(html)
    button = page.locator('#card [data-term="gap"]')
    button.focus()
    page.keyboard.press("Enter")
    assert page.text_content("#tip").startswith("lazy-gap: ")
    page.keyboard.press("Escape")
    assert page.text_content("#tip") == ""
    page.keyboard.press("ArrowRight")  # the card is drawn again, and the focus stays on its button
    assert page.evaluate("document.activeElement.dataset.term") == "gap"


def test_nothing_sticks_out_on_a_phone_with_axes(show, machine):
    long = lz.MDP(
        machine.mdp.transitions,
        machine.mdp.rewards,
        0.97,
        action_names=["run the machine until it stops on its own", "Instandsetzungsmaßnahmenkatalog", "replace"],
    )
    path = lz.eta_path(long, machine.default_policy)
    for axes in ({"wear": WEAR, "jobs": JOBS}, {"wear": WEAR, "half": 2, "job": 3}, {"state": 120}):
        page = show(explorer(path, axes=axes), viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
        type_eta(page, 0.01)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        clipped = page.locator("#legend .entry, #card th, #card td, .ticks span, #headline, .column-name").evaluate_all(
            "all => all.filter(e => { const b = e.getBoundingClientRect(); return b.left < 0 || b.right > 390; })"
            ".map(e => e.outerHTML)"
        )
        assert not clipped
