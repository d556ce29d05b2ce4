"""The compiled steps of tabular learning: choose, execute, learn. One run is one table and one random stream.

A table has A columns, or A + 1 where being lazy has a value of its own (the paper's *augmented* form):

* **augmented** (`Q_+`): the choice made, lazy or not, is what is updated, with reward `r`, less the price if it was to
  take control;
* **structured**: the action executed is updated, whoever chose it, with
  `y = r - eta + gamma max(max_a q, E_default q + eta)`; the value of being lazy is derived. Every step of the default
  teaches something about an action.

What a state is worth and what is greedy in it are kept beside its columns and refreshed when they change, so that a
step reads a few numbers instead of a row. Random numbers come from xoroshiro128+, one stream per run, seeded through
splitmix64: a run does not depend on which core it is on or on what runs beside it.

A step waits for the one before it, so two runs are made in turns on one core: what the one waits for, the other fills.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np

from lazymdp.learn.tables import DEFAULT, SAMPLED, SEVERAL, Lane, Plan, Rule, Table, World

_F = TypeVar("_F", bound=Callable[..., Any])

# Indices are unsigned, as in the exact solver: signed ones cost a check for negative values at every access.
_LOW = _SEVERAL = np.uint64(SEVERAL)
_ZERO, _ONE, _TWO, _FOUR, _FIVE, _TWO32 = (np.uint64(n) for n in (0, 1, 2, 4, 5, 32))
_VALUE, _BOUND, _FIRST = _ZERO, _ONE, _TWO  # in a row: what the state counts for, a bound on the rest, the columns


class Kind(NamedTuple):
    """What a kernel is compiled for, if constants are given, or finds out as it runs."""

    n_actions: Any
    n_choices: Any
    n_columns: Any
    plain: Any  # nothing special: Q-learning, constant step size, uniform default, one successor each, nothing counted


def _compiled(function: _F) -> _F:
    """Nothing is allocated in here, so that references need not be counted (`_nrt`): counting doubles the time."""
    return numba.njit(cache=True, nogil=True, _nrt=False)(function)  # type: ignore[call-overload, no-any-return, unused-ignore]


def _inlined(function: _F) -> _F:
    """Put in where it is called, by LLVM: what is constant there is constant inside."""
    return numba.njit(cache=True, nogil=True, _nrt=False, forceinline=True)(function)  # type: ignore[call-overload, no-any-return, unused-ignore]


@_inlined
def draw(a: Any, b: Any) -> Any:
    """64 random bits, and the words of the stream after them (xoroshiro128+)."""
    bits = a + b
    b ^= a
    a = ((a << np.uint64(24)) | (a >> np.uint64(40))) ^ b ^ (b << np.uint64(16))
    return bits, a, (b << np.uint64(37)) | (b >> np.uint64(27))


@_inlined
def unit(bits: Any) -> Any:
    """The upper bits as a number in [0, 1)."""
    return np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@_inlined
def search(sums: Any, begin: Any, end: Any, x: Any) -> Any:
    """The first index from `begin` on whose running sum exceeds `x`, at most `end - 1`."""
    index = begin
    while index + _ONE < end and sums[index] <= x:
        index += _ONE
    return index


@_inlined
def choose(kind: Any, rule: Any, table: Any, place: Any, explore: Any, a: Any, b: Any) -> Any:
    """An epsilon-greedy choice (A is lazy), the action executed for it, and the stream after it."""
    bits, a, b = draw(a, b)
    choice = np.uint64(table.greedy[place])
    if choice > kind.n_actions:
        choice = any_best(table.rows, kind.n_actions, place, bits)
    # Selected, not branched to: chance cannot be predicted. What the first number leaves of the bits makes the second.
    spread = (bits >> _TWO32) * kind.n_choices
    choice = spread >> _TWO32 if (bits & _LOW) < explore else choice
    executed = ((spread & _LOW) * kind.n_actions) >> _TWO32
    if not kind.plain and not rule.uniform:
        x = np.float64(spread & _LOW) / 4294967296.0
        executed = search(rule.default_sums, place, place + kind.n_actions, x) - place
    return choice, executed if choice == kind.n_actions else choice, a, b


@_compiled
def any_best(rows: Any, n_actions: Any, place: Any, bits: Any) -> Any:
    """One of the actions with the largest value, at random."""
    best, ties, first = -np.inf, _ZERO, place + _FIRST
    for a in range(n_actions):
        x = rows[first + a]
        if x > best:
            best, ties = x, _ONE
        elif x == best:
            ties += _ONE
    left = ((bits >> _TWO32) * ties) >> _TWO32
    chosen: Any = _ZERO
    for a in range(n_actions):
        if rows[first + a] == best:
            if left == _ZERO:
                chosen = a
                break
            left -= _ONE
    return chosen


@_inlined
def refresh(kind: Any, rule: Any, table: Any, place: Any, column: Any, new: Any) -> None:
    """Writes a new value into a column of a state, and what is greedy there and what it counts for. A tie is lazy.

    Only the other columns are read: to read back what has just been written makes the processor guess whether it is
    the same entry, and a wrong guess costs more than all the rest of a step.
    """
    rows, first, derived = table.rows, place + _FIRST, kind.n_choices > kind.n_columns
    weighted = not kind.plain and not rule.uniform
    best, bound, mean = new, -np.inf, new * rule.default[place + column] if weighted else new
    low = high = column  # of the best columns two, if there are two
    for k in range(kind.n_columns - _ONE):  # without branches: which column is best cannot be predicted
        a = k + np.uint64(k >= column)
        x = rows[first + a]
        mean += x * rule.default[place + a] if weighted else x
        low = a if x > best else low
        high = a if x >= best else high
        if not derived:
            bound = max(bound, min(x, best))
        best = max(best, x)
    chosen = low if low == high else kind.n_actions + _ONE
    if derived:
        lazy_value = (mean if weighted else mean * rule.default[place]) + rule.eta
        # A default that is only watched is always followed.
        lazy = lazy_value >= best or (not kind.plain and rule.target == DEFAULT)
        best = lazy_value if lazy else best
    else:
        lazy = low == kind.n_actions or high == kind.n_actions
    rows[first + column] = new
    rows[place + _VALUE] = best
    if not derived:
        rows[place + _BOUND] = bound
    table.greedy[place] = np.uint32(kind.n_actions if lazy else chosen)


@_inlined
def learn(
    kind: Any, rule: Any, table: Any, place: Any, choice: Any, executed: Any, reward: Any, following: Any, alive: Any,
    bonus: Any,
) -> None:  # fmt: skip
    """Learns from one step into a state that counts for `bonus`."""
    derived = kind.n_choices > kind.n_columns
    column = executed if derived else choice
    entry = place + _FIRST + column
    table.visits[entry] += 1
    size = rule.alpha
    if not kind.plain:
        if rule.alpha_power != 0.0:
            size /= np.float64(table.visits[entry]) ** rule.alpha_power
        if table.steps.size:
            learn_steps(kind, rule, table, size, place, executed, following, alive)
    old = table.rows[entry]
    price = rule.eta if derived or choice < kind.n_actions else 0.0
    new = old + size * (reward - price + rule.gamma * bonus - old)
    if derived:
        if new != old:
            refresh(kind, rule, table, place, column, new)
    elif column == np.uint64(table.greedy[place]) and new > table.rows[place + _BOUND]:  # the best, and it stays so
        table.rows[entry] = new
        table.rows[place + _VALUE] = new
    else:
        refresh(kind, rule, table, place, column, new)


@_inlined
def choice_value(kind: Any, rule: Any, table: Any, place: Any, choice: Any) -> Any:
    """What a choice in a state is worth: SARSA's target."""
    if choice < kind.n_columns:
        worth = table.rows[place + _FIRST + choice]
    else:
        worth = rule.eta
        for a in range(kind.n_actions):
            worth += rule.default[place + a] * table.rows[place + _FIRST + a]
    return worth


@_inlined
def learn_steps(
    kind: Any, rule: Any, table: Any, size: Any, place: Any, executed: Any, following: Any, alive: Any
) -> None:
    """Learns Z, the discounted steps to the end, beside q: the same update with every reward 1."""
    ahead = 0.0
    if alive:
        best = np.uint64(table.greedy[following])
        if best > kind.n_actions:
            best = any_best(table.rows, kind.n_actions, following, _ONE)
        ahead = table.steps[following + _FIRST + best]
    entry = place + _FIRST + executed
    table.steps[entry] += size * (1.0 + rule.gamma * ahead - table.steps[entry])


@_inlined
def ends(kind: Any, table: Any, place: Any) -> Any:
    """Whether the episode ends in a state."""
    return table.greedy[place] == np.uint32(kind.n_actions + _TWO)


# -- called from Python, step by step --------------------------------------------------------------------------------


@_compiled
def refresh_all(table: Table, rule: Rule, absorbing: Any) -> None:
    """`refresh` for every state; where the episode ends nothing is to come."""
    kind = Kind(rule.n_actions, rule.n_choices, rule.n_columns, False)
    for state in range(np.uint64(absorbing.size)):
        place = state * rule.width
        refresh(kind, rule, table, place, _ZERO, table.rows[place + _FIRST])
        if absorbing[state]:
            table.rows[place + _VALUE] = 0.0
            table.greedy[place] = np.uint32(rule.n_actions + _TWO)


@_compiled
def first_choice(table: Table, rule: Rule, state: int, explore: Any) -> Any:
    """The first choice of an episode."""
    kind, stream = Kind(rule.n_actions, rule.n_choices, rule.n_columns, False), table.stream
    place = np.uint64(state) * rule.width
    choice, executed, stream[0], stream[1] = choose(kind, rule, table, place, explore, stream[0], stream[1])
    return choice, executed


@_compiled
def one_step(
    table: Table, rule: Rule, state: int, choice: int, executed: int, reward: float, following: int, alive: bool,
    explore: Any,
) -> Any:  # fmt: skip
    """Learns from one step and makes the next choice: after learning, or before it where that choice is the target."""
    kind, stream = Kind(rule.n_actions, rule.n_choices, rule.n_columns, False), table.stream
    place, ahead = np.uint64(state) * rule.width, np.uint64(following) * rule.width
    later, later_executed, bonus = np.uint64(choice), np.uint64(executed), table.rows[ahead + _VALUE]
    if rule.target == SAMPLED:
        later, later_executed, stream[0], stream[1] = choose(kind, rule, table, ahead, explore, stream[0], stream[1])
        bonus = choice_value(kind, rule, table, ahead, later)
    learn(
        kind, rule, table, place, np.uint64(choice), np.uint64(executed), reward, ahead, alive, bonus if alive else 0.0
    )
    if rule.target != SAMPLED:
        later, later_executed, stream[0], stream[1] = choose(kind, rule, table, ahead, explore, stream[0], stream[1])
    return later, later_executed


# -- whole episodes -------------------------------------------------------------------------------------------------
#
# A run under way is a tuple of numbers that can stay in registers: place, choice, executed, steps left, point, episode,
# threshold of exploring, whether the event has happened, score, controls, total of steps, the two words of the stream.


@_inlined
def enter(lane: Any, plan: Any) -> Any:
    """A run before its first episode."""
    before, stream = plan.edges[plan.first] - 1, lane.table.stream
    return _ZERO, _ZERO, _ZERO, 0, plan.first, before, _ZERO, False, 0.0, 0, 0, stream[0], stream[1]


@_inlined
def leave(lane: Any, at: Any) -> None:
    """Keeps where the random stream is."""
    lane.table.stream[0], lane.table.stream[1] = at[11], at[12]


@_inlined
def begin(kind: Any, world: Any, lane: Any, plan: Any, at: Any) -> Any:
    """Ends the episode, and begins the next unless the last point is reached."""
    place, choice, executed, left, point, episode, explore, _, score, controls, total, a, b = at
    episode += 1
    total -= left
    if episode == plan.edges[point + 1]:
        lane.seen[point, 0], lane.seen[point, 1], lane.seen[point, 2] = score, controls, total
        point += 1
    if point < plan.last:
        explore = np.uint64(max(0.0, plan.epsilon - episode * plan.epsilon_step) * 4294967296.0)
        place = np.uint64(world.start[_ZERO])
        if world.start.size > 1:
            bits, a, b = draw(a, b)
            place = np.uint64(world.start[search(world.start_sums, _ZERO, np.uint64(world.start.size), unit(bits))])
        left = plan.max_steps
        total += left
        if not kind.plain and lane.rule.target == SAMPLED:
            choice, executed, a, b = choose(kind, lane.rule, lane.table, place, explore, a, b)
    return place, choice, executed, left, point, episode, explore, False, score, controls, total, a, b


@_inlined
def turn(kind: Any, world: Any, lane: Any, plan: Any, at: Any) -> Any:
    """Goes on to the next episode where this one is over."""
    if ends(kind, lane.table, at[0]) or at[3] == 0:
        at = begin(kind, world, lane, plan, at)
    if not kind.plain:
        while at[4] < plan.last and ends(kind, lane.table, at[0]):
            at = begin(kind, world, lane, plan, at)
    return at


@_inlined
def step(kind: Any, world: Any, lane: Any, at: Any) -> Any:
    """One step of a run."""
    place, choice, executed, left, point, episode, explore, happened, score, controls, total, a, b = at
    rule, table = lane.rule, lane.table
    sampled = not kind.plain and rule.target == SAMPLED  # the choice was made, and learned from, in the step before
    if not sampled:
        choice, executed, a, b = choose(kind, rule, table, place, explore, a, b)
    following = np.uint64(world.following[place + executed])
    if not kind.plain:
        if following == _SEVERAL:
            bits, a, b = draw(a, b)
            first, end = np.uint64(world.indptr[place + executed]), np.uint64(world.indptr[place + executed + _ONE])
            following = np.uint64(world.places[search(world.cumulative, first, end, unit(bits))])
        if lane.before.size:
            happened |= world.event[place]
            lane.before[place] += not happened
    reward = world.rewards[place + executed]
    score += reward
    controls += choice < kind.n_actions
    alive = kind.plain or not ends(kind, table, following)
    later, later_executed, bonus = choice, executed, table.rows[following + _VALUE]
    if sampled and alive:
        later, later_executed, a, b = choose(kind, rule, table, following, explore, a, b)
        bonus = choice_value(kind, rule, table, following, later)
    learn(kind, rule, table, place, choice, executed, reward, following, alive, bonus)
    return following, later, later_executed, left - 1, point, episode, explore, happened, score, controls, total, a, b


@_inlined
def pauses(kind: Any, lane: Any, at: Any) -> Any:
    """Whether a run may be at the end of an episode: one test of what is rare."""
    return lane.table.greedy[at[0]] > np.uint32(kind.n_actions) or at[3] == 0


@_inlined
def play(kind: Any, world: Any, lane: Any, other: Any, both: Any, plan: Any) -> None:
    """Plays the plan with one run, or with two of them in turns."""
    at, at_other = enter(lane, plan), enter(other, plan)
    if both:
        while True:
            if pauses(kind, lane, at):
                at = turn(kind, world, lane, plan, at)
                if at[4] == plan.last:
                    break
            at = step(kind, world, lane, at)
            if pauses(kind, other, at_other):
                at_other = turn(kind, world, other, plan, at_other)
                if at_other[4] == plan.last:
                    break
            at_other = step(kind, world, other, at_other)
        leave(lane, at)
        leave(other, at_other)
        if at[4] == plan.last:
            lane, at = other, at_other
    while True:  # the one there is, or the one that is not through yet
        if pauses(kind, lane, at):
            at = turn(kind, world, lane, plan, at)
            if at[4] == plan.last:
                break
        at = step(kind, world, lane, at)
    leave(lane, at)


@_compiled
def play_any(world: World, lane: Lane, other: Lane, both: bool, plan: Plan) -> None:
    """Any rule, any world."""
    rule = lane.rule
    play(Kind(rule.n_actions, rule.n_choices, rule.n_columns, False), world, lane, other, both, plan)


@_compiled
def play_structured(world: World, lane: Lane, other: Lane, both: bool, plan: Plan) -> None:
    """Plain, with four actions and a lazy value that is derived."""
    play(Kind(_FOUR, _FIVE, _FOUR, True), world, lane, other, both, plan)


@_compiled
def play_augmented(world: World, lane: Lane, other: Lane, both: bool, plan: Plan) -> None:
    """Plain, with four actions and a lazy column."""
    play(Kind(_FOUR, _FIVE, _FIVE, True), world, lane, other, both, plan)


@_compiled
def play_unlazy(world: World, lane: Lane, other: Lane, both: bool, plan: Plan) -> None:
    """Plain, with four actions and nothing else."""
    play(Kind(_FOUR, _FOUR, _FOUR, True), world, lane, other, both, plan)
