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
from gymnasium import spaces

from lazymdp.defaults.forms import check_actions, check_rows
from lazymdp.defaults.protocol import BadDefault, DefaultPolicy

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


def called_back(
    policy: DefaultPolicy, actions: spaces.Discrete, space: spaces.Space[Any], structured: bool = True
) -> Default:
    """Any `DefaultPolicy`, asked on the host; once now, to see what is wrong with it.

    Args:
        policy: The default.
        actions: Of the environment.
        space: Of the observations as the policy is shown them: states by their number where it is `Discrete`.
        structured: Whether its mean value is derived, for which it has to know its probabilities. Else one that only
            answers actions will do; what it answers is then taken for certain.
    """
    generator = np.random.default_rng(0)

    def ask(observations: Any, last: Any) -> Any:
        seen = np.asarray(observations)
        if isinstance(space, spaces.Discrete):  # a model may have one state more, in which nobody acts
            seen = np.minimum(seen.argmax(-1), int(space.n) - 1) + int(space.start)
        executed = np.asarray(last, dtype=np.int64) + int(actions.start)
        found = policy.probabilities(seen, executed)
        if found is None and structured:
            raise ValueError(
                "the default policy answers actions: to learn, it has to tell their probabilities; without, only the "
                "paper's form can learn over it (structured=False)."
            )
        if found is None:
            answered = check_actions(policy.sample(seen, generator, executed), len(seen), actions)
            found = np.eye(int(actions.n))[answered - int(actions.start)]
        rows = np.asarray(found, dtype=np.float64)
        if rows.shape != (len(seen), actions.n):
            raise ValueError(f"the default policy answers shape {rows.shape}, expected {(len(seen), int(actions.n))}.")
        return check_rows(rows, actions).astype(np.float32)

    shown = (int(space.n),) if isinstance(space, spaces.Discrete) else space.shape or ()
    try:
        ask(np.zeros((1, *shown), space.dtype), np.zeros(1))
    except Exception as error:
        raise BadDefault(
            f"the default policy failed when it was asked about an observation of zeros: {error}"
        ) from error

    def probabilities(observations: Any, last: Any) -> Any:
        shape = jax.ShapeDtypeStruct((last.shape[0], int(actions.n)), jnp.float32)
        return jax.pure_callback(ask, shape, observations, last, vmap_method="sequential")

    return probabilities
