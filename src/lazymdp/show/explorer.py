"""The explorer: an eta-path as one page to open in a browser, in which the price is a slider.

The page holds the path itself, not samples of it: its breakpoints and switches, the line `V - eta K` of every policy
and the rows of the model. The browser rebuilds the policy of any price from the switches, as `EtaPath.action_at` does,
and gets its lazy-gaps by one Bellman backup. Which states take control is never read off rounded numbers.

The page loads nothing from anywhere; the files it is made of are in `assets`.
"""

from __future__ import annotations

import base64
import html
import json
import re
from importlib import resources
from typing import Any

import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike, NDArray

from lazymdp._colors import DARK_THEME, LIGHT_THEME, VALUE_STOPS, css_variables
from lazymdp.exact.path import EtaPath
from lazymdp.show.grid_maps import GridWorld
from lazymdp.show.style import CONTROL_SCALE

_LARGEST_MB = 20.0
"""Size of a page above which a browser is no pleasure."""


def explorer(path: EtaPath, *, world: GridWorld | None = None, title: str | None = None) -> str:
    """The eta-path as a page of HTML: a slider over every optimal policy, curves, a map or a table of states.

    Write it to a file (`Path("explorer.html").write_text(...)`) and open that; no server and no network are needed.

    Args:
        path: An eta-path; with a tolerance, the page says so.
        world: The grid world the path's model was read from, to draw its map. Any other model gets a table.
        title: Heading of the page.
    """
    if world is not None and len(world.cells) != path.mdp.n_states:
        raise ValueError(
            f"world has {len(world.cells)} states, but the path's model has {path.mdp.n_states}: give the world that "
            "the model was read from, or none for a table."
        )
    _check_size(path)
    heading = "Lazy-MDP explorer" if title is None else title
    parts = {
        "TITLE": html.escape(heading).encode("ascii", "xmlcharrefreplace").decode(),
        "LIGHT": css_variables(LIGHT_THEME),
        "DARK": css_variables(DARK_THEME),
        "DATA": json.dumps(_data(path, world, heading), allow_nan=False).replace("<", "\\u003c"),
        "CSS": _asset("explorer.css"),
        "PATH_JS": _asset("path.js"),
        "JS": _asset("explorer.js"),
        "UPLOT_CSS": _asset("uPlot.min.css"),
        "UPLOT_JS": _asset("uPlot.iife.min.js"),
        "UPLOT_LICENSE": _asset("uPlot.LICENSE").strip(),
    }
    return re.sub("@@([A-Z_]+)@@", lambda found: parts[found[1]], _asset("explorer.html"))


def _asset(name: str) -> str:
    return resources.files("lazymdp.show").joinpath("assets", name).read_text(encoding="utf-8")


def _check_size(path: EtaPath) -> None:
    """Refuses a page too large for a browser, before any line is evaluated."""
    mdp, policies = path.mdp, len(path.breakpoints) + 1
    names = sum(map(len, mdp.state_names)) if mdp.state_names else 0
    lines_mb = 4 / 3 * 16e-6 * policies * mdp.n_states
    model_mb = 4 / 3 * 1e-6 * (12 * mdp.transitions.nnz + 20 * mdp.rewards.size + 9 * mdp.n_states) + 1e-6 * names
    if lines_mb + model_mb > _LARGEST_MB:
        raise ValueError(
            f"the page would take about {lines_mb + model_mb:.0f} MB, more than {_LARGEST_MB:.0f}: {lines_mb:.1f} MB "
            f"for {policies} policies of {mdp.n_states} states, {model_mb:.1f} MB for the model. A path with a "
            "tolerance, `eta_path(..., tol=...)`, has fewer policies."
        )


def _data(path: EtaPath, world: GridWorld | None, title: str) -> dict[str, Any]:
    """What the page knows, with the names that path.js and explorer.js use."""
    mdp = path.mdp
    values, counts = _lines(path)
    return {
        "title": title,
        "nStates": mdp.n_states,
        "nActions": mdp.n_actions,
        "gamma": mdp.gamma,
        "tol": path.tol,
        "stateNames": mdp.state_names or (None if world is None else getattr(world, "state_names", None)),
        "actionNames": mdp.action_names or (None if world is None else world.action_names),
        "breakpoints": _packed(path.breakpoints, "f8"),
        "switches": _packed(path.switches, "i4"),
        "startValues": _packed(path.start_values, "f8"),
        "startCounts": _packed(path.start_counts, "f8"),
        "values": _packed(values, "f8"),
        "counts": _packed(counts, "f8"),
        "criticalEta": _packed(path.critical_eta, "f8"),
        "intervals": {int(state): path.control_intervals(int(state)) for state in path.non_indexable_states},
        "indptr": _packed(mdp.transitions.indptr, "i4"),
        "indices": _packed(mdp.transitions.indices, "i4"),
        "probabilities": _packed(mdp.transitions.data, "f8"),
        "rewards": _packed(mdp.rewards, "f8"),
        "defaultPolicy": _packed(path.default_policy, "f8"),
        "absorbing": _packed(mdp.absorbing, "u1"),
        "startState": int(np.argmax(mdp.start)),
        "world": None if world is None else _world(world),
        "controlColors": [to_hex(CONTROL_SCALE(part)) for part in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "valueColors": VALUE_STOPS,
    }


def _lines(path: EtaPath) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """`[B+1, S]` each, `V` and `K` of every policy, by increasing price.

    In double precision: the lazy-gap is a difference of values, often a small one of large ones.
    """
    shape = (len(path.breakpoints) + 1, path.mdp.n_states)
    values, counts = np.empty(shape), np.empty(shape)
    for segment, price in enumerate([0.0, *path.breakpoints]):  # at a breakpoint the path gives the line above it
        counts[segment] = path.control_count_at(price)
        values[segment] = path.value_at(price) + price * counts[segment]
    return values, counts


def _packed(array: ArrayLike, kind: str) -> dict[str, str]:
    """An array as base64 of its little-endian numbers, in C order; `kind` is f8, i4 or u1."""
    numbers = np.ascontiguousarray(array, dtype=f"<{kind}")
    return {"type": kind, "base64": base64.b64encode(numbers.tobytes()).decode("ascii")}


def _world(world: GridWorld) -> dict[str, Any]:
    """The map, and its layers: in each, every cell holds one state at most."""
    has_key = getattr(world, "has_key", None)
    cells = [(int(row), int(column)) for row, column in world.cells]
    if has_key is not None:
        layer_of, names = np.asarray(has_key, dtype=int), ["without the key", "with the key"]
    else:
        layer_of = _occurrence(cells)
        names = [f"layer {layer + 1}" for layer in range(layer_of.max() + 1)] if layer_of.any() else [""]
    return {
        "layout": list(world.layout),
        "cells": cells,
        "layers": [
            {"name": name, "states": np.flatnonzero(layer_of == layer).tolist()} for layer, name in enumerate(names)
        ],
    }


def _occurrence(cells: list[tuple[int, int]]) -> NDArray[np.int64]:
    """How many earlier states are on the same cell, for each state."""
    seen: dict[tuple[int, int], int] = {}
    earlier = []
    for cell in cells:
        earlier.append(seen.get(cell, 0))
        seen[cell] = earlier[-1] + 1
    return np.array(earlier, dtype=np.int64)
