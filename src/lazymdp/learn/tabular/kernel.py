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
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped, unused-ignore]
from numba.extending import intrinsic

from lazymdp.learn.tabular import kernel_data
from lazymdp.learn.tabular.kernel_data import DEFAULT, SAMPLED, At, Kind, Lane, Plan, Rule, Table, World

_F = TypeVar("_F", bound=Callable[..., Any])

# Indices are unsigned, as in the exact solver: signed ones cost a check for negative values at every access.
_LOW = _SEVERAL = np.uint64(kernel_data.SEVERAL)
_ZERO, _ONE, _TWO, _FOUR, _FIVE, _TWO32 = (np.uint64(n) for n in (0, 1, 2, 4, 5, 32))
_VALUE, _BOUND, _GREEDY, _COLUMNS = (
    np.uint64(n) for n in (kernel_data.VALUE, kernel_data.BOUND, kernel_data.GREEDY, kernel_data.COLUMNS)
)


def _compiled(function: _F) -> _F:
    """Nothing is allocated in here, so that references need not be counted (`_nrt`): counting doubles the time."""
    return numba.njit(cache=True, nogil=True, _nrt=False)(function)  # type: ignore[call-overload, no-any-return, unused-ignore]


def _inlined(function: _F) -> _F:
    """Put in where it is called, by LLVM: what is constant there is constant inside."""
    return numba.njit(cache=True, nogil=True, _nrt=False, forceinline=True)(function)  # type: ignore[call-overload, no-any-return, unused-ignore]


def _expect_false(_: Any, _test: Any) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        bit = args[0].type
        expect = builder.module.declare_intrinsic("llvm.expect", [bit], ir.FunctionType(bit, [bit, bit]))
        return builder.call(expect, [args[0], bit(0)])

    return numba.types.boolean(numba.types.boolean), generate


rarely: Any = intrinsic(_expect_false)
"""Of a test that seldom holds: what is done if it does is put out of the way of the rest."""


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
def whole(entry: Any) -> Any:
    """An entry that is a whole number: rows hold both kinds, so that one address finds all there is of a state."""
    return np.float64(entry).view(np.uint64)


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
    choice = whole(table.rows[place + _GREEDY])
    if rarely(choice > kind.n_actions):
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
    best, ties, first = -np.inf, _ZERO, place + _COLUMNS
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
    rows, first, derived = table.rows, place + _COLUMNS, kind.n_choices > kind.n_columns
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
    code = np.uint64(kind.n_actions if lazy else chosen)
    if rarely(code != whole(rows[place + _GREEDY])):  # written only then, so that the next choice need not wait for it
        rows[place + _GREEDY] = code.view(np.float64)


@_inlined
def learn(
    kind: Any, rule: Any, table: Any, place: Any, choice: Any, executed: Any, reward: Any, following: Any, alive: Any,
    bonus: Any,
) -> None:  # fmt: skip
    """Learns from one step into a state that counts for `bonus`."""
    derived = kind.n_choices > kind.n_columns
    column = executed if derived else choice
    entry = place + _COLUMNS + column
    count = np.uint64(whole(table.rows[entry + kind.n_columns]) + _ONE)
    table.rows[entry + kind.n_columns] = count.view(np.float64)
    size = rule.alpha
    if not kind.plain:
        if rule.alpha_power != 0.0:
            size /= np.float64(count) ** rule.alpha_power
        if table.steps.size:
            learn_steps(kind, rule, table, size, place, executed, following, alive)
    old = table.rows[entry]
    price = rule.eta if derived else rule.eta * rule.taken[choice]
    new = old + size * (reward - price + rule.gamma * bonus - old)
    if derived:
        if new != old:
            refresh(kind, rule, table, place, column, new)
    else:
        # What is greedy stays so while its value is above the bound and those of the others are below its value. One
        # test does for both: chance makes a choice greedy or not. So does one entry to be written.
        greedy = np.uint64(column == whole(table.rows[place + _GREEDY]))
        limit, bound = table.rows[place + greedy], table.rows[place + _BOUND]
        if rarely(not (new - limit) * (old - limit) > 0.0):
            if new != old:
                refresh(kind, rule, table, place, column, new)
        else:
            table.rows[entry] = new
            table.rows[place + (greedy ^ _ONE)] = max(bound, new)


@_inlined
def choice_value(kind: Any, rule: Any, table: Any, place: Any, choice: Any) -> Any:
    """What a choice in a state is worth: SARSA's target."""
    if choice < kind.n_columns:
        worth = table.rows[place + _COLUMNS + choice]
    else:
        worth = rule.eta
        for a in range(kind.n_actions):
            worth += rule.default[place + a] * table.rows[place + _COLUMNS + a]
    return worth


@_inlined
def learn_steps(
    kind: Any, rule: Any, table: Any, size: Any, place: Any, executed: Any, following: Any, alive: Any
) -> None:
    """Learns Z, the discounted steps to the end, beside q: the same update with every reward 1."""
    ahead = 0.0
    if alive:
        best = whole(table.rows[following + _GREEDY])
        if best > kind.n_actions:
            best = any_best(table.rows, kind.n_actions, following, _ONE)
        ahead = table.steps[following + _COLUMNS + best]
    entry = place + _COLUMNS + executed
    table.steps[entry] += size * (1.0 + rule.gamma * ahead - table.steps[entry])


@_inlined
def ends(kind: Any, table: Any, place: Any) -> Any:
    """Whether the episode ends in a state."""
    return whole(table.rows[place + _GREEDY]) == kind.n_actions + _TWO


# -- called from Python, step by step --------------------------------------------------------------------------------


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


@_inlined
def threshold(plan: Any, episode: Any) -> Any:
    """Of 2**32: how likely a random choice is in an episode."""
    return np.uint64(max(0.0, plan.epsilon - episode * plan.epsilon_step) * 4294967296.0)


@_inlined
def enter(lane: Any, plan: Any) -> Any:
    """A run before its first episode."""
    first, stream = plan.edges[plan.first], lane.table.stream
    explore = threshold(plan, first)
    return At(_ZERO, _ZERO, False, first - 1, plan.first, explore, stream[0], stream[1], explore, _ZERO, 0, 0, 0.0, 0.0)


@_inlined
def leave(lane: Any, at: Any) -> None:
    """Keeps where the random stream is."""
    lane.table.stream[0], lane.table.stream[1] = at.a, at.b


@_inlined
def begin(kind: Any, world: Any, lane: Any, plan: Any, at: Any) -> Any:
    """Ends the episode, and begins the next unless the last point is reached."""
    place, choice, executed, explore, explore_next = at.place, at.choice, at.executed, at.explore, at.explore_next
    episode, point, deadline, a, b = at.episode + 1, at.point, at.deadline, at.a, at.b
    if episode == plan.edges[point + 1]:
        lane.seen[point, 0], lane.seen[point, 1], lane.seen[point, 2] = at.score, at.controls, at.steps
        point += 1
    if point < plan.last:
        explore, explore_next = explore_next, threshold(plan, episode + 1)  # computed long before it is waited for
        deadline, place = at.steps + plan.max_steps, world.start
        if world.starts.size > 1:
            bits, a, b = draw(a, b)
            place = np.uint64(world.starts[search(world.start_sums, _ZERO, np.uint64(world.starts.size), unit(bits))])
        if not kind.plain and lane.rule.target == SAMPLED:
            choice, executed, a, b = choose(kind, lane.rule, lane.table, place, explore, a, b)
    return At(
        choice, executed, False, episode, point, explore_next, a, b, explore, place, at.steps, deadline, at.score,
        at.controls,
    )  # fmt: skip


@_inlined
def pauses(kind: Any, lane: Any, at: Any) -> Any:
    """Whether a run may be at the end of an episode: one test of what is rare."""
    return rarely((whole(lane.table.rows[at.place + _GREEDY]) > kind.n_actions) | (at.steps == at.deadline))


@_inlined
def turn(kind: Any, world: Any, lane: Any, plan: Any, at: Any) -> Any:
    """Goes on to the next episode where this one is over."""
    if at.steps == at.deadline or ends(kind, lane.table, at.place):
        at = begin(kind, world, lane, plan, at)
    if not kind.plain:  # an episode may end where it begins
        while at.point < plan.last and ends(kind, lane.table, at.place):
            at = begin(kind, world, lane, plan, at)
    return at


@_inlined
def step(kind: Any, world: Any, lane: Any, at: Any) -> Any:
    """One step of a run."""
    place, choice, executed, happened, a, b = at.place, at.choice, at.executed, at.happened, at.a, at.b
    rule, table = lane.rule, lane.table
    sampled = not kind.plain and rule.target == SAMPLED  # the choice was made, and learned from, in the step before
    if not sampled:
        choice, executed, a, b = choose(kind, rule, table, place, at.explore, a, b)
    following, reward = whole(world.moves[place + executed]), world.moves[place + executed + kind.n_actions]
    if not kind.plain:
        if following == _SEVERAL:
            bits, a, b = draw(a, b)
            first, end = np.uint64(world.indptr[place + executed]), np.uint64(world.indptr[place + executed + _ONE])
            following = np.uint64(world.places[search(world.cumulative, first, end, unit(bits))])
        if lane.before.size:
            happened |= world.event[place]
            lane.before[place] += not happened
    score, controls = at.score + reward, at.controls + rule.taken[choice]
    alive = kind.plain or not ends(kind, table, following)
    later, later_executed, bonus = choice, executed, table.rows[following + _VALUE]
    if sampled and alive:
        later, later_executed, a, b = choose(kind, rule, table, following, at.explore, a, b)
        bonus = choice_value(kind, rule, table, following, later)
    learn(kind, rule, table, place, choice, executed, reward, following, alive, bonus)
    return At(
        later, later_executed, happened, at.episode, at.point, at.explore_next, a, b, at.explore, following,
        at.steps + 1, at.deadline, score, controls,
    )  # fmt: skip


@_inlined
def play(kind: Any, world: Any, lane: Any, other: Any, both: Any, plan: Any) -> None:
    """Plays the plan with one run, or with two of them in turns."""
    at, at_other = enter(lane, plan), enter(other, plan)
    if both:
        while True:
            if pauses(kind, lane, at):
                at = turn(kind, world, lane, plan, at)
                if at.point == plan.last:
                    break
            at = step(kind, world, lane, at)
            if pauses(kind, other, at_other):
                at_other = turn(kind, world, other, plan, at_other)
                if at_other.point == plan.last:
                    break
            at_other = step(kind, world, other, at_other)
        leave(lane, at)
        leave(other, at_other)
        if at.point == plan.last:
            lane, at = other, at_other
    while True:  # the one there is, or the one that is not through yet
        if pauses(kind, lane, at):
            at = turn(kind, world, lane, plan, at)
            if at.point == plan.last:
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
