"""What the compiled steps of tabular learning read and write: flat arrays, and how they are made.

A state is known by its *place*, the index of its first entry: every array of a world, a rule and a table has the same
`width` of entries for each state, and what a world stores of the next state is its place. One number then finds all
there is of a state, and no step multiplies.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

_T = TypeVar("_T", bound=np.generic)

SEVERAL = np.uint32(0xFFFFFFFF)
"""In `World.following`: there are several successors."""

MAX, SAMPLED, DEFAULT = 0, 1, 2
"""What the next state counts for: its best choice (Q-learning), the choice made (SARSA), or its default's mean."""

BESIDE = 2
"""Entries of a row of `Table.rows` before the columns."""


class World(NamedTuple):
    """What is learned on. The entry of an action is at the place of its state plus the action."""

    following: NDArray[np.uint32]  # [S*W] place of the only successor, or SEVERAL
    indptr: NDArray[np.int32]  # [S*W + 1]
    places: NDArray[np.uint32]  # [nnz] of the successors
    cumulative: NDArray[np.float64]  # [nnz] running sums of their probabilities in each row
    rewards: NDArray[np.float64]  # [S*W]
    start: NDArray[np.uint32]  # places of the possible first states
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
    gamma: float
    eta: float
    alpha: float
    alpha_power: float  # the step size is alpha / n**alpha_power at the n-th visit
    target: int  # MAX, SAMPLED or DEFAULT


class Table(NamedTuple):
    """What one run knows; changed in place."""

    rows: NDArray[np.float64]  # [S*W] what the state counts for, a bound on all columns but the greedy one, the columns
    steps: NDArray[np.float64]  # [S*W] or empty: discounted steps to the end under the greedy policy (Z)
    visits: NDArray[np.int64]  # [S*W]
    greedy: NDArray[np.uint32]  # [S*W] at a place: the greedy choice, A + 1 if several are best, A + 2 if it is the end
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


def new_table(n_states: int, rule: Rule, seed: int, with_steps: bool) -> Table:
    """A table of zeros, the random stream at its start; to be refreshed before it is used."""
    size = n_states * int(rule.width)
    return Table(
        np.zeros(size),
        np.zeros(size if with_steps else 0),
        np.zeros(size, dtype=np.int64),
        np.zeros(size, dtype=np.uint32),
        _seeded(seed),
    )


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
    """`[S, C]` the columns of a table's rows, steps or visits."""
    return entries.reshape(-1, int(rule.width))[:, BESIDE : BESIDE + int(rule.n_columns)]


def greedy_choices(table: Table, rule: Rule) -> NDArray[np.int64]:
    """`[S]` the greedy choice; A is lazy. Of several the first; where the episode ends, lazy if that is a choice."""
    codes, n_actions = at_places(table.greedy, rule).astype(np.int64), int(rule.n_actions)
    first = columns(table.rows, rule)[:, :n_actions].argmax(axis=1)
    at_end = np.where(rule.n_choices > rule.n_actions, n_actions, first)
    return np.where(codes <= n_actions, codes, np.where(codes == n_actions + 1, first, at_end))
