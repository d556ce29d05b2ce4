"""The one palette: *control* is orange and *lazy* is gray in every picture and on every page.

No other file of the library spells a color. The exception is `show/lazymdp.mplstyle`, which matplotlib reads and which
repeats colors of this file. A test checks both.
"""

from collections.abc import Mapping

CONTROL = "#e8710a"
LAZY = "#b9bcc1"
INK = "#202124"
FAINT = "#5f6368"
"""Between ink and lazy: a third curve, and marks."""
BLUE = "#1f77b4"
"""A curve of one more kind, where orange and the grays are taken."""

CONTROL_STOPS = ("#fff3e0", "#f7a14a", "#9a3b00")
"""Scale of control, from low to high. It darkens steadily, so that it can be read in grayscale."""
VALUE_STOPS = ("#f1f5f9", "#c3d1e0", "#8aa5c2", "#4d7199", "#1d3f66")
"""Scale of values, from low to high."""

# -- grid worlds: maps, and the pixels that `render` draws -----------------------------------------------------------

WALL = "#3d4148"
FLOOR = "#f4f1ea"
WATER = "#9cc3de"
DEEP_WATER = "#427cbc"
"""The river where a bridge is drawn across it in planks, from which `WATER` would not differ enough in grayscale."""
BRIDGE = "#dec49e"
PLANK_GAP = "#b08e62"
RAIL = "#7a5430"
LIGHT_WOOD = "#b87c46"
WOOD = "#8c562c"
DARK_WOOD = "#5c361c"
GOLD = "#e2a818"
BRASS = "#a87400"
START = "#b0aaa0"
FLAG = "#22804c"
APPLE = "#c62830"
LEAF = "#468c3c"

# -- pages: the values of CSS variables ------------------------------------------------------------------------------

LIGHT_THEME = {
    "control": CONTROL,
    "lazy": LAZY,
    "wall": WALL,
    "water": WATER,
    "bg": "#fafaf8",
    "surface": "#ffffff",
    "ink": INK,
    "muted": FAINT,
    "rule": "#e4e5e7",
    "edge": "#c9ccd1",
    "line": "#35566f",
    "focus": "#1a5fb4",
    "pick": "#eef2f6",
    "wrong": "#c5221f",
    "on-pale": INK,
}
DARK_THEME = {
    "lazy": "#4d5158",
    "wall": "#0a0b0c",
    "water": "#34607f",
    "bg": "#16171a",
    "surface": "#1e2023",
    "ink": "#e8eaed",
    "muted": "#a3a8ae",
    "rule": "#323539",
    "edge": "#4a4e54",
    "line": "#9dbdd6",
    "focus": "#8ab4f8",
    "pick": "#2a2e33",
}
"""The variables that differ from `LIGHT_THEME`."""


def rgb(color: str) -> tuple[int, int, int]:
    """Returns red, green and blue, each from 0 to 255, of a color `#rrggbb`.

    >>> rgb("#e8710a")
    (232, 113, 10)
    """
    red, green, blue = bytes.fromhex(color.removeprefix("#"))
    return red, green, blue


def css_variables(theme: Mapping[str, str]) -> str:
    """Returns the CSS declarations of a theme: `--control: #e8710a; --lazy: ...`."""
    return " ".join(f"--{name}: {color};" for name, color in theme.items())
