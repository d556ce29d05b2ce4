"""Solves the two worlds of the paper exactly, prints what was found and draws it.

Run it with `make demo`, or `python examples/two_worlds.py [FOLDER]`.
"""

import sys
import time
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure, RiversAndBridges

matplotlib.use("Agg")


def key_door_treasure(folder: Path) -> None:
    """Fig. 3 of the paper: the higher the price, the fewer and the more crucial the controls; then every price."""
    world = KeyDoorTreasure()
    mdp = lz.MDP.from_gymnasium(world, gamma=0.99)
    default = lz.policies.uniform(mdp)
    print(f"Key-Door-Treasure, random default: {mdp}")
    print(f"  laziness is a choice for eta between {lz.eta_min(mdp, default):.4g} and {lz.eta_max(mdp, default):.4g}")

    etas = (0.008, 0.02, 0.05)
    figure, axes = plt.subplots(2, 3, figsize=(11.4, 7.9), layout="constrained")
    for column, eta in enumerate(etas):
        lazy = lz.LazyMDP(mdp, default, eta)
        solution = lz.solve(lazy)
        value = mdp.start_average(lz.evaluate(lazy, solution.action).base_value)
        often = 1.0 - lz.lazy_frequency(lazy, solution.action).long_run
        print(
            f"  eta {eta:<6}: control in {solution.control.sum():3} of {(~mdp.absorbing).sum()} states, "
            f"in {often:4.0%} of the steps of play, return {value:.3f} (error <= {solution.error_bound:.0e})"
        )
        for row, (layer, what) in enumerate([(~world.has_key, "without the key"), (world.has_key, "with the key")]):
            lz.show.policy_map(world, solution.action, layer=layer, ax=axes[row, column])
            axes[row, column].set_title(f"eta = {eta}, {what}", fontsize=10)
    figure.savefig(folder / "key_door_treasure.png", dpi=130)

    started = time.perf_counter()
    path = lz.eta_path(mdp, default)
    print(f"  every eta at once, in {time.perf_counter() - started:.2f} s: {path}")
    plan = path.for_budget(10)
    print(f"  best return with at most 10 (discounted) controls: {plan.value:.3f}, at eta = {plan.eta:.4g}")
    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2), layout="constrained")
    lz.show.heat_map(world, path.critical_eta, layer=world.has_key, label="critical eta", ax=axes[0])
    axes[0].set_title("how much each cell matters (with the key)", fontsize=10)
    lz.show.path_curves(path, ax=axes[1])
    figure.savefig(folder / "key_door_treasure_path.png", dpi=130)


def rivers_and_bridges(folder: Path) -> None:
    """Fig. 2 of the paper: only the bridges matter when the default is good everywhere else."""
    world = RiversAndBridges()
    mdp = lz.MDP.from_gymnasium(world, gamma=0.99)
    on_bridge = np.array([world.layout[row][column] == "=" for row, column in world.cells])
    default = np.where(on_bridge[:, None], lz.policies.uniform(mdp), lz.policies.optimal(mdp))
    print(f"Rivers & Bridges, optimal default but random on the bridges: {mdp}")
    print(f"  eta_max {lz.eta_max(mdp, default):.3f}")
    solution = lz.solve(lz.LazyMDP(mdp, default, eta=0.1))
    names = ", ".join(mdp.describe_state(int(state)) for state in np.flatnonzero(solution.control))
    print(f"  eta 0.1: control at {names}")
    axes = lz.show.heat_map(world, solution.lazy_gap, label="lazy-gap at eta = 0.1")
    axes.figure.savefig(folder / "rivers_and_bridges.png", dpi=130)


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    target.mkdir(parents=True, exist_ok=True)
    key_door_treasure(target)
    rivers_and_bridges(target)
    print(f"Pictures: {', '.join(str(path) for path in sorted(target.glob('*.png')))}")
