"""Our own: `eta_min` according to Theorem 4 against the true value, on random models whose episodes can end.

The theorem assumes that the best policy that is never lazy does not change as the price rises. If episodes can end, it
may change, because the price is paid at every step. The models have Dirichlet transitions to all states, one of which
is absorbing, and random default policies.

Each point is a random model: the eta_min of the formula against the true eta_min. On the diagonal the formula is exact.
Orange: the assumption of the theorem fails for this model, which `lz.eta_min_theorem` reports.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT, LAZY
from lazymdp.exact.eta_bounds import eta_max, eta_min, eta_min_theorem
from lazymdp.exact.path import eta_path
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, table
from lazymdp.mdp import MDP
from lazymdp.show import styled

TITLE = "Theorem 4 against the true eta_min on random models"


@dataclass(frozen=True)
class Config:
    """Settings of the comparison."""

    models: int = 300
    """Number of random models per size."""
    sizes: tuple[int, ...] = (4, 8)
    """Numbers of states, including the absorbing one."""
    n_actions: int = 3
    """Number of actions."""
    gamma: float = 0.9
    """Discount factor."""
    seed: int = 0
    """Random seed of the models."""


def random_model(
    generator: np.random.Generator, n_states: int, n_actions: int, gamma: float
) -> tuple[MDP, NDArray[np.float64]]:
    """Return a model whose last state is absorbing, and a default policy `[S, A]`."""
    transitions = generator.dirichlet(np.ones(n_states), size=(n_states, n_actions))
    rewards = generator.normal(size=(n_states, n_actions))
    transitions[-1] = np.eye(n_states)[-1]
    rewards[-1] = 0.0
    return MDP(transitions, rewards, gamma), generator.dirichlet(np.ones(n_actions), size=n_states)


def run(config: Config, progress: Progress | None = None) -> Tables:
    """Compute the value of the formula and the true value for every model."""
    generator = np.random.default_rng(config.seed)
    rows = []
    total = config.models * len(config.sizes)
    for done in range(total):
        n_states = config.sizes[done // config.models]
        mdp, default_policy = random_model(generator, n_states, config.n_actions, config.gamma)
        formula = eta_min_theorem(mdp, default_policy)
        path = eta_path(mdp, default_policy)
        rows.append(
            (
                n_states,
                formula.value,
                eta_min(mdp, default_policy),
                formula.holds,
                eta_max(mdp, default_policy),
                path.breakpoints[-1],
                path.is_indexable,
            )
        )
        if progress is not None:
            progress(done + 1, total)
    names = ("n_states", "formula", "truth", "assumption_holds", "eta_max", "largest_breakpoint", "indexable")
    return {"models": table(**dict(zip(names, (np.array(column) for column in zip(*rows, strict=True)), strict=True)))}


def _right(models: Table) -> NDArray[np.bool_]:
    return np.isclose(models["formula"], models["truth"], rtol=1e-6, atol=1e-9)


def claims(data: Tables) -> list[Claim]:
    """Check that Theorem 3 is always exact, and that Theorem 4 is exact where its assumption holds."""
    models = data["models"]
    right, assumed = _right(models), models["assumption_holds"].astype(bool)
    off = np.abs(models["formula"] - models["truth"])
    top = np.isclose(models["eta_max"], models["largest_breakpoint"], rtol=1e-9)
    found = [
        Claim("Theorem 3 (eta_max) is exact on every model", f"{top.size} of {top.size}", f"{top.sum()} of {top.size}",
              bool(top.all())),
        Claim("Theorem 4 (eta_min) is exact wherever its assumption holds", f"{assumed.sum()} of {assumed.sum()}",
              f"{(right & assumed).sum()} of {assumed.sum()}", bool(right[assumed].all())),
        Claim("Theorem 4 is not true in general", "wrong on at least one model",
              f"wrong on {(~right).sum()} of {right.size} models", bool((~right).any())),
    ]  # fmt: skip
    for size in np.unique(models["n_states"]):
        here = models["n_states"] == size
        missed = here & ~right
        worst = float(off[missed].max()) if missed.any() else 0.0
        found.append(
            Claim(
                f"{size} states: Theorem 4 is wrong only where its assumption fails",
                "exact where the assumption holds",
                f"wrong on {missed.sum()} of {here.sum()} models, by up to {worst:.2f}; "
                f"{(missed & assumed).sum()} of them where it holds",
                not (missed & assumed).any(),
            )
        )
    return found


def plot(data: Tables) -> Figure:
    """Draw the formula against the true value, one panel per number of states."""
    models = data["models"]
    sizes, assumed = np.unique(models["n_states"]), models["assumption_holds"].astype(bool)
    right = _right(models)
    with styled():
        figure, axes = plt.subplots(1, len(sizes), figsize=(4.4 * len(sizes), 4.0), squeeze=False)
        for ax, size in zip(axes[0], sizes, strict=True):
            here = models["n_states"] == size
            top = float(max(models["truth"][here].max(), models["formula"][here].max())) * 1.05
            ax.plot([0, top], [0, top], color=LAZY, linewidth=1, zorder=0)
            for holds, color, marker, words in (
                (True, FAINT, "o", "assumption holds"),
                (False, CONTROL, "^", "assumption fails"),
            ):
                chosen = here & (assumed == holds)
                ax.scatter(models["truth"][chosen], models["formula"][chosen], s=16, color=color, marker=marker,
                           alpha=0.75, linewidth=0, label=f"{words} ({chosen.sum()})")  # fmt: skip
            ax.set_title(f"{size} states: wrong on {(here & ~right).sum()} of {here.sum()} models")
            ax.set_xlabel("true eta_min")
            ax.legend(loc="best")
        axes[0, 0].set_ylabel("eta_min of Theorem 4")
    return figure
