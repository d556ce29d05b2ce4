"""Curves over the price."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from lazymdp.exact.path import EtaPath
from lazymdp.show.colors import CONTROL, LAZY


def path_curves(path: EtaPath, *, ax: Axes | None = None) -> Axes:
    """Draws the frontier of a path: base return against expected controls, every optimal policy a point.

    Args:
        path: An eta-path.
        ax: Where to draw; by default a new figure.
    """
    if ax is None:
        _, ax = plt.subplots(figsize=(4.6, 3.4), layout="constrained")
    ax.plot(path.start_counts, path.start_values, color=LAZY, linewidth=1.5, zorder=1)
    ax.scatter(path.start_counts, path.start_values, s=9, color=CONTROL, zorder=2)
    ax.set_xlabel("expected discounted controls from the start")
    ax.set_ylabel("expected return (price excluded)")
    ax.set_title(f"{np.size(path.start_counts)} optimal policies", loc="left", fontsize=10)
    ax.spines[["top", "right"]].set_visible(False)
    return ax
