"""The explorer: an eta-path as one HTML page, in which a slider sets the price.

The page contains the path itself and not samples of it: the breakpoints and switches, the line `V - eta K` of every
policy, and the model. The browser rebuilds the policy at any price from the switches, as `EtaPath.action_at` does, and
computes the lazy-gaps with one Bellman backup. The control states do not depend on rounded numbers.

The page loads nothing from the network; it is assembled from the files in `assets`.
"""

from __future__ import annotations

import html
from typing import Any

import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray

from lazymdp._colors import DARK_THEME, LIGHT_THEME, VALUE_STOPS, css_variables
from lazymdp._html_page import as_json, asset, filled, packed
from lazymdp.exact.path import EtaPath
from lazymdp.show.grid_maps import GridWorld
from lazymdp.show.style import CONTROL_SCALE

_LARGEST_MB = 20.0
"""Largest size of a page, in megabytes; browsers are slow with larger ones."""


def explorer(path: EtaPath, *, world: GridWorld | None = None, title: str | None = None) -> str:
    """Returns an HTML page that shows an eta-path: a slider over all optimal policies, curves, and a map or a table.

    Write the page to a file (`Path("explorer.html").write_text(...)`) and open it in a browser. It needs no server and
    no network.

    Args:
        path: The eta-path. If it was computed with a tolerance, the page says so.
        world: The grid world from which the model of the path was read, to draw its map; without it, the page has a
            table of states.
        title: Heading of the page.
    """
    if world is not None and len(world.cells) != path.mdp.n_states:
        raise ValueError(
            f"world has {len(world.cells)} states, but the path's model has {path.mdp.n_states}: pass the world from "
            "which the model was read, or None for a table of states."
        )
    _check_size(path)
    heading = "Lazy-MDP explorer" if title is None else title
    parts = {
        "TITLE": html.escape(heading).encode("ascii", "xmlcharrefreplace").decode(),
        "LIGHT": css_variables(LIGHT_THEME),
        "DARK": css_variables(DARK_THEME),
        "DATA": as_json(_data(path, world, heading)),
        "CSS": asset("explorer.css"),
        "PATH_JS": asset("path.js"),
        "JS": asset("explorer.js"),
        "UPLOT_CSS": asset("uPlot.min.css"),
        "UPLOT_JS": asset("uPlot.iife.min.js"),
        "UPLOT_LICENSE": asset("uPlot.LICENSE").strip(),
    }
    return filled(asset("explorer.html"), parts)


def _check_size(path: EtaPath) -> None:
    """Raises an error if the page would be too large for a browser, before it is made."""
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
    """Returns the data of the page, with the names that path.js and explorer.js use."""
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
        "breakpoints": packed(path.breakpoints, "f8"),
        "switches": packed(path.switches, "i4"),
        "startValues": packed(path.start_base_values, "f8"),
        "startCounts": packed(path.start_control_counts, "f8"),
        "values": packed(values, "f8"),
        "counts": packed(counts, "f8"),
        "criticalEta": packed(path.critical_eta, "f8"),
        "intervals": {int(state): path.control_intervals(int(state)) for state in path.non_indexable_states},
        "indptr": packed(mdp.transitions.indptr, "i4"),
        "indices": packed(mdp.transitions.indices, "i4"),
        "probabilities": packed(mdp.transitions.data, "f8"),
        "rewards": packed(mdp.rewards, "f8"),
        "defaultPolicy": packed(path.default_policy, "f8"),
        "absorbing": packed(mdp.absorbing, "u1"),
        "startState": int(np.argmax(mdp.start)),
        "world": None if world is None else _world(world),
        "controlColors": [to_hex(CONTROL_SCALE(part)) for part in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "valueColors": VALUE_STOPS,
    }


def _lines(path: EtaPath) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns `V` and `K` of every policy, `[B+1, S]` each, by increasing price.

    They are in double precision, because a lazy-gap is often a small difference of large values.
    """
    shape = (len(path.breakpoints) + 1, path.mdp.n_states)
    values, counts = np.empty(shape), np.empty(shape)
    for segment, price in enumerate([0.0, *path.breakpoints]):  # at a breakpoint: the line above it
        counts[segment] = path.control_count_at(price)
        values[segment] = path.value_at(price) + price * counts[segment]
    return values, counts


def _world(world: GridWorld) -> dict[str, Any]:
    """Returns the map and its layers; in each layer, a cell holds at most one state."""
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
    """Returns, for each state, the number of earlier states on the same cell."""
    seen: dict[tuple[int, int], int] = {}
    earlier = []
    for cell in cells:
        earlier.append(seen.get(cell, 0))
        seen[cell] = earlier[-1] + 1
    return np.array(earlier, dtype=np.int64)
