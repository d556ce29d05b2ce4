"""Shows which states of FrozenLake matter, by four measures and for three default policies.

The action-gap and importance advice depend on the optimal action values alone. The lazy-gap and `critical_eta` measure
what is lost if the default policy acts, so they also depend on the default policy.

Run it with `python examples/which_states_matter.py [FOLDER]`. It saves a picture in FOLDER, by default the current one.
"""

import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray

import lazymdp as lz
from lazymdp.envs.loading import load_model

matplotlib.use("Agg")


class Lake:
    """The map of FrozenLake and the cell of each state, for `lz.show`. Holes are drawn as water."""

    layout: tuple[str, ...] = ("S...", ".~.~", "...~", "~..G")
    action_names: tuple[str, ...] = ("left", "down", "right", "up")
    cells: NDArray[np.int64] = np.argwhere(np.ones((4, 4)))


def main(folder: Path) -> None:
    """Prints the three most important states by each measure and draws the maps."""
    mdp = load_model("FrozenLake-v1").mdp  # like MDP.from_gymnasium, but with state names
    uniform, optimal = lz.policies.uniform(mdp), lz.policies.optimal(mdp)
    base = lz.solve(lz.LazyMDP(mdp, uniform, eta=0.0))  # at price 0, `q` holds the values of the base model
    measures = {
        "action-gap": lz.action_gap(base.q),
        "importance advice": lz.importance_advice(base.q),
        "lazy-gap at eta = 0.02": lz.solve(lz.LazyMDP(mdp, uniform, eta=0.02)).lazy_gap,
        "critical eta": lz.eta_path(mdp, uniform).critical_eta,
        "critical eta, half optimal": lz.eta_path(mdp, lz.policies.mixture(optimal, uniform, 0.5)).critical_eta,
        "critical eta, second best": lz.eta_path(mdp, lz.policies.second_best(mdp)).critical_eta,
    }
    for name, values in measures.items():
        top = np.argsort(-np.where(mdp.absorbing, -1.0, values), kind="stable")[:3]
        print(f"{name:27}" + "; ".join(f"{values[state]:.3f} at {mdp.describe_state(int(state))}" for state in top))
    with lz.show.styled():
        figure, axes = plt.subplots(2, 3, figsize=(9.6, 5.6))
        for (name, values), ax in zip(measures.items(), axes.flat, strict=True):
            lz.show.heat_map(Lake(), values, ax=ax).set_title(name)
        figure.savefig(folder / "which_states_matter.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
