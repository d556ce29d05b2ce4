"""Solves Key-Door-Treasure in three ways: for one price, for every price, and for a budget of controls.

Run it with `python examples/first_steps.py [FOLDER]`. It saves a picture in FOLDER, by default the current folder.
"""

import sys
from pathlib import Path

import matplotlib

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure

matplotlib.use("Agg")


def main(folder: Path) -> None:
    """Solves the model, prints the results and draws one policy."""
    world = KeyDoorTreasure()
    mdp = lz.MDP.from_gymnasium(world, gamma=0.99)
    default = lz.policies.uniform(mdp)  # when the agent is lazy, it makes a random move
    print(mdp)

    # One price. The agent takes control where the best action is worth more than `eta` above a random action.
    lazy = lz.LazyMDP(mdp, default, eta=0.02)
    solution = lz.solve(lazy)
    found = lz.evaluate(lazy, solution.action)
    print(f"eta = 0.02: {solution}")
    paid, cost = mdp.start_average(found.base_value), -mdp.start_average(found.control_cost)
    print(f"  return {paid:.3f}, minus {cost:.3f} paid for control")
    print(f"  takes control in {1 - lz.lazy_frequency(lazy, solution.action).long_run:.0%} of the steps")

    # Every price. Between two breakpoints the optimal policy does not change.
    path = lz.eta_path(mdp, default)
    print(f"every eta: {path}")
    last = int((path.critical_eta * world.has_key).argmax())
    print(f"  takes control up to the highest price, {path.critical_eta[last]:.3f}: {mdp.describe_state(last)}")

    # A budget. Instead of a price, give the largest expected discounted number of controls.
    plan = path.for_control_count(5)
    print(f"at most 5 controls: return {plan.base_value:.3f}, at eta = {plan.eta:.3f}")

    with lz.show.styled():  # use the project's plot style
        axes = lz.show.policy_map(world, solution.action, layer=world.has_key)
        axes.set_title("eta = 0.02, with the key")
        axes.figure.savefig(folder / "first_steps.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
