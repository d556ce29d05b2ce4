"""The compiled steps of tabular learning: choose, execute, learn. One run is one table and one random stream.

A table has A columns, or A + 1 where being lazy has a value of its own (the paper's *augmented* form):

* **augmented** (`Q_+`): the choice made, lazy or not, is what is updated, with reward `r`, less the price if it was to
  take control;
* **structured**: the action executed is updated, whoever chose it, with
  `y = r - eta + gamma max(max_a q, E_default q + eta)`; the value of being lazy is derived. Every step of the default
  teaches something about an action.

What a state is worth and what is greedy in it are kept beside the table and refreshed when its row changes, so that a
step reads three numbers instead of a row. Random numbers come from xoroshiro128+, one stream per run, seeded through
splitmix64: a run does not depend on which core it is on or on what runs beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

TIED = np.uint32(0xFFFFFFFF)
"""In `greedy`: several actions are best and one is drawn at random when it is needed."""

SEVERAL = np.uint32(0xFFFFFFFF)
"""In `next_state`: the row has several successors."""

MAX, SAMPLED, DEFAULT = 0, 1, 2
"""What the next state counts for: its best choice (Q-learning), the choice made (SARSA), or its default's mean."""

# Indices are unsigned, as in the exact solver: signed ones cost a check for negative values at every access.
_LOW = _TIED = _SEVERAL = np.uint64(0xFFFFFFFF)
_ONE, _TWO32 = np.uint64(1), np.uint64(32)


class World(NamedTuple):
    """What is learned on, as flat arrays; row `s*A + a`."""

    next_state: NDArray[np.uint32]  # [S*A] the only successor, or SEVERAL
    indptr: NDArray[np.int32]  # [S*A + 1]
    indices: NDArray[np.int32]  # [nnz]
    cumulative: NDArray[np.float64]  # [nnz] running sums of the probabilities in each row
    rewards: NDArray[np.float64]  # [S*A]
    absorbing: NDArray[np.bool_]  # [S]
    start: NDArray[np.float64]  # [S] running sums of the start distribution
    event: NDArray[np.bool_]  # [S], or empty: states from which on `before` no longer counts


class Rule(NamedTuple):
    """How it is learned."""

    default: NDArray[np.float64]  # [S*A]
    default_sums: NDArray[np.float64]  # [S*A] running sums in each state
    uniform: bool  # the default is uniform: drawing from it needs no search
    gamma: float
    eta: float
    alpha: float
    alpha_power: float  # the step size is alpha / n**alpha_power at the n-th visit
    lazy: bool  # whether there is a lazy action
    structured: bool
    target: int  # MAX, SAMPLED or DEFAULT


class Table(NamedTuple):
    """What one run knows; changed in place."""

    q: NDArray[np.float64]  # [S, C]
    steps: NDArray[np.float64]  # [S, A] or empty: discounted steps to the end under the greedy policy (Z)
    visits: NDArray[np.int64]  # [S, C]
    value: NDArray[np.float64]  # [S] what the state counts for in a target
    greedy: NDArray[np.uint32]  # [S] the greedy choice, or TIED
    stream: NDArray[np.uint64]  # [2] the random stream


def new_table(n_states: int, n_columns: int, rule: Rule, seed: int, with_steps: bool = False) -> Table:
    """An empty table: all values 0, the random stream at its start."""
    n_actions = rule.default.size // n_states
    shape = (n_states, n_actions) if with_steps else (0, 0)
    table = Table(
        np.zeros((n_states, n_columns)),
        np.zeros(shape),
        np.zeros((n_states, n_columns), dtype=np.int64),
        np.zeros(n_states),
        np.zeros(n_states, dtype=np.uint32),
        _seeded(seed),
    )
    refresh_all(table, rule)
    return table


def _seeded(seed: int) -> NDArray[np.uint64]:
    """Two words of splitmix64; any whole number is a seed, neighbours give unrelated streams."""
    mask, state, words = (1 << 64) - 1, seed & ((1 << 64) - 1), []
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        words.append(z ^ (z >> 31))
    return np.array(words, dtype=np.uint64)


@numba.njit(cache=True, nogil=True, inline="always")
def draw(stream: Any) -> Any:
    """64 random bits (xoroshiro128+)."""
    a, b = stream[0], stream[1]
    bits = a + b
    b ^= a
    stream[0] = ((a << np.uint64(24)) | (a >> np.uint64(40))) ^ b ^ (b << np.uint64(16))
    stream[1] = (b << np.uint64(37)) | (b >> np.uint64(27))
    return bits


@numba.njit(cache=True, nogil=True, inline="always")
def unit(bits: Any) -> Any:
    """The upper bits as a number in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@numba.njit(cache=True, nogil=True, inline="always")
def search(sums: Any, begin: Any, end: Any, x: Any) -> Any:
    """The first place from `begin` on whose running sum exceeds `x`, at most `end - 1`."""
    place = begin
    while place + _ONE < end and sums[place] <= x:
        place += _ONE
    return place


@numba.njit(cache=True, nogil=True, inline="always")
def below(bits: Any, count: Any) -> Any:
    """A whole number below `count`, from the lower 32 bits."""
    return ((bits & _LOW) * count) >> _TWO32


@numba.njit(cache=True, nogil=True, inline="always")
def default_action(rule: Rule, state: Any, n_actions: Any, bits: Any) -> Any:
    """An action of the default policy, from the lower 32 bits."""
    if rule.uniform:
        return below(bits, n_actions)
    begin = state * n_actions
    return search(rule.default_sums, begin, begin + n_actions, np.float64(bits & _LOW) / 4294967296.0) - begin


@numba.njit(cache=True, nogil=True, inline="always")
def choose(table: Table, rule: Rule, state: Any, explore_below: Any) -> Any:
    """An epsilon-greedy choice and the action executed for it; `choice == A` is lazy."""
    n_actions = np.uint64(rule.default.size // table.value.size)
    bits = draw(table.stream)
    if (bits >> _TWO32) < explore_below:
        choice = below(bits, n_actions + _ONE if rule.lazy else n_actions)
        bits = draw(table.stream)
    else:
        choice = np.uint64(table.greedy[state])
        if choice == _TIED:
            choice = any_best(table, state, n_actions, bits)
    executed = choice if choice < n_actions else default_action(rule, state, n_actions, bits)
    return choice, executed


@numba.njit(cache=True, nogil=True)
def any_best(table: Table, state: Any, n_actions: Any, bits: Any) -> Any:
    """One of the actions with the largest value, at random."""
    best, ties = -np.inf, np.uint64(0)
    for a in range(n_actions):
        if table.q[state, a] > best:
            best, ties = table.q[state, a], _ONE
        elif table.q[state, a] == best:
            ties += _ONE
    left = below(bits, ties)
    chosen: Any = np.uint64(0)
    for a in range(n_actions):
        if table.q[state, a] == best:
            if left == np.uint64(0):
                chosen = a
                break
            left -= _ONE
    return chosen


@numba.njit(cache=True, nogil=True, inline="always")
def refresh(table: Table, rule: Rule, state: Any) -> None:
    """Recomputes what is greedy in a state and what it counts for, after its row has changed. A tie is lazy."""
    n_actions = np.uint64(rule.default.size // table.value.size)
    first = state * n_actions
    best = table.q[state, np.uint64(0)]
    mean = rule.default[first] * best
    greedy: Any = np.uint64(0)
    tied = False
    for a in range(_ONE, n_actions):
        x = table.q[state, a]
        mean += rule.default[first + a] * x
        if x >= best:
            tied = x == best
            best, greedy = x, a
    if rule.lazy:
        lazy_value = mean + rule.eta if rule.structured else table.q[state, n_actions]
        if lazy_value >= best or rule.target == DEFAULT:  # a default that is only watched is always followed
            best, greedy, tied = lazy_value, n_actions, False
    table.greedy[state] = TIED if tied else np.uint32(greedy)
    table.value[state] = best


@numba.njit(cache=True, nogil=True, inline="always")
def learn(
    table: Table, rule: Rule, state: Any, choice: Any, executed: Any, reward: Any, following: Any, alive: Any,
    bonus: Any,
) -> None:  # fmt: skip
    """One update of the table from one step.

    `bonus` is what the next state counts for (0 if the episode ended there: `alive` is False).
    """
    n_actions = np.uint64(rule.default.size // table.value.size)
    column = executed if rule.structured else choice
    price = rule.eta if rule.lazy and column < n_actions else 0.0
    table.visits[state, column] += 1
    size = rule.alpha
    if rule.alpha_power != 0.0:
        size /= np.float64(table.visits[state, column]) ** rule.alpha_power
    if table.steps.size:
        ahead = 0.0
        if alive:
            best = np.uint64(table.greedy[following])
            ahead = table.steps[following, any_best(table, following, n_actions, _ONE) if best == _TIED else best]
        table.steps[state, executed] += size * (1.0 + rule.gamma * ahead - table.steps[state, executed])
    table.q[state, column] += size * (reward - price + rule.gamma * bonus - table.q[state, column])
    refresh(table, rule, state)


@numba.njit(cache=True, nogil=True, inline="always")
def choice_value(table: Table, rule: Rule, state: Any, choice: Any) -> Any:
    """What a choice in a state is worth: SARSA's target."""
    n_actions = np.uint64(rule.default.size // table.value.size)
    if choice < n_actions or not rule.structured:
        worth = table.q[state, choice]
    else:
        worth = rule.eta
        for a in range(n_actions):
            worth += rule.default[state * n_actions + a] * table.q[state, a]
    return worth


@numba.njit(cache=True, nogil=True)
def refresh_all(table: Table, rule: Rule) -> None:
    """`refresh` for every state."""
    for state in range(np.uint64(table.value.size)):
        refresh(table, rule, state)


@numba.njit(cache=True, nogil=True)
def first_choice(table: Table, rule: Rule, state: int, explore_below: Any) -> Any:
    """`choose`, to be called from Python."""
    return choose(table, rule, np.uint64(state), explore_below)


@numba.njit(cache=True, nogil=True)
def one_step(
    table: Table, rule: Rule, state: int, choice: int, executed: int, reward: float, following: int, alive: bool,
    explore_below: Any,
) -> Any:  # fmt: skip
    """Learns from one step and makes the next choice; to be called from Python."""
    return _advance(
        table, rule, np.uint64(state), np.uint64(choice), np.uint64(executed), reward, np.uint64(following), alive,
        explore_below,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True, inline="always")
def _advance(
    table: Table, rule: Rule, state: Any, choice: Any, executed: Any, reward: Any, following: Any, alive: Any,
    explore_below: Any,
) -> Any:  # fmt: skip
    """Learns from one step and makes the next choice: after learning, or before it where that choice is the target."""
    if rule.target == SAMPLED:
        later, later_executed = choose(table, rule, following, explore_below)
        bonus = choice_value(table, rule, following, later) if alive else 0.0
        learn(table, rule, state, choice, executed, reward, following, alive, bonus)
    else:
        bonus = table.value[following] if alive else 0.0
        learn(table, rule, state, choice, executed, reward, following, alive, bonus)
        later, later_executed = choose(table, rule, following, explore_below)
    return later, later_executed


@numba.njit(cache=True, nogil=True)
def episodes(
    world: World, rule: Rule, table: Table, count: int, max_steps: int, epsilon: float, epsilon_step: float,
    occupancy: Any, before: Any,
) -> Any:  # fmt: skip
    """Plays and learns `count` episodes; epsilon falls by `epsilon_step` after each.

    Counts visits of states in `occupancy [S]` and, until a state of `world.event`, in `before [S]`, unless empty.

    Returns:
        Total reward (price excluded), control steps and steps.
    """
    n_states = np.uint64(world.absorbing.size)
    n_actions = np.uint64(world.rewards.size // world.absorbing.size)
    score, controls, total = 0.0, 0, 0
    for episode in range(count):
        explore_below = np.uint64(max(0.0, epsilon - episode * epsilon_step) * 4294967296.0)
        state = search(world.start, np.uint64(0), n_states, unit(draw(table.stream)))
        happened = False
        choice, executed = choose(table, rule, state, explore_below)
        for _ in range(max_steps):
            if world.absorbing[state]:
                break
            row = state * n_actions + executed
            following = np.uint64(world.next_state[row])
            if following == _SEVERAL:
                begin, end = np.uint64(world.indptr[row]), np.uint64(world.indptr[row + _ONE])
                following = np.uint64(world.indices[search(world.cumulative, begin, end, unit(draw(table.stream)))])
            reward = world.rewards[row]
            score += reward
            controls += choice < n_actions
            total += 1
            if occupancy.size:
                occupancy[state] += 1
            if before.size:
                happened |= world.event[state]
                if not happened:
                    before[state] += 1
            alive = not world.absorbing[following]
            choice, executed = _advance(table, rule, state, choice, executed, reward, following, alive, explore_below)
            state = following
    return score, controls, total
