"""Environments as the agent sees them, one after the other: prices, episodes under way, what is told of those over."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp


class Actors(NamedTuple):
    """The environments as the agent sees them, `[N]` each."""

    eta: Any
    running: Any  # [N, 3] return, steps and controls of the episodes under way
    last: Any  # action executed last


class Episodes(NamedTuple):
    """The episodes that are over, `[N]` or `[T, N]` each, with `ended` 0 elsewhere."""

    ended: Any
    eta: Any
    score: Any  # return, price excluded
    steps: Any
    controls: Any


def new_actors(eta: Any, noop: int) -> Actors:
    """Episodes about to begin, at `[N]` prices."""
    # Typed: else the second iteration of a learner would be compiled anew.
    return Actors(eta, jnp.zeros((eta.size, 3)), jnp.full(eta.size, noop, jnp.int32))


def settled(actors: Actors, lazy: Any, reward: Any, over: Any, new_eta: Any, noop: int) -> tuple[Actors, Any]:
    """Adds a step to the episodes under way, `[N, 3]` told; where one is over, the next begins at a new price."""
    running = actors.running + jnp.stack([reward, jnp.ones_like(reward), 1.0 - lazy], -1)
    eta, last = jnp.where(over, new_eta, actors.eta), jnp.where(over, noop, actors.last)
    return Actors(eta, running * ~over[:, None], last), running


class Extremes(NamedTuple):
    """What a divergence is told from, all in size."""

    reward: Any  # the largest so far, with the price of its time
    first: Any  # the largest value of a state in the first iteration: a network may begin with large ones
    value: Any  # the largest so far


def no_extremes() -> Extremes:
    """Before the first step."""
    return Extremes(*jnp.zeros(3))


def widened(before: Extremes, reward: Any, price: Any, value: Any, first: Any) -> Extremes:
    """With what was met in some steps.

    Args:
        before: What was met before.
        reward: Of the steps.
        price: The largest.
        value: Of the states.
        first: Whether this is the first iteration.
    """
    largest = jnp.abs(value).max()
    return Extremes(
        jnp.maximum(before.reward, jnp.abs(reward).max() + price),
        jnp.where(first, jnp.maximum(before.first, largest), before.first),
        jnp.maximum(before.value, largest),
    )


def told(executed: Any, episodes: Episodes) -> Any:
    """`[6, M]` the actions to execute with the episodes, in one array for one way to the host."""
    return jnp.stack([executed.astype(jnp.float32), *(part.astype(jnp.float32) for part in episodes)])
