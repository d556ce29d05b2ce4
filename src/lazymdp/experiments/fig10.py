"""App. Fig. 10: how often the optimal agent is lazy against the price, in both worlds and for two defaults.

The curves are exact: one step per optimal policy of the eta-path. *States* counts every state once; *play* counts steps
of endless play, as an experiment would.

Below eta_min nothing is lazy, above eta_max everything is. In these four cases the theorems' bounds are the exact ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT
from lazymdp.exact import policies
from lazymdp.exact.eta_bounds import eta_max, eta_min, eta_min_theorem
from lazymdp.exact.path import eta_path
from lazymdp.experiments import paper_worlds
from lazymdp.experiments.registry import Claim, Progress
from lazymdp.experiments.results_io import Table, Tables, table
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP
from lazymdp.measure.frequency import lazy_frequency
from lazymdp.show import frequency_curve, styled

TITLE = "Frequency of the lazy action against eta, with the bounds"
_WORLDS: dict[str, Callable[[], tuple[Any, MDP]]] = {
    "Key-Door-Treasure": paper_worlds.key_door_treasure,
    "Rivers & Bridges": paper_worlds.rivers_and_bridges,
}
_DEFAULTS = {"uniform": policies.uniform, "second-best": policies.second_best}


@dataclass(frozen=True)
class Config:
    """Fig. 10 has no settings: the curves are exact."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """The exact path of each case, and the lazy frequency of each of its policies."""
    curves, bounds = [], []
    cases = list(product(_WORLDS, _DEFAULTS))
    for done, (world, default) in enumerate(cases, 1):
        _, mdp = _WORLDS[world]()
        policy = _DEFAULTS[default](mdp)
        path = eta_path(mdp, policy)
        lazy = LazyMDP(mdp, policy, 0.0)
        starts = np.append(0.0, path.breakpoints)
        shares = [lazy_frequency(lazy, path.action_at(price)) for price in _inside(path.breakpoints)]
        curves.append(
            table(
                world=world,
                default=default,
                from_eta=starts,
                states=[share.states for share in shares],
                play=[share.long_run for share in shares],
            )
        )
        theorem = eta_min_theorem(mdp, policy)
        bounds.append(
            table(
                world=world,
                default=default,
                eta_min=eta_min(mdp, policy),
                theorem_4=theorem.value,
                assumption_holds=theorem.holds,
                eta_max=eta_max(mdp, policy),
            )
        )
        if progress is not None:
            progress(done, len(cases))
    return {
        name: {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        for name, parts in (("curves", curves), ("bounds", bounds))
    }


def _inside(breakpoints: NDArray[np.float64]) -> list[float]:
    """A price inside each interval between breakpoints, below the first and above the last included."""
    edges = np.concatenate([[0.0], breakpoints, [2.0 * breakpoints[-1]]])
    return ((edges[1:] + edges[:-1]) / 2.0).tolist()


def _case(columns: Table, world: str, default: str) -> NDArray[np.bool_]:
    return (columns["world"] == world) & (columns["default"] == default)


def claims(data: Tables) -> list[Claim]:
    """What the paper says of the figure, case by case."""
    found = []
    for place in range(len(data["bounds"]["world"])):
        bound = {name: column[place] for name, column in data["bounds"].items()}
        here = _case(data["curves"], bound["world"], bound["default"])
        start, states, play = (data["curves"][name][here] for name in ("from_eta", "states", "play"))
        name = f"{bound['world']}, {bound['default']}"
        low, high = float(start[1]), float(start[-1])
        found += [
            Claim(
                f"{name}: never lazy below eta_min, and Theorem 4 gives it",
                f"0, up to {bound['theorem_4']:.4g}",
                f"{states[0]:g}, up to {low:.4g}",
                states[0] == play[0] == 0.0 and bool(np.isclose([low, bound["eta_min"]], bound["theorem_4"]).all()),
            ),
            Claim(
                f"{name}: always lazy above eta_max, and Theorem 3 gives it",
                f"1, from {bound['eta_max']:.4g}",
                f"{states[-1]:g}, from {high:.4g}",
                states[-1] == play[-1] == 1.0 and bool(np.isclose(high, bound["eta_max"])),
            ),
            Claim(
                f"{name}: in between laziness only grows",
                "never falls",
                "never falls" if _grows(states) and _grows(play) else "falls somewhere",
                _grows(states) and _grows(play),
            ),
        ]
    return found


def _grows(curve: NDArray[np.float64]) -> bool:
    return bool((np.diff(curve) >= -1e-9).all())


def plot(data: Tables) -> Figure:
    """A panel per world and default."""
    with styled():
        figure, axes = plt.subplots(2, 2, figsize=(9.6, 6.0), sharey=True)
        for ax, (world, default) in zip(axes.flat, product(_WORLDS, _DEFAULTS), strict=True):
            here = _case(data["curves"], world, default)
            place = int(np.flatnonzero(_case(data["bounds"], world, default))[0])
            breakpoints = data["curves"]["from_eta"][here][1:]
            names = {"eta_min": "exact eta_min", "theorem_4": "Theorem 4", "eta_max": "eta_max"}
            marked = {label: float(data["bounds"][key][place]) for key, label in names.items()}
            frequency_curve(breakpoints, data["curves"]["states"][here], label="states", color=FAINT, ax=ax)
            frequency_curve(
                breakpoints, data["curves"]["play"][here], bounds=marked, label="play", color=CONTROL, ax=ax
            )
            ax.set_title(f"{world}, {default} default")
            ax.legend(loc="lower right", frameon=True, framealpha=0.9, edgecolor="none", fontsize=8)
            ax.set_ylabel("frequency of the lazy action" if ax in axes[:, 0] else "")
    return figure
