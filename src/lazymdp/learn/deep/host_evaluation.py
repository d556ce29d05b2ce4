"""Evaluation in environments on the host.

Copies of a Gymnasium environment play all episodes of all prices as one queue: when an episode ends, its environment
begins the next one. So the network always sees full batches, and no environment steps after its episode has ended.
Atari emulators restart by themselves and cannot be seeded episode by episode; they play one price after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lazymdp.learn.deep.acting import Choice, empty_stack, push_frame
from lazymdp.learn.deep.algorithm import Algorithm
from lazymdp.learn.deep.evaluation_episodes import EVALUATION, AgentEvaluation, choose_at, joined
from lazymdp.learn.deep.host_env import GymnasiumHost, HostEnv, Outcome
from lazymdp.learn.deep.networks import Parameters

SLOTS = 128
"""Largest number of Gymnasium environments that play at the same time."""

Progress = Callable[[int, int], None] | None


def choose_in_slots(
    algorithm: Algorithm, parameters: Parameters, observation: Array, last_action: Array, eta: Array, episode: Array,
    step: Array, key: Array, epsilon: Array,
) -> tuple[Array, Array]:  # fmt: skip
    """Returns the `[M]` executed actions and whether each choice was lazy, for environments of a queue of episodes.

    The random numbers depend on the episode and the step only, so every price uses the same ones.
    """

    def numbers(episode: Array, step: Array) -> Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, episode), step), (3,))

    uniform = jax.vmap(numbers)(episode, step).T
    choice = choose_at(algorithm, parameters, observation, eta, last_action, uniform, epsilon)
    return choice.executed, choice.lazy


def evaluate_in_slots(
    env: GymnasiumHost, choose: Callable[..., tuple[Any, Any]], parameters: Parameters, etas: NDArray[np.float64],
    episodes: int, seed: int, epsilon: float, max_steps: int, progress: Progress = None,
) -> AgentEvaluation:  # fmt: skip
    """Plays whole episodes in copies of a Gymnasium environment, at all prices as one queue.

    Args:
        env: The environment of training.
        choose: `choose_in_slots` of the algorithm, jitted.
        parameters: Parameters of the network.
        etas: `[E]` prices.
        episodes: Number of episodes per price, N.
        seed: Random seed.
        epsilon: Probability of a random choice.
        max_steps: Time limit of an episode in steps.
        progress: Called with the number of episodes done and the total number.
    """
    count = etas.size * episodes
    slots = min(SLOTS, count)
    host, key = env.like(slots), jax.random.key(seed)
    prices = np.repeat(etas, episodes).astype(np.float32)
    totals, unfinished = np.zeros((count, 3)), np.zeros(count, dtype=bool)  # return, steps and controls
    job = np.arange(slots)  # number of the episode that each environment plays; `count` after the last one
    last = np.full(slots, env.noop, dtype=np.int32)

    def begin(place: int) -> NDArray[Any]:
        return host.begin(place, env.episode_seed(EVALUATION * 2**32 + seed, int(job[place]) % episodes, 0))

    try:
        frames, following, done = host.checked(np.stack([begin(place) for place in range(slots)])), slots, 0
        while done < count:
            playing = np.minimum(job, count - 1)  # environments without an episode are computed and ignored
            executed, lazy = choose(
                parameters, frames, last, prices[playing], playing % episodes,
                totals[playing, 1].astype(np.int32), key, epsilon,
            )  # fmt: skip
            last, lazy = np.array(executed, dtype=np.int32), np.asarray(lazy)
            active = np.flatnonzero(job < count)
            made = [
                host.step(place, action) for place, action in zip(active.tolist(), last[active].tolist(), strict=True)
            ]
            seen, reward, terminated, truncated = (np.array(part) for part in zip(*made, strict=True))
            frames[active] = host.checked(seen, active)
            totals[job[active]] += np.stack([reward, np.ones_like(reward), ~lazy[active]], axis=-1)
            ended = terminated | truncated
            over = ended | (totals[job[active], 1] >= max_steps)
            unfinished[job[active]] = over & ~ended
            for place in active[over].tolist():
                job[place], following = min(following, count), following + 1
                if job[place] < count:
                    frames[place], last[place] = host.checked(begin(place)[None], np.array([place]))[0], env.noop
            done += int(over.sum())
            if progress is not None and over.any():
                progress(done, count)
    finally:
        host.close()
    returns, steps, controls = totals.T.reshape(3, etas.size, episodes)
    return AgentEvaluation(etas, returns, steps, controls, unfinished.reshape(etas.size, episodes))


def choose_in_group(
    algorithm: Algorithm, parameters: Parameters, stack: Any, action: Array, outcome: Outcome, eta: Array, key: Array,
    epsilon: Array,
) -> tuple[Any, Choice]:  # fmt: skip
    """Returns the updated frame stack of a group of environments on the host, and the choices for the group."""
    observation, stack = push_frame(stack, outcome.frame, outcome.restarted)  # type: ignore[arg-type, unused-ignore]
    action = jnp.where(outcome.restarted, algorithm.env.noop, action)
    uniform = jax.random.uniform(key, (3, eta.size))
    return stack, choose_at(algorithm, parameters, observation, eta, action, uniform, epsilon)


def evaluate_in_groups(
    env: HostEnv, choose: Callable[..., tuple[Any, Choice]], parameters: Parameters, etas: NDArray[np.float64],
    episodes: int, seed: int, epsilon: float, max_steps: int, progress: Progress = None,
) -> AgentEvaluation:  # fmt: skip
    """Plays whole episodes in any environments on the host, one price after the other.

    Args:
        env: The environments of training.
        choose: `choose_in_group` of the algorithm, jitted.
        parameters: Parameters of the network.
        etas: `[E]` prices.
        episodes: Number of episodes per price.
        seed: Random seed.
        epsilon: Probability of a random choice.
        max_steps: Time limit of an episode in steps.
        progress: Called with the number of prices done and the total number.
    """
    host, parts = env.like(episodes), []
    try:
        for place, eta in enumerate(etas):
            parts.append(_evaluate_price(host, choose, parameters, eta, episodes, seed, epsilon, max_steps))
            if progress is not None:
                progress(place + 1, etas.size)
    finally:
        host.close()
    return joined(parts)


def _evaluate_price(
    env: HostEnv, choose: Callable[..., tuple[Any, Choice]], parameters: Parameters, eta: float, episodes: int,
    seed: int, epsilon: float, max_steps: int,
) -> AgentEvaluation:  # fmt: skip
    """Plays one episode in each of the environments at one price."""
    totals, alive, lazy = np.zeros((episodes, 3)), np.ones(episodes, dtype=bool), np.zeros(episodes, dtype=bool)
    sizes = [part.stop - part.start for part in env.groups]
    stacks = [empty_stack(size, env.shape, env.dtype, env.n_frames) for size in sizes]
    actions = [jnp.full(size, env.noop) for size in sizes]
    key = jax.random.key(seed)
    env.start(EVALUATION * 2**32 + seed)
    for step in range(max_steps + 1):
        for group, part in enumerate(env.groups):
            outcome = env.receive(group)
            if step > 0:
                made = np.stack([outcome.reward, np.ones_like(outcome.reward), ~lazy[part]], axis=-1)
                totals[part] += alive[part, None] * made
                totals[part] *= ~(alive[part] & outcome.lost)[:, None]  # an emulator was replaced
                alive[part] &= ~(outcome.terminated | outcome.truncated)
            choice_key = jax.random.fold_in(key, step * len(env.groups) + group)
            prices = jnp.full(sizes[group], eta, dtype=jnp.float32)
            stacks[group], choice = choose(
                parameters, stacks[group], actions[group], outcome, prices, choice_key, epsilon
            )
            actions[group], lazy[part] = choice.executed, np.asarray(choice.lazy)
            env.send(group, np.asarray(choice.executed, dtype=np.int64))
        if not alive.any():
            break
    returns, steps, controls = totals.T[:, None]
    return AgentEvaluation(np.array([eta]), returns, steps, controls, alive[None])
