"""The one look of all pictures: `lazymdp.mplstyle`, beside this file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

STYLE = Path(__file__).with_name("lazymdp.mplstyle")


@contextmanager
def styled() -> Iterator[None]:
    """Draws what is inside in the style of the project; matplotlib's settings are as before afterwards."""
    with plt.style.context(STYLE):
        yield


def axes_or_new(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes given, or those of a new figure in the style of the project."""
    if ax is not None:
        return ax
    with styled():
        _, axes = plt.subplots(figsize=size)
    return axes
