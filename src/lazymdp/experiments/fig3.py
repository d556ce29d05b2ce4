"""Fig. 3: optimal policies of Key-Door-Treasure at three prices, with a uniform default policy.

Left: the world. Then one column per price; in the upper row the agent does not have the key, in the lower row it does.
Gray cells with a dot: the agent is lazy. Arrows: the agent takes control; the darker the cell, the higher its value. As
the price rises, control remains only in the crucial states: those that lead from room to room, to the key, and to the
treasure.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lazymdp._colors import CONTROL, INK, LAZY
from lazymdp.envs import KeyDoorTreasure
from lazymdp.exact import policies
from lazymdp.exact.solve import solve
from lazymdp.experiments import paper_worlds
from lazymdp.experiments.experiment import Claim, Progress, Tables, stacked, table
from lazymdp.lazy import LazyMDP
from lazymdp.show import policy_map, styled, world_map
from lazymdp.show.style import CONTROL_SCALE

TITLE = "Key-Door-Treasure: the higher the price, the fewer and more crucial the control states"
_CONTROLS = {0.008: 195, 0.02: 130, 0.05: 43, 0.1: 16}
"""Number of control states by price, computed once on the same map by an independent program."""


@dataclass(frozen=True)
class Config:
    """Settings of Fig. 3."""

    etas: tuple[float, ...] = (0.008, 0.02, 0.05)
    """Prices, in increasing order."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Solve at each price."""
    world, mdp = paper_worlds.key_door_treasure()
    default = policies.uniform(mdp)
    rows = []
    for done, eta in enumerate(config.etas, 1):
        solution = solve(LazyMDP(mdp, default, eta))
        rows.append(
            table(
                eta=eta,
                state=np.arange(mdp.n_states),
                row=world.cells[:, 0],
                column=world.cells[:, 1],
                has_key=world.has_key,
                absorbing=mdp.absorbing,
                action=solution.action,
                control=solution.control,
                value=solution.value,
                moves_to_key_action=paper_worlds.moves_to_key_action(world, mdp),
            )
        )
        if progress is not None:
            progress(done, len(config.etas))
    return {"policies": stacked(rows)}


def claims(data: Tables) -> list[Claim]:
    """Check the statements of the paper about the figure."""
    every = data["policies"]
    etas = np.unique(every["eta"])
    alive = every["absorbing"] == 0
    control = [every["control"][every["eta"] == eta].astype(bool) for eta in etas]
    found = [
        Claim(
            f"Number of control states at eta = {eta:g}, out of {alive[every['eta'] == eta].sum()} states",
            str(_CONTROLS[float(eta)]),
            str(chosen.sum()),
            bool(chosen.sum() == _CONTROLS[float(eta)]),
        )
        for eta, chosen in zip(etas, control, strict=True)
        if float(eta) in _CONTROLS
    ]
    nested = all((high <= low).all() for low, high in pairwise(control))
    text = "The higher the price, the fewer control states: each set is contained in the previous one"
    found.append(Claim(text, "nested", "nested" if nested else "not nested", nested))
    last = every["eta"] == etas[-1]
    moves = every["moves_to_key_action"][last]
    far, farthest = int(moves[control[-1]].max(initial=0)), int(moves.max())
    found.append(
        Claim(
            f"At eta = {etas[-1]:g}, the agent takes control only near a passage, the key or the treasure",
            f"at most 4 moves away (the farthest state: {farthest})",
            f"at most {far} moves away",
            far <= 4,
        )
    )
    return found


def plot(data: Tables) -> Figure:
    """Draw the world, and one policy per price with and without the key."""
    world = KeyDoorTreasure()
    every = data["policies"]
    etas = np.unique(every["eta"])
    shown = every["value"][every["absorbing"] == 0]
    limits = (float(shown.min()), float(shown.max()))
    with styled():
        figure, axes = plt.subplots(2, len(etas) + 1, figsize=(2.9 * (len(etas) + 1) + 0.6, 6.1), squeeze=False)
        world_map(world, ax=axes[0, 0]).set_title("Key-Door-Treasure")
        _legend(axes[1, 0])
        for column, eta in enumerate(etas, 1):
            here = every["eta"] == eta
            for row, layer in enumerate((~world.has_key, world.has_key)):
                ax = axes[row, column]
                policy_map(world, every["action"][here], values=every["value"][here], limits=limits, layer=layer, ax=ax)
                ax.set_title(f"eta = {eta:g}, {'with' if row else 'without'} the key")
        scale = ScalarMappable(Normalize(*limits), CONTROL_SCALE)
        figure.colorbar(scale, ax=axes[:, -1], shrink=0.6, label="value of the state")
    return figure


def _legend(ax: Axes) -> None:
    """Explain the symbols in the unused panel."""
    ax.set_axis_off()
    signs = [
        Line2D([], [], marker="s", linestyle="", color=LAZY, markersize=11, label="lazy: the default policy acts"),
        Line2D([], [], marker="s", linestyle="", color=CONTROL, markersize=11, label="takes control"),
        *(
            Line2D([], [], marker=f"${letter}$", linestyle="", color=INK, markersize=7, label=words)
            for letter, words in (("S", "start"), ("K", "key"), ("D", "door"), ("T", "treasure"))
        ),
    ]
    ax.legend(handles=signs, loc="center left", labelspacing=0.9)
