"""Ours: the exact eta-path of Key-Door-Treasure, every optimal policy of every price at once.

For a fixed policy the value is a line in the price; the optimum is the upper envelope of finitely many lines. The path
finds them all, and with them the best return for every budget of controls.

Left: the frontier of return against expected controls, every optimal policy a point. Middle: both against the price.
Right: how many states take control at each price.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from lazymdp._colors import CONTROL, FAINT
from lazymdp.exact import policies
from lazymdp.exact.evaluate import evaluate
from lazymdp.exact.path import eta_path
from lazymdp.exact.solve import solve
from lazymdp.experiments import paper_worlds
from lazymdp.experiments.registry import Claim, Progress
from lazymdp.experiments.results_io import Tables, table
from lazymdp.lazy import LazyMDP
from lazymdp.show import path_curves, styled

TITLE = "The exact path of Key-Door-Treasure: every eta at once"


@dataclass(frozen=True)
class Config:
    """Settings of the path."""

    checks: int = 25
    """Prices at which the path is compared with `lz.solve`."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """The path, and independent solutions at some prices."""
    _, mdp = paper_worlds.key_door_treasure()
    default = policies.uniform(mdp)
    path = eta_path(mdp, default)
    edges = np.concatenate([[0.0], path.breakpoints, [2.0 * path.breakpoints[-1]]])
    control = [int((path.action_at(price) < mdp.n_actions).sum()) for price in (edges[1:] + edges[:-1]) / 2.0]
    prices = np.geomspace(path.breakpoints[0] / 2.0, path.breakpoints[-1] * 1.2, config.checks)
    error, same, returns = np.empty(prices.size), np.empty(prices.size, dtype=bool), np.empty(prices.size)
    for place, price in enumerate(prices):
        lazy = LazyMDP(mdp, default, price)
        solution = solve(lazy)
        error[place] = np.abs(solution.value - path.value_at(price)).max()
        same[place] = np.array_equal(solution.control, path.action_at(price) < mdp.n_actions)
        returns[place] = mdp.start_average(evaluate(lazy, solution.action).base_value)
        if progress is not None:
            progress(place + 1, prices.size)
    return {
        "policies": table(
            from_eta=edges[:-1],
            to_eta=np.append(path.breakpoints, np.inf),
            start_value=path.start_base_values,
            start_count=path.start_control_counts,
            control_states=control,
        ),
        "checks": table(eta=prices, error=error, same_control=same, base_return=returns),
        "facts": table(indexable=path.is_indexable, switches=len(path.switches), n_states=int((~mdp.absorbing).sum())),
    }


def claims(data: Tables) -> list[Claim]:
    """The facts of the path."""
    every, checks = data["policies"], data["checks"]
    count = every["from_eta"].size
    low, high = float(every["from_eta"][1]), float(every["from_eta"][-1])
    slopes = np.diff(every["start_value"]) / np.minimum(np.diff(every["start_count"]), -1e-300)
    moved = np.diff(every["start_count"]) < -1e-12  # policies that differ only where the start never leads
    concave = bool((np.diff(slopes[moved]) > -1e-9).all())
    return [
        Claim("number of optimal policies", "150", str(count), count == 150),
        Claim("eta_min and eta_max", "0.00583 and 0.3112", f"{low:.5f} and {high:.4f}",
              abs(low - 0.00583) < 5e-6 and abs(high - 0.3112) < 5e-5),
        Claim("nested: a state that turns lazy stays lazy", "indexable",
              "indexable" if data["facts"]["indexable"][0] else "not indexable", bool(data["facts"]["indexable"][0])),
        Claim("at any price the path is what solving there gives", "error < 1e-7, same states",
              f"error {checks['error'].max():.0e}, {checks['same_control'].sum()} of {checks['eta'].size} the same",
              bool(checks["error"].max() < 1e-7 and checks["same_control"].all())),
        Claim("total control never rises with the price", "never rises",
              "never rises" if (np.diff(every["start_count"]) <= 1e-12).all() else "rises",
              bool((np.diff(every["start_count"]) <= 1e-12).all())),
        Claim("the frontier is concave: each further control is worth less", "concave",
              "concave" if concave else "not concave", concave),
    ]  # fmt: skip


def plot(data: Tables) -> Figure:
    """Frontier, return and controls against the price, control states against the price."""
    every = data["policies"]
    frontier = SimpleNamespace(start_control_counts=every["start_count"], start_base_values=every["start_value"])
    edges = np.append(np.maximum(every["from_eta"], every["from_eta"][1] / 3.0), every["from_eta"][-1] * 3.0)
    with styled():
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.0, 3.7))
        path_curves(frontier, ax=left)
        middle.stairs(every["start_value"], edges, baseline=None, color=CONTROL, linewidth=1.6, label="return")
        middle.set_ylabel("expected return (price excluded)")
        other = middle.twinx()
        other.stairs(every["start_count"], edges, baseline=None, color=FAINT, linestyle="--", linewidth=1.6)
        other.spines["right"].set_visible(True)
        other.set_ylabel("expected discounted controls (dashed)")
        middle.set_title("against the price")
        right.stairs(every["control_states"], edges, baseline=None, color=CONTROL, linewidth=1.6)
        right.set_ylabel("states that take control")
        right.set_title(f"{every['control_states'].max()} states, then fewer and fewer")
        for ax in (middle, right):
            ax.set_xscale("log")
            ax.set_xlabel("eta")
    return figure
