"""Rivers & Bridges: three rivers to cross, where one wrong step ends the episode with a large penalty."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lazymdp import _colors
from lazymdp.envs import grid

_LAYOUT = """
    S..~...~...~..G
    ...~...=...~...
    ...=...~...~...
    ...~...~...=...
    ...~...~...~...
"""
_ENTERING_REWARDS = {"~": -100.0, "G": 1.0}
_TILES = {
    "S": grid.START_TILE,
    ".": grid.Tile("floor"),
    "~": grid.Tile(
        "river",
        _colors.DEEP_WATER,
        ((grid.wave(0.32, 0.05, 0.06) | grid.wave(0.72, 0.05, 0.06), _colors.WATER),),
    ),
    "=": grid.Tile(
        "bridge",
        _colors.DEEP_WATER,
        (
            (grid.box(0, 0.12, 1, 0.9), _colors.BRIDGE),
            (
                np.logical_or.reduce([grid.box(x, 0.12, x + 0.03, 0.9) for x in (0.2, 0.4, 0.6, 0.8)]),
                _colors.PLANK_GAP,
            ),
            (grid.box(0, 0.12, 1, 0.21) | grid.box(0, 0.81, 1, 0.9), _colors.RAIL),
        ),
    ),
    "G": grid.Tile(
        "goal",
        layers=(
            (grid.pennant(0.34, 0.34, 0.5, 0.4), _colors.FLAG),
            (grid.box(0.29, 0.14, 0.35, 0.86) | grid.box(0.17, 0.82, 0.47, 0.89), _colors.INK),
        ),
    ),
}


class RiversAndBridges(grid.GridWorld):
    """A walk over three bridges, each one cell wide, between rivers that end the episode.

    ## Description

    The agent starts in the corner of a meadow that three rivers divide into four strips, and has to
    reach the goal on the far side. On the meadow, a bad move costs little time. On a bridge, two of
    the four moves lead into the water. Taking control matters on the bridges and almost nowhere
    else, which makes this world a test for lazy agents.

    The default map (`S` start, `.` floor, `~` river, `=` bridge, `G` goal):

        S..~...~...~..G
        ...~...=...~...
        ...=...~...~...
        ...~...~...=...
        ...~...~...~...

    ## Action space

    `Discrete(4)`: 0 moves up, 1 right, 2 down, 3 left, always by one cell. A move beyond the edge
    of the map leaves the agent where it is. All moves are deterministic.

    ## Observation space

    `Discrete(rows * columns)`, which is `Discrete(75)` on the default map: the cell of the agent in
    reading order, `row * columns + column`. Every cell is a state, including the water.

    ## Starting state

    Always the cell marked `S`.

    ## Rewards

    - entering the goal: 1
    - entering a river: -100
    - any other move: 0

    ## Episode end

    The episode terminates when the agent enters the goal or a river. In `P` these states are
    absorbing: each move stays there, has reward 0 and is terminated. `gymnasium.make` truncates an
    episode after 1000 steps.

    ## Information

    `reset` and `step` both return one key:

    - `prob`: the probability of the initial state or of the outcome of the move, which is 1.0 in
      this deterministic world.

    The attributes `P`, `initial_state_distrib`, `state_names` and `action_names` hold the model.
    `cells` (`[S, 2]`, the row and column of each state), `grid_shape` and `layout` relate states to
    the map.

    ## Arguments

    - `layout`: another map, as a string with one line per row or as a sequence with one string per
      row. It needs exactly one `S` and at least one `G`. None stands for the map above.
    - `render_mode`: None, "ansi" (text, with the agent as `@`) or "rgb_array" (pixels).

    ```python
    import gymnasium as gym
    import lazymdp.envs

    env = gym.make("lazymdp/RiversAndBridges-v0", layout=["S~G", ".=."], render_mode="ansi")
    ```

    ## Version history

    - v0: first version. The paper describes this world, but its picture is missing from the source.
      This map is a reconstruction that has the properties stated in the paper.
    """

    def __init__(self, layout: str | Sequence[str] | None = None, render_mode: str | None = None) -> None:
        """Reads the map and builds the model; see the class for the arguments."""
        rows = grid.read_layout(_LAYOUT if layout is None else layout, _TILES)
        if not grid.find(rows, "G"):
            raise ValueError("layout has no goal: put a 'G' on at least one cell")
        cells = np.argwhere(np.ones((len(rows), len(rows[0])), dtype=bool))
        super().__init__(
            rows,
            tiles=_TILES,
            cells=cells,
            state_names=[f"({grid.place(row, column)})" for row, column in cells],
            successors=_successors(rows),
            entering_rewards=_ENTERING_REWARDS,
            render_mode=render_mode,
        )


def _successors(layout: grid.Layout) -> NDArray[np.int64]:
    """Returns the state that each move leads to, `[S, A]`; states are cells in reading order."""
    n_rows, n_columns = len(layout), len(layout[0])
    return np.array(
        [
            [
                np.ravel_multi_index(grid.neighbor(layout, row, column, action), (n_rows, n_columns))
                for action in range(len(grid.ACTION_NAMES))
            ]
            for row in range(n_rows)
            for column in range(n_columns)
        ]
    )
