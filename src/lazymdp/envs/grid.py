"""The base class of the grid worlds: a checked map, a deterministic tabular environment, and its pictures.

A world is defined by its map (rows of characters), a table of successors `[S, A]`, and the rewards for entering its
absorbing cells. Everything else, including `P`, follows from these three.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp import _colors
from lazymdp._arrays import sample_rows

# --- The map -------------------------------------------------------------------------------------

Layout = tuple[str, ...]

ACTION_NAMES = ("up", "right", "down", "left")
_MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # (rows, columns), in the order of ACTION_NAMES
COUNTED_FROM_0 = "(rows and columns are counted from 0)"


def read_layout(layout: str | Sequence[str], tiles: Mapping[str, "Tile"]) -> Layout:
    """Returns a map as a tuple of rows of equal length, and raises an error if it is not a valid map.

    Args:
        layout: The map: one string with one line per row (any indentation), or a sequence with one string per row.
        tiles: The characters that the map may contain.

    Returns:
        The rows, which contain exactly one start `S`.
    """
    if isinstance(layout, str):
        # Spaces at the end of a line are invisible, and never part of a map.
        text = "\n".join(line.rstrip() for line in layout.splitlines())
        rows = tuple(inspect.cleandoc(text).splitlines())
    elif isinstance(layout, Sequence) and all(isinstance(row, str) for row in layout):
        rows = tuple(layout)
    else:
        raise TypeError(f"layout must be a string or a sequence of strings, one per row; received {layout!r}")
    if not any(rows):
        raise ValueError(f"layout is empty: it needs at least one row; received {layout!r}")
    for row, characters in enumerate(rows):
        _check_row(row, characters, len(rows[0]), tiles)

    starts = find(rows, "S")
    if not starts:
        raise ValueError("layout has no start: put one 'S' on the cell where episodes start")
    if len(starts) > 1:
        raise ValueError(
            f"layout has a second start 'S' at {place(*starts[1])}; the first is at "
            f"{place(*starts[0])}, and there must be exactly one {COUNTED_FROM_0}"
        )
    return rows


def _check_row(row: int, characters: str, length: int, tiles: Mapping[str, "Tile"]) -> None:
    if len(characters) != length:
        raise ValueError(
            f"layout row {row} has length {len(characters)}, but row 0 has length {length}: all "
            f"rows must have the same length {COUNTED_FROM_0}; received {characters!r}"
        )
    for column, character in enumerate(characters):
        if character not in tiles:
            known = ", ".join(f"{known!r} {tile.name}" for known, tile in tiles.items())
            raise ValueError(
                f"layout has {character!r} at {place(row, column)}, which has no meaning here; "
                f"use one of {known} {COUNTED_FROM_0}"
            )


def find(layout: Layout, character: str) -> list[tuple[int, int]]:
    """Returns the (row, column) of every cell that holds `character`, in reading order."""
    return [
        (row, column)
        for row, characters in enumerate(layout)
        for column, found in enumerate(characters)
        if found == character
    ]


def place(row: int, column: int) -> str:
    """Returns the name of a cell, for error messages and names of states."""
    return f"row {row}, column {column}"


def neighbor(layout: Layout, row: int, column: int, action: int) -> tuple[int, int]:
    """Returns the cell that a move leads to; at the edge of the map, the cell itself."""
    rows, columns = _MOVES[action]
    return (
        min(max(row + rows, 0), len(layout) - 1),
        min(max(column + columns, 0), len(layout[0]) - 1),
    )


# --- The environment -----------------------------------------------------------------------------

Outcome = tuple[float, int, float, bool]  # (probability, next state, reward, terminated)


class GridWorld(gym.Env[int, int]):
    """A tabular world on a map, with four deterministic moves.

    Attributes:
        layout: The map, one string per row.
        grid_shape: (rows, columns) of the map.
        cells: int `[S, 2]`, the (row, column) of every state.
        state_names: One name per state.
        action_names: One name per action.
        P: The model, `P[state][action] = [(probability, next_state, reward, terminated)]`.
        initial_state_distrib: float `[S]`, the distribution from which `reset` samples.
        s: The current state.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (as in Gymnasium)
    action_names = ACTION_NAMES

    def __init__(
        self,
        layout: Layout,
        *,
        tiles: Mapping[str, "Tile"],
        cells: NDArray[np.int64],
        state_names: Sequence[str],
        successors: NDArray[np.int64],
        entering_rewards: Mapping[str, float],
        render_mode: str | None,
    ) -> None:
        """Builds the model.

        Args:
            layout: The rows of a checked map.
            tiles: How each character is drawn.
            cells: `[S, 2]` (row, column) of every state. Episodes start in the first state on the start `S`.
            state_names: `[S]` names of the states.
            successors: `[S, A]` state that each move leads to, without regard to absorbing states.
            entering_rewards: The absorbing characters, and the reward for entering each of them.
            render_mode: None, "ansi" or "rgb_array".
        """
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(
                f"render_mode must be None or one of {self.metadata['render_modes']}; received {render_mode!r}"
            )
        self.render_mode = render_mode
        self.layout = layout
        self.grid_shape = (len(layout), len(layout[0]))
        self.cells = cells
        self.state_names = tuple(state_names)
        self._tiles = tiles
        self._images: dict[int, NDArray[np.uint8]] = {}  # by state, once they have been drawn

        n_states, n_actions = successors.shape
        # Gymnasium's type hints want NumPy integers, although Discrete spaces accept Python's.
        self.observation_space = gym.spaces.Discrete(n_states)  # type: ignore[assignment]
        self.action_space = gym.spaces.Discrete(n_actions)  # type: ignore[assignment]
        rewards = [entering_rewards.get(layout[row][column]) for row, column in cells]
        self.P: dict[int, dict[int, list[Outcome]]] = {
            state: {action: [_outcome(state, int(successors[state, action]), rewards)] for action in range(n_actions)}
            for state in range(n_states)
        }
        self.s = [layout[row][column] for row, column in cells].index("S")
        self.initial_state_distrib = np.zeros(n_states)
        self.initial_state_distrib[self.s] = 1.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Starts an episode in a state sampled from `initial_state_distrib`; there are no options."""
        super().reset(seed=seed)
        self.s = int(sample_rows(self.initial_state_distrib, self.np_random.random()))
        return self.s, {"prob": float(self.initial_state_distrib[self.s])}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Moves the agent; an absorbing state is never left."""
        if action not in self.action_space:
            moves = ", ".join(f"{index} {name}" for index, name in enumerate(self.action_names))
            raise ValueError(f"action must be one of {moves}; received {action!r}")
        [(prob, self.s, reward, terminated)] = self.P[self.s][int(action)]
        return self.s, reward, terminated, False, {"prob": prob}

    def render(self) -> str | NDArray[np.uint8] | None:
        """Draws the map and the agent.

        Returns:
            Text for "ansi"; uint8 `[CELL * rows, CELL * columns, 3]` for "rgb_array".
        """
        if self.render_mode is None:
            gym.logger.warn(
                "render() draws nothing without a render mode: pass render_mode='ansi' or "
                "render_mode='rgb_array' to gymnasium.make"
            )
            return None
        row, column = self.cells[self.s]
        lines = list(self._shown_layout())
        under = self._tiles[lines[row][column]]
        lines[row] = lines[row][:column] + "@" + lines[row][column + 1 :]
        if self.render_mode == "ansi":
            return "\n".join([*lines, f"@ {self.state_names[self.s]}", ""])
        if self.s not in self._images:  # the state determines the image, and drawing it takes milliseconds
            agent = Tile("agent", under.ground, under.layers + self._agent_layers())
            self._images[self.s] = draw_map(lines, {**self._tiles, "@": agent})
        return self._images[self.s].copy()

    def _shown_layout(self) -> Layout:
        """Returns the map as it looks in the current state; worlds that change override this."""
        return self.layout

    def _agent_layers(self) -> tuple["Layer", ...]:
        """Returns the layers of the agent's picture in the current state."""
        return AGENT


def _outcome(state: int, successor: int, rewards: Sequence[float | None]) -> Outcome:
    """Returns the only outcome of a move; `rewards` `[S]` is None for states that are not absorbing."""
    if rewards[state] is not None:
        return 1.0, state, 0.0, True
    reward = rewards[successor]
    return 1.0, successor, 0.0 if reward is None else reward, reward is not None


# --- The pictures --------------------------------------------------------------------------------

Mask = NDArray[np.bool_]  # [fine pixels, fine pixels] of one cell
Layer = tuple[Mask, str]  # the pixels to paint, and their color in `_colors`

CELL = 32  # pixels per side of a cell; even, because many video encoders require it
_FINE = 4  # cells are drawn at this multiple of their size and averaged, to smooth the edges
_Y, _X = (np.mgrid[: CELL * _FINE, : CELL * _FINE] + 0.5) / (CELL * _FINE)
_LINE_SHADE = 0.88  # grid lines multiply the brightness of their pixels by this


@dataclass(frozen=True)
class Tile:
    """The name and the picture of one character of a map.

    Attributes:
        name: The name in error messages.
        ground: The color that fills the cell.
        layers: (mask, color) pairs, painted over the ground in this order.
    """

    name: str
    ground: str = _colors.FLOOR
    layers: tuple[Layer, ...] = ()


def disc(x: float, y: float, radius: float) -> Mask:
    """Returns a disc around (x, y); a cell is the unit square, and y points down."""
    inside: Mask = (_X - x) ** 2 + (_Y - y) ** 2 < radius**2
    return inside


def box(left: float, top: float, right: float, bottom: float) -> Mask:
    """Returns a rectangle, in the coordinates of `disc`."""
    inside: Mask = (left <= _X) & (right > _X) & (top <= _Y) & (bottom > _Y)
    return inside


def pennant(left: float, y: float, length: float, height: float) -> Mask:
    """Returns a triangle that points to the right, in the coordinates of `disc`."""
    along = (_X - left) / length
    inside: Mask = (along >= 0) & (np.abs(_Y - y) < height / 2 * (1 - along))
    return inside


def wave(y: float, height: float, thickness: float) -> Mask:
    """Returns a wavy line that continues in the next cell, in the coordinates of `disc`."""
    inside: Mask = np.abs(_Y - y - height * np.sin(4 * np.pi * _X)) < thickness / 2
    return inside


START_TILE = Tile("start", layers=((box(0.2, 0.2, 0.8, 0.8) & ~box(0.26, 0.26, 0.74, 0.74), _colors.START),))
AGENT: tuple[Layer, ...] = (
    (disc(0.516, 0.516, 0.39), _colors.INK),
    (disc(0.516, 0.516, 0.35), _colors.CONTROL),
)


def draw_map(layout: Sequence[str], tiles: Mapping[str, Tile]) -> NDArray[np.uint8]:
    """Draws a map as pixels, uint8 `[CELL * rows, CELL * columns, 3]`."""
    cells = {character: _draw_cell(tiles[character]) for character in set("".join(layout))}
    picture = np.concatenate([np.concatenate([cells[character] for character in row], axis=1) for row in layout])
    picture[-1] *= _LINE_SHADE
    picture[:-1, -1] *= _LINE_SHADE
    pixels: NDArray[np.uint8] = np.rint(picture).astype(np.uint8)
    return pixels


def _draw_cell(tile: Tile) -> NDArray[np.float64]:
    """Draws one cell, `[CELL, CELL, 3]`, with a grid line along its top and its left edge."""
    fine = np.empty((CELL * _FINE, CELL * _FINE, 3))
    fine[:] = _colors.rgb(tile.ground)
    for mask, color in tile.layers:
        fine[mask] = _colors.rgb(color)
    cell: NDArray[np.float64] = fine.reshape(CELL, _FINE, CELL, _FINE, 3).mean(axis=(1, 3))
    cell[0] *= _LINE_SHADE
    cell[1:, 0] *= _LINE_SHADE
    return cell
