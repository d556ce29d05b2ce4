"""The explorer of large models in a real browser, which evaluates the policies between the keyframes itself."""

import numpy as np
import pytest
import scipy.sparse as sp
from random_models import random_model
from reading import data_of, shown_eta, slide, type_eta
from test_explorer_map import wait_for

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure
from lazymdp.show import explorer_data
from lazymdp.show.explorer import explorer

ROWS, COLUMNS = 200, 100


def open_field(gamma):
    """A grid of 20,000 cells with a goal in a corner and patches that cost; one absorbing state follows."""
    cells = np.arange(ROWS * COLUMNS)
    row, column = np.divmod(cells, COLUMNS)
    end, goal = cells.size, cells.size - 1
    transitions = sp.csr_array((4 * (end + 1), end + 1))
    for action, (down, right) in enumerate([(-1, 0), (0, 1), (1, 0), (0, -1)]):
        ahead = np.clip(row + down, 0, ROWS - 1) * COLUMNS + np.clip(column + right, 0, COLUMNS - 1)
        step = sp.csr_array((np.full(end, 0.9), (4 * cells + action, ahead)), shape=transitions.shape)
        slip = sp.csr_array((np.full(end, 0.1), (4 * cells + action, cells)), shape=transitions.shape)
        transitions = transitions + step + slip
    keep = np.ones(4 * (end + 1))
    keep[4 * goal :] = 0.0
    last = np.arange(4 * goal, 4 * (end + 1))
    to_end = sp.csr_array((np.ones(8), (last, np.full(8, end))), shape=transitions.shape)
    rewards = np.zeros((end + 1, 4))
    rewards[:end] -= 0.01 * ((7 * row + 13 * column) % 5 == 0)[:, None]
    rewards[goal] = 1.0
    return lz.MDP(sp.csr_array(sp.diags_array(keep) @ transitions + to_end), rewards, gamma)


@pytest.fixture(scope="module")
def large():
    mdp = open_field(0.95)
    return lz.eta_path(mdp, lz.policies.uniform(mdp), tol=0.02)


@pytest.fixture(scope="module")
def large_html(large):
    return explorer(large, axes={"row": ROWS, "column": COLUMNS})


def with_keyframes(monkeypatch, count, n_states):
    monkeypatch.setattr(explorer_data, "_KEYFRAMES_MB", count * n_states * 16 * 4 / 3 * 1e-6 + 1e-9)


def check_numbers(page, path, eta):
    """Compares everything the page shows at a price, in full precision, with the path."""
    wait_for(page, "explorer.now().exact")
    shown = page.evaluate(
        "() => { const { value, count, gap, action } = explorer.now();"
        " return [value, count, gap, action].map(numbers => [...numbers]); }"
    )
    value, count, gap, action = map(np.array, shown)
    np.testing.assert_array_equal(action, path.action_at(eta))
    expected = path.value_at(eta)
    np.testing.assert_allclose(value, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
    counts = path.control_count_at(eta)
    np.testing.assert_allclose(count, counts, rtol=1e-6, atol=1e-9 * max(counts.max(), 1.0))
    ahead = (path.mdp.transitions @ expected).reshape(path.mdp.rewards.shape)
    q = path.mdp.rewards - eta + path.mdp.gamma * ahead
    gaps = np.where(path.mdp.absorbing, 0.0, q.max(axis=1) - (path.default_policy * q).sum(axis=1))
    np.testing.assert_allclose(gap, gaps, rtol=1e-6, atol=1e-8 * np.abs(expected).max())


def test_a_page_of_20000_states_stays_small(large, large_html):
    assert large.mdp.n_states == 20_001
    assert len(large_html) < 10e6
    every_line = 4 / 3 * 16 * (len(large.breakpoints) + 1) * 20_001
    stored = data_of(large_html)
    assert len(stored["values"]["base64"]) + len(stored["counts"]["base64"]) < min(4.1e6, every_line)


@pytest.mark.browser
def test_20000_states_open_and_the_slider_moves(show, large, large_html):
    page = show(large_html)
    assert page.locator(".cell").count() == 20_000
    frames = set(explorer_data.keyframes(large))
    between = [segment for segment in range(len(large.breakpoints)) if segment not in frames]
    for segment in (between[0], between[-1]):
        slide(page, segment)
        eta = shown_eta(page)
        control = large.action_at(eta) < 4
        assert page.text_content("#control-count") == f"{control.sum():,}"  # at once, before the values are known
        assert page.locator('.cell[data-control="true"]').count() == control.sum()
        check_numbers(page, large, eta)
        assert page.get_attribute("body", "data-computing") is None


@pytest.mark.browser
@pytest.mark.parametrize("frames", [2, 5])
def test_values_between_keyframes_are_those_of_the_path(show, path, frames, monkeypatch):
    with_keyframes(monkeypatch, frames, path.mdp.n_states)
    page = show(explorer(path, world=KeyDoorTreasure()))
    assert len(explorer_data.keyframes(path)) == frames
    for segment in (1, 17, 50, 76, 100, 130, 148, 75, 50):
        slide(page, segment)
        check_numbers(page, path, shown_eta(page))
    for eta in (0.0, 0.02, path.breakpoints[33], path.breakpoints[-1], 0.5):
        type_eta(page, eta)
        check_numbers(page, path, eta)


def corridor(length, gamma):
    """A walk to the far end, in which a step may fail; the states are in the order of the walk or against it."""
    transitions, rewards = np.zeros((length, 2, length)), np.full((length, 2), -1.0)
    for state in range(1, length):
        transitions[state, 0, [state - 1, state]] = [0.95, 0.05]
        transitions[state, 1, [state - 1, min(state + 1, length - 1)]] = [0.5, 0.5]
    transitions[0, :, 0] = 1.0
    rewards[0] = 0.0
    rewards[:, 0] -= np.linspace(0.0, 0.2, length) * (np.arange(length) > 0)
    return lz.MDP(transitions, rewards, gamma)


@pytest.mark.browser
@pytest.mark.parametrize("gamma", [0.5, 0.999, 1.0])
def test_hard_models_are_evaluated_too(show, gamma, monkeypatch):
    """Long corridors, which values cross slowly, without discount too; and random models."""
    paths = [lz.eta_path(mdp, lz.policies.uniform(mdp)) for mdp in (corridor(60, gamma),)]
    if gamma < 1.0:
        model = random_model(4, n_states=40, gamma=gamma)
        paths.append(lz.eta_path(model.mdp, model.default))
    for path in paths:
        with_keyframes(monkeypatch, 2, path.mdp.n_states)
        page = show(explorer(path))
        for segment in np.linspace(1, len(path.breakpoints) - 1, 5).astype(int):
            slide(page, int(segment))
            check_numbers(page, path, shown_eta(page))


@pytest.mark.browser
def test_moving_on_leaves_a_computation_unfinished(show, large, large_html):
    """Many moves in a row: the last one counts, and its values become exact."""
    page = show(large_html)
    last = len(large.breakpoints)
    page.evaluate(
        "stops => { for (const stop of stops) { slider.value = stop; slider.dispatchEvent(new Event('input')); } }",
        [*range(last), 3],
    )
    assert page.input_value("#slider") == "3"
    check_numbers(page, large, shown_eta(page))
