"""The frontiers of a sweep: return against control rate, one panel per environment and one curve per method."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp.measure.statistics import Interval, iqm_interval
from lazymdp.show import frontier, styled
from lazymdp.show.curves import MOST_CURVES
from lazymdp.show.style import plain

_COLUMNS = 3


@dataclass(frozen=True)
class Frontier:
    """Return and control rate of a method at E prices, over seeds.

    Attributes:
        etas: `[E]` prices.
        control_rate: `[E]` mean control rate over seeds.
        return_interval: Interquartile mean of the return over seeds and its 95% bootstrap interval, each `[E]`.
        seeds: Smallest and largest number of seeds of a point.
        default_alone: The default policy alone, as a single point.
    """

    etas: NDArray[np.float64]
    control_rate: NDArray[np.float64]
    return_interval: Interval
    seeds: tuple[int, int]
    default_alone: Frontier | None = None


def frontiers(table: dict[str, list[Any]]) -> dict[str, dict[str, Frontier]]:
    """Returns the frontiers of all methods by environment.

    A point is a price: for a dial a price of the evaluation, otherwise a price (or control budget) of training. Points
    with too few seeds are drawn with those that there are.

    Args:
        table: The columns of the table of results.
    """
    rows = [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]
    many = len({row["default_policy"] for row in rows}) > 1
    algorithms: dict[str, set[str]] = defaultdict(set)  # of each method
    dials: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        algorithms[row["method"]].add(row["algorithm"])
        dials[row["method"]] |= {row["price"]} if " to " in row["price"] else set()
    found: dict[str, dict[str, dict[Any, list[dict[str, Any]]]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        dial = " to " in row["price"]
        name = row["method"] + (f", {row['algorithm']}" if len(algorithms[row["method"]]) > 1 else "")
        name += f", {row['default_policy']}" if many else ""
        if dial and len(dials[row["method"]]) > 1:
            name += f" (dial, {row['price']})"
        elif dial and "dial" not in row["method"]:
            name += " (dial)"
        point = None if row["default_alone"] else row["eta"] if dial else row["price"]
        found[row["env"]][name].setdefault(point, []).append(row)
    return {env: {name: _frontier(points) for name, points in curves.items()} for env, curves in found.items()}


def _frontier(points: dict[Any, list[dict[str, Any]]]) -> Frontier:
    alone = points.get(None)
    ordered = sorted((rows for point, rows in points.items() if point is not None), key=_eta)
    return _summary(ordered, None if alone is None else _summary([alone], None))


def _summary(points: list[list[dict[str, Any]]], alone: Frontier | None) -> Frontier:
    returns, rates = ([_by_seed(rows, column) for rows in points] for column in ("mean_return", "control_rate"))
    intervals = [iqm_interval(one) for one in returns]
    mean, low, high = (np.array([float(part[place]) for part in intervals]) for place in range(3))
    counts = [len(one) for one in returns]
    etas = np.array([_eta(rows) for rows in points])
    rate = np.array([float(np.mean(one)) for one in rates])
    return Frontier(etas, rate, Interval(mean, low, high), (min(counts), max(counts)), alone)


def _by_seed(rows: list[dict[str, Any]], column: str) -> list[float]:
    """Returns one number per seed: rows of one seed, such as the default policy at every price, are no replicates."""
    seeds = dict.fromkeys(row["seed"] for row in rows)
    return [float(np.mean([row[column] for row in rows if row["seed"] == seed])) for seed in seeds]


def _eta(rows: list[dict[str, Any]]) -> float:
    return float(np.mean([np.inf if row["eta"] is None else row["eta"] for row in rows]))


def plot_frontiers(table: dict[str, list[Any]]) -> Figure:
    """Draws the frontiers of all methods, one panel per environment, or several if it has many curves.

    Points are interquartile means over seeds with 95% bootstrap intervals; the title of a panel says how many seeds
    there are.

    Args:
        table: The columns of the table of results.
    """
    panels = [(env, panel) for env, curves in frontiers(table).items() for panel in _panels(curves)]
    if not panels:
        raise ValueError("the table of results is empty: no run is finished yet.")
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    with styled():
        figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 4.2 * rows), squeeze=False)
        for ax in axes.flat[len(panels) :]:
            ax.axis("off")
        for ax, (env, curves) in zip(axes.flat, panels, strict=False):
            frontier(curves, ax=ax)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)  # inside, it would hide curves
            few, most = min(one.seeds[0] for one in curves.values()), max(one.seeds[1] for one in curves.values())
            count = f"{most} seeds" if few == most else f"{few} to {most} seeds"
            ax.set_title(f"{plain(env)} ({'1 seed' if few == most == 1 else count})")
    return figure


def _panels(curves: dict[str, Frontier]) -> list[dict[str, Frontier]]:
    """Returns the curves of an environment in as few panels as can show them, with about equally many in each."""
    names, count = list(curves), -(-len(curves) // MOST_CURVES)
    size = -(-len(names) // count)
    return [{name: curves[name] for name in names[first : first + size]} for first in range(0, len(names), size)]
