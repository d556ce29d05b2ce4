"""Reads the data, the cells, the inputs and the table of the explorer's page."""

import base64
import json
import re

import numpy as np


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def array_of(packed):
    kind = "<" + packed["type"]
    if "table" not in packed:
        return np.frombuffer(base64.b64decode(packed["base64"]), dtype=kind)
    table = np.frombuffer(base64.b64decode(packed["table"]), dtype=kind)
    return table[np.frombuffer(base64.b64decode(packed["base64"]), dtype="u1")]


def type_eta(page, eta):
    page.fill("#eta", repr(float(eta)))
    page.press("#eta", "Enter")


def slide(page, segment):
    page.locator("#slider").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", segment
    )


def shown_eta(page):
    """Returns the selected price in full precision."""
    return float(page.get_attribute("#eta", "data-exact"))


def shown_choices(page):
    """Returns, for each state on the map, whether it takes control, and its choice."""
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


def column(page, key):
    return page.locator(f'#states td[data-key="{key}"]').all_text_contents()
