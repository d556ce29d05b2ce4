"""Fig. 2: the lazy-gap of Rivers & Bridges, with a default policy that is optimal except on the slippery bridges.

The paper says that the lazy-gap is positive on the bridges only, *for any eta* below eta_max. This is true at eta = 0,
the price of its figure. At larger prices, the lazy-gap is positive elsewhere, too, but stays below the price. The
conclusion therefore holds at every price: the optimal agent takes control on the bridges only. We check it on the exact
eta-path.

Left: the world. Right: the lazy-gap at eta = 0. Only the bridges matter; everywhere else the agent can rely on the
default policy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from lazymdp.envs import RiversAndBridges
from lazymdp.exact.eta_bounds import eta_max, eta_min_theorem
from lazymdp.exact.path import eta_path
from lazymdp.exact.solve import solve
from lazymdp.experiments import paper_worlds
from lazymdp.experiments.experiment import Claim, Progress, Tables, table
from lazymdp.lazy import LazyMDP
from lazymdp.show import heat_map, styled, world_map

TITLE = "Rivers & Bridges: the lazy-gap is zero except on the bridges"


@dataclass(frozen=True)
class Config:
    """Settings of Fig. 2."""

    eta: float = 0.0
    """Price at which the lazy-gap is drawn."""
    prices: int = 60
    """Number of prices between 0 and eta_max at which the lazy-gap is checked."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Solve at the price of the map and at a range of prices, and compute the exact eta-path."""
    world, mdp = paper_worlds.rivers_and_bridges()
    default = paper_worlds.slippery(world, mdp)
    path = eta_path(mdp, default)
    top = eta_max(mdp, default)
    elsewhere = ~paper_worlds.bridges(world) & ~mdp.absorbing
    prices = np.geomspace(top * 1e-4, top * 0.999, config.prices)
    largest = np.empty(prices.size)
    for place, price in enumerate(prices):
        largest[place] = solve(LazyMDP(mdp, default, price)).lazy_gap[elsewhere].max()
        if progress is not None:
            progress(place + 1, prices.size)
    return {
        "states": table(
            state=np.arange(mdp.n_states),
            row=world.cells[:, 0],
            column=world.cells[:, 1],
            bridge=paper_worlds.bridges(world),
            lazy_gap=solve(LazyMDP(mdp, default, config.eta)).lazy_gap,
            critical_eta=path.critical_eta,
        ),
        "prices": table(eta=prices, largest_gap_elsewhere=largest),
        "bounds": table(
            eta=config.eta,
            eta_max=top,
            largest_breakpoint=path.breakpoints[-1],
            eta_min=eta_min_theorem(mdp, default).value,
        ),
    }


def claims(data: Tables) -> list[Claim]:
    """Check the statements of the paper about the figure, and our correction of one of them."""
    states, prices, bounds = data["states"], data["prices"], data["bounds"]
    bridge = states["bridge"].astype(bool)
    elsewhere = float(states["lazy_gap"][~bridge].max())
    on = float(states["lazy_gap"][bridge].min())
    control = np.flatnonzero(states["critical_eta"] > 0.0)
    excess = float((prices["largest_gap_elsewhere"] - prices["eta"]).max())
    zero_until = prices["eta"][prices["largest_gap_elsewhere"] < 1e-9].max(initial=0.0)
    at, top, breakpoint = float(bounds["eta"][0]), float(bounds["eta_max"][0]), float(bounds["largest_breakpoint"][0])
    return [
        Claim(f"At eta = {at:g}, the lazy-gap is positive on every bridge", "> 0", f">= {on:.3g}", on > 1e-6),
        Claim(f"At eta = {at:g}, the lazy-gap is zero off the bridges", "0", f"<= {elsewhere:.1e}", elsewhere < 1e-6),
        Claim(
            "At every price below eta_max, the agent takes control on the bridges only (exact eta-path)",
            f"{bridge.sum()} states, {bridge.sum()} of them bridges",
            f"{control.size} states, {bridge[control].sum()} of them bridges",
            bool(np.array_equal(control, np.flatnonzero(bridge))),
        ),
        Claim(
            "Off the bridges, the lazy-gap never exceeds the price (the paper says that it is 0)",
            "gap <= eta",
            f"gap - eta <= {excess:.1e}; gap = 0 up to eta = {zero_until:.2g}",
            excess <= 1e-9,
        ),
        Claim("eta_min is 0, because the default policy is optimal in some state", "0", f"{bounds['eta_min'][0]:.1e}",
              bool(abs(bounds["eta_min"][0]) < 1e-9)),
        Claim("eta_max of Theorem 3 is the price from which the agent never takes control (exact eta-path)", "66.863",
              f"{top:.3f} (Theorem 3), {breakpoint:.3f} (eta-path)",
              abs(top - 66.863) < 5e-4 and abs(top - breakpoint) < 1e-9 * top),
    ]  # fmt: skip


def plot(data: Tables) -> Figure:
    """Draw the world and the map of the lazy-gap."""
    world = RiversAndBridges()
    with styled():
        figure, (left, right) = plt.subplots(1, 2, figsize=(11.0, 2.7), width_ratios=(1.0, 1.12))
        world_map(world, ax=left).set_title("Rivers & Bridges")
        heat_map(world, data["states"]["lazy_gap"], label="lazy-gap", ax=right)
        right.set_title(f"lazy-gap at eta = {data['bounds']['eta'][0]:g}")
    return figure
