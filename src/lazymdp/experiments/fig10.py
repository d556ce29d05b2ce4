"""App. Fig. 10: how often the optimal agent is lazy at each price, in both worlds and with two default policies.

The curves are exact: they have one step per optimal policy of the eta-path. We count in two ways: the share of *states*
in which the agent is lazy, and the share of *steps* in which it is lazy in the long run, over many episodes.

Below eta_min the agent is never lazy; above eta_max it always is. In these four cases the bounds given by the theorems
are exact.
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
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, stacked, table
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP
from lazymdp.measure.frequency import lazy_frequency
from lazymdp.show import frequency_curve, styled

TITLE = "How often the agent is lazy at each price, and the bounds of Theorems 3 and 4"
_WORLDS: dict[str, Callable[[], tuple[Any, MDP]]] = {
    "Key-Door-Treasure": paper_worlds.key_door_treasure,
    "Rivers & Bridges": paper_worlds.rivers_and_bridges,
}
_DEFAULT_POLICIES = {"uniform": policies.uniform, "second-best": policies.second_best}


@dataclass(frozen=True)
class Config:
    """Fig. 10 has no settings because its curves are exact."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Compute the exact eta-path of each case, and how often each of its policies is lazy."""
    curves, bounds = [], []
    cases = list(product(_WORLDS, _DEFAULT_POLICIES))
    for done, (world, default_policy) in enumerate(cases, 1):
        _, mdp = _WORLDS[world]()
        policy = _DEFAULT_POLICIES[default_policy](mdp)
        path = eta_path(mdp, policy)
        lazy = LazyMDP(mdp, policy, 0.0)
        starts = np.append(0.0, path.breakpoints)
        shares = [lazy_frequency(lazy, path.action_at(price)) for price in _inside(path.breakpoints)]
        curves.append(
            table(
                world=world,
                default_policy=default_policy,
                from_eta=starts,
                lazy_states=[share.states for share in shares],
                lazy_steps=[share.long_run for share in shares],
            )
        )
        theorem = eta_min_theorem(mdp, policy)
        bounds.append(
            table(
                world=world,
                default_policy=default_policy,
                eta_min=eta_min(mdp, policy),
                theorem_4=theorem.value,
                assumption_holds=theorem.holds,
                eta_max=eta_max(mdp, policy),
            )
        )
        if progress is not None:
            progress(done, len(cases))
    return {"curves": stacked(curves), "bounds": stacked(bounds)}


def _inside(breakpoints: NDArray[np.float64]) -> list[float]:
    """Return one price inside each segment of the path, including those below and above all breakpoints."""
    edges = np.concatenate([[0.0], breakpoints, [2.0 * breakpoints[-1]]])
    return ((edges[1:] + edges[:-1]) / 2.0).tolist()


def _case(columns: Table, world: str, default_policy: str) -> NDArray[np.bool_]:
    return (columns["world"] == world) & (columns["default_policy"] == default_policy)


def claims(data: Tables) -> list[Claim]:
    """Check the statements of the paper about the figure, case by case."""
    found = []
    for place in range(len(data["bounds"]["world"])):
        bound = {name: column[place] for name, column in data["bounds"].items()}
        here = _case(data["curves"], bound["world"], bound["default_policy"])
        start, states, steps = (data["curves"][name][here] for name in ("from_eta", "lazy_states", "lazy_steps"))
        name = f"{bound['world']}, {bound['default_policy']} default policy"
        low, high = float(start[1]), float(start[-1])
        found += [
            Claim(
                f"{name}: never lazy below the eta_min of Theorem 4",
                f"share of lazy states 0 up to eta = {bound['theorem_4']:.4g}",
                f"{states[0]:g} up to eta = {low:.4g}",
                states[0] == steps[0] == 0.0 and bool(np.isclose([low, bound["eta_min"]], bound["theorem_4"]).all()),
            ),
            Claim(
                f"{name}: always lazy above the eta_max of Theorem 3",
                f"share of lazy states 1 from eta = {bound['eta_max']:.4g}",
                f"{states[-1]:g} from eta = {high:.4g}",
                states[-1] == steps[-1] == 1.0 and bool(np.isclose(high, bound["eta_max"])),
            ),
            Claim(
                f"{name}: the agent never becomes less lazy as the price rises",
                "never falls",
                "never falls" if _grows(states) and _grows(steps) else "falls somewhere",
                _grows(states) and _grows(steps),
            ),
        ]
    return found


def _grows(curve: NDArray[np.float64]) -> bool:
    return bool((np.diff(curve) >= -1e-9).all())


def plot(data: Tables) -> Figure:
    """Draw one panel per world and default policy."""
    with styled():
        figure, axes = plt.subplots(2, 2, figsize=(9.6, 6.0), sharey=True)
        for ax, (world, default_policy) in zip(axes.flat, product(_WORLDS, _DEFAULT_POLICIES), strict=True):
            here = _case(data["curves"], world, default_policy)
            place = int(np.flatnonzero(_case(data["bounds"], world, default_policy))[0])
            breakpoints = data["curves"]["from_eta"][here][1:]
            names = {"eta_min": "exact eta_min", "theorem_4": "Theorem 4", "eta_max": "eta_max"}
            marked = {label: float(data["bounds"][key][place]) for key, label in names.items()}
            frequency_curve(
                breakpoints, data["curves"]["lazy_states"][here], label="share of states", color=FAINT, ax=ax
            )
            frequency_curve(
                breakpoints,
                data["curves"]["lazy_steps"][here],
                bounds=marked,
                label="share of steps",
                color=CONTROL,
                ax=ax,
            )
            ax.set_title(f"{world}, {default_policy} default policy")
            ax.legend(loc="lower right", frameon=True, framealpha=0.9, edgecolor="none", fontsize=8)
            ax.set_ylabel("how often the agent is lazy" if ax in axes[:, 0] else "")
    return figure
