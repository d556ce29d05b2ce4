"""What the compiled steps of tabular learning read and write: flat arrays, and how they are made.

A state is known by its *place*, the index of its first entry: every array of a world, a rule and a table has the same
`width` of entries for each state, and what a world stores of the next state is its place. One number then finds all
there is of a state, and no step multiplies. Whole numbers lie between the others, as `float64.view(uint64)`: the fewer
arrays there are, the more of their addresses stay in registers.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T", bound=np.generic)

SEVERAL = np.uint32(0xFFFFFFFF)
"""In `World.following`: there are several successors."""

MAX, SAMPLED, DEFAULT = 0, 1, 2
"""What the next state counts for: its best choice (Q-learning), the choice made (SARSA), or its default's mean."""

VALUE, BOUND, GREEDY, COLUMNS = 0, 1, 2, 3
"""The entries of a state in `Table.rows`: what it counts for, a bound on all columns but the greedy one, what is greedy
(A + 1 if several are best, A + 2 if the episode ends there), the columns, and then how often each was updated."""


class World(NamedTuple):
    """What is learned on. The entry of an action is at the place of its state plus the action."""

    moves: NDArray[np.float64]  # [S*W] of each action the place of its only successor, or SEVERAL; then the rewards
    indptr: NDArray[np.int32]  # [S*W + 1]
    places: NDArray[np.uint32]  # [nnz] of the successors
    cumulative: NDArray[np.float64]  # [nnz] running sums of their probabilities in each row
    start: np.uint64  # the first of ...
    starts: NDArray[np.uint32]  # ... places of the possible first states
    start_sums: NDArray[np.float64]  # running sums of their probabilities
    event: NDArray[np.bool_]  # [S*W], or empty: places from which on `Lane.before` no longer counts
    plain: bool  # one successor everywhere, and no episode that ends before its first step


class Rule(NamedTuple):
    """How it is learned."""

    n_actions: np.uint64  # A
    n_choices: np.uint64  # A, or A + 1 with a lazy action
    n_columns: np.uint64  # A, or A + 1 where being lazy has a value of its own
    width: np.uint64  # W
    default: NDArray[np.float64]  # [S*W]
    default_sums: NDArray[np.float64]  # [S*W] running sums in each state
    uniform: bool  # the default is uniform: drawing from it needs no search
    taken: NDArray[np.float64]  # [A + 1] steps of control in a choice: 1, and 0 for lazy
    gamma: float
    eta: float
    alpha: float
    alpha_power: float  # the step size is alpha / n**alpha_power at the n-th visit
    target: int  # MAX, SAMPLED or DEFAULT


class Table(NamedTuple):
    """What one run knows; changed in place."""

    rows: NDArray[np.float64]  # [S*W] see COLUMNS
    steps: NDArray[np.float64]  # [S*W] or empty: discounted steps to the end under the greedy policy (Z)
    stream: NDArray[np.uint64]  # [2] the random stream


class Lane(NamedTuple):
    """One run under way: how it learns, what it knows, and what it has seen."""

    rule: Rule
    table: Table
    before: NDArray[np.int64]  # [S*W] or empty: steps before the event, at places
    seen: NDArray[np.float64]  # [P, 3] at each point: reward (price excluded), control steps, steps, since `Plan.first`


class Plan(NamedTuple):
    """What to play: all episodes from one point of the curves to another."""

    edges: NDArray[np.int64]  # [P + 1] episodes at which the points begin and end
    first: int
    last: int
    max_steps: int
    epsilon: float  # in episode 0 ...
    epsilon_step: float  # ... and by how much it falls from one to the next


class Kind(NamedTuple):
    """What a kernel is compiled for, if constants are given, or finds out as it runs."""

    n_actions: Any
    n_choices: Any
    n_columns: Any
    plain: Any  # nothing special: Q-learning, constant step size, uniform default, one successor each, nothing counted


class At(NamedTuple):
    """Where a run is: numbers that can stay in registers. The order is a fast one, with what no step changes first."""

    choice: Any  # SARSA's, made in the step before ...
    executed: Any  # ... and the action for it
    happened: Any  # whether the event has, in this episode
    episode: Any
    point: Any
    explore_next: Any  # as `explore`, in the next episode
    a: Any  # the random stream
    b: Any
    explore: Any  # of 2**32: how likely a random choice is
    place: Any
    steps: Any
    deadline: Any  # the steps at which the episode is cut off
    score: Any
    controls: Any


def new_table(absorbing: NDArray[np.bool_], rule: Rule, seed: int, with_steps: bool) -> Table:
    """A table of zeros, the random stream at its start. Lazy is greedy, as in every tie, if it is a choice."""
    rows, n_actions = np.zeros((absorbing.size, int(rule.width))), int(rule.n_actions)
    if rule.n_choices > rule.n_columns:
        rows[~absorbing, VALUE] = rule.eta
    all_equal = n_actions if rule.n_choices > n_actions else n_actions + 1
    rows.view(np.int64)[:, GREEDY] = np.where(absorbing, n_actions + 2, all_equal)
    return Table(rows.reshape(-1), np.zeros(rows.size if with_steps else 0), _seeded(seed))


def _seeded(seed: int) -> NDArray[np.uint64]:
    """Two words of splitmix64; any whole number is a seed, neighbours give unrelated streams."""
    mask, state, words = (1 << 64) - 1, seed & ((1 << 64) - 1), []
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        words.append(z ^ (z >> 31))
    return np.array(words, dtype=np.uint64)


def widened(entries: NDArray[_T], width: int) -> NDArray[_T]:
    """`[S, n]` entries as `[S*width]`, the rest 0."""
    wide = np.zeros((len(entries), width), dtype=entries.dtype)
    wide[:, : entries.shape[1]] = entries
    return wide.reshape(-1)


def at_places(entries: NDArray[_T], rule: Rule) -> NDArray[_T]:
    """`[S]` the first entry of each state."""
    return entries[:: int(rule.width)]


def columns(entries: NDArray[_T], rule: Rule) -> NDArray[_T]:
    """`[S, C]` the columns of a table's rows or steps."""
    return entries.reshape(-1, int(rule.width))[:, COLUMNS : COLUMNS + int(rule.n_columns)]


def visits(table: Table, rule: Rule) -> NDArray[np.int64]:
    """`[S, C]` how often each column was updated."""
    return table.rows.view(np.int64).reshape(-1, int(rule.width))[:, COLUMNS + int(rule.n_columns) :]


def greedy_choices(table: Table, rule: Rule) -> NDArray[np.int64]:
    """`[S]` the greedy choice; A is lazy. Of several the first; where the episode ends, lazy if that is a choice."""
    codes, n_actions = at_places(table.rows.view(np.int64)[GREEDY:], rule), int(rule.n_actions)
    first = columns(table.rows, rule)[:, :n_actions].argmax(axis=1)
    at_end = np.where(rule.n_choices > rule.n_actions, n_actions, first)
    return np.where(codes <= n_actions, codes, np.where(codes == n_actions + 1, first, at_end))
