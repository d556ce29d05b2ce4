"""Acting in many environments at once: choices, episodes in progress, and frame stacks.

N is the number of environments, and M the size of a group that acts together. M equals N unless Atari emulators take
turns in two groups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from lazymdp.learn.deep.backup import Form, lazy_value
from lazymdp.learn.deep.env_failures import LARGEST_REWARD

if TYPE_CHECKING:
    from lazymdp.learn.deep.algorithm import Algorithm
    from lazymdp.learn.deep.networks import Parameters

_Tree = TypeVar("_Tree")


class Choice(NamedTuple):
    """Choices of the agent in M environments; fields are `[M]` unless noted."""

    executed: Array  # action executed in the environment, chosen by the agent or by the default policy
    taught: Array  # index of the network output that this step trains
    lazy: Array  # whether the agent chose to be lazy
    greedy: Array  # whether the choice was greedy
    exploring: Array  # whether the choice was made at random or repeats such a choice
    value: Array  # value of the state under the greedy policy
    likely: Array  # [M, A] probabilities of the default policy


class Exploration(NamedTuple):
    """How M environments explore.

    A random choice is repeated at the next step with probability `persistence`. Whatever the persistence is, the agent
    explores in a share `epsilon` of the steps in the long run (temporally extended epsilon-greedy exploration).
    """

    epsilon: Array | float  # share of the steps that explore
    persistence: float = 0.0  # probability that an exploring step is followed by a repetition of its choice
    exploring: Array | bool = False  # [M] whether the last step explored, in the same episode
    last_choice: Array | int = 0  # [M] choice at the last step, A if it was lazy


def act(
    algorithm: Algorithm, parameters: Parameters, observation: Array, eta: Array, last_action: Array, uniform: Array,
    exploration: Exploration,
) -> Choice:  # fmt: skip
    """Makes epsilon-greedy choices with an algorithm's network and default policy.

    Args:
        algorithm: The algorithm.
        parameters: Parameters of the network.
        observation: `[M, ...]` observations.
        eta: `[M]` prices.
        last_action: `[M]` actions executed last, the no-op at the start of an episode.
        uniform: `[3, M]` random numbers between 0 and 1.
        exploration: How to explore.
    """
    outputs = algorithm.network.apply(parameters, observation, eta)
    probabilities = algorithm.default_policy(observation, last_action)
    return choose(outputs, probabilities, eta, uniform, exploration, algorithm.form)


def choose(
    outputs: Array, probabilities: Array, eta: Array, uniform: Array, exploration: Exploration, form: Form
) -> Choice:
    """Makes an epsilon-greedy choice among the A actions and being lazy. A tie is lazy.

    Args:
        outputs: `[M, C]` outputs of the network.
        probabilities: `[M, A]` probabilities of the default policy.
        eta: `[M]` prices.
        uniform: `[3, M]` random numbers between 0 and 1.
        exploration: How to explore; a random choice is drawn uniformly from all A + 1 choices.
        form: Form of the outputs.
    """
    n_actions = probabilities.shape[-1]
    draw, random_choice, default_draw = uniform
    repeats, explores = _explore(draw, exploration)
    control, lazy = form.values(outputs, probabilities, eta)
    best = control.max(-1)
    greedy = jnp.where(lazy >= best, n_actions, control.argmax(-1))
    random = jnp.where(repeats, exploration.last_choice, jnp.int32(random_choice * (n_actions + 1)))
    choice = jnp.where(explores, random, greedy)
    by_default = sample_cdf(jnp.cumsum(probabilities, -1), default_draw)
    executed = jnp.where(choice == n_actions, by_default, choice)
    taught = form.taught(choice, executed)
    value = lazy_value(best, lazy)
    return Choice(executed, taught, choice == n_actions, choice == greedy, explores, value, probabilities)


def _explore(draw: Array, exploration: Exploration) -> tuple[Array, Array]:
    """Returns `[M]` whether the last random choice is repeated, and whether a step explores at all."""
    epsilon, persistence, exploring, _ = exploration
    repeats = exploring & (draw < persistence)
    # A new random choice is made with probability p. The share of steps that explore, e, is then stationary if
    # e = e (persistence + (1 - persistence) p) + (1 - e) p.
    p = epsilon * (1.0 - persistence) / (1.0 - epsilon * persistence)
    rest = jnp.where(exploring, (draw - persistence) / (1.0 - persistence), draw)
    return repeats, repeats | (rest < p)


def sample_cdf(cumulative: Array, uniform: Array) -> Array:
    """Samples indices `[...]` by inverting cumulative distributions.

    Args:
        cumulative: `[..., K]` cumulative probabilities; the last one is taken to be 1, regardless of rounding.
        uniform: `[...]` random numbers between 0 and 1.
    """
    return (uniform[..., None] >= cumulative[..., :-1]).sum(-1)


class Actors(NamedTuple):
    """State of the episodes in progress; fields are `[N]` unless noted."""

    eta: Array  # price of the episode
    action: Array  # last executed action; the no-op at the start of an episode
    lazy: Array  # whether the last choice was to be lazy
    exploring: Array  # whether the last choice explored
    greedy: Array  # [N, 2] number of greedy choices in this iteration, and how many of them took control
    totals: Array  # [N, 3] return, steps and controls so far
    reward: Array  # largest absolute reward plus absolute price so far
    value: Array  # largest absolute state value so far
    first_value: Array  # `value` after the first iteration: a new network may start with large values


class Episodes(NamedTuple):
    """Episodes that ended at a step; fields are `[M]`, or `[T, M]`, and valid only where `ended` is true."""

    ended: Array
    eta: Array
    returns: Array  # price excluded
    steps: Array
    controls: Array
    spoiled: Array  # 1 if the reward of the step cannot be learned from, 2 if the observation cannot; otherwise 0


def new_actors(eta: Array, noop: int) -> Actors:
    """Returns the actors before their first step, at `[N]` prices."""
    zeros, n_envs = jnp.zeros_like(eta), eta.size
    flags, actions = jnp.zeros(n_envs, bool), jnp.full(n_envs, noop, jnp.int32)
    counts, totals = jnp.zeros((n_envs, 2), jnp.int32), jnp.zeros((n_envs, 3))
    return Actors(eta, actions, flags, jnp.copy(flags), counts, totals, zeros, jnp.copy(zeros), jnp.copy(zeros))


def note_choice(actors: Actors, choice: Choice) -> Actors:
    """Records the choices just made and counts the greedy ones."""
    # Counted per environment and summed once per iteration: summing at every step would launch an extra kernel.
    counts = jnp.stack([choice.greedy, choice.greedy & ~choice.lazy], -1)
    return actors._replace(
        action=choice.executed.astype(jnp.int32),
        lazy=choice.lazy,
        exploring=choice.exploring,
        greedy=actors.greedy + counts.astype(jnp.int32),
    )


def add_step(actors: Actors, reward: Array, restarted: Array, new_eta: Array, noop: int) -> tuple[Actors, Array]:
    """Adds the outcome of a step to the episodes in progress.

    Args:
        actors: The actors before the step.
        reward: `[M]` rewards of the environment, not clipped.
        restarted: `[M]` whether a new episode has begun.
        new_eta: `[M]` prices of the episodes that have just begun.
        noop: Action that stands for the last action when an episode begins.

    Returns:
        The actors after the step, and `[M, 3]` return, steps and controls of each episode, including this step.
    """
    totals = actors.totals + jnp.stack([reward, jnp.ones_like(reward), 1.0 - actors.lazy], -1)
    return actors._replace(
        eta=jnp.where(restarted, new_eta, actors.eta),
        action=jnp.where(restarted, noop, actors.action),
        exploring=actors.exploring & ~restarted,
        totals=totals * ~restarted[:, None],
    ), totals


def note_extremes(actors: Actors, reward: Array, value: Array, first_iteration: Array) -> Actors:
    """Updates the largest rewards and values seen, which are used to detect divergence.

    Args:
        actors: The actors.
        reward: `[M]` rewards used for learning, clipped if the settings say so.
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
    """A group of environments that act together: `begin` to `begin + size - 1`."""

    begin: Array | int
    size: int

    def part(self, tree: _Tree) -> _Tree:
        """Returns the group's part `[M, ...]` of arrays `[N, ...]`."""
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, self.begin, self.size), tree)

    def put(self, tree: _Tree, parts: _Tree) -> _Tree:
        """Returns arrays `[N, ...]` with the group's part replaced."""
        return jax.tree.map(lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, self.begin, 0), tree, parts)

    def put_row(self, buffer: Array, row: Array, new: Array) -> Array:
        """Returns a buffer `[T, N, ...]` with the group's part of one row replaced."""
        start = (row, self.begin, *(0 for _ in new.shape[1:]))
        return jax.lax.dynamic_update_slice(buffer, new[None].astype(buffer.dtype), start)


def spoiled(reward: Array, frame: Array) -> Array:
    """Returns `[M]` 1 where a reward is not finite or too large, 2 where an entry of a frame is not finite, else 0."""
    bad = (~(jnp.abs(reward) <= LARGEST_REWARD)).astype(jnp.int8)
    if not jnp.issubdtype(frame.dtype, jnp.floating):
        return bad
    return jnp.where(jnp.isfinite(frame).reshape(frame.shape[0], -1).all(-1), bad, 2)


def empty_stack(n_envs: int, shape: tuple[int, ...], dtype: type, n_frames: int) -> Array | tuple[()]:
    """Returns stacks `[N, ..., S]` of black frames, or `()` if an observation is a single frame."""
    return jnp.zeros((n_envs, *shape), dtype) if n_frames > 1 else ()


def push_frame(stack: Array | tuple[()], frame: Array, restarted: Array) -> tuple[Array, Array | tuple[()]]:
    """Returns the observation, newest frame last, and the updated stack. Frames before an episode starts are black."""
    if isinstance(stack, tuple):
        return frame, stack
    kept = stack[..., 1:] * ~restarted.reshape(-1, *(1 for _ in stack.shape[1:]))
    stack = jnp.concatenate([kept, frame[..., None]], -1)
    return stack, stack
