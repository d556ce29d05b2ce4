"""Shows that laziness helps exploration: Q-learning in Key-Door-Treasure with an apple that ends the episode.

The apple is near the start and gives a reward of 0.1; the treasure gives 1. Without a price, the learner settles for
the apple and never sees the key. At the right price, the apple is not worth the cost of control. The agent stays lazy
until the random default policy finds the key and the treasure. This is Fig. 7 of the paper with fewer seeds and
episodes; `lazymdp reproduce fig7` runs the full experiment.

Run it with `python examples/lazy_exploration.py [FOLDER]`. It saves a picture in FOLDER, by default the current folder.
"""

import sys
from pathlib import Path

import matplotlib

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure

matplotlib.use("Agg")

ETAS = (0.0, 0.03)


def main(folder: Path) -> None:
    """Learns with 20 seeds at each price, prints the final results and draws the learning curves."""
    world = KeyDoorTreasure(apple=True)
    mdp = lz.MDP.from_gymnasium(world, gamma=0.99)
    result = lz.learn.q_learning(
        mdp,
        lz.policies.uniform(mdp),
        ETAS,
        episodes=25_000,
        seed=range(20),
        points=50,
    )
    curves = {}
    for place, eta in enumerate(ETAS):
        curves[f"eta = {eta:g}"] = returns = lz.measure.mean_interval(result.mean_return[place])
        with_key = result.occupancy[place][:, world.has_key].sum(axis=1).mean()
        print(
            f"eta = {eta:<4}: final return {returns.mean[-1]:.2f} ({returns.low[-1]:.2f} to {returns.high[-1]:.2f}), "
            f"control in {result.control_rate[place, :, -1].mean():.0%} of the steps, key held in {with_key:.0%}"
        )
    print(f"{result.steps:,} steps in {len(ETAS)} x {result.seeds.size} runs")
    with lz.show.styled():
        axes = lz.show.return_curves(result.episode, curves)
        axes.set_title(f"mean of {result.seeds.size} seeds, 95 % interval")
        axes.figure.savefig(folder / "lazy_exploration.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
