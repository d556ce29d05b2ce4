"""Default policies for deep agents: `(observations [M, ...], last actions [M]) -> probabilities [M, A]`.

All of them can be compiled into the agent's step. A network is evaluated on the device. A Python object is called back
on the host, which is slower but works for any object.
"""

from __future__ import annotations

import logging
import reprlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import safe_repr
from lazymdp._arrays import sample_rows
from lazymdp.defaults.forms import ROW_TOLERANCE, BadAnswer, check_actions, check_rows, one_hot, row_of
from lazymdp.defaults.protocol import BadDefault, DefaultPolicy
from lazymdp.learn.deep.env_failures import busy

_SHORT = reprlib.Repr()
_SHORT.maxother = 200  # characters of an observation in a message

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


class NoProbabilities(BadDefault):
    """The default policy does not tell its probabilities, which the structured form needs."""


class _Unknown(BadAnswer):
    """A default policy returned None instead of probabilities."""


class CalledBack:
    """Any `DefaultPolicy`, which is called on the host.

    The policy is called when this is made, so that errors appear before training starts.

    Args:
        policy: The default policy.
        actions: Action space of the environment.
        space: Observation space of the environment; the policy receives observations as the environment returns them.
        examples: `[B, ...]` observations as the network receives them, to try the policy on.
        needs_probabilities: Whether the policy must return probabilities, as the structured form requires. Otherwise a
            policy that returns only actions is accepted, and each action is given probability 1.
        times: How often the policy is asked about the examples, at least twice. If it must return probabilities and its
            answers differ, it returns random actions instead.

    Attributes:
        failure: The error of the policy, if it has failed. JAX raises another error, without its type.
    """

    def __init__(
        self,
        policy: DefaultPolicy,
        actions: spaces.Discrete,
        space: spaces.Space[Any],
        examples: NDArray[Any],
        needs_probabilities: bool = True,
        times: int = 2,
    ) -> None:
        self._policy, self._actions, self._space = policy, actions, space
        self._needs_probabilities = needs_probabilities
        self._generator = np.random.default_rng(0)
        self.failure: BadDefault | None = None
        last = np.zeros(len(examples), dtype=np.int64)
        first, *others = (self._ask(examples, last) for _ in range(times))
        if needs_probabilities and not all(np.allclose(first, other, atol=ROW_TOLERANCE) for other in others):
            raise NoProbabilities(
                "the default policy answers the same observation in different ways, but the structured form needs "
                "probabilities: return them instead of random actions, or use form='augmented'."
            )

    def __call__(self, observations: Array, last: Array) -> Array:
        """Returns `[M, A]` probabilities."""
        shape = jax.ShapeDtypeStruct((last.shape[0], int(self._actions.n)), jnp.float32)
        return jax.pure_callback(self._ask, shape, observations, last, vmap_method="sequential")

    def _ask(self, observations: Any, last: Any) -> Any:
        """Returns `[M, A]` probabilities as an array on the host."""
        seen = unflattened(self._space, np.asarray(observations))
        executed = np.asarray(last, dtype=np.int64) + int(self._actions.start)
        busy[self] = executed.size, time.monotonic()
        try:
            return self._answer(seen, executed)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            found = str(error) if isinstance(error, BadAnswer) else safe_repr(error)
            row = error.row if isinstance(error, BadAnswer) else None
            shown = seen if row is None else row_of(self._space, seen, row)
            at = "" if row is None else f" (row {row} of {executed.size} observations)"
            kind = NoProbabilities if isinstance(error, _Unknown) else BadDefault
            self.failure = kind(f"the default policy failed on {_SHORT.repr(shown)}{at}: {found}")
            raise self.failure from error
        finally:
            busy.pop(self, None)

    def place_of(self, index: int) -> str:
        """Returns what is computed, given the number of observations, for messages."""
        return f"the default policy, given {index} observations"

    def _answer(self, seen: Any, executed: NDArray[np.int64]) -> NDArray[np.float32]:
        count, n_actions = executed.size, int(self._actions.n)
        found = self._policy.probabilities(seen, executed)
        if found is None and self._needs_probabilities:
            raise _Unknown(
                "it returns actions but no probabilities, which the structured form needs: give a policy with "
                "probabilities, or use form='augmented'."
            )
        if found is None:
            drawn = self._policy.sample(seen, self._generator, executed)
            found = one_hot(check_actions(drawn, count, self._actions), self._actions)
        rows = np.asarray(found, dtype=np.float64)
        if rows.shape != (count, n_actions):
            raise BadAnswer(f"it returned probabilities of shape {rows.shape}, expected {(count, n_actions)}.")
        return check_rows(rows, self._actions).astype(np.float32)


@contextmanager
def raising_failures(default_policy: CompiledDefault) -> Iterator[None]:
    """Raises the error of a default policy that fails while JAX calls it, instead of JAX's own error."""
    logger = logging.getLogger("jax._src.callback")  # would log the same traceback again
    before, logger.disabled = logger.disabled, True
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError):  # ValueError: a program that JAX executes at once, being small
        failure = getattr(default_policy, "failure", None)
        if failure is None:
            raise
        raise failure from failure.__cause__
    finally:
        logger.disabled = before


def unflattened(space: spaces.Space[Any], rows: NDArray[Any]) -> Any:
    """Returns observations as the environment returns them, in the layout of Gymnasium's vector environments.

    Args:
        space: Observation space of the environment.
        rows: `[B, ...]` observations as the network receives them: unchanged if the space is a `Box`, otherwise
            flattened to vectors as `gymnasium.spaces.flatten` does, in single precision.
    """
    count = len(rows)
    if isinstance(space, spaces.Discrete):  # a model may have an extra terminal state, in which no action is taken
        return np.minimum(rows.argmax(-1), int(space.n) - 1) + int(space.start)
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        return rows.reshape(count, *space.shape).astype(space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        parts = np.split(rows, np.cumsum(space.nvec.ravel())[:-1], axis=1)
        indices = np.stack([part.argmax(-1) for part in parts], axis=-1).reshape(count, *space.nvec.shape)
        return (indices + space.start).astype(space.dtype)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        members = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        ends = np.cumsum([spaces.flatdim(member) for member in members])[:-1]
        found = [unflattened(*pair) for pair in zip(members, np.split(rows, ends, axis=1), strict=True)]
        return dict(zip(space.spaces, found, strict=True)) if isinstance(space, spaces.Dict) else tuple(found)
    return tuple(spaces.unflatten(space, row.astype(np.int64)) for row in rows)  # such as Text


def shape_sizes(space: spaces.Space[Any]) -> set[int]:
    """Returns the lengths of all axes of an observation, including those of its members."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        members = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return {len(space.spaces), *(size for member in members for size in shape_sizes(member))}
    return set(space.shape or ())


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
