"""The arrays that the compiled loop of `kernel` reads and writes.

Indices are unsigned 64-bit integers. The lazy action has index `A`, the last one. Tables have `A + 1` columns:

* augmented form: column `A` is the value of being lazy, learned like the other columns;
* structured form: column `A` is the value of being lazy, derived from the other columns (Prop. 2);
* no lazy action: column `A` is minus infinity, so that it is never chosen.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Target = Literal["q_learning", "sarsa", "default_policy"]
"""The policy whose value an update bootstraps from. See `kernel`."""

Flag = Literal[True] | None
"""True, or None for no. None is a type of its own, so that numba compiles a loop without the unused parts.

The loop is 1.15 times faster than with bools, without which Fig. 7 would take more than the 5 s of its goal.
"""


class World(NamedTuple):
    """A model to sample from."""

    n_outcomes: NDArray[np.uint64]  # [S, A] number of possible next states
    next_state: NDArray[np.uint64]  # [S, A] the next state, if there is only one
    first: NDArray[np.uint64]  # [S, A] index of the first possible next state in `successors` and `bounds`
    successors: NDArray[np.uint64]  # [N] next states
    bounds: NDArray[np.float64]  # [N] cumulative probabilities, see `kernel.sample`
    rewards: NDArray[np.float64]  # [S, A] expected rewards
    absorbing: NDArray[np.bool_]  # [S]
    start_states: NDArray[np.uint64]  # states in which an episode may start ...
    start_bounds: NDArray[np.float64]  # ... and their cumulative probabilities


class Rule(NamedTuple):
    """How a run chooses and learns: the learner's settings."""

    n_actions: np.uint64  # A, which is also the index of the lazy action
    n_choices: np.uint64  # A + 1, or A if there is no lazy action
    structured: Flag  # the value of being lazy is derived, and the executed action is updated
    sarsa: Flag  # the target is the value of the agent's next choice
    evaluates_default: bool  # the target is the value of being lazy, which is always the greedy choice
    default_policy: NDArray[np.float64]  # [S, A]
    default_bounds: NDArray[np.float64]  # [S * (A + 1)] cumulative probabilities of the default policy
    gamma: float
    eta: float
    prices: NDArray[np.float64]  # [A + 1] price of each choice: eta, and 0 for being lazy
    alpha: float
    alpha_power: float  # the step size of the n-th update of an entry is alpha / n**alpha_power
    learn_steps: Flag  # Z is learned beside Q

    def with_eta(self, eta: float) -> Rule:
        """Returns the same rule with another price."""
        return self._replace(eta=eta, prices=np.append(np.full(int(self.n_actions), eta), 0.0))


class Tables(NamedTuple):
    """The state of one run, updated in place."""

    q: NDArray[np.float64]  # [S, A + 1] values; the columns of control include the price
    visits: NDArray[np.int64]  # [S, A + 1] number of updates of each entry
    steps: NDArray[np.float64]  # [S, A + 1] Z, the expected discounted number of steps to absorption; or [0, 0]
    value: NDArray[np.float64]  # [S] the largest entry of each row of q
    greedy: NDArray[np.uint64]  # [S] its column; A + 1 if several control actions share the largest entry
    rival: NDArray[np.float64]  # [S] an upper bound on the other entries of the row (not used in the structured form)
    stream: NDArray[np.uint64]  # [2] state of the random number generator


class Plan(NamedTuple):
    """The episodes of a run. Its curves have `P` points; point `p` covers the episodes `edges[p]` to `edges[p + 1]`."""

    edges: NDArray[np.int64]  # [P + 1]
    max_steps: int  # steps after which an episode is truncated
    epsilon: float  # probability of a random choice in the first episode ...
    epsilon_step: float  # ... and its decrease from one episode to the next


def make_plan(episodes: int, max_steps: int, epsilon: float, final_epsilon: float, points: int) -> Plan:
    """Returns a plan in which epsilon falls linearly and the points of the curves are evenly spaced."""
    edges = np.linspace(0, episodes, min(points, episodes) + 1).astype(np.int64)
    return Plan(edges, max_steps, epsilon, (epsilon - final_epsilon) / max(1, episodes - 1))


def new_tables(absorbing: NDArray[np.bool_], rule: Rule, seed: int) -> Tables:
    """Returns the tables of a run that has not started: every control action has value 0."""
    lazy = int(rule.n_actions)
    q = np.zeros((absorbing.size, lazy + 1))
    if rule.n_choices == rule.n_actions:
        q[:, lazy] = -np.inf
    elif rule.structured:
        q[~absorbing, lazy] = rule.eta
    return Tables(
        q=q,
        visits=np.zeros(q.shape, dtype=np.int64),
        steps=np.zeros(q.shape if rule.learn_steps else (0, 0)),
        value=q.max(axis=1),
        greedy=np.where(q[:, lazy] >= 0.0, lazy, lazy + 1).astype(np.uint64),
        rival=np.zeros(absorbing.size),
        stream=_seeded_stream(seed),
    )


def greedy_choices(tables: Tables) -> NDArray[np.int64]:
    """Returns the greedy choice in each state `[S]`: the first one if several control actions share the best value."""
    lazy = tables.q.shape[1] - 1
    greedy = tables.greedy.astype(np.int64)
    return np.where(greedy > lazy, tables.q[:, :lazy].argmax(axis=1), greedy)


def _seeded_stream(seed: int) -> NDArray[np.uint64]:
    """Returns two words of splitmix64, so that any integer is a seed and neighboring seeds give unrelated streams."""
    mask = (1 << 64) - 1
    state, words = seed & mask, []
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) & mask
        word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & mask
        words.append(word ^ (word >> 31))
    return np.array(words, dtype=np.uint64)
