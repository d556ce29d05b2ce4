"""The style of all pictures, which `lazymdp.mplstyle` in this folder defines."""

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
"""Color map from low to high importance."""
STYLE = Path(__file__).with_name("lazymdp.mplstyle")
"""Path of the matplotlib style."""


@contextmanager
def styled() -> Iterator[None]:
    """Applies the style of the project inside a `with` block, and restores matplotlib's settings afterwards."""
    with plt.style.context(STYLE):
        yield


def in_style(draw: Callable[_P, Axes]) -> Callable[_P, Axes]:
    """Decorates a function so that everything it draws has the style of the project."""

    @functools.wraps(draw)
    def drawn(*args: _P.args, **kwargs: _P.kwargs) -> Axes:
        with styled():
            return draw(*args, **kwargs)

    return drawn


def plain(name: object) -> str:
    """Escapes a name given by the user so that matplotlib draws it literally.

    Otherwise, text between two dollar signs would be a formula, and a legend would leave out a name that begins with an
    underscore: it gets a space in front.
    """
    text = str(name).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Returns `ax`, or the axes of a new figure of this size in inches if it is None."""
    return plt.subplots(figsize=size)[1] if ax is None else ax
