"""Our own: the exact eta-path of Key-Door-Treasure, the optimal policies of all prices at once.

The value of a fixed policy is linear in the price, so the optimal value is the upper envelope of finitely many lines.
The eta-path finds all of them, and with them the best return for every limit on the expected number of controls.

Left: the best return against the expected number of controls; each point is an optimal policy. Middle: both quantities
against the price. Right: the number of states in which the agent takes control, against the price.
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
from lazymdp.experiments.experiment import Claim, Progress, Tables, table
from lazymdp.lazy import LazyMDP
from lazymdp.show import path_curves, styled

TITLE = "The exact eta-path of Key-Door-Treasure: every price at once"


@dataclass(frozen=True)
class Config:
    """Settings of the check."""

    checks: int = 25
    """Number of prices at which the path is compared with `lz.solve`."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Compute the path, and independent solutions at some prices."""
    _, mdp = paper_worlds.key_door_treasure()
    default_policy = policies.uniform(mdp)
    path = eta_path(mdp, default_policy)
    edges = np.concatenate([[0.0], path.breakpoints, [2.0 * path.breakpoints[-1]]])
    control = [int((path.action_at(price) < mdp.n_actions).sum()) for price in (edges[1:] + edges[:-1]) / 2.0]
    prices = np.geomspace(path.breakpoints[0] / 2.0, path.breakpoints[-1] * 1.2, config.checks)
    error, same, base_value = np.empty(prices.size), np.empty(prices.size, dtype=bool), np.empty(prices.size)
    for place, price in enumerate(prices):
        lazy = LazyMDP(mdp, default_policy, price)
        solution = solve(lazy)
        error[place] = np.abs(solution.value - path.value_at(price)).max()
        same[place] = np.array_equal(solution.control, path.action_at(price) < mdp.n_actions)
        base_value[place] = mdp.start_average(evaluate(lazy, solution.action).base_value)
        if progress is not None:
            progress(place + 1, prices.size)
    return {
        "policies": table(
            from_eta=edges[:-1],
            to_eta=np.append(path.breakpoints, np.inf),
            base_value=path.start_base_values,
            control_count=path.start_control_counts,
            control_states=control,
        ),
        "checks": table(eta=prices, error=error, same_control=same, base_value=base_value),
        "facts": table(indexable=path.is_indexable, switches=len(path.switches), n_states=int((~mdp.absorbing).sum())),
    }


def claims(data: Tables) -> list[Claim]:
    """Check the properties of the path."""
    every, checks = data["policies"], data["checks"]
    count = every["from_eta"].size
    low, high = float(every["from_eta"][1]), float(every["from_eta"][-1])
    values, controls = every["base_value"], every["control_count"]
    slopes = np.diff(values) / np.minimum(np.diff(controls), -1e-300)
    moved = np.diff(controls) < -1e-12  # False between policies that differ only in states that are never reached
    concave, falls = bool((np.diff(slopes[moved]) > -1e-9).all()), bool((np.diff(controls) <= 1e-12).all())
    indexable, same = bool(data["facts"]["indexable"][0]), checks["same_control"].astype(bool)
    return [
        Claim("Number of optimal policies", "150", str(count), count == 150),
        Claim("eta_min and eta_max", "0.00583 and 0.3112", f"{low:.5f} and {high:.4f}",
              abs(low - 0.00583) < 5e-6 and abs(high - 0.3112) < 5e-5),
        Claim("The model is indexable: once lazy, a state stays lazy as the price rises", "indexable",
              "indexable" if indexable else "not indexable", indexable),
        Claim("The path agrees with lz.solve at every price tested", "error below 1e-7, same control states",
              f"error {checks['error'].max():.0e}, same control states at {same.sum()} of {same.size} prices",
              bool(checks["error"].max() < 1e-7 and same.all())),
        Claim("The expected number of controls never rises with the price", "never rises",
              "never rises" if falls else "rises", falls),
        Claim("The frontier is concave: each additional control is worth less", "concave",
              "concave" if concave else "not concave", concave),
    ]  # fmt: skip


def plot(data: Tables) -> Figure:
    """Draw the frontier, then return and controls, then the number of control states against the price."""
    every = data["policies"]
    frontier = SimpleNamespace(start_control_counts=every["control_count"], start_base_values=every["base_value"])
    edges = np.append(np.maximum(every["from_eta"], every["from_eta"][1] / 3.0), every["from_eta"][-1] * 3.0)
    with styled():
        figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.0, 3.7))
        path_curves(frontier, ax=left)
        middle.stairs(every["base_value"], edges, baseline=None, color=CONTROL, linewidth=1.6, label="return")
        middle.set_ylabel("return (price excluded)")
        other = middle.twinx()
        other.stairs(every["control_count"], edges, baseline=None, color=FAINT, linestyle="--", linewidth=1.6)
        other.spines["right"].set_visible(True)
        other.set_ylabel("expected discounted controls (dashed)")
        middle.set_title("return and controls at each price")
        right.stairs(every["control_states"], edges, baseline=None, color=CONTROL, linewidth=1.6)
        right.set_ylabel("number of control states")
        right.set_title("control states at each price")
        for ax in (middle, right):
            ax.set_xscale("log")
            ax.set_xlabel("price eta")
    return figure
