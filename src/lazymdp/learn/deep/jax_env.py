"""Environments that are compiled together with the algorithm: MinAtar, and any finite model.

An environment is three pure functions that JAX can trace, so thousands of copies can step inside one program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray

from lazymdp.envs.toy_text import Table
from lazymdp.learn.deep.acting import sample_cdf
from lazymdp.mdp import MDP

MINATAR = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
_MINATAR_ACTIONS = ("no-op", "left", "up", "right", "down", "fire")

State = Any
"""State of an environment: a pytree of arrays."""


@dataclass(frozen=True, eq=False)
class JaxEnv:
    """A single environment, to be vectorized by `jax.vmap`.

    Attributes:
        reset: `key -> state`, the initial state of an episode.
        step: `(state, action, key) -> (state, reward, terminated, truncated)`; does not restart the episode.
        observe: `state -> observation`, an array of shape `shape`.
        shape: Shape of an observation.
        n_actions: Number of actions, A.
        noop: Action that stands for the last action when an episode begins.
        space: Observation space for default policies written in Python: `Discrete` if observations are one-hot vectors
            of states.
        max_steps: Time limit of an episode in steps, or None.
        first_action: The environment's own number of its first action. Here, actions are numbered from 0.
        make: Makes the Gymnasium environment that was compiled, given keyword arguments; None if there is none.
        name: Name of the environment, for messages.
        action_names: Names of the actions, or None.
    """

    reset: Callable[[Array], State]
    step: Callable[[State, Array, Array], tuple[State, Array, Array, Array]]
    observe: Callable[[State], Array]
    shape: tuple[int, ...]
    n_actions: int
    noop: int = 0
    space: spaces.Space[Any] | None = None
    max_steps: int | None = None
    first_action: int = 0
    make: Callable[[Mapping[str, Any]], gym.Env[Any, Any]] | None = None
    name: str = "the environment"
    action_names: tuple[str, ...] | None = None

    n_frames: ClassVar[int] = 1  # an observation is a single frame

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of a frame, which is the whole observation."""
        return self.shape

    @property
    def dtype(self) -> Any:
        """Data type of an observation."""
        return jax.eval_shape(lambda key: self.observe(self.reset(key)), jax.random.key(0)).dtype

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def restart_where(ended: Array, start: State, state: State) -> State:
    """Returns `start` if the episode has ended, otherwise `state`."""
    return jax.tree.map(lambda new, old: jnp.where(ended, new, old), start, state)


def minatar(name: str) -> JaxEnv:
    """Returns a MinAtar game of pgx with sticky actions (probability 0.1) and its minimal action set."""
    if name not in MINATAR:
        raise ValueError(f"there is no MinAtar game {name!r}; the games are {', '.join(MINATAR)}.")
    try:
        import pgx
    except ImportError as error:
        raise ImportError("MinAtar needs pgx: pip install 'lazymdp[minatar]'") from error
    env = pgx.make(f"minatar-{name}")

    def step(state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        after = env.step(state, action, key)
        return after, after.rewards[0], after.terminated, after.truncated & ~after.terminated

    shape = tuple(env.observation_shape)
    space: spaces.Space[Any] = spaces.Box(0, 1, shape, bool)  # type: ignore[arg-type, unused-ignore]
    names = tuple(_MINATAR_ACTIONS[int(action)] for action in env.minimal_action_set)
    return JaxEnv(
        env.init, step, lambda state: state.observation, shape, env.num_actions, space=space, name=f"minatar/{name}",
        action_names=names,
    )  # fmt: skip


def from_table(table: Table, max_steps: int | None = None) -> JaxEnv:
    """Returns the environment of a transition table `P`, with the reward of each sampled transition."""
    mdp = MDP(table.transitions, table.rewards, 0.99, table.start)  # the discount is not used
    gains = sp.csr_array(table.gains)
    gains.sort_indices()
    if not np.array_equal(gains.indices, mdp.transitions.indices):
        raise AssertionError("rewards and transitions must have the same sparsity pattern")
    return from_mdp(mdp, max_steps, gains.data / mdp.transitions.data)


def from_mdp(mdp: MDP, max_steps: int | None = None, rewards: NDArray[np.float64] | None = None) -> JaxEnv:
    """Returns a finite model as an environment; an observation is the one-hot vector of a state.

    Args:
        mdp: The model.
        max_steps: Time limit of an episode in steps; none by default. The last step before the limit counts as
            truncated even if it reaches an absorbing state. Truncated steps are not used for learning,
            and using only those that terminate would make termination look too likely.
        rewards: `[nnz]` reward of each transition, in the order of `mdp.transitions`; by default the expected reward of
            the state and action.
    """
    table, cumulative, gains = (jnp.asarray(array) for array in _padded_rows(mdp, rewards))
    absorbing, starts = jnp.asarray(mdp.absorbing), np.flatnonzero(mdp.start)
    first = jnp.asarray(starts, dtype=jnp.int32)
    first_cumulative = jnp.asarray(np.cumsum(mdp.start[starts]), dtype=jnp.float32)

    def reset(key: Array) -> State:
        return jnp.stack([first[sample_cdf(first_cumulative, jax.random.uniform(key))], 0])  # state, steps so far

    def step(state: State, action: Array, key: Array) -> tuple[State, Array, Array, Array]:
        row, steps = state[0] * mdp.n_actions + action, state[1] + 1
        which = sample_cdf(cumulative[row], jax.random.uniform(key))
        after = table[row, which]
        truncated = jnp.zeros((), bool) if max_steps is None else steps >= max_steps
        return jnp.stack([after, steps]), gains[row, which], absorbing[after] & ~truncated, truncated

    def observe(state: State) -> Array:
        return jax.nn.one_hot(state[0], mdp.n_states)

    space = spaces.Discrete(mdp.n_states)
    return JaxEnv(reset, step, observe, (mdp.n_states,), mdp.n_actions, space=space, max_steps=max_steps)


def _padded_rows(mdp: MDP, rewards: NDArray[np.float64] | None) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Returns `[S * A, K]` next states, cumulative probabilities and rewards; rows are padded with their last entry."""
    lengths, starts = np.diff(mdp.transitions.indptr), mdp.transitions.indptr[:-1]
    place = starts[:, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)  # [S * A, K]
    beyond = np.arange(lengths.max()) >= lengths[:, None]
    chances = np.where(beyond, 0.0, mdp.transitions.data[place])
    cumulative = np.where(beyond, 1.0, np.cumsum(chances, axis=1))
    gains = np.broadcast_to(mdp.rewards.reshape(-1, 1), place.shape) if rewards is None else rewards[place]
    return mdp.transitions.indices[place].astype(np.int32), cumulative.astype(np.float32), gains.astype(np.float32)
