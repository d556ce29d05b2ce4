"""The data inside the explorer's page, and how they are encoded.

The size of the page grows with the number of transitions and of switches, not with the number of policies times the
number of states. The base value `V` and the control count `K` of every state are stored for as many policies as fit
into a budget, the *keyframes*; the browser evaluates the policies in between, starting from the nearest keyframe.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import check_count, shown
from lazymdp._colors import VALUE_STOPS
from lazymdp.exact.path import EtaPath
from lazymdp.mdp import MDP
from lazymdp.show.grid_maps import GridWorld
from lazymdp.show.style import CONTROL_SCALE

_LARGEST_MB = 20.0
"""Largest size of the data, in megabytes; browsers are slow with larger pages."""
_KEYFRAMES_MB = 4.0
"""Budget for the keyframes, in megabytes. The first and the last policy are keyframes even if they exceed it."""
_MOST_AXES = 3


def check_axes(axes: Mapping[str, int], mdp: MDP) -> None:
    """Raises an error unless the states of the model are the product of the axes, with or without an end state."""
    if not isinstance(axes, Mapping):
        raise ValueError(f"axes is {shown(axes)}, expected names and sizes, such as {{'wear': 20, 'jobs': 6}}.")
    if not 1 <= len(axes) <= _MOST_AXES:
        raise ValueError(f"axes has {len(axes)} entries, but a map has one to {_MOST_AXES} axes.")
    for name, size in axes.items():
        check_count(size, f"axes[{name!r}]", "the number of values of this axis")
    product = math.prod(axes.values())
    extra = mdp.n_states - product
    if extra == 0 or (extra == 1 and mdp.absorbing[-1]):
        return
    sizes = " x ".join(map(str, axes.values()))
    raise ValueError(
        f"axes ({', '.join(axes)}) give {sizes}{f' = {product}' if len(axes) > 1 else ''} states, but the path's model "
        f"has {mdp.n_states}. Only one more state is allowed: an absorbing one at the end"
        + (f", but state {product} is not absorbing." if extra == 1 else ".")
    )


def page_data(path: EtaPath, world: GridWorld | None, axes: Mapping[str, int] | None, title: str) -> dict[str, Any]:
    """Returns the data of the page, with the names that its scripts use."""
    mdp = path.mdp
    data = {
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
        "criticalEta": packed(path.critical_eta, "f8"),
        "intervals": {int(state): path.control_intervals(int(state)) for state in path.non_indexable_states},
        "rowSizes": packed(np.diff(mdp.transitions.indptr), "i4"),
        "indices": packed(mdp.transitions.indices, "i4"),
        "probabilities": packed(mdp.transitions.data, "f8"),
        "rewards": packed(mdp.rewards, "f8"),
        "defaultPolicy": packed(path.default_policy, "f8"),
        "absorbing": packed(mdp.absorbing, "u1"),
        "startState": int(np.argmax(mdp.start)),
        "world": None if world is None else _world(world),
        "axes": None if axes is None else [{"name": name, "size": int(size)} for name, size in axes.items()],
        "controlColors": [to_hex(CONTROL_SCALE(part)) for part in (0.0, 0.25, 0.5, 0.75, 1.0)],
        "valueColors": VALUE_STOPS,
    }
    frames = keyframes(path)
    _check_size(data, path, frames.size)
    values, counts = _lines(path, frames)
    return {
        **data,
        "keyframes": packed(frames, "i4"),
        "values": packed(values, "f8"),
        "counts": packed(counts, "f8"),
    }


def keyframes(path: EtaPath) -> NDArray[np.int64]:
    """Returns the policies whose lines are stored, increasing: the first, the last, and some evenly between them."""
    policies = len(path.breakpoints) + 1
    affordable = int(_KEYFRAMES_MB / _line_mb(path.mdp.n_states))
    return np.unique(np.linspace(0, policies - 1, min(policies, max(affordable, 2))).round().astype(np.int64))


def _line_mb(n_states: int) -> float:
    """Returns the size of `V` and `K` of one policy in base64."""
    return 4 / 3 * 16e-6 * n_states


def _check_size(data: dict[str, Any], path: EtaPath, frames: int) -> None:
    """Raises an error if the page would be too large for a browser, before the keyframes are computed."""
    names = sum(map(len, path.mdp.state_names)) if path.mdp.state_names else 0
    encoded = sum(len(part) for entry in data.values() if isinstance(entry, dict) for part in map(str, entry.values()))
    model_mb = 1e-6 * (encoded + names)
    lines_mb = frames * _line_mb(path.mdp.n_states)
    if lines_mb + model_mb > _LARGEST_MB:
        raise ValueError(
            f"the page would take about {lines_mb + model_mb:.0f} MB, more than {_LARGEST_MB:.0f}: {model_mb:.1f} MB "
            f"for the model, with {path.mdp.transitions.nnz} transitions and {len(path.switches)} switches, and "
            f"{lines_mb:.1f} MB for the values of {path.mdp.n_states} states. Explore a smaller model, or one with "
            "fewer transitions for each state and action."
        )


def _lines(path: EtaPath, frames: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns `V` and `K` of the keyframes, `[F, S]` each.

    They are in double precision, because a lazy-gap is often a small difference of large values.
    """
    shape = (len(frames), path.mdp.n_states)
    values, counts = np.empty(shape), np.empty(shape)
    starts = np.append(0.0, path.breakpoints)  # at a breakpoint, the path returns the line above it
    for frame, price in enumerate(starts[frames]):
        counts[frame] = path.control_count_at(price)
        values[frame] = path.value_at(price) + price * counts[frame]
    return values, counts


def packed(array: ArrayLike, kind: str) -> dict[str, str]:
    """Encodes an array as base64 of little-endian numbers in C order; `kind` is f8, i4 or u1.

    An array with at most 256 different numbers, as probabilities and rewards often are, is stored as one byte per entry
    that points into the `table` of these numbers. Nothing is rounded.
    """
    numbers = np.ascontiguousarray(array, dtype=f"<{kind}").ravel()
    if kind != "u1" and numbers.size > 256:
        bits = numbers.view(f"<u{numbers.itemsize}")  # compares bits, so that -0.0 survives
        table, codes = np.unique(bits, return_inverse=True)
        if table.size <= 256:
            return {"type": kind, "table": _base64(table), "base64": _base64(codes.astype("u1"))}
    return {"type": kind, "base64": _base64(numbers)}


def _base64(numbers: NDArray[Any]) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")


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
