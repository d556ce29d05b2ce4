"""How an agent acts in many environments at once: choices, the episodes under way, and stacks of frames.

N is the number of environments; M of them form a group that acts together (all of them, unless emulators take turns).
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from lazymdp.learn.deep.backup import Form, lazy_value

_Tree = TypeVar("_Tree")


class Choice(NamedTuple):
    """Choices of the agent, `[M]` each."""

    executed: Array  # action executed in the environment, the agent's or the default policy's
    taught: Array  # network output that the step teaches
    lazy: Array  # whether the choice was to be lazy
    greedy: Array  # whether the choice was the greedy one
    value: Array  # value of the state to the greedy agent


def choose(
    outputs: Array, probabilities: Array, eta: Array, uniform: Array, epsilon: Array | float, form: Form
) -> Choice:
    """Makes an epsilon-greedy choice among the A actions and being lazy. A tie is lazy.

    Args:
        outputs: `[M, C]` outputs of the network.
        probabilities: `[M, A]` probabilities of the default policy.
        eta: `[M]` prices.
        uniform: `[3, M]` random numbers between 0 and 1.
        epsilon: Probability of a choice drawn uniformly from all A + 1.
        form: Form of the outputs.
    """
    n_actions = probabilities.shape[-1]
    explore, random_choice, default_draw = uniform
    control, lazy = form.values(outputs, probabilities, eta)
    best = control.max(-1)
    greedy = jnp.where(lazy >= best, n_actions, control.argmax(-1))
    choice = jnp.where(explore < epsilon, jnp.int32(random_choice * (n_actions + 1)), greedy)
    by_default = sample_cdf(jnp.cumsum(probabilities, -1), default_draw)
    executed = jnp.where(choice == n_actions, by_default, choice)
    taught = form.taught(choice, executed)
    return Choice(executed, taught, choice == n_actions, choice == greedy, lazy_value(best, lazy))


def sample_cdf(cumulative: Array, uniform: Array) -> Array:
    """Samples by inverting the cumulative distribution.

    Args:
        cumulative: `[..., K]` cumulative probabilities; the last one counts as 1, whatever its rounding.
        uniform: `[...]` random numbers between 0 and 1.
    """
    return (uniform[..., None] >= cumulative[..., :-1]).sum(-1)


class Actors(NamedTuple):
    """What is known of the episodes under way, `[N]` each."""

    eta: Array  # price of the episode
    action: Array  # action executed last; the no-op at the start of an episode
    lazy: Array  # whether the last choice was to be lazy
    greedy: Array  # [N, 2] greedy choices in this iteration, and those of them that took control
    totals: Array  # [N, 3] return, steps and controls so far
    reward: Array  # largest absolute reward plus price so far
    value: Array  # largest absolute state value so far
    first_value: Array  # the same during the first iteration: a fresh network may begin with large values


class Episodes(NamedTuple):
    """Episodes that ended at a step, `[M]` or `[T, M]` each; the rest counts only where `ended` is true."""

    ended: Array
    eta: Array
    returns: Array  # price excluded
    steps: Array
    controls: Array


def new_actors(eta: Array, noop: int) -> Actors:
    """Actors before their first step, at `[N]` prices."""
    zeros, n_envs = jnp.zeros_like(eta), eta.size
    flags, actions = jnp.zeros(n_envs, bool), jnp.full(n_envs, noop, jnp.int32)
    counts, totals = jnp.zeros((n_envs, 2), jnp.int32), jnp.zeros((n_envs, 3))
    return Actors(eta, actions, flags, counts, totals, zeros, jnp.copy(zeros), jnp.copy(zeros))


def note_choice(actors: Actors, choice: Choice) -> Actors:
    """Notes the choices just made, and counts the greedy ones."""
    # Counted per environment and summed once per iteration: a sum at every step would be a kernel of its own.
    counts = jnp.stack([choice.greedy, choice.greedy & ~choice.lazy], -1)
    return actors._replace(
        action=choice.executed.astype(jnp.int32), lazy=choice.lazy, greedy=actors.greedy + counts.astype(jnp.int32)
    )


def add_step(actors: Actors, reward: Array, restarted: Array, new_eta: Array, noop: int) -> tuple[Actors, Array]:
    """Adds the outcome of a step to the episodes under way.

    Args:
        actors: The actors before the step.
        reward: `[M]` rewards as the environment gives them.
        restarted: `[M]` whether a new episode has begun; its price is `new_eta`.
        new_eta: `[M]` prices.
        noop: Action that counts as the one before the first.

    Returns:
        The actors, and `[M, 3]` return, steps and controls of the episodes up to and including this step.
    """
    totals = actors.totals + jnp.stack([reward, jnp.ones_like(reward), 1.0 - actors.lazy], -1)
    return actors._replace(
        eta=jnp.where(restarted, new_eta, actors.eta),
        action=jnp.where(restarted, noop, actors.action),
        totals=totals * ~restarted[:, None],
    ), totals


def note_extremes(actors: Actors, reward: Array, value: Array, first_iteration: Array) -> Actors:
    """Updates the largest rewards and values, by which divergence is detected.

    Args:
        actors: The actors.
        reward: `[M]` rewards as learned from.
        value: `[M]` state values.
        first_iteration: Whether this is the first iteration of the run.
    """
    size = jnp.abs(value)
    return actors._replace(
        reward=jnp.maximum(actors.reward, jnp.abs(reward) + jnp.abs(actors.eta)),
        value=jnp.maximum(actors.value, size),
        first_value=jnp.where(first_iteration, jnp.maximum(actors.first_value, size), actors.first_value),
    )


class Group(NamedTuple):
    """The environments `begin` to `begin + size - 1`, which act together."""

    begin: Array | int
    size: int

    def part(self, tree: _Tree) -> _Tree:
        """The group's part `[M, ...]` of arrays `[N, ...]`."""
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, self.begin, self.size), tree)

    def put(self, tree: _Tree, parts: _Tree) -> _Tree:
        """Arrays `[N, ...]` with the group's part replaced."""
        return jax.tree.map(lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, self.begin, 0), tree, parts)

    def put_row(self, buffer: Array, row: Array, new: Array) -> Array:
        """A buffer `[T, N, ...]` with the group's part of one row replaced."""
        start = (row, self.begin, *(0 for _ in new.shape[1:]))
        return jax.lax.dynamic_update_slice(buffer, new[None].astype(buffer.dtype), start)


def empty_stack(n_envs: int, shape: tuple[int, ...], dtype: type, n_frames: int) -> Array | tuple[()]:
    """Stacks `[N, ..., S]` of black frames; nothing where a frame is an observation."""
    return jnp.zeros((n_envs, *shape), dtype) if n_frames > 1 else ()


def push_frame(stack: Array | tuple[()], frame: Array, restarted: Array) -> tuple[Array, Array | tuple[()]]:
    """The observation, newest frame last, and the stack with it; frames before an episode's start are black."""
    if isinstance(stack, tuple):
        return frame, stack
    kept = stack[..., 1:] * ~restarted.reshape(-1, *(1 for _ in stack.shape[1:]))
    stack = jnp.concatenate([kept, frame[..., None]], -1)
    return stack, stack
