"""Curves: over the price, over controls, over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from lazymdp._colors import CONTROL, FAINT, INK, LAZY
from lazymdp.measure.statistics import Interval
from lazymdp.show.style import axes_or_new, in_style

_LINES = ((INK, "-"), (CONTROL, "-"), (FAINT, "--"), (LAZY, "-."), (CONTROL, ":"))
"""Colour and dashes of the curves of one picture: told apart in gray too."""


class Frontier(Protocol):
    """What `path_curves` draws; an `EtaPath` is one."""

    @property
    def start_counts(self) -> NDArray[np.float64]:
        """`[P]` expected discounted controls of each policy."""

    @property
    def start_values(self) -> NDArray[np.float64]:
        """`[P]` return of each policy, price excluded."""


@in_style
def path_curves(path: Frontier, *, ax: Axes | None = None) -> Axes:
    """Draws the frontier of a path: base return against expected controls, every optimal policy a point.

    Args:
        path: An eta-path, or anything with its `start_counts` and `start_values`.
        ax: Where to draw; by default a new figure.
    """
    ax = axes_or_new(ax, (4.6, 3.4))
    ax.plot(path.start_counts, path.start_values, color=LAZY, linewidth=1.5, zorder=1)
    ax.scatter(path.start_counts, path.start_values, s=9, color=CONTROL, zorder=2)
    ax.set_xlabel("expected discounted controls from the start")
    ax.set_ylabel("expected return (price excluded)")
    ax.set_title(f"{np.size(path.start_counts)} optimal policies")
    return ax


@in_style
def frequency_curve(
    breakpoints: ArrayLike,
    frequency: ArrayLike,
    *,
    bounds: Mapping[str, float] | None = None,
    label: str | None = None,
    color: str = CONTROL,
    ax: Axes | None = None,
) -> Axes:
    """Draws how often the lazy action is chosen against the price: one step per optimal policy.

    Args:
        breakpoints: `[B]` prices at which the policy changes, increasing.
        frequency: `[B+1]` of each policy, from the smallest price to the largest.
        bounds: Prices to mark, by name (`eta_min`, `eta_max`, a theorem's).
        label: Of the curve, for a legend.
        color: Of the curve.
        ax: Where to draw; by default a new figure.
    """
    ax = axes_or_new(ax, (4.6, 3.0))
    prices = np.asarray(breakpoints, dtype=float)
    shares = np.asarray(frequency, dtype=float)
    if shares.shape != (prices.size + 1,) or not prices.size:
        raise ValueError(
            f"frequency has shape {shares.shape}, expected [{prices.size + 1}], one more than breakpoints."
        )
    edges = np.concatenate([[prices[0] / 3.0], prices, [prices[-1] * 3.0]])
    ax.stairs(shares, edges, baseline=None, color=color, linewidth=1.6, label=label)
    marks = ((":", "v"), ("--", "^"), ("-.", "x"))
    for (name, price), (dashes, marker) in zip((bounds or {}).items(), marks * len(bounds or {}), strict=False):
        ax.axvline(price, color=FAINT, linestyle=dashes, linewidth=1.0, zorder=0)
        ax.plot([price], [0.5], marker, color=FAINT, markersize=5, label=f"{name} = {price:.4g}")
    ax.set_xscale("log")
    ax.set_ylim(-0.04, 1.04)
    ax.set_xlabel("eta")
    ax.set_ylabel("frequency of the lazy action")
    return ax


@in_style
def score_curves(x: ArrayLike, curves: Mapping[str, Interval], *, ax: Axes | None = None) -> Axes:
    """Draws learning curves: a mean over seeds each, with its interval as a band.

    Args:
        x: `[P]` episodes or steps.
        curves: By name, the mean and its interval, each `[P]`.
        ax: Where to draw; by default a new figure.
    """
    ax = axes_or_new(ax, (4.6, 3.4))
    points = np.asarray(x, dtype=float)
    if len(curves) > len(_LINES):
        raise ValueError(f"{len(curves)} curves in one picture, at most {len(_LINES)} can be told apart.")
    for (name, curve), (color, dashes) in zip(curves.items(), _LINES, strict=False):
        ax.fill_between(points, curve.low, curve.high, color=color, alpha=0.22, linewidth=0)
        ax.plot(points, curve.mean, color=color, linestyle=dashes, label=name)
    ax.set_xlabel("episode")
    ax.set_ylabel("score (price excluded)")
    ax.legend(loc="best")
    return ax
