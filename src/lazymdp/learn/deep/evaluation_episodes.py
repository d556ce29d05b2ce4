"""Episodes of evaluation: whole ones, with a network as it is, at prices side by side.

Every price meets the same chance: the same starts, and the same random numbers at the same step of the same episode.
What differs between two prices is then due to the price alone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.deep.acting import Choice
from lazymdp.learn.deep.dqn import DQN
from lazymdp.learn.deep.groups import empty_stack, pushed
from lazymdp.learn.deep.host_env import Host, Seen
from lazymdp.learn.deep.jax_env import compiled
from lazymdp.learn.deep.pqn import Dial

CHUNK = 100
"""Steps between two looks at whether all episodes are over."""
MAX_STEPS = 10_000
"""Steps after which an episode counts as it is, where the environment has no limit of its own."""
_EVALUATION = 1  # goes into seeds, so that no episode of evaluation is one that was trained on


@dataclass(frozen=True)
class Played:
    """Episodes of evaluation: one row per price, one column per episode, `[E, N]`; of several runs, `[R, E, N]`.

    Attributes:
        etas: `[E]`, or `[R, E]`.
        score: Return, price excluded.
        steps: Length.
        controls: Steps in which the agent took control.
        cut_off: Which episodes reached `max_steps` and count as they were.
    """

    etas: NDArray[np.float64]
    score: NDArray[np.float64]
    steps: NDArray[np.float64]
    controls: NDArray[np.float64]
    cut_off: NDArray[np.bool_]

    @property
    def control_frequency(self) -> NDArray[np.float64]:
        """`[E]` share of all steps in which the agent took control."""
        return self.controls.sum(axis=-1) / self.steps.sum(axis=-1)

    @property
    def unfinished(self) -> int:
        """How many episodes reached `max_steps` and count as they were."""
        return int(self.cut_off.sum())


class Playing(NamedTuple):
    """Episodes of evaluation under way, `[E * N]` each, price by price."""

    states: Any  # of the games
    last: Any  # actions executed last
    totals: Any  # [E * N, 3] return, steps and controls of each first episode so far
    alive: Any  # whether it still goes on


def play(
    learner: Dial | DQN, parameters: Any, playing: Playing, etas: Any, key: Any, epsilon: Any, max_steps: Any
) -> Playing:
    """Some steps of evaluation in a compiled game.

    Args:
        learner: The learner.
        parameters: Of its network.
        playing: The episodes.
        etas: `[E]` prices.
        key: Random key.
        epsilon: Share of random choices.
        max_steps: After which nothing more is added.
    """
    game, n_prices = compiled(learner.game), etas.size
    episodes = playing.alive.size // n_prices
    eta = jnp.repeat(etas, episodes)

    def step(playing: Playing, key: Any) -> tuple[Playing, None]:
        states, last, totals, alive = playing
        choice_key, step_key = jax.random.split(key)
        observation = jax.vmap(game.observe)(states)
        uniform = jnp.tile(jax.random.uniform(choice_key, (3, episodes)), (1, n_prices))
        choice = learner.act(parameters, observation, eta, last, uniform, epsilon)
        keys = jnp.tile(jax.random.split(step_key, episodes), n_prices)
        states, reward, ended, cut = jax.vmap(game.step)(states, choice.executed, keys)
        over = ended | cut
        made = jnp.stack([reward, jnp.ones(eta.size), 1.0 - choice.lazy], -1)
        last = jnp.where(over, game.noop, choice.executed)
        counts = alive & (totals[:, 1] < max_steps)
        return Playing(states, last, totals + counts[:, None] * made, alive & ~(counts & over)), None

    return jax.lax.scan(step, playing, jax.random.split(key, CHUNK))[0]


def played_compiled(
    learner: Dial | DQN, play: Any, parameters: Any, etas: NDArray[np.float64], episodes: int, seed: int,
    epsilon: float, max_steps: int, progress: Callable[[int, int], None] | None = None,
) -> Played:  # fmt: skip
    """Whole episodes of a compiled game, all prices side by side.

    Args:
        learner: The learner.
        play: `play` of this learner, compiled; for several runs, vectorised over parameters, episodes and prices.
        parameters: Of the network, or of the networks of R runs.
        etas: `[E]` prices, or `[R, E]`.
        episodes: Per price.
        seed: Of the evaluation.
        epsilon: Share of random choices.
        max_steps: Steps after which an episode counts as it is.
        progress: Called with what is done and how much there is.
    """
    game, shape = compiled(learner.game), etas.shape
    key, start_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), _EVALUATION))
    begun = Playing(
        _starting(game.init)(jax.random.split(start_key, episodes)),
        jnp.full(episodes, game.noop, jnp.int32), jnp.zeros((episodes, 3)), jnp.ones(episodes, bool),
    )  # fmt: skip

    def everywhere(one: Any) -> Any:
        rows = jnp.broadcast_to(one, (*shape, *one.shape))
        return rows.reshape(*shape[:-1], shape[-1] * episodes, *one.shape[1:])

    playing, prices = jax.tree.map(everywhere, begun), jnp.asarray(etas, dtype=jnp.float32)
    for done in range(0, max_steps, CHUNK):
        key, chunk_key = jax.random.split(key)
        playing = play(parameters, playing, prices, chunk_key, epsilon, max_steps)
        if progress is not None:
            progress(min(done + CHUNK, max_steps), max_steps)
        if not bool(playing.alive.any()):
            break
    score, steps, controls = np.moveaxis(np.asarray(playing.totals, dtype=float), -1, 0).reshape(3, *shape, episodes)
    return Played(etas, score, steps, controls, np.asarray(playing.alive).reshape(*shape, episodes))


@functools.cache
def _starting(init: Any) -> Any:
    """Compiled once."""
    return jax.jit(jax.vmap(init))


def look(
    learner: Dial | DQN, parameters: Any, stack: Any, last: Any, seen: Seen, eta: Any, key: Any, epsilon: Any
) -> tuple[Any, Choice]:
    """A choice of evaluation for a group of environments on the host, and its stack of frames with the newest."""
    over = seen.over
    observation, stack = pushed(stack, seen.frame, over)
    last = jnp.where(over, learner.game.noop, last)
    uniform = jax.random.uniform(key, (3, eta.size))
    return stack, learner.act(parameters, observation, eta, last, uniform, epsilon)


def played_hosted(
    host: Host, look: Any, parameters: Any, price: float, episodes: int, seed: int, epsilon: float, max_steps: int
) -> Played:
    """Whole episodes of environments on the host at one price.

    Args:
        host: The environments, one per episode.
        look: `look` of the learner, compiled.
        parameters: Of the network.
        price: The price.
        episodes: How many.
        seed: Of the evaluation.
        epsilon: Share of random choices.
        max_steps: Steps after which an episode counts as it is.
    """
    totals, alive, lazy = np.zeros((episodes, 3)), np.ones(episodes, dtype=bool), np.zeros(episodes, dtype=bool)
    stacks = [empty_stack(host, part.stop - part.start) for part in host.groups]
    last = [jnp.full(part.stop - part.start, host.noop) for part in host.groups]
    key = jax.random.key(seed)
    host.start(_EVALUATION * 2**32 + seed)
    for step in range(max_steps + 1):
        for group, part in enumerate(host.groups):
            seen = host.receive(group)
            if step > 0:
                made = np.stack([seen.reward, np.ones_like(seen.reward), ~lazy[part]], axis=-1)
                totals[part] += alive[part, None] * made
                totals[part] *= ~(alive[part] & seen.lost)[:, None]  # begun anew
                alive[part] &= ~(seen.ended | seen.cut)
            place = jax.random.fold_in(key, step * len(host.groups) + group)
            eta = jnp.full(part.stop - part.start, price, dtype=jnp.float32)
            stacks[group], choice = look(parameters, stacks[group], last[group], seen, eta, place, epsilon)
            last[group], lazy[part] = choice.executed, np.asarray(choice.lazy)
            host.send(group, np.asarray(choice.executed, dtype=np.int64))
        if not alive.any():
            break
    score, steps, controls = totals.T[:, None]
    return Played(np.array([price]), score, steps, controls, alive[None])


def joined(parts: list[Played]) -> Played:
    """Prices one after the other, as one."""
    names = ("etas", "score", "steps", "controls", "cut_off")
    return Played(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
