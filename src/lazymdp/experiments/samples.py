"""Ours: how many samples Q-learning needs with the structured backup and with the paper's augmented one.

In the structured form the value of being lazy is derived as a mean over the default's actions, and every executed
action is learned from. In the augmented form it has a column of its own, whose target is noisy: it sees one action of
the default at a time. Key-Door-Treasure without the apple, any state as start; several constant step sizes, and each
form is judged by the one that is best for it. Values are compared with the exact solution.

Mean error of the control values against steps: thin, one step size each; thick, the best of them. At first the two are
alike; the finer the values have to be, the further the structured form is ahead, as only its targets are free of the
default's noise and can be learned with a step size of 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT
from lazymdp.exact import policies
from lazymdp.exact.solve import solve
from lazymdp.experiments import paper_worlds
from lazymdp.experiments.registry import Claim, Progress
from lazymdp.experiments.results_io import Tables, table
from lazymdp.lazy import LazyMDP
from lazymdp.learn.tabular.q_learning import q_learning
from lazymdp.mdp import MDP
from lazymdp.measure.statistics import mean_interval
from lazymdp.show import styled

TITLE = "Sample efficiency: structured against augmented Q-learning"
LEVELS = (0.03, 0.01, 0.003, 0.001)
"""Errors for which the steps needed are listed."""
_FORMS = (("augmented", FAINT, "--"), ("structured", CONTROL, "-"))
_FIRST = 250
"""Episodes of the shortest runs."""


@dataclass(frozen=True)
class Config:
    """Settings of the comparison."""

    seeds: int = 10
    """Runs per backup, step size and length."""
    doublings: int = 8
    """How often the number of episodes doubles, from 250."""
    alphas: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Step sizes, constant."""
    eta: float = 0.03
    """Price."""
    epsilon: float = 0.5
    """Exploration, constant."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Learns for ever longer, each time anew, and measures the error."""
    _, fixed_start = paper_worlds.key_door_treasure()
    mdp = MDP(fixed_start.transitions, fixed_start.rewards, paper_worlds.GAMMA)  # any state as start
    alive = ~mdp.absorbing
    exact = solve(LazyMDP(mdp, policies.uniform(mdp), config.eta)).q[alive]
    lengths = [int(_FIRST * 2 ** (half / 2.0)) for half in range(2 * config.doublings + 1)]
    done, total, rows = 0, sum(lengths) * len(_FORMS) * len(config.alphas), []
    for backup, _, _ in _FORMS:
        for alpha in config.alphas:
            for episodes in lengths:
                found = q_learning(
                    mdp,
                    None,
                    config.eta,
                    form=backup,
                    alpha=alpha,
                    epsilon=config.epsilon,
                    final_epsilon=config.epsilon,
                    episodes=episodes,
                    seed=range(config.seeds),
                    points=1,
                )
                error = np.abs(found.q[0][:, alive, : mdp.n_actions] - exact).mean(axis=(1, 2))
                rows.append((backup, alpha, episodes, found.steps / config.seeds, *map(float, mean_interval(error))))
                done += episodes
                if progress is not None:
                    progress(done, total)
    names = ("backup", "alpha", "episodes", "steps", "error", "error_low", "error_high")
    return {"errors": table(**dict(zip(names, (np.array(column) for column in zip(*rows, strict=True)), strict=True)))}


def steps_needed(data: Tables, backup: str, level: float) -> tuple[float, float]:
    """The fewest steps after which the mean error was at most `level` (infinite: never), and the step size of that."""
    errors = data["errors"]
    reached = np.flatnonzero((errors["backup"] == backup) & (errors["error"] <= level))
    if not reached.size:
        return np.inf, np.nan
    best = reached[errors["steps"][reached].argmin()]
    return float(errors["steps"][best]), float(errors["alpha"][best])


def claims(data: Tables) -> list[Claim]:
    """The structured backup needs fewer steps, the more exact the fewer."""
    found = []
    for level in LEVELS:
        augmented, with_augmented = steps_needed(data, "augmented", level)
        structured, with_structured = steps_needed(data, "structured", level)
        never = not np.isfinite(augmented)
        found.append(
            Claim(
                f"structured reaches a mean error of {level:g} in fewer steps, each at its best step size",
                "augmented: never" if never else f"< {augmented:,.0f} (alpha {with_augmented:g})",
                f"{structured:,.0f} (alpha {with_structured:g})"
                + ("" if never else f", {augmented / structured:.1f} x"),
                structured < augmented,
            )
        )
    return found


def plot(data: Tables) -> Figure:
    """Error against steps."""
    errors = data["errors"]
    with styled():
        figure, ax = plt.subplots(figsize=(6.4, 3.9))
        for backup, color, dashes in _FORMS:
            mine = errors["backup"] == backup
            for alpha in np.unique(errors["alpha"]):
                here = mine & (errors["alpha"] == alpha)
                ax.plot(errors["steps"][here], errors["error"][here], dashes, color=color, linewidth=0.7, alpha=0.6)
            ax.plot(
                *_best(errors["steps"][mine], errors["error"][mine]), dashes, color=color, linewidth=2.2, label=backup
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(bottom=max(1e-5, errors["error"].min() / 2.0))
        ax.set_xlabel("steps of one run")
        ax.set_ylabel("mean error of the control values")
        ax.grid(True)
        ax.legend(title="thick: best step size", alignment="left")
    return figure


def _best(steps: NDArray[np.float64], errors: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The smallest error reached by any step size within so many steps."""
    order = np.argsort(steps)
    return steps[order], np.minimum.accumulate(errors[order])
