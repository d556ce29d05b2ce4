"""Maps of grid worlds: where the agent takes control, with which action, and how important each cell is."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize, to_hex, to_rgb
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import real_array, shown
from lazymdp._colors import BRIDGE, CONTROL, FLOOR, INK, LAZY, WALL, WATER
from lazymdp.show.style import CONTROL_SCALE, axes_or_new, in_style, plain

_ARROWS = {"up": (0, -1), "right": (1, 0), "down": (0, 1), "left": (-1, 0)}
_LABELS = "SGTKDA"
"""Characters of a layout that are written into the map."""


class GridWorld(Protocol):
    """The attributes that a world needs to be drawn; both worlds of `lazymdp.envs` have them.

    Attributes:
        layout: The map, one string per row.
        cells: `[S, 2]` row and column of each state.
    """

    layout: tuple[str, ...]
    cells: NDArray[np.int64]

    @property
    def action_names(self) -> tuple[str, ...]:
        """The names up, right, down and left, in the order of the actions."""


@in_style
def policy_map(
    world: GridWorld,
    action: ArrayLike,
    *,
    values: ArrayLike | None = None,
    limits: tuple[float, float] | None = None,
    layer: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws a policy: cells in control are orange with an arrow, lazy cells are gray with a dot.

    Args:
        world: The grid world.
        action: `[S]` actions; the last one is lazy.
        values: `[S]` numbers that determine the color of the cells in control, from light to dark orange; by default
            all have the same color.
        limits: The numbers with the lightest and the darkest color, so that several maps can be compared; by default
            the extremes of `values`.
        layer: `[S]` bool, the states to draw if several share a cell (without and with the key); by default all.
        ax: The axes to draw into; by default those of a new figure.
    """
    chosen = _per_state(world, action, "action")
    axes = _canvas(world, ax)
    scale = None
    if values is not None:
        numbers = _per_state(world, values, "values")
        scale = ScalarMappable(Normalize(*(limits or (numbers.min(), numbers.max()))), CONTROL_SCALE)
    for state in _drawn(world, layer):
        row, column = world.cells[state]
        if world.layout[row][column] in "#~GT":
            continue
        if chosen[state] < len(world.action_names):
            color = CONTROL if scale is None else to_hex(tuple(scale.to_rgba(numbers[state])))
            axes.add_patch(_square(row, column, color))
            _arrow(axes, row, column, world.action_names[int(chosen[state])], light=_is_dark(color))
        else:
            axes.add_patch(_square(row, column, LAZY))
            if world.layout[row][column] not in _LABELS:
                axes.plot(column, row, ".", color="white", markersize=4)
    _write_letters(world, axes)
    return axes


@in_style
def world_map(world: GridWorld, *, ax: Axes | None = None) -> Axes:
    """Draws only the world: walls, water, bridges, and the letters of its special cells."""
    _check_world(world)
    axes = _canvas(world, ax)
    for row, line in enumerate(world.layout):
        for column, cell in enumerate(line):
            if cell not in "#~":
                axes.add_patch(_square(row, column, BRIDGE if cell == "=" else FLOOR))
            if cell in _LABELS:
                axes.text(column, row, cell, ha="center", va="center", fontsize=10, weight="bold", color=INK)
    return axes


@in_style
def heat_map(
    world: GridWorld,
    values: ArrayLike,
    *,
    layer: ArrayLike | None = None,
    label: str = "",
    top: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draws one number per state, such as the lazy-gap or `critical_eta`, with a color bar.

    Args:
        world: The grid world.
        values: `[S]` numbers; those that are not finite are left out.
        layer: `[S]` bool, the states to draw if several share a cell; by default all.
        label: Label of the color bar.
        top: The number with the darkest color, so that several maps can be compared; by default the largest one.
        ax: The axes to draw into; by default those of a new figure.
    """
    numbers = _per_state(world, values, "values")
    axes = _canvas(world, ax)
    states = _drawn(world, layer)
    image = np.full((len(world.layout), len(world.layout[0])), np.nan)
    for state in states:
        row, column = world.cells[state]
        if world.layout[row][column] not in "#~GT":
            image[row, column] = numbers[state]
    if top is None:
        top = float(np.nanmax(image)) if np.isfinite(image).any() else 0.0
    edges = [np.arange(size + 1) - 0.5 for size in reversed(image.shape)]
    drawn = axes.pcolormesh(
        *edges,
        np.ma.masked_invalid(image),
        cmap=CONTROL_SCALE,
        vmin=0.0,
        vmax=top if top > 0.0 else 1.0,
        edgecolors="white",
        linewidth=0.8,
    )
    axes.figure.colorbar(drawn, ax=axes, shrink=0.75, pad=0.02, label=plain(label))
    _write_letters(world, axes)
    return axes


def _drawn(world: GridWorld, layer: ArrayLike | None) -> NDArray[np.int64]:
    """Returns the states to draw."""
    states = np.arange(len(world.cells))
    return states if layer is None else states[_per_state(world, layer, "layer").astype(bool)]


def _check_world(world: Any) -> None:
    if not hasattr(world, "layout") or not hasattr(world, "cells"):
        raise TypeError(f"world is {shown(world)}, expected a grid world, such as those of `lz.envs`.")


def _per_state(world: Any, numbers: ArrayLike, name: str) -> NDArray[np.float64]:
    """Returns `[S]` numbers, and raises an error if there is not one for each state of the world."""
    _check_world(world)
    array = real_array(numbers, name)
    if array.shape != (len(world.cells),):
        raise ValueError(f"{name} has shape {array.shape}, expected [{len(world.cells)}]: one entry per state.")
    return array


def _arrow(axes: Axes, row: int, column: int, move: str, *, light: bool) -> None:
    dx, dy = _ARROWS[move]
    axes.annotate(
        "",
        (column + 0.36 * dx, row + 0.36 * dy),
        (column - 0.36 * dx, row - 0.36 * dy),
        arrowprops={"arrowstyle": "-|>", "color": "white" if light else INK, "lw": 1.3, "shrinkA": 0, "shrinkB": 0},
    )


def _is_dark(color: str) -> bool:
    red, green, blue = to_rgb(color)
    return 0.30 * red + 0.59 * green + 0.11 * blue < 0.62  # the brightness in grayscale


def _square(row: int, column: int, color: str) -> Rectangle:
    return Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=color, edgecolor="white", linewidth=0.8)


def _canvas(world: GridWorld, ax: Axes | None) -> Axes:
    """Draws the cells that are not states with a choice: walls, water and goals."""
    rows, columns = len(world.layout), len(world.layout[0])
    ax = axes_or_new(ax, (0.42 * columns + 0.4, 0.42 * rows + 0.6))
    for row, line in enumerate(world.layout):
        for column, cell in enumerate(line):
            if cell in "#~GT":
                ax.add_patch(_square(row, column, {"#": WALL, "~": WATER}.get(cell, "white")))
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_ylim(rows - 0.5, -0.5)
    ax.set_aspect("equal")
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_visible(True)
        side.set_color(WALL)
    return ax


def _write_letters(world: GridWorld, ax: Axes) -> None:
    for row, line in enumerate(world.layout):
        for column, cell in enumerate(line):
            if cell in _LABELS:
                ax.text(
                    column - 0.44, row - 0.40, cell, ha="left", va="top", fontsize=7, weight="bold", color=INK, zorder=3
                )
