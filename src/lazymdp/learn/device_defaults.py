"""Default policies as the deep learners ask them: `(observations [N, ...], last actions [N]) -> probabilities [N, A]`.

All of them can be compiled into a learner's step. A network is evaluated there; an object of Python's is called back on
the host, which is slow but works everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lazymdp.defaults import DefaultPolicy

Default = Callable[[Any, Any], Any]


def uniform(n_actions: int) -> Default:
    """Every action equally often."""
    return lambda observations, last: jnp.full((last.shape[0], n_actions), 1.0 / n_actions)


def fixed(action: int, n_actions: int) -> Default:
    """Always the same action."""
    row = jnp.eye(n_actions)[action]
    return lambda observations, last: jnp.broadcast_to(row, (last.shape[0], n_actions))


def repeat(n_actions: int) -> Default:
    """The action executed last."""
    return lambda observations, last: jax.nn.one_hot(last, n_actions)


def table(rows: Any) -> Default:
    """`[S, A]` probabilities, for observations that are states as one-hot vectors."""
    return lambda observations, last: observations @ jnp.asarray(rows, dtype=jnp.float32)


def greedy(values: Callable[[Any], Any], epsilon: float = 0.0) -> Default:
    """The best action by `values: observations -> [N, A]`; with probability `epsilon` any, all equally likely."""

    def probabilities(observations: Any, last: Any) -> Any:
        q = values(observations)
        return (1.0 - epsilon) * jax.nn.one_hot(q.argmax(-1), q.shape[-1]) + epsilon / q.shape[-1]

    return probabilities


def softmax(values: Callable[[Any], Any], temperature: float) -> Default:
    """Actions in proportion to `exp(value / temperature)`."""
    return lambda observations, last: jax.nn.softmax(values(observations) / temperature, axis=-1)


def called_back(policy: DefaultPolicy, n_actions: int, first_action: int = 0) -> Default:
    """Any `DefaultPolicy` that knows its probabilities, asked on the host.

    Args:
        policy: The default.
        n_actions: Of the environment.
        first_action: How the environment numbers its first action.
    """

    def ask(observations: Any, last: Any) -> Any:
        found = policy.probabilities(np.asarray(observations), np.asarray(last, dtype=np.int64) + first_action)
        if found is None:
            raise ValueError("the default policy answers actions: to learn, it has to tell their probabilities.")
        return np.asarray(found, dtype=np.float32)

    def probabilities(observations: Any, last: Any) -> Any:
        shape = jax.ShapeDtypeStruct((last.shape[0], n_actions), jnp.float32)
        return jax.pure_callback(ask, shape, observations, last, vmap_method="sequential")

    return probabilities
