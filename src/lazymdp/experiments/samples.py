"""Our own: how many samples Q-learning needs in the structured form and in the paper's augmented form.

In the structured form, the value of being lazy is computed as an expectation over the actions of the default policy,
and the agent learns from every executed action. In the augmented form, that value has its own column in the table, and
its targets are noisy because each one depends on a single sampled action of the default policy. We use
Key-Door-Treasure without the apple and with a uniform start distribution. Both forms are run with several constant step
sizes, and each is represented by the step size that works best for it. Errors are measured against the exact solution.

Mean error of the control values against the number of steps. Thin lines: one step size each; thick lines: the best step
size. At first the two forms are equally good. The smaller the error has to be, the larger the advantage of the
structured form: only its targets are free of the noise of the default policy and can be learned with a step size of 1.
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
from lazymdp.experiments.experiment import Claim, Progress, Tables, table
from lazymdp.lazy import LazyMDP
from lazymdp.learn.tabular.q_learning import TabularResult, q_learning
from lazymdp.mdp import MDP
from lazymdp.measure.statistics import mean_interval
from lazymdp.show import styled

TITLE = "Sample efficiency: structured against augmented Q-learning"
LEVELS = (0.03, 0.01, 0.003, 0.001)
"""Mean errors for which the number of steps needed is reported."""
_FORMS = (("augmented", FAINT, "--"), ("structured", CONTROL, "-"))
_FIRST = 250
"""Number of episodes of the shortest runs."""


@dataclass(frozen=True)
class Config:
    """Settings of the comparison."""

    seeds: int = 10
    """Number of runs per form, step size and length."""
    doublings: int = 8
    """Number of times that the number of episodes is doubled, starting from 250."""
    alphas: tuple[float, ...] = (0.1, 0.25, 0.5, 1.0)
    """Constant step sizes to compare."""
    eta: float = 0.03
    """Price of taking control."""
    epsilon: float = 0.5
    """Exploration rate, constant."""


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Run Q-learning from scratch for more and more episodes, and measure the error."""
    _, fixed_start = paper_worlds.key_door_treasure()
    mdp = MDP(fixed_start.transitions, fixed_start.rewards, paper_worlds.GAMMA)  # the start distribution is uniform
    alive = ~mdp.absorbing
    exact = solve(LazyMDP(mdp, policies.uniform(mdp), config.eta)).q[alive]
    lengths = [int(_FIRST * 2 ** (half / 2.0)) for half in range(2 * config.doublings + 1)]
    done, total, rows = 0, sum(lengths) * len(_FORMS) * len(config.alphas), []
    for form, _, _ in _FORMS:
        for alpha in config.alphas:
            for episodes in lengths:
                found = _learn(config, mdp, form, alpha, episodes)
                error = np.abs(found.q[0][:, alive, : mdp.n_actions] - exact).mean(axis=(1, 2))
                rows.append((form, alpha, episodes, found.steps / config.seeds, *map(float, mean_interval(error))))
                done += episodes
                if progress is not None:
                    progress(done, total)
    names = ("form", "alpha", "episodes", "steps", "error", "error_low", "error_high")
    return {"errors": table(**dict(zip(names, (np.array(column) for column in zip(*rows, strict=True)), strict=True)))}


def _learn(config: Config, mdp: MDP, form: str, alpha: float, episodes: int) -> TabularResult:
    return q_learning(
        mdp,
        None,
        config.eta,
        form=form,
        alpha=alpha,
        epsilon=config.epsilon,
        final_epsilon=config.epsilon,
        episodes=episodes,
        seed=range(config.seeds),
        points=1,
    )


def steps_needed(data: Tables, form: str, level: float) -> tuple[float, float]:
    """Return the fewest steps after which the mean error is at most `level` (inf if never), and their step size."""
    errors = data["errors"]
    reached = np.flatnonzero((errors["form"] == form) & (errors["error"] <= level))
    if not reached.size:
        return np.inf, np.nan
    best = reached[errors["steps"][reached].argmin()]
    return float(errors["steps"][best]), float(errors["alpha"][best])


def claims(data: Tables) -> list[Claim]:
    """Check that the structured form needs fewer steps than the augmented form."""
    found = []
    for level in LEVELS:
        augmented, with_augmented = steps_needed(data, "augmented", level)
        structured, with_structured = steps_needed(data, "structured", level)
        never = not np.isfinite(augmented)
        found.append(
            Claim(
                f"The structured form reaches a mean error of {level:g} in fewer steps, each form with its best step "
                "size",
                "augmented: never reached" if never else f"augmented: {augmented:,.0f} (alpha = {with_augmented:g})",
                f"structured: {structured:,.0f} (alpha = {with_structured:g})"
                + ("" if never else f", {augmented / structured:.1f} times fewer"),
                structured < augmented,
            )
        )
    return found


def plot(data: Tables) -> Figure:
    """Draw the error against the number of steps."""
    errors = data["errors"]
    with styled():
        figure, ax = plt.subplots(figsize=(6.4, 3.9))
        for form, color, dashes in _FORMS:
            mine = errors["form"] == form
            for alpha in np.unique(errors["alpha"]):
                here = mine & (errors["alpha"] == alpha)
                ax.plot(errors["steps"][here], errors["error"][here], dashes, color=color, linewidth=0.7, alpha=0.6)
            ax.plot(
                *_best(errors["steps"][mine], errors["error"][mine]), dashes, color=color, linewidth=2.2, label=form
            )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_ylim(bottom=max(1e-5, errors["error"].min() / 2.0))
        ax.set_xlabel("steps per run")
        ax.set_ylabel("mean error of the control values")
        ax.grid(True)
        ax.legend(title="thick: best step size", alignment="left")
    return figure


def _best(steps: NDArray[np.float64], errors: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sorted numbers of steps, and the smallest error that any step size reaches within each of them."""
    order = np.argsort(steps)
    return steps[order], np.minimum.accumulate(errors[order])
