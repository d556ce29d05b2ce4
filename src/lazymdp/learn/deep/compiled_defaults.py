"""Default policies for deep agents: `(observations [M, ...], last actions [M]) -> probabilities [M, A]`.

All of them can be compiled into the agent's step. A network is evaluated on the device. A Python object is called back
on the host, which is slower but works for any object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import ArrayLike, NDArray

from lazymdp._arrays import sample_rows
from lazymdp.defaults.forms import check_actions, check_rows
from lazymdp.defaults.protocol import BadDefault, DefaultPolicy

CompiledDefault = Callable[[Array, Array], Array]
"""A default policy that JAX can trace."""


def uniform(n_actions: int) -> CompiledDefault:
    """Returns a policy that draws every action with equal probability."""
    return lambda observations, last: jnp.full((last.shape[0], n_actions), 1.0 / n_actions)


def fixed(action: int, n_actions: int) -> CompiledDefault:
    """Returns a policy that always takes the same action."""
    row = jnp.eye(n_actions)[action]
    return lambda observations, last: jnp.broadcast_to(row, (last.shape[0], n_actions))


def repeat(n_actions: int) -> CompiledDefault:
    """Returns a policy that repeats the last executed action."""
    return lambda observations, last: jax.nn.one_hot(last, n_actions)


def table(rows: ArrayLike) -> CompiledDefault:
    """Returns the policy with `[S, A]` probabilities `rows`, for observations that are one-hot vectors of states."""
    return lambda observations, last: observations @ jnp.asarray(rows, dtype=jnp.float32)


def greedy(values: Callable[[Array], Array], epsilon: float = 0.0) -> CompiledDefault:
    """Returns an epsilon-greedy policy for `values: observations -> [M, A]`."""

    def probabilities(observations: Array, last: Array) -> Array:
        q = values(observations)
        return (1.0 - epsilon) * jax.nn.one_hot(q.argmax(-1), q.shape[-1]) + epsilon / q.shape[-1]

    return probabilities


def softmax(values: Callable[[Array], Array], temperature: float) -> CompiledDefault:
    """Returns a policy whose probabilities are proportional to `exp(value / temperature)`."""
    return lambda observations, last: jax.nn.softmax(values(observations) / temperature, axis=-1)


def called_back(
    policy: DefaultPolicy, actions: spaces.Discrete, space: spaces.Space[Any], needs_probabilities: bool = True
) -> CompiledDefault:
    """Wraps any `DefaultPolicy`, which is then called on the host.

    The policy is called once here, so that errors appear before training starts.

    Args:
        policy: The default policy.
        actions: Action space of the environment.
        space: Observation space of the policy; if it is `Discrete`, the policy receives states as integers.
        needs_probabilities: Whether the policy must return probabilities, as the structured form requires. Otherwise a
            policy that returns only actions is accepted, and each action is given probability 1.
    """
    generator = np.random.default_rng(0)

    def ask(observations: Any, last: Any) -> Any:
        seen = np.asarray(observations)
        if isinstance(space, spaces.Discrete):  # a model may have an extra terminal state, in which no action is taken
            seen = np.minimum(seen.argmax(-1), int(space.n) - 1) + int(space.start)
        executed = np.asarray(last, dtype=np.int64) + int(actions.start)
        found = policy.probabilities(seen, executed)
        if found is None and needs_probabilities:
            raise ValueError(
                "the default policy returns actions but no probabilities, which the structured form needs: give a "
                "policy with probabilities, or use form='augmented'."
            )
        if found is None:
            answered = check_actions(policy.sample(seen, generator, executed), len(seen), actions)
            found = np.eye(int(actions.n))[answered - int(actions.start)]
        rows = np.asarray(found, dtype=np.float64)
        if rows.shape != (len(seen), actions.n):
            raise ValueError(f"the default policy returned shape {rows.shape}, expected {(len(seen), int(actions.n))}.")
        return check_rows(rows, actions).astype(np.float32)

    shown = (int(space.n),) if isinstance(space, spaces.Discrete) else space.shape or ()
    try:
        ask(np.zeros((1, *shown), space.dtype), np.zeros(1))
    except Exception as error:
        raise BadDefault(f"the default policy failed on an observation of zeros: {error}") from error

    def probabilities(observations: Array, last: Array) -> Array:
        shape = jax.ShapeDtypeStruct((last.shape[0], int(actions.n)), jnp.float32)
        return jax.pure_callback(ask, shape, observations, last, vmap_method="sequential")

    return probabilities


class HostDefault:
    """A default policy of a deep agent as a `DefaultPolicy`, for wrappers and other learners.

    Args:
        policy: `(observations, last actions numbered from 0) -> probabilities [M, A]`.
        first_action: The environment's own number of its first action.
    """

    def __init__(self, policy: Callable[[Any, Any], Any], first_action: int) -> None:
        self._policy, self._first = policy, first_action

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns `[B]` actions."""
        rows = self.probabilities(observations, last_actions)
        return sample_rows(rows, rng.random(len(rows))) + self._first

    def probabilities(self, observations: Any, last_actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns `[B, A]` probabilities."""
        return np.asarray(self._policy(observations, np.asarray(last_actions) - self._first), dtype=np.float64)
