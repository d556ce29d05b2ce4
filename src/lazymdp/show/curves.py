"""Curves: return against control, laziness against the price, learning curves, and fidelity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from lazymdp._colors import CONTROL, FAINT, INK, LAZY
from lazymdp.measure.statistics import Interval
from lazymdp.show.style import axes_or_new, in_style, plain

_LINES = ((INK, "-"), (CONTROL, "-"), (FAINT, "--"), (LAZY, "-."), (CONTROL, ":"))
"""Color and dashes of the curves of one picture; they differ in grayscale, too."""
MOST_CURVES = len(_LINES)
"""Largest number of frontiers in one picture."""


class PathPoints(Protocol):
    """The policies of an eta-path as points: their return and their number of controls. An `EtaPath` is one."""

    @property
    def start_control_counts(self) -> NDArray[np.float64]:
        """`[P]` expected discounted number of controls of each policy, from the initial distribution."""

    @property
    def start_base_values(self) -> NDArray[np.float64]:
        """`[P]` expected return of each policy, without the price, from the initial distribution."""


class FrontierPoints(Protocol):
    """Return and control rate at several prices. The result of a deep agent's `evaluate` is one."""

    @property
    def etas(self) -> NDArray[np.float64]:
        """`[E]` prices."""

    @property
    def control_rate(self) -> NDArray[np.float64]:
        """`[E]` share of steps in control."""

    @property
    def return_interval(self) -> Interval:
        """Mean return, price excluded, and its interval, each `[E]`."""

    @property
    def default_alone(self) -> FrontierPoints | None:
        """The default policy alone, as a single point; None if it is unknown."""


class FidelityCurves(Protocol):
    """Losses of return over the share of the steps. The result of `lz.measure.fidelity` is one."""

    @property
    def mode(self) -> str:
        """`replace` (the chosen steps are handed over) or `keep` (all others are)."""

    @property
    def shares(self) -> NDArray[np.float64]:
        """`[K]` shares of the steps that are chosen."""

    def loss(self, kind: str) -> Interval:
        """Returns the mean loss of return and its interval, each `[K]`, for `top`, `random` or `bottom` steps."""


@in_style
def path_curves(path: PathPoints, *, ax: Axes | None = None) -> Axes:
    """Draws return against expected controls, with one point per optimal policy of an eta-path.

    Args:
        path: An eta-path, or any object with the attributes of `PathPoints`.
        ax: The axes to draw into; by default those of a new figure.
    """
    ax = axes_or_new(ax, (4.6, 3.4))
    ax.plot(path.start_control_counts, path.start_base_values, color=LAZY, linewidth=1.5, zorder=1)
    ax.scatter(path.start_control_counts, path.start_base_values, s=9, color=CONTROL, zorder=2)
    ax.set_xlabel("expected discounted controls from the start")
    ax.set_ylabel("expected return (price excluded)")
    ax.set_title(f"{np.size(path.start_control_counts)} optimal policies")
    return ax


@in_style
def frontier(evaluations: FrontierPoints | Mapping[str, FrontierPoints], *, ax: Axes | None = None) -> Axes:
    """Draws return against control rate, with one point per price and the interval of its mean return.

    A line connects the points in the order of their prices. The default policy alone, which never takes control, is a
    cross at the left edge.

    Args:
        evaluations: One evaluation, or several by name.
        ax: The axes to draw into; by default those of a new figure.
    """
    named = evaluations if isinstance(evaluations, Mapping) else {"agent": evaluations}
    if len(named) > MOST_CURVES:
        raise ValueError(f"{len(named)} curves in one picture, but only {MOST_CURVES} can be told apart.")
    ax = axes_or_new(ax, (4.6, 3.4))
    style: dict[str, Any] = {"capsize": 2, "elinewidth": 1.0}
    for (name, points), (color, dashes) in zip(named.items(), _LINES, strict=False):
        order = np.argsort(points.etas, kind="stable")
        mean, bars = _means_and_bars(points.return_interval)
        ax.errorbar(
            points.control_rate[order], mean[order], bars[:, order], fmt="o", markersize=4, linestyle=dashes,
            linewidth=1.5, color=color, label=plain(name), **style,
        )  # fmt: skip
    drawn: set[tuple[float, ...]] = set()
    for points, (color, _) in zip(named.values(), _LINES, strict=False):
        if points.default_alone is None:
            continue
        mean, bars = _means_and_bars(points.default_alone.return_interval)
        if (place := (*mean, *bars.ravel())) not in drawn:  # runs may have the same default policy
            label = None if drawn else "default policy alone"
            ax.errorbar([0.0], mean, bars, fmt="x", markersize=7, color=color, label=label, **style)
            drawn.add(place)
    ax.set_xlim(-0.04, 1.04)
    ax.set_xlabel("control rate")
    ax.set_ylabel("return (price excluded)")
    ax.legend(loc="best")
    return ax


def _means_and_bars(interval: Interval) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns `[E]` means, and `[2, E]` lengths of the error bars below and above them."""
    mean, low, high = interval
    return mean, np.maximum(np.stack([mean - low, high - mean]), 0.0)  # rounding can make a length negative


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
    """Draws the frequency of the lazy action against the price, with one step per optimal policy.

    Args:
        breakpoints: `[B]` prices at which the policy changes, increasing.
        frequency: `[B+1]` frequency of the lazy action of each policy, from the smallest price to the largest.
        bounds: Prices to mark, by name (`eta_min`, `eta_max`).
        label: Label of the curve in a legend.
        color: Color of the curve.
        ax: The axes to draw into; by default those of a new figure.
    """
    ax = axes_or_new(ax, (4.6, 3.0))
    prices = np.asarray(breakpoints, dtype=float)
    shares = np.asarray(frequency, dtype=float)
    if shares.shape != (prices.size + 1,) or not prices.size:
        raise ValueError(
            f"frequency has shape {shares.shape}, expected [{prices.size + 1}], one more than there are breakpoints."
        )
    edges = np.concatenate([[prices[0] / 3.0], prices, [prices[-1] * 3.0]])
    ax.stairs(shares, edges, baseline=None, color=color, linewidth=1.6, label=label if label is None else plain(label))
    marks = ((":", "v"), ("--", "^"), ("-.", "x"))
    for (name, price), (dashes, marker) in zip((bounds or {}).items(), marks * len(bounds or {}), strict=False):
        ax.axvline(price, color=FAINT, linestyle=dashes, linewidth=1.0, zorder=0)
        ax.plot([price], [0.5], marker, color=FAINT, markersize=5, label=f"{plain(name)} = {price:.4g}")
    ax.set_xscale("log")
    ax.set_ylim(-0.04, 1.04)
    ax.set_xlabel("eta")
    ax.set_ylabel("frequency of the lazy action")
    return ax


@in_style
def return_curves(x: ArrayLike, curves: Mapping[str, Interval], *, ax: Axes | None = None) -> Axes:
    """Draws learning curves: the mean return over seeds, with its confidence interval as a band.

    Args:
        x: `[P]` episodes or steps.
        curves: The mean and its interval, each `[P]`, by name.
        ax: The axes to draw into; by default those of a new figure.
    """
    ax = axes_or_new(ax, (4.6, 3.4))
    points = np.asarray(x, dtype=float)
    if len(curves) > len(_LINES):
        raise ValueError(f"{len(curves)} curves in one picture, but only {len(_LINES)} can be told apart.")
    for (name, curve), (color, dashes) in zip(curves.items(), _LINES, strict=False):
        ax.fill_between(points, curve.low, curve.high, color=color, alpha=0.22, linewidth=0)
        ax.plot(points, curve.mean, color=color, linestyle=dashes, label=plain(name))
    ax.set_xlabel("episode")
    ax.set_ylabel("return (price excluded)")
    ax.legend(loc="best")
    return ax


@in_style
def fidelity(curves: FidelityCurves, *, measure: str = "importance", ax: Axes | None = None) -> Axes:
    """Draws the loss of return if the most important, the least important or random steps are chosen, with intervals.

    The title says what happens to the chosen steps, and which curve of a faithful measure should be higher.

    Args:
        curves: The result of `lz.measure.fidelity`, or any object with the attributes of `FidelityCurves`.
        measure: Name of the measure, for the legend.
        ax: The axes to draw into; by default those of a new figure.
    """
    ax = axes_or_new(ax, (4.6, 3.4))
    shares = 100.0 * curves.shares
    names = {"top": f"highest {plain(measure)}", "random": "random steps", "bottom": f"lowest {plain(measure)}"}
    for (kind, name), (color, dashes) in zip(names.items(), ((CONTROL, "-"), (LAZY, "-"), (INK, "--")), strict=True):
        mean, low, high = curves.loss(kind)
        ax.fill_between(shares, low, high, color=color, alpha=0.22, linewidth=0)
        # Behind the others and wider, so that a curve that coincides with it can be seen.
        behind: dict[str, Any] = {"linewidth": 4.0, "zorder": 1.9} if kind == "random" else {}
        ax.plot(shares, mean, color=color, linestyle=dashes, marker=".", label=name, **behind)
    ax.set_xlabel("steps chosen, %")
    ax.set_ylabel("loss of return")
    chosen, order = ("The chosen", "more") if curves.mode == "replace" else ("All other", "less")
    handed = f"{curves.mode.capitalize()}. {chosen} steps are handed over:"
    ax.set_title(f"{handed}\nthe highest should lose {order} than random steps")
    ax.legend(loc="best")
    return ax
