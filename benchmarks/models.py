"""The benchmark problems, built with NumPy directly in the layout that lazymdp uses.

Transitions are one CSR matrix ``[S*A, S]`` (row ``s*A + a``), rewards an array ``[S, A]``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import scipy.sparse as sp

ETA = 0.01
GAMMA = 0.99
PARTS = ("data", "indices", "indptr")  # the arrays of a CSR matrix


@dataclass(frozen=True)
class Problem:
    """A finite base model with a default policy and a price of control.

    Attributes:
        transitions: CSR matrix ``[S*A, S]``, int32 indices, row ``s*A + a``.
        rewards: expected rewards ``[S, A]``.
        default: the default policy ``[S, A]``.
        eta: price of one step of control.
        gamma: discount factor.
        absorbing: bool ``[S]``; control is free in absorbing states.
    """

    transitions: sp.csr_matrix
    rewards: np.ndarray
    default: np.ndarray
    eta: float
    gamma: float
    absorbing: np.ndarray


@dataclass(frozen=True)
class Explicit:
    """The lazy-MDP as an ordinary MDP, in which the last action is the lazy one.

    Attributes:
        transitions: CSR matrix ``[S*(A+1), S]``, row ``s*(A+1) + a``.
        rewards: expected rewards ``[S, A+1]``, with the price subtracted.
        gamma: discount factor.
    """

    transitions: sp.csr_matrix
    rewards: np.ndarray
    gamma: float


def model_bytes(model: Problem | Explicit) -> int:
    """Returns the size in bytes of a model's transitions and rewards."""
    matrix = model.transitions
    return sum(part.nbytes for part in (matrix.data, matrix.indices, matrix.indptr, model.rewards))


def save(model: Problem | Explicit, folder: Path) -> None:
    """Writes a model's arrays to disk, so that another process can load them instead of building them."""
    folder.mkdir()
    for field in fields(model):
        item = getattr(model, field.name)
        if sp.issparse(item):
            for part in PARTS:
                np.save(folder / f"{field.name}.{part}.npy", getattr(item, part))
        else:
            np.save(folder / f"{field.name}.npy", item)


def load(kind: type[Problem] | type[Explicit], folder: Path) -> Problem | Explicit:
    """Reads a model written by :func:`save`."""
    items = {}
    for field in fields(kind):
        if field.name != "transitions":
            item = np.load(folder / f"{field.name}.npy")
            items[field.name] = item if item.ndim else item.item()
    parts = [np.load(folder / f"transitions.{part}.npy") for part in PARTS]
    shape = items["rewards"].size, len(items["rewards"])
    items["transitions"] = sp.csr_matrix(tuple(parts), shape=shape)
    return kind(**items)


def grid(n: int, slip: float = 0.1, spacing: int | None = None) -> Problem:
    """Returns an n x n grid with the moves up, right, down and left, and a goal in the bottom right corner.

    If `spacing` is given, there is a goal in the bottom right corner of every block of ``spacing x spacing`` cells, so
    that no state is far from a goal.

    The intended move happens with probability ``1 - slip``, each perpendicular one with ``slip/2``.
    A move into the edge of the grid has no effect. Entering a goal gives reward 1; a goal is
    absorbing, with reward 0.
    """
    n_states, block = n * n, spacing or n
    row, column = np.divmod(np.arange(n_states, dtype=np.int32), np.int32(n))
    moves = ((-1, 0), (0, 1), (1, 0), (0, -1))
    reached = np.stack(
        [np.clip(row + dr, 0, n - 1) * n + np.clip(column + dc, 0, n - 1) for dr, dc in moves],
        axis=1,
    )  # [S, 4]: next state of each move without slipping
    is_goal = (row % block == block - 1) & (column % block == block - 1)
    reached[is_goal] = np.flatnonzero(is_goal)[:, None]
    turns = np.array([[a, (a + 1) % 4, (a + 3) % 4] for a in range(4)])
    successors = reached[:, turns].reshape(-1, 3)  # [S*A, 3]
    chances = np.tile([1 - slip, slip / 2, slip / 2], (4 * n_states, 1))
    rewards = np.where(is_goal[successors], chances, 0.0).sum(axis=1).reshape(n_states, 4)
    rewards[is_goal] = 0.0
    return _problem(successors, chances, rewards, 4)


def random_sparse(n: int = 100_000, actions: int = 5, successors: int = 5, seed: int = 0) -> Problem:
    """Returns a model with random successors, flat Dirichlet probabilities and rewards uniform in [0, 1]."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, n, size=(n * actions, successors), dtype=np.int32)
    chances = rng.dirichlet(np.ones(successors), size=n * actions)
    return _problem(targets, chances, rng.random((n, actions)), actions)


def chain(n: int, slip: float = 0.1, stiff: bool = False) -> Problem:
    """Returns a line of n states with the moves left and right; entering the last state gives reward 1 and ends it.

    A move goes the other way with probability `slip`. In a stiff chain, states keep their place with a probability
    that varies between 0 and 0.9999, so that some parts change in one step and others over thousands.
    """
    states = np.arange(n)
    left, right = np.maximum(states - 1, 0), np.minimum(states + 1, n - 1)
    successors = np.stack([left, right, states] * 2, axis=1).reshape(-1, 3)
    stay = 1.0 - 10.0 ** -np.random.default_rng(0).integers(0, 5, n) if stiff else np.zeros(n)
    stay = np.append(stay[:-1], 0.0)
    there, back = (1 - slip) * (1 - stay), slip * (1 - stay)
    chances = np.stack([there, back, stay, back, there, stay], axis=1).reshape(-1, 3)
    successors[-2:] = n - 1
    rewards = np.where(successors == n - 1, chances, 0.0).sum(axis=1).reshape(n, 2)
    rewards[-1] = 0.0
    return _problem(successors, chances, rewards, 2)


def line(n: int, moves: dict[int, list[float]], rewards: dict[int, np.ndarray], ring: bool = False) -> Problem:
    """Returns n states in a line, or in a ring.

    `moves[step]` has the chance of moving by `step` states with each action, and `rewards[state]` the rewards of the
    actions in a state. A move beyond the end of a line leads to its last state.
    """
    steps, chances = np.array(list(moves)), np.array(list(moves.values())).T
    reached = np.arange(n)[:, None] + steps
    reached = reached % n if ring else np.clip(reached, 0, n - 1)
    table = np.zeros((n, len(chances)))
    for state, reward in rewards.items():
        table[state] = reward
    return _problem(np.repeat(reached, len(chances), axis=0), np.tile(chances, (n, 1)), table, len(chances))


def river(n: int) -> Problem:
    """Returns RiverSwim: left is certain, right slow; 0.005 for staying at the left bank, 1 for the right one."""
    rewards = {0: np.array([0.005, 0.0]), n - 1: np.array([0.0, 1.0])}
    return line(n, {-1: [1.0, 0.05], 0: [0.0, 0.6], 1: [0.0, 0.35]}, rewards)


def ring(n: int, one_way: bool = False) -> Problem:
    """Returns a ring road with a reward in one place; on a one-way road, the second action sometimes skips a place."""
    moves = {0: [0.5, 0.6], 1: [0.5, 0.0], 2: [0.0, 0.4]} if one_way else {-1: [0.7, 0.1], 0: [0.2] * 2, 1: [0.1, 0.7]}
    return line(n, moves, {0: np.ones(2)}, ring=True)


def queue(n: int) -> Problem:
    """Returns a queue of up to n - 1 customers, who cost their share of n; service costs 0, 0.05 or 0.2."""
    rewards = {waiting: -waiting / n - np.array([0.0, 0.05, 0.2]) for waiting in range(n)}
    return line(n, {-1: [0.2, 0.3, 0.45], 0: [0.5, 0.4, 0.25], 1: [0.3, 0.3, 0.3]}, rewards)


def blocks(n: int, size: int = 50, leak: float = 1e-4, actions: int = 3, seed: int = 0) -> Problem:
    """Returns a nearly decomposable model: random within blocks of `size` states, which are left with chance `leak`."""
    rng = np.random.default_rng(seed)
    own = np.repeat(np.arange(n), actions)[:, None] // size * size
    inside = own + rng.integers(0, size, size=(n * actions, 4))
    targets = np.hstack([np.minimum(inside, n - 1), rng.integers(0, n, size=(n * actions, 1))])
    chances = np.hstack([rng.dirichlet(np.ones(4), size=n * actions) * (1 - leak), np.full((n * actions, 1), leak)])
    level = np.repeat(rng.random(-(-n // size)), size)[:n, None]  # blocks differ in their rewards
    return _problem(targets, chances, 0.5 * level + 0.5 * rng.random((n, actions)), actions)


def absorbed(n: int, chance: float = 0.01, actions: int = 3, seed: int = 0) -> Problem:
    """Returns a random model with three successors per choice that ends in the last state with the given chance."""
    rng = np.random.default_rng(seed)
    targets = np.hstack([rng.integers(0, n, size=(n * actions, 3)), np.full((n * actions, 1), n - 1)])
    chances = np.hstack([rng.dirichlet(np.ones(3), size=n * actions) * (1 - chance), np.full((n * actions, 1), chance)])
    rewards = rng.random((n, actions))
    targets[-actions:] = n - 1
    rewards[-1] = 0.0
    return _problem(targets, chances, rewards, actions)


def dense(n: int, actions: int = 3, seed: int = 0) -> Problem:
    """Returns a model in which every state leads to every other."""
    rng = np.random.default_rng(seed)
    chances = rng.exponential(size=(n * actions, n))
    chances /= chances.sum(axis=1, keepdims=True)
    return _problem(np.tile(np.arange(n), (n * actions, 1)), chances, rng.random((n, actions)), actions)


def _problem(successors: np.ndarray, chances: np.ndarray, rewards: np.ndarray, n_actions: int) -> Problem:
    """Makes a problem from rows of equal length. Probabilities of repeated successors are added up."""
    n_rows, width = successors.shape
    n_states = n_rows // n_actions
    transitions = sp.csr_matrix(
        (
            chances.ravel(),
            successors.astype(np.int32, copy=False).ravel(),
            np.arange(0, n_rows * width + 1, width, dtype=np.int32),
        ),
        shape=(n_rows, n_states),
    )
    transitions.sum_duplicates()
    owner = np.repeat(np.arange(n_rows, dtype=np.int32) // n_actions, np.diff(transitions.indptr))
    leaves = np.bincount(owner, weights=transitions.indices != owner, minlength=n_states) > 0
    absorbing = ~leaves & (rewards == 0).all(axis=1)
    default = np.full((n_states, n_actions), 1 / n_actions)
    return Problem(transitions, rewards, default, ETA, GAMMA, absorbing)


def explicit(problem: Problem) -> Explicit:
    """Returns the lazy-MDP with A + 1 explicit actions, for solvers that do not support a lazy action.

    The last action follows the default policy for free. Every other action costs eta, except in
    absorbing states.
    """
    n_states, n_actions = problem.rewards.shape
    rows = np.arange(n_states * n_actions)
    mix = sp.csr_matrix((problem.default.ravel(), (rows // n_actions, rows)), shape=(n_states, len(rows)))
    both = sp.vstack([problem.transitions, mix @ problem.transitions], format="csr")
    order = np.empty((n_states, n_actions + 1), dtype=np.int64)
    order[:, :-1] = rows.reshape(n_states, n_actions)
    order[:, -1] = n_states * n_actions + np.arange(n_states)
    transitions = both[order.ravel()]
    transitions.sort_indices()
    charged = problem.rewards - problem.eta * ~problem.absorbing[:, None]
    followed = (problem.rewards * problem.default).sum(axis=1, keepdims=True)
    return Explicit(transitions, np.hstack([charged, followed]), problem.gamma)


def two_action_arm(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Returns a dense random arm with the actions rest and act, drawn as markovianbandit-pkg does.

    A constant is added to the rewards of acting, so that every Whittle index is positive. A critical
    eta equals the Whittle index only if the index is positive.

    Returns:
        Transitions ``[n, 2, n]`` and rewards ``[n, 2]``.
    """
    rng = np.random.default_rng(seed)
    transitions = rng.exponential(size=(n, 2, n))
    transitions /= transitions.sum(axis=2, keepdims=True)
    rewards = rng.random((n, 2))
    rewards[:, 1] += 2.0
    return transitions, rewards


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "grid-50": lambda: grid(50),
    "grid-300": lambda: grid(300),
    "grid-1000": lambda: grid(1000),
    "grid-1000-goals": lambda: grid(1000, spacing=50),
    "random-100k": random_sparse,
}
