"""Sweeps restricted to the states whose values still change, accelerated by linear solves on those states.

States are grouped in blocks of `BLOCK`. A block is swept again only if a block it can lead to has changed by more than
`theta` since its last sweep (Gauss-Seidel, alternately forward and backward). In large models most states are often far
from any reward, and are then not visited again.

A sweep alone shrinks the error by a factor of gamma. Between sweeps there is therefore a step of policy iteration on
the active states: with the greedy choices fixed, the correction `d` of their values solves `(I - gamma P) d = T v - v`,
while inactive states keep their values. It is solved approximately, by BiCGSTAB. Where BiCGSTAB does not converge (on
long cycles without a discount to speak of, for example), it is solved directly if the factors fit in memory. Chains
and rings are always solved directly, as band matrices.

In a large model whose blocks lead to few others, a correction takes as long as some twenty passes and often matters in
a small part only. There it is limited to the blocks that change most, if these are few, and left out while passes alone
are quicker. Passes over such a model are made by two threads, one for each half of the blocks. During a pass, a half
sees the other one as it was before, so that the result does not depend on the number of cores.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lazymdp.exact.bellman import Rows, best_and_lazy, thread_pool
from lazymdp.exact.correction import LARGEST_FACTORIZED, SMALL, choose, fill, solve_directly, solve_narrow
from lazymdp.exact.krylov import bicgstab
from lazymdp.exact.sparsity import stays_sparse

BLOCK = 64

_CHEAP_UP_TO, _FEW_ITERATIONS = 2_000, 40
"""Number of states up to which a direct solution is cheap, so that BiCGSTAB gets this many iterations only."""

_MANY, _FEW_LINKS = 1_000, 32
"""Number of blocks, and mean number of blocks that one leads to, from which and up to which a model is treated as large
and local."""

_MATTERS = 0.01
"""Change of a block, relative to the largest one, below which a correction of others comes first."""

_SMALL_SHARE = 0.25
"""Share of the blocks up to which a correction is always worth its time."""

_QUICK = 0.6
"""Factor by which changes must shrink over the last `_WINDOW` passes to be quicker than a correction."""

_WINDOW = 4

_ALONE = 500
"""Number of blocks in a pass up to which another thread does not pay."""

_ONE = np.uint64(1)


class _Part(NamedTuple):
    """A range of blocks that a pass sweeps by itself, with its own view of all values and of when they changed."""

    value: NDArray[np.float64]  # [S]
    moved: NDArray[np.int64]  # [blocks] time at which the block last changed
    first: int
    end: int


class ActiveSet:
    """Keeps track of the blocks whose values still change. Improves `value [S]` in place; make one per solution."""

    def __init__(self, rows: Rows, value: NDArray[np.float64]) -> None:
        self.rows, self.value = rows, value
        n_blocks = -(-value.size // BLOCK)
        self._links, self._link_ends = _successor_blocks(rows, n_blocks)
        self._seen = np.zeros(n_blocks, dtype=np.int64)  # time at which the block was last swept
        self._drift = np.zeros(n_blocks)  # accumulated change since the block last moved, at most theta
        self._change = np.zeros(n_blocks)  # largest change of a value in the last pass over the block
        self._where = np.full(value.size, -1, dtype=np.int32)  # index of a state in the linear system, or -1
        self._clock = 1
        self._forwards = False
        self._direct = False  # whether BiCGSTAB has failed
        self._sparse: bool | None = None  # whether LU factors are sparse; None if not known yet
        self._local = n_blocks >= _MANY and self._links.size <= _FEW_LINKS * n_blocks
        self._parts = self._split(n_blocks)
        self._starts = [self._clock]  # times at which the passes of the last sweep began
        self._totals: list[float] = []  # sum of `_change` over the blocks of each of these passes

    def _split(self, n_blocks: int) -> list[_Part]:
        """Divides the blocks into the parts that a pass treats as independent: two in large and local models."""
        if not self._local:
            return [_Part(self.value, np.zeros(n_blocks, dtype=np.int64), 0, n_blocks)]
        middle = n_blocks // 2
        sources = np.repeat(np.arange(n_blocks) < middle, np.diff(self._link_ends))
        self._shared = np.unique(self._links[sources != (self._links < middle)])  # blocks that the other part leads to
        bounds = ((self.value, 0, middle), (np.empty_like(self.value), middle, n_blocks))
        return [_Part(value, np.zeros(n_blocks, dtype=np.int64), first, end) for value, first, end in bounds]

    def restart(self, value: NDArray[np.float64], theta: float) -> None:
        """Replaces the values by others, `[S]`, and marks the blocks in which they differ by more than `theta`."""
        changes = np.subtract(self.value, value, out=self.value)
        blocks = np.arange(0, changes.size, BLOCK)
        largest = np.maximum(np.maximum.reduceat(changes, blocks), -np.minimum.reduceat(changes, blocks))
        self._clock += 1
        for part in self._parts:
            part.moved[largest > theta] = self._clock
            part.value[:] = value

    def sweep(self, theta: float, passes: int) -> bool:
        """Makes up to `passes` passes over the blocks that are due. Returns False once no block is due."""
        self._starts, self._totals = [], []
        due = True
        while due and len(self._totals) < passes:
            due = self._pass(theta)
        for part in self._parts[1:]:
            _collect(self.value, *part, self._seen, self._starts[0])
        return due

    def _pass(self, theta: float) -> bool:
        """Makes one pass over the blocks that are due. Returns whether there were any."""

        def sweep_part(part: _Part) -> tuple[float, int]:
            return _pass(
                self.rows, *part, self._links, self._link_ends, self._seen, self._drift, self._change, self._clock,
                theta, self._forwards,
            )  # fmt: skip

        first, *others = self._parts
        if self._totals and np.count_nonzero(self._seen >= self._starts[-1]) <= _ALONE:
            found = [sweep_part(part) for part in self._parts]
        else:
            waiting = [thread_pool().submit(sweep_part, part) for part in others]
            found = [sweep_part(first), *(other.result() for other in waiting)]
        self._starts.append(self._clock)
        self._totals.append(sum(total for total, _ in found))
        self._clock = max(clock for _, clock in found)
        self._forwards = not self._forwards
        if others:
            _exchange(*first, *others[0], self._shared, self._starts[-1], self._clock)
        return self._clock > self._starts[-1]

    def _worth_correcting(self) -> NDArray[np.bool_]:
        """Marks the blocks of the last sweep to be corrected: all of them, except in large and local models."""
        swept = self._seen >= self._starts[0]
        if not self._local or np.count_nonzero(swept) < _MANY:
            return swept
        latest = self._seen >= self._starts[-1]
        large = latest & (self._change > _MATTERS * self._change[latest].max())
        if np.count_nonzero(large) <= _SMALL_SHARE * np.count_nonzero(swept):
            return large
        return np.zeros_like(swept) if self._totals[-1] <= _QUICK * self._totals[-_WINDOW] else swept

    def correct(self, theta: float, forcing: float, max_iterations: int, everywhere: bool = False) -> tuple[int, bool]:
        """Makes a step of policy iteration, everywhere or where the last sweep leaves it worthwhile.

        Returns:
            The number of states that it covers, and whether it succeeded.
        """
        blocks = np.ones(self._seen.size, dtype=np.bool_) if everywhere else self._worth_correcting()
        states = _states_of(blocks, self.rows.absorbing)
        if not states.size:
            return 0, True
        self._where[states] = np.arange(states.size, dtype=np.int32)
        chosen, change, ends = choose(self.rows, self.value, states, self._where)
        columns, weights = fill(self.rows, states, self._where, chosen, ends)
        self._where[states] = -1
        correction = solve_narrow(ends, columns, weights, change)
        done = correction is not None
        if not done and not self._direct:
            if states.size <= _CHEAP_UP_TO:
                max_iterations = min(max_iterations, _FEW_ITERATIONS)
            correction, done = bicgstab(ends, columns, weights, change, forcing, 0.3 * theta, max_iterations)
        if not done:
            step = sp.csr_array((weights, columns, ends), shape=(states.size, states.size))
            matrix = sp.csr_array(sp.eye_array(states.size, format="csr") - step)
            if self._sparse is None:
                self._sparse = SMALL < states.size <= LARGEST_FACTORIZED and stays_sparse(matrix)
            correction = solve_directly(matrix, change, self._sparse)
            if correction is None:
                return states.size, False
            self._direct = True
        self._clock += 1
        for part in self._parts:
            _apply(part.value, states, correction, part.moved, self._drift, self._clock, theta)
        return states.size, True


# Arrays are sized by counting first: an array that grows inside a loop makes the loop ten times slower.


@numba.njit(cache=True, nogil=True)
def _successor_blocks(rows: Rows, n_blocks: int) -> Any:
    """Finds the blocks that each block `b` can lead to: `links[link_ends[b] : link_ends[b + 1]]`."""
    n_states = rows.absorbing.size
    n_actions = rows.rewards.size // n_states
    ends = np.zeros(n_blocks + 1, dtype=np.int64)
    links = np.empty(0, dtype=np.int32)
    for counted in (False, True):
        last = np.full(n_blocks, -1, dtype=np.int32)
        count = np.uint64(0)
        for block in range(n_blocks):
            begin = rows.indptr[np.uint64(block * BLOCK * n_actions)]
            end = rows.indptr[np.uint64(min(n_states, (block + 1) * BLOCK) * n_actions)]
            tag = np.int32(block)
            for j in range(np.uint64(begin), np.uint64(end)):
                other = np.uint32(rows.indices[j]) // np.uint32(BLOCK)
                if last[other] != tag:
                    last[other] = tag
                    if counted:
                        links[count] = other
                    count += _ONE
            ends[block + 1] = count
        if not counted:
            links = np.empty(count, dtype=np.int32)
    return links, ends


@numba.njit(cache=True, nogil=True)
def _pass(
    rows: Rows, value: Any, moved: Any, first: int, last: int, links: Any, link_ends: Any, seen: Any, drift: Any,
    change: Any, clock: int, theta: float, forwards: bool,
) -> Any:  # fmt: skip
    """Makes one Gauss-Seidel pass over the blocks from `first` to `last - 1` that are due.

    Returns:
        The sum of their largest changes, and the time.
    """
    n_states = value.size
    n_actions = np.uint64(rows.rewards.size // n_states)
    total = 0.0
    for i in range(last - first):
        block = first + i if forwards else last - 1 - i
        due = False
        for k in range(link_ends[block], link_ends[block + 1]):
            if moved[links[k]] > seen[block]:
                due = True
                break
        if not due:
            continue
        seen[block] = clock
        clock += 1
        begin, end = block * BLOCK, min(n_states, (block + 1) * BLOCK)
        largest = 0.0
        for k in range(end - begin):
            state = np.uint64(begin + k if forwards else end - 1 - k)
            if rows.absorbing[state]:
                continue
            best, lazy, _ = best_and_lazy(rows, value, state, n_actions)
            new = max(best - rows.eta, lazy)
            largest = max(largest, abs(new - value[state]))
            value[state] = new
        change[block] = largest
        total += largest
        drift[block] += largest
        if drift[block] > theta:
            moved[block] = clock
            drift[block] = 0.0
    return total, clock


@numba.njit(cache=True, nogil=True)
def _exchange(
    value: Any, moved: Any, first: int, middle: int, other: Any, other_moved: Any, begin: int, end: int, shared: Any,
    since: int, clock: int,
) -> None:  # fmt: skip
    """Tells each part what the pass since time `since` has changed in the blocks of the other that it can lead to."""
    for block in shared:
        states = slice(block * BLOCK, (block + 1) * BLOCK)
        if block < middle:
            other[states] = value[states]
            if moved[block] > since:
                other_moved[block] = clock
        else:
            value[states] = other[states]
            if other_moved[block] > since:
                moved[block] = clock


@numba.njit(cache=True, nogil=True)
def _collect(target: Any, value: Any, moved: Any, first: int, end: int, seen: Any, since: int) -> None:
    """Copies the values of the blocks from `first` to `end - 1` that have been swept since time `since`."""
    for block in range(first, end):
        if seen[block] >= since:
            states = slice(block * BLOCK, (block + 1) * BLOCK)
            target[states] = value[states]


@numba.njit(cache=True, nogil=True)
def _states_of(chosen: Any, absorbing: Any) -> Any:
    """Lists the states of the blocks marked in `chosen`, without the absorbing ones."""
    states = np.empty(np.sum(chosen) * BLOCK, dtype=np.int32)
    count = 0
    for block in range(chosen.size):
        if chosen[block]:
            for state in range(block * BLOCK, min(absorbing.size, (block + 1) * BLOCK)):
                if not absorbing[state]:
                    states[count] = state
                    count += 1
    return states[:count]


@numba.njit(cache=True, nogil=True)
def _apply(value: Any, states: Any, correction: Any, moved: Any, drift: Any, clock: int, theta: float) -> None:
    """Adds the correction to the values and marks the blocks that it changes."""
    for i in range(states.size):
        state = states[i]
        value[state] += correction[i]
        if abs(correction[i]) > theta - drift[state // BLOCK]:
            moved[state // BLOCK] = clock
