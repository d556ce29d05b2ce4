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

    n_actions: np.uint64  # A; a division in every step would be felt
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
    shape = (n_states, int(rule.n_actions)) if with_steps else (0, 0)
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


# The functions below take plain arrays, not the tuples above: reading an array out of a tuple inside a loop counts
# references, which makes a step ten times slower.


@numba.njit(cache=True, nogil=True, inline="always")
def choose(
    q: Any,
    greedy: Any,
    stream: Any,
    default_sums: Any,
    uniform: Any,
    lazy: Any,
    n_actions: Any,
    state: Any,
    explore: Any,
) -> Any:
    """An epsilon-greedy choice and the action executed for it; `choice == A` is lazy."""
    bits = draw(stream)
    if (bits >> _TWO32) < explore:
        choice = below(bits, n_actions + _ONE if lazy else n_actions)
        bits = draw(stream)
    else:
        choice = np.uint64(greedy[state])
        if choice == _TIED:
            choice = any_best(q, n_actions, state, bits)
    executed = choice
    if choice == n_actions:  # the default's action
        if uniform:
            executed = below(bits, n_actions)
        else:
            first = state * n_actions
            place = np.float64(bits & _LOW) / 4294967296.0
            executed = search(default_sums, first, first + n_actions, place) - first
    return choice, executed


@numba.njit(cache=True, nogil=True)
def any_best(q: Any, n_actions: Any, state: Any, bits: Any) -> Any:
    """One of the actions with the largest value, at random."""
    best, ties = -np.inf, np.uint64(0)
    for a in range(n_actions):
        if q[state, a] > best:
            best, ties = q[state, a], _ONE
        elif q[state, a] == best:
            ties += _ONE
    left = below(bits, ties)
    chosen: Any = np.uint64(0)
    for a in range(n_actions):
        if q[state, a] == best:
            if left == np.uint64(0):
                chosen = a
                break
            left -= _ONE
    return chosen


@numba.njit(cache=True, nogil=True, inline="always")
def refresh(
    q: Any, value: Any, greedy: Any, default: Any, eta: Any, lazy: Any, structured: Any, target: Any, n_actions: Any,
    state: Any,
) -> None:  # fmt: skip
    """Recomputes what is greedy in a state and what it counts for, after its row has changed. A tie is lazy."""
    first = state * n_actions
    best = q[state, np.uint64(0)]
    mean = default[first] * best
    chosen: Any = np.uint64(0)
    tied = False
    for a in range(_ONE, n_actions):  # without branches: which action is best cannot be predicted
        x = q[state, a]
        mean += default[first + a] * x
        tied = (tied and x <= best) or x == best
        chosen = a if x > best else chosen
        best = max(best, x)
    if lazy:
        lazy_value = mean + eta if structured else q[state, n_actions]
        if lazy_value >= best or target == DEFAULT:  # a default that is only watched is always followed
            best, chosen, tied = lazy_value, n_actions, False
    greedy[state] = TIED if tied else np.uint32(chosen)
    value[state] = best


@numba.njit(cache=True, nogil=True, inline="always")
def choice_value(q: Any, default: Any, eta: Any, structured: Any, n_actions: Any, state: Any, choice: Any) -> Any:
    """What a choice in a state is worth: SARSA's target."""
    if choice < n_actions or not structured:
        worth = q[state, choice]
    else:
        worth = eta
        for a in range(n_actions):
            worth += default[state * n_actions + a] * q[state, a]
    return worth


@numba.njit(cache=True, nogil=True, inline="always")
def learn_steps(steps: Any, q: Any, greedy: Any, gamma: Any, size: Any, n_actions: Any, state: Any, executed: Any,
                following: Any, alive: Any) -> None:  # fmt: skip
    """Learns Z, the discounted steps to the end, beside q: the same update with every reward 1."""
    ahead = 0.0
    if alive:
        best = np.uint64(greedy[following])
        if best == _TIED:
            best = any_best(q, n_actions, following, _ONE)
        ahead = steps[following, best]
    steps[state, executed] += size * (1.0 + gamma * ahead - steps[state, executed])


@numba.njit(cache=True, nogil=True)
def refresh_all(table: Table, rule: Rule) -> None:
    """`refresh` for every state."""
    for state in range(np.uint64(table.value.size)):
        refresh(
            table.q, table.value, table.greedy, rule.default, rule.eta, rule.lazy, rule.structured, rule.target,
            rule.n_actions, state,
        )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def first_choice(table: Table, rule: Rule, state: int, explore: Any) -> Any:
    """The first choice of an episode; to be called from Python."""
    return choose(
        table.q, table.greedy, table.stream, rule.default_sums, rule.uniform, rule.lazy, rule.n_actions,
        np.uint64(state), explore,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def one_step(
    table: Table, rule: Rule, state: int, choice: int, executed: int, reward: float, following: int, alive: bool,
    explore: Any,
) -> Any:  # fmt: skip
    """Learns from one step and makes the next choice; to be called from Python."""
    return _advance(
        table.q, table.steps, table.visits, table.value, table.greedy, table.stream, rule.default, rule.default_sums,
        rule.uniform, rule.gamma, rule.eta, rule.alpha, rule.alpha_power, rule.lazy, rule.structured, rule.target,
        rule.n_actions, np.uint64(state), np.uint64(choice), np.uint64(executed), reward, np.uint64(following), alive,
        explore,
    )  # fmt: skip


@numba.njit(cache=True, nogil=True, inline="always")
def _advance(
    q: Any, steps: Any, visits: Any, value: Any, greedy: Any, stream: Any, default: Any, default_sums: Any,
    uniform: Any, gamma: Any, eta: Any, alpha: Any, alpha_power: Any, lazy: Any, structured: Any, target: Any,
    n_actions: Any, state: Any, choice: Any, executed: Any, reward: Any, following: Any, alive: Any, explore: Any,
) -> Any:  # fmt: skip
    """Learns from one step and makes the next choice: after learning, or before it where that choice is the target."""
    later, later_executed = choice, executed
    bonus = 0.0
    if target == SAMPLED:
        later, later_executed = choose(q, greedy, stream, default_sums, uniform, lazy, n_actions, following, explore)
        if alive:
            bonus = choice_value(q, default, eta, structured, n_actions, following, later)
    elif alive:
        bonus = value[following]
    column = executed if structured else choice
    visits[state, column] += 1
    size = alpha
    if alpha_power != 0.0:
        size /= np.float64(visits[state, column]) ** alpha_power
    if steps.size:
        learn_steps(steps, q, greedy, gamma, size, n_actions, state, executed, following, alive)
    old = q[state, column]
    price = eta if column < n_actions else 0.0
    new = old + size * (reward - price + gamma * bonus - old)
    if new != old:
        q[state, column] = new
        # Where neither the best choice nor its value can have changed, the row is not looked through.
        if (lazy and structured) or new >= value[state] or old == value[state]:
            refresh(q, value, greedy, default, eta, lazy, structured, target, n_actions, state)
    if target != SAMPLED:
        later, later_executed = choose(q, greedy, stream, default_sums, uniform, lazy, n_actions, following, explore)
    return later, later_executed


# `_nrt=False`: nothing is allocated in here, so that references need not be counted; counting them doubles the time.
@numba.njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload, untyped-decorator, unused-ignore]
def episodes(
    world: World, rule: Rule, table: Table, count: int, max_steps: int, epsilon: float, epsilon_step: float,
    occupancy: Any, before: Any,
) -> Any:  # fmt: skip
    """Plays and learns `count` episodes; epsilon falls by `epsilon_step` after each.

    Counts visits of states in `occupancy [S]` and, until a state of `world.event`, in `before [S]`, unless empty.

    Returns:
        Total reward (price excluded), control steps and steps.
    """
    next_state, indptr, indices, cumulative, rewards, absorbing, start, event = world
    n_actions, default, default_sums, uniform, gamma, eta, alpha, alpha_power, lazy, structured, target = rule
    q, steps, visits, value, greedy, stream = table
    n_states = np.uint64(absorbing.size)
    score, controls, total = 0.0, 0, 0
    for episode in range(count):
        explore = np.uint64(max(0.0, epsilon - episode * epsilon_step) * 4294967296.0)
        state = search(start, np.uint64(0), n_states, unit(draw(stream)))
        happened = False
        choice, executed = choose(q, greedy, stream, default_sums, uniform, lazy, n_actions, state, explore)
        for _ in range(max_steps):
            if absorbing[state]:
                break
            row = state * n_actions + executed
            following = np.uint64(next_state[row])
            if following == _SEVERAL:
                begin, end = np.uint64(indptr[row]), np.uint64(indptr[row + _ONE])
                following = np.uint64(indices[search(cumulative, begin, end, unit(draw(stream)))])
            reward = rewards[row]
            score += reward
            controls += choice < n_actions
            total += 1
            if occupancy.size:
                occupancy[state] += 1
            if before.size:
                happened |= event[state]
                if not happened:
                    before[state] += 1
            choice, executed = _advance(
                q, steps, visits, value, greedy, stream, default, default_sums, uniform, gamma, eta, alpha,
                alpha_power, lazy, structured, target, n_actions, state, choice, executed, reward, following,
                not absorbing[following], explore,
            )  # fmt: skip
            state = following
    return score, controls, total
