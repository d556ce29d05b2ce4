"""Key-Door-Treasure: four rooms, in which the reward can only be reached with a distant key."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lazymdp import _colors
from lazymdp._arguments import check_flag
from lazymdp.envs import grid

_LAYOUT = """
    #############
    #.....#.....#
    #...A.#.....#
    #.S...#.....#
    #.....#.....#
    #...........#
    ####.##D#####
    #.....#.....#
    #.....#.....#
    #.....#.....#
    #.....#T....#
    #...K.#.....#
    #############
"""
_TREASURE_REWARD = 1.0
_APPLE_REWARD = 0.1


def _key_mask(x: float, y: float, length: float) -> grid.Mask:
    """Returns a key around (x, y), with its bow to the left."""

    def part(left: float, top: float, right: float, bottom: float) -> grid.Mask:
        return grid.box(x + left * length, y + top * length, x + right * length, y + bottom * length)

    bow = grid.disc(x - 0.27 * length, y, 0.23 * length)
    hole = grid.disc(x - 0.27 * length, y, 0.11 * length)
    shaft = part(-0.1, -0.06, 0.5, 0.06)
    teeth = part(0.2, 0, 0.3, 0.2) | part(0.39, 0, 0.5, 0.24)
    return np.asarray((bow & ~hole) | shaft | teeth)


_ARCH = grid.disc(0.516, 0.42, 0.3) | grid.box(0.216, 0.42, 0.816, 1)
_BODY = grid.box(0.14, 0.5, 0.9, 0.82)
_LID = np.logical_or.reduce(
    [
        grid.disc(0.3, 0.4, 0.16),
        grid.disc(0.74, 0.4, 0.16),
        grid.box(0.3, 0.24, 0.74, 0.5),
        grid.box(0.14, 0.4, 0.9, 0.5),
    ]
)
_CHEST = _BODY | _LID
_APPLE = np.logical_or.reduce([grid.disc(x, y, 0.2) for x in (0.43, 0.6) for y in (0.56, 0.66)])
_TILES = {
    "#": grid.Tile("wall", _colors.WALL),
    ".": grid.Tile("floor"),
    "S": grid.START_TILE,
    "K": grid.Tile("key", layers=((_key_mask(0.516, 0.48, 0.78), _colors.BRASS),)),
    "D": grid.Tile(
        "door",
        _colors.WALL,
        (
            (_ARCH, _colors.LIGHT_WOOD),  # light enough to stand out from the walls in grayscale
            (_ARCH & (grid.box(0.4, 0, 0.43, 1) | grid.box(0.6, 0, 0.63, 1)), _colors.DARK_WOOD),
            (grid.disc(0.72, 0.64, 0.055), _colors.INK),
        ),
    ),
    "T": grid.Tile(
        "treasure",
        layers=(
            (_CHEST, _colors.WOOD),
            (_CHEST & (grid.box(0.25, 0, 0.32, 1) | grid.box(0.72, 0, 0.79, 1)), _colors.GOLD),
            (grid.box(0.14, 0.48, 0.9, 0.53), _colors.DARK_WOOD),
            (grid.box(0.44, 0.44, 0.6, 0.64), _colors.GOLD),
            (grid.disc(0.52, 0.55, 0.04), _colors.INK),
        ),
    ),
    "A": grid.Tile(
        "apple",
        layers=(
            (_APPLE, _colors.APPLE),
            (grid.box(0.49, 0.22, 0.54, 0.46), _colors.DARK_WOOD),
            (grid.disc(0.66, 0.38, 0.16) & grid.disc(0.6, 0.2, 0.16), _colors.LEAF),
        ),
    ),
}
# Doors are drawn open once the agent has the key. A map cannot contain an open door.
_SHOWN_TILES = _TILES | {
    "/": grid.Tile(
        "open door",
        _colors.WALL,
        ((_ARCH, _colors.FLOOR), (_ARCH & grid.box(0, 0, 0.34, 1), _colors.LIGHT_WOOD)),
    )
}
_CARRIED_KEY: grid.Layer = (_key_mask(0.516, 0.48, 0.5), _colors.INK)


class KeyDoorTreasure(grid.GridWorld):
    """Fetch the key, pass the door and take the treasure; optionally, an apple distracts from it.

    ## Description

    The agent starts in the first of four rooms. The treasure lies behind a door, which opens only
    with the key from another room. Most wrong moves on the way can be corrected later. The moves at
    the gaps in the walls, at the key and at the treasure matter most. An optional apple near the
    start ends the episode with a small reward, which turns the world into a test of exploration.

    The default map (`#` wall, `.` floor, `S` start, `K` key, `D` door, `T` treasure, `A` apple):

        #############
        #.....#.....#
        #...A.#.....#
        #.S...#.....#
        #.....#.....#
        #...........#
        ####.##D#####
        #.....#.....#
        #.....#.....#
        #.....#.....#
        #.....#T....#
        #...K.#.....#
        #############

    ## Action space

    `Discrete(4)`: 0 moves up, 1 right, 2 down, 3 left, always by one cell. A move into a wall,
    beyond the edge of the map, or into a door without the key leaves the agent where it is. All
    moves are deterministic. The agent gets the key when a move ends on its cell, and keeps it.

    ## Observation space

    `Discrete(2 * n)`, where n is the number of cells that are not walls: `Discrete(206)` on the
    default map, where n is 103. The state is `n * has_key + cell`, with the cells in reading order,
    so that the states without the key come first. Every pair of a cell and `has_key` is a state,
    even if no episode can visit it, such as the door without the key. Such states have transitions
    like all others.

    ## Starting state

    Always the cell marked `S`, without the key.

    ## Rewards

    - entering the treasure's cell: 1
    - entering the apple's cell, with `apple=True`: 0.1
    - any other move: 0

    ## Episode end

    The episode terminates when the agent enters the treasure's cell or, with `apple=True`, the
    apple's. In `P` these states are absorbing: each move stays there, has reward 0 and is
    terminated. `gymnasium.make` truncates an episode after 1000 steps.

    ## Information

    `reset` and `step` both return one key:

    - `prob`: the probability of the initial state or of the outcome of the move, which is 1.0 in
      this deterministic world.

    The attributes `P`, `initial_state_distrib`, `state_names` and `action_names` hold the model.
    `cells` (`[S, 2]`, the row and column of each state), `has_key` (`[S]`), `grid_shape` and
    `layout` relate states to the map.

    ## Arguments

    - `apple`: whether `A` is an apple. Otherwise it is floor, and `layout` shows it as `.`.
    - `layout`: another map, as a string with one line per row or as a sequence with one string per
      row. It needs exactly one `S`, at least one `T`, at most one `K`, and a `K` if there is a `D`.
      Walls around the map are not necessary. None stands for the map above.
    - `render_mode`: None, "ansi" (text, with the agent as `@` and an open door as `/`) or
      "rgb_array" (pixels).

    ```python
    import gymnasium as gym
    import lazymdp.envs

    env = gym.make("lazymdp/KeyDoorTreasure-v0", apple=True)
    env = gym.make("lazymdp/KeyDoorTreasure-v0", layout="K.S.D.T", render_mode="rgb_array")
    ```

    ## Version history

    - v0: first version. The paper describes this world, but its picture is missing from the source.
      This map is a reconstruction that has the properties stated in the paper.
    """

    def __init__(
        self,
        apple: bool = False,
        layout: str | Sequence[str] | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Reads the map and builds the model; see the class for the arguments."""
        apple = check_flag(apple, "apple")
        rows = grid.read_layout(_LAYOUT if layout is None else layout, _TILES)
        _check_things(rows, apple)
        if not apple:
            rows = tuple(row.replace("A", ".") for row in rows)
        open_cells = np.argwhere(np.array([list(row) for row in rows]) != "#")
        cells = np.concatenate([open_cells, open_cells])
        self.has_key = np.arange(len(cells)) >= len(open_cells)
        super().__init__(
            rows,
            tiles=_SHOWN_TILES,
            cells=cells,
            state_names=[
                f"({grid.place(row, column)}), {'with' if key else 'without'} key"
                for (row, column), key in zip(cells, self.has_key, strict=True)
            ],
            successors=_successors(rows, cells, self.has_key),
            entering_rewards={"T": _TREASURE_REWARD} | ({"A": _APPLE_REWARD} if apple else {}),
            render_mode=render_mode,
        )

    def _shown_layout(self) -> grid.Layout:
        if not self.has_key[self.s]:
            return self.layout
        return tuple(row.replace("K", ".").replace("D", "/") for row in self.layout)

    def _agent_layers(self) -> tuple[grid.Layer, ...]:
        return (*grid.AGENT, _CARRIED_KEY) if self.has_key[self.s] else grid.AGENT


def _check_things(layout: grid.Layout, apple: bool) -> None:
    """Raises an error if the treasure, the key or the apple is missing, or if there are two keys."""
    if not grid.find(layout, "T"):
        raise ValueError("layout has no treasure: put a 'T' on at least one cell")
    keys, doors = grid.find(layout, "K"), grid.find(layout, "D")
    if len(keys) > 1:
        raise ValueError(
            f"layout has a second key 'K' at {grid.place(*keys[1])}; the first is at "
            f"{grid.place(*keys[0])}, and there must be at most one {grid.COUNTED_FROM_0}"
        )
    if doors and not keys:
        raise ValueError(
            f"layout has a door 'D' at {grid.place(*doors[0])} {grid.COUNTED_FROM_0} but no key: "
            "put one 'K' on a cell, or replace the door by floor '.' or wall '#'"
        )
    if apple and not grid.find(layout, "A"):
        raise ValueError("apple=True, but layout has no apple: put an 'A' on at least one cell, or set apple=False")


def _successors(layout: grid.Layout, cells: NDArray[np.int64], has_key: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Returns the state that each move leads to, `[S, A]`."""
    states = {
        (int(row), int(column), bool(key)): state
        for state, ((row, column), key) in enumerate(zip(cells, has_key, strict=True))
    }

    def successor(row: int, column: int, key: bool, action: int) -> int:
        ahead = grid.neighbor(layout, row, column, action)
        if layout[ahead[0]][ahead[1]] not in ("#" if key else "#D"):
            row, column = ahead
        return states[row, column, key or layout[row][column] == "K"]

    return np.array([[successor(*at, action) for action in range(len(grid.ACTION_NAMES))] for at in states])
