"""What the grid worlds share: a checked map, a deterministic tabular environment, and its pictures.

A world is given by its map (rows of characters), a table of successors `[S, A]`, and the rewards
for entering its absorbing characters. Everything else, `P` included, follows from these three.
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
    """Turns a map into a tuple of equally long rows, and refuses what is not a map.

    Args:
        layout: the map, as one string with a line per row (indented as one likes) or as one string
            per row.
        tiles: the characters that may stand in it.

    Returns:
        The rows, with exactly one start `S` among them.
    """
    if isinstance(layout, str):
        # Blanks at the end of a line are invisible, and a map has no use for them.
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
        raise ValueError("layout has no start: put one 'S' on the cell where episodes begin")
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
            f"rows must be equally long {COUNTED_FROM_0}; received {characters!r}"
        )
    for column, character in enumerate(characters):
        if character not in tiles:
            known = ", ".join(f"{known!r} {tile.name}" for known, tile in tiles.items())
            raise ValueError(
                f"layout has {character!r} at {place(row, column)}, which means nothing here; "
                f"use one of {known} {COUNTED_FROM_0}"
            )


def find(layout: Layout, character: str) -> list[tuple[int, int]]:
    """The (row, column) of every cell that holds `character`, in reading order."""
    return [
        (row, column)
        for row, characters in enumerate(layout)
        for column, found in enumerate(characters)
        if found == character
    ]


def place(row: int, column: int) -> str:
    """How errors and state names call a cell."""
    return f"row {row}, column {column}"


def neighbour(layout: Layout, row: int, column: int, action: int) -> tuple[int, int]:
    """The cell one move away; the cell itself where the map ends."""
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
        layout: the map in force, one string per row.
        grid_shape: (rows, columns) of the map.
        cells: int [S, 2], the (row, column) of every state.
        state_names: one readable name per state.
        action_names: one readable name per action.
        P: the model, `P[state][action] = [(probability, next_state, reward, terminated)]`.
        initial_state_distrib: float [S], the distribution `reset` samples from.
        s: the current state.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012 (Gymnasium's)
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
            layout: the rows of a checked map.
            tiles: how each character is drawn.
            cells: [S, 2], the (row, column) of every state; the first state on the start `S` is
                where episodes begin.
            state_names: [S], a readable name per state.
            successors: [S, A], where every move leads, before absorption is considered.
            entering_rewards: the absorbing characters, and the reward for entering each.
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

        n_states, n_actions = successors.shape
        # Gymnasium types a Discrete by NumPy's integers, though it takes Python's as well.
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
        """Starts an episode in a state sampled from `initial_state_distrib`; has no options."""
        super().reset(seed=seed)
        self.s = int(sample_rows(self.initial_state_distrib, self.np_random.random()))
        return self.s, {"prob": float(self.initial_state_distrib[self.s])}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Moves; at an absorbing state, stays there."""
        if action not in self.action_space:
            moves = ", ".join(f"{index} {name}" for index, name in enumerate(self.action_names))
            raise ValueError(f"action must be one of {moves}; received {action!r}")
        [(prob, self.s, reward, terminated)] = self.P[self.s][int(action)]
        return self.s, reward, terminated, False, {"prob": prob}

    def render(self) -> str | NDArray[np.uint8] | None:
        """Shows the map and the agent.

        Returns:
            Text for "ansi"; uint8 [CELL * rows, CELL * columns, 3] for "rgb_array".
        """
        if self.render_mode is None:
            gym.logger.warn(
                "render() shows nothing without a render mode: give render_mode='ansi' or "
                "render_mode='rgb_array' to gymnasium.make"
            )
            return None
        row, column = self.cells[self.s]
        lines = list(self._shown_layout())
        under = self._tiles[lines[row][column]]
        lines[row] = lines[row][:column] + "@" + lines[row][column + 1 :]
        if self.render_mode == "ansi":
            return "\n".join([*lines, f"@ {self.state_names[self.s]}", ""])
        agent = Tile("agent", under.ground, under.layers + self._agent_layers())
        return draw_map(lines, {**self._tiles, "@": agent})

    def _shown_layout(self) -> Layout:
        """The map as it looks in the current state, for worlds where moves change it."""
        return self.layout

    def _agent_layers(self) -> tuple["Layer", ...]:
        """How the agent looks in the current state."""
        return AGENT


def _outcome(state: int, successor: int, rewards: Sequence[float | None]) -> Outcome:
    """The only outcome of a move, where `rewards` [S] is None at states that do not absorb."""
    if rewards[state] is not None:
        return 1.0, state, 0.0, True
    reward = rewards[successor]
    return 1.0, successor, 0.0 if reward is None else reward, reward is not None


# --- The pictures --------------------------------------------------------------------------------

Mask = NDArray[np.bool_]  # [fine pixels, fine pixels] of one cell
Layer = tuple[Mask, str]  # the pixels to paint, and their color in `_colors`

CELL = 32  # pixels per side of a cell; even, as many video encoders want frames to be
_FINE = 4  # a cell is drawn this many times larger, then averaged down, to smooth its edges
_Y, _X = (np.mgrid[: CELL * _FINE, : CELL * _FINE] + 0.5) / (CELL * _FINE)
_LINE_SHADE = 0.88  # grid lines darken what they cross


@dataclass(frozen=True)
class Tile:
    """What one character of a map is called, and how it is drawn.

    Attributes:
        name: what errors call it.
        ground: the color that fills the cell.
        layers: (mask, color) pairs, painted over the ground in this order.
    """

    name: str
    ground: str = _colors.FLOOR
    layers: tuple[Layer, ...] = ()


def disc(x: float, y: float, radius: float) -> Mask:
    """A disc around (x, y), where a cell is the unit square and y points down."""
    inside: Mask = (_X - x) ** 2 + (_Y - y) ** 2 < radius**2
    return inside


def box(left: float, top: float, right: float, bottom: float) -> Mask:
    """An upright rectangle, in the coordinates of `disc`."""
    inside: Mask = (left <= _X) & (right > _X) & (top <= _Y) & (bottom > _Y)
    return inside


def pennant(left: float, y: float, length: float, height: float) -> Mask:
    """A triangle that points right, in the coordinates of `disc`."""
    along = (_X - left) / length
    inside: Mask = (along >= 0) & (np.abs(_Y - y) < height / 2 * (1 - along))
    return inside


def wave(y: float, height: float, thickness: float) -> Mask:
    """A ripple that crosses the cell and goes on in the next, in the coordinates of `disc`."""
    inside: Mask = np.abs(_Y - y - height * np.sin(4 * np.pi * _X)) < thickness / 2
    return inside


START_TILE = Tile("start", layers=((box(0.2, 0.2, 0.8, 0.8) & ~box(0.26, 0.26, 0.74, 0.74), _colors.START),))
AGENT: tuple[Layer, ...] = (
    (disc(0.516, 0.516, 0.39), _colors.INK),
    (disc(0.516, 0.516, 0.35), _colors.CONTROL),
)


def draw_map(layout: Sequence[str], tiles: Mapping[str, Tile]) -> NDArray[np.uint8]:
    """The map as pixels, uint8 [CELL * rows, CELL * columns, 3]."""
    cells = {character: _draw_cell(tiles[character]) for character in set("".join(layout))}
    picture = np.concatenate([np.concatenate([cells[character] for character in row], axis=1) for row in layout])
    picture[-1] *= _LINE_SHADE
    picture[:-1, -1] *= _LINE_SHADE
    pixels: NDArray[np.uint8] = np.rint(picture).astype(np.uint8)
    return pixels


def _draw_cell(tile: Tile) -> NDArray[np.float64]:
    """One cell, [CELL, CELL, 3], with a grid line along its top and its left."""
    fine = np.empty((CELL * _FINE, CELL * _FINE, 3))
    fine[:] = _colors.rgb(tile.ground)
    for mask, color in tile.layers:
        fine[mask] = _colors.rgb(color)
    cell: NDArray[np.float64] = fine.reshape(CELL, _FINE, CELL, _FINE, 3).mean(axis=(1, 3))
    cell[0] *= _LINE_SHADE
    cell[1:, 0] *= _LINE_SHADE
    return cell
