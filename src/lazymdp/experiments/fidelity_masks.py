"""The masks of the experiment `fidelity-truth`: those of `lazymdp.explain.mask`, learned in a model, and their optimum.

The learner and its settings are those of `lz.explain.record(mask="fit")`. It is only played faster: the next state is
drawn from the transitions of the policy that acts, and the reward of a step is its mean in the model. Training takes
minutes, so an experiment with the settings of the committed data takes the masks from there. To train them again,
delete `results/fidelity-truth/states.csv`.

The optimum says what a mask would be without the errors of its training. In a model, the choice between the agent's
action and blinding is an MDP with two actions, which is solved exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.exact.linear import policy_transitions
from lazymdp.experiments import results_io
from lazymdp.experiments.experiment import Table, table
from lazymdp.experiments.fidelity_worlds import Optimum
from lazymdp.experiments.study import COMMITTED
from lazymdp.explain.mask import BONUS_RANGE, TOLERANCE, MaskedEpisode, train_mask
from lazymdp.mdp import MDP
from lazymdp.measure.agreement import rank_correlation, top_overlap
from lazymdp.measure.control_removal import removal_loss, visit_frequency

Array = NDArray[np.float64]

MOST_STEPS = 200
"""Length at which a played episode is truncated, as in Taxi and FrozenLake 8x8; the default policy may never arrive."""
_BISECTIONS = 20
"""Halvings of the range of the bonus."""
_TIED = 1e-9
"""Difference of two values, as a share of the largest value, up to which they tie."""
_FOLDER = COMMITTED / "fidelity-truth"


class Masks:
    """The masks of every world and start: taken from the committed data if those have the same settings, or trained.

    Args:
        seed: Random seed.
        masks: Number of masks for each world and start.
        mask_steps: Steps that are played to train a mask.
    """

    def __init__(self, seed: int, masks: int, mask_steps: int) -> None:
        self._seed, self._count, self._steps = seed, masks, mask_steps
        record, states = results_io.load_record(_FOLDER), _FOLDER / "states.csv"
        settings = {"seed": seed, "masks": masks, "mask_steps": mask_steps}
        usable = record is not None and settings.items() <= record.settings.items() and states.exists()
        self._known: Table | None = results_io.read_table(states) if usable else None

    def of(self, world: str, start: str, mdp: MDP, best: Optimum) -> Array:
        """Return `[N, S]` probabilities of keeping the agent's action."""
        if self._known is None:
            generators = [np.random.default_rng([self._seed, 3, index]) for index in range(self._count)]
            return np.array([fitted(mdp, best.policy, best.default_policy, self._steps, rng) for rng in generators])
        here = (self._known["world"] == world) & (self._known["start"] == start)
        masks = np.zeros((self._count, mdp.n_states))
        masks[:, self._known["state"][here]] = [self._known[f"mask_{index}"][here] for index in range(self._count)]
        return masks


def fitted(mdp: MDP, policy: Array, default_policy: Array, steps: int, rng: np.random.Generator) -> Array:
    """Train a mask for a policy in a model, and return `[S]` probabilities of keeping the action of the policy."""
    seen = np.eye(mdp.n_states)  # a mask sees a state as a one-hot vector
    moves, rewards = _two_actions(mdp, policy, default_policy)
    reached = _cumulative(moves)
    start = _cumulative(mdp.start)

    def draw(cumulative: Array) -> int:
        return int(cumulative.searchsorted(rng.random(), side="right"))

    def play(budget: int, keep: Callable[[Array], Array]) -> list[MaskedEpisode]:
        chance, episodes, played = keep(seen), [], 0
        while played < budget:
            states, kept = [draw(start)], list[int]()
            while not mdp.absorbing[states[-1]] and len(kept) < MOST_STEPS:
                kept.append(int(rng.random() < chance[states[-1]]))
                states.append(draw(reached[kept[-1], states[-1]]))
            terminated = bool(mdp.absorbing[states[-1]])
            episodes.append(
                MaskedEpisode(seen[states], np.array(kept, dtype=bool), rewards[kept, states[:-1]], terminated)
            )
            played += len(kept)
        return episodes

    learner, _ = train_mask(play, rng, steps)
    return learner.keep(seen)


def _two_actions(mdp: MDP, policy: Array, default_policy: Array) -> tuple[Array, Array]:
    """Return `[2, S, S]` transitions and `[2, S]` rewards of blinding the agent, and of keeping its action."""
    tables = (default_policy, policy)
    moves = np.array([policy_transitions(mdp, table).toarray() for table in tables])
    return moves, np.einsum("ksa,sa->ks", tables, mdp.rewards)


def _cumulative(probabilities: Array) -> Array:
    """Return cumulative probabilities `[..., S]` whose last entry is exactly 1, above every uniform random number."""
    total = probabilities.cumsum(axis=-1)
    return total / total[..., -1:]


def optimal_mask(mdp: MDP, best: Optimum) -> Array:
    """Return `[S]` by how much keeping the agent's action is better than blinding, under the best mask that there is.

    The mask maximizes what the learner does: the discounted return plus a bonus for every step that is blinded. The
    bonus is the largest one in the learner's range with which the mask loses at most the learner's share of the gain.
    It is found by bisection, and the mask by policy iteration.
    """
    moves, rewards = _two_actions(mdp, best.policy, best.default_policy)
    states, alive = np.arange(mdp.n_states), ~mdp.absorbing

    def evaluated(keep: NDArray[np.int64]) -> tuple[Array, Array]:
        """Return `[S]` returns and `[S]` discounted numbers of blinded steps."""
        matrix = np.eye(mdp.n_states) - mdp.gamma * moves[keep, states]
        base, blinded = np.linalg.solve(matrix, np.stack([rewards[keep, states], alive & (keep == 0)], axis=1)).T
        return base, blinded

    def optimum(bonus: float) -> tuple[float, Array]:
        """Return the mean return of the best mask for a bonus, and its advantages of keeping."""
        keep = np.ones(mdp.n_states, dtype=np.int64)
        while True:
            base, blinded = evaluated(keep)
            q = rewards + mdp.gamma * moves @ (base + bonus * blinded)
            advantage = q[1] - q[0] - bonus * alive
            tied = np.abs(advantage) < _TIED * np.abs(q).max()
            better = np.where(tied, keep, advantage > 0.0)
            if np.array_equal(better, keep):
                return mdp.start_average(base), advantage
            keep = better

    ends = [mdp.start_average(evaluated(np.full(mdp.n_states, kept))[0]) for kept in (0, 1)]
    least = ends[1] - TOLERANCE * (ends[1] - ends[0])
    low, high = 0.0, BONUS_RANGE[1] * (ends[1] - ends[0]) / visit_frequency(mdp, best.policy).sum()
    if optimum(high)[0] >= least:
        return optimum(high)[1]
    for _ in range(_BISECTIONS):
        bonus = (low + high) / 2.0
        low, high = (bonus, high) if optimum(bonus)[0] >= least else (low, bonus)
    return optimum(low)[1]


def effect(mdp: MDP, best: Optimum, masks: Array) -> dict[str, NDArray[Any]]:
    """Return what `masks [N, S]` do in a model, exactly, and how well they agree with the exact loss: one row for each.

    `gain_kept` is the share of the optimum's gain over the default policy that is left, and `blinded` the share of the
    discounted steps in which the default policy acts. The learner aims at a loss of a tenth of the gain.
    """
    keep = np.concatenate([[np.zeros(mdp.n_states), np.ones(mdp.n_states)], masks])
    mixed = keep[:, :, None] * best.policy + (1.0 - keep)[:, :, None] * best.default_policy
    visits = np.array([visit_frequency(mdp, policy) for policy in mixed])
    returns = np.einsum("ns,nsa,sa->n", visits, mixed, mdp.rewards)
    gained = (returns - returns[0]) / (returns[1] - returns[0])
    blinded = 1.0 - (visits * keep).sum(axis=1) / visits.sum(axis=1)
    alive = ~mdp.absorbing
    truth = removal_loss(mdp, best.policy, best.default_policy)[alive]
    return table(
        mask=np.arange(len(masks)),
        gain_kept=gained[2:],
        blinded=blinded[2:],
        correlation=[rank_correlation(mask[alive], truth) for mask in masks],
        overlap=[top_overlap(mask[alive], truth) for mask in masks],
    )
