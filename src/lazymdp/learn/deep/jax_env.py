"""Games that run compiled, on the device, with the learner: MinAtar, and any finite model.

A game is three pure functions of a state that JAX can trace, so that a learner can step thousands of copies of it
inside one program. A new episode starts by itself when one ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp.envs.toy_text import Table
from lazymdp.mdp import MDP

MINATAR = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")


class Game(NamedTuple):
    """One environment, to be vectorised by `jax.vmap`.

    Attributes:
        init: `key -> state`, the start of an episode.
        move: `(state, action, key) -> (state, reward, ended, cut)`, one step; `cut`: the episode is over though it
            could have gone on.
        observe: `state -> observation`, an array of `shape`.
        shape: Of an observation.
        n_actions: Of the base game.
        noop: The action taken to have come before the first of an episode.
        space: What a default policy of Python's is shown: `Discrete` where an observation is a state as one-hot vector.
    """

    init: Callable[[Any], Any]
    move: Callable[[Any, Any, Any], tuple[Any, Any, Any, Any]]
    observe: Callable[[Any], Any]
    shape: tuple[int, ...]
    n_actions: int
    noop: int = 0
    space: spaces.Space[Any] | None = None

    def step(self, state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any]:
        """`move`, and a new start where the episode is over."""
        move_key, start_key = jax.random.split(key)
        after, reward, ended, cut = self.move(state, action, move_key)
        return restarted(ended | cut, self.init(start_key), after), reward, ended, cut


def restarted(over: Any, start: Any, state: Any) -> Any:
    """The start where the episode is over, else the state."""
    return jax.tree.map(lambda new, old: jnp.where(over, new, old), start, state)


def compiled(game: Any) -> Game:
    """The game, if it is one that can be compiled."""
    if not isinstance(game, Game):
        raise TypeError(f"{game} steps on the host and cannot be compiled.")
    return game


def minatar(name: str) -> Game:
    """A MinAtar game, with sticky actions (0.1) and the actions that do something."""
    if name not in MINATAR:
        raise ValueError(f"there is no MinAtar game {name!r}; there are {', '.join(MINATAR)}.")
    try:
        import pgx
    except ImportError as error:
        raise ImportError("MinAtar needs pgx: pip install 'lazymdp[minatar]'") from error
    env = pgx.make(f"minatar-{name}")

    def move(state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any]:
        after = env.step(state, action, key)
        return after, after.rewards[0], after.terminated, after.truncated & ~after.terminated

    shape = tuple(env.observation_shape)
    space: spaces.Space[Any] = spaces.Box(0, 1, shape, bool)  # type: ignore[arg-type, unused-ignore]
    return Game(env.init, move, lambda state: state.observation, shape, env.num_actions, space=space)


def from_table(table: Table, max_steps: int | None = None) -> Game:
    """The game of an environment that carries `P`: a reward is that of the transition drawn."""
    mdp = MDP(table.transitions, table.rewards, 0.99, table.start)  # the discount is the learner's, not the game's
    gains = sp.csr_array(table.gains)
    gains.sort_indices()
    if not np.array_equal(gains.indices, mdp.transitions.indices):
        raise AssertionError("rewards and transitions are stored alike")
    return from_mdp(mdp, max_steps, gains.data / mdp.transitions.data)


def from_mdp(mdp: MDP, max_steps: int | None = None, drawn: NDArray[np.float64] | None = None) -> Game:
    """A finite model as a game; an observation is the state as one-hot vector.

    Args:
        mdp: The model.
        max_steps: Steps after which an episode is cut off; never if not given. The last step before it counts as cut
            even if it reaches an absorbing state: cut steps are not learned from, and to learn only from those that end
            an episode would make endings too likely.
        drawn: Reward of every transition, in the order in which `mdp.transitions` holds them; the expected reward of
            the action if not given.
    """
    rows = np.diff(mdp.transitions.indptr)
    width = int(rows.max())
    successors, sums = np.zeros((rows.size, width), dtype=np.int32), np.ones((rows.size, width), dtype=np.float32)
    paid = np.repeat(mdp.rewards.reshape(-1, 1), width, axis=1).astype(np.float32)
    for row, (begin, end) in enumerate(zip(mdp.transitions.indptr, mdp.transitions.indptr[1:], strict=False)):
        successors[row, : end - begin] = mdp.transitions.indices[begin:end]
        successors[row, end - begin :] = mdp.transitions.indices[end - 1]
        sums[row, : end - begin] = np.cumsum(mdp.transitions.data[begin:end])
        if drawn is not None:
            paid[row, : end - begin], paid[row, end - begin :] = drawn[begin:end], drawn[end - 1]
    starts = np.flatnonzero(mdp.start)
    table, cumulative = jnp.asarray(successors), jnp.asarray(sums[:, :-1])
    rewards, absorbing = jnp.asarray(paid), jnp.asarray(mdp.absorbing)
    first = jnp.asarray(starts, dtype=jnp.int32)
    chances = jnp.asarray(np.cumsum(mdp.start[starts])[:-1], dtype=jnp.float32)

    def init(key: Any) -> Any:
        return jnp.stack([first[(jax.random.uniform(key) >= chances).sum()], 0])  # state, steps so far

    def move(state: Any, action: Any, key: Any) -> tuple[Any, Any, Any, Any]:
        row, steps = state[0] * mdp.n_actions + action, state[1] + 1
        which = (jax.random.uniform(key) >= cumulative[row]).sum()
        after = table[row, which]
        cut = jnp.zeros((), bool) if max_steps is None else steps >= max_steps
        ended = absorbing[after] & ~cut
        return jnp.stack([after, steps]), rewards[row, which], ended, cut

    def observe(state: Any) -> Any:
        return jax.nn.one_hot(state[0], mdp.n_states)

    return Game(init, move, observe, (mdp.n_states,), mdp.n_actions, space=spaces.Discrete(mdp.n_states))
