"""The one look of all pictures: `lazymdp.mplstyle`, beside this file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap

from lazymdp._colors import CONTROL_STOPS

_P = ParamSpec("_P")
CONTROL_SCALE = LinearSegmentedColormap.from_list("control", CONTROL_STOPS)
"""Color map from low to high."""
STYLE = Path(__file__).with_name("lazymdp.mplstyle")


@contextmanager
def styled() -> Iterator[None]:
    """Draws what is inside in the style of the project; matplotlib's settings are as before afterwards."""
    with plt.style.context(STYLE):
        yield


def in_style(draw: Callable[_P, Axes]) -> Callable[_P, Axes]:
    """Makes a function draw all it draws, legend and titles too, in the style of the project."""

    @functools.wraps(draw)
    def drawn(*args: _P.args, **kwargs: _P.kwargs) -> Axes:
        with styled():
            return draw(*args, **kwargs)

    return drawn


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes given, or those of a new figure."""
    return plt.subplots(figsize=size)[1] if ax is None else ax
