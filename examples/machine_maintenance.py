"""Solves a model of one's own: when is it worth sending a technician before the machine fails?

A machine wears out level by level, and the more it is worn, the less it earns. The default policy repairs it only after
a failure, which is expensive. Taking control means sending a technician; eta is the price of a visit.

Run it with `python examples/machine_maintenance.py [FOLDER]`; the model goes to FOLDER, the current one if not given.
Then `lazymdp explore FOLDER/machine.npz --default-policy FOLDER/on_failure.npy` gives a page with a slider for eta.
"""

import sys
from pathlib import Path

import numpy as np

import lazymdp as lz

LEVELS = ("new", "good", "fair", "worn", "poor", "failed")
EARNS = np.array([1.0, 1.0, 0.95, 0.85, 0.7, 0.0])
WEARS = np.array([0.10, 0.15, 0.20, 0.30, 0.40])  # daily probability of wearing by one level


def machine() -> lz.MDP:
    """Builds the model from transitions `[S, A, S]` and rewards `[S, A]`."""
    n = len(LEVELS)
    transitions = np.zeros((n, 2, n))
    for level, wears in enumerate(WEARS):
        transitions[level, 0, [level, level + 1]] = 1 - wears, wears
    transitions[-1, 0, -1] = 1.0  # without a repair, a failed machine stays failed
    transitions[:, 1, 0] = 1.0  # a repaired machine is as good as new
    planned, after_failure = 0.5, 6.0
    rewards = np.stack([EARNS, EARNS - np.append(np.full(n - 1, planned), after_failure)], axis=1)
    return lz.MDP(transitions, rewards, 0.99, 0, state_names=LEVELS, action_names=("wait", "repair"))


def main(folder: Path) -> None:
    """Solves for every price of a visit, then for three limits on the number of visits."""
    mdp = machine()
    default = np.where(np.arange(len(LEVELS))[:, None] == len(LEVELS) - 1, [0.0, 1.0], [1.0, 0.0])
    path = lz.eta_path(mdp, default)
    print(f"{path}\nThe highest price at which a visit pays:")
    for name, price in zip(LEVELS, path.critical_eta, strict=True):
        print(f"  {name:7}{price:6.2f}" + ("" if price else "  (never)"))

    alone, steps = path.start_base_values[-1], 1 / (1 - mdp.gamma)
    print(f"Repairing on failure only earns {alone / steps:.3f} a day.")
    for per_year in (6, 14, 18):
        plan = path.for_control_rate(per_year / 365)
        earned = plan.base_value / steps
        print(f"At most {per_year:2} visits a year: {earned:.3f} a day; one more visit is worth {plan.eta:.2f}.")
    mdp.save(folder / "machine.npz")
    np.save(folder / "on_failure.npy", default)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
