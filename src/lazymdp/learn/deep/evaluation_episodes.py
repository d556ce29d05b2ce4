"""Evaluation: whole episodes with a fixed network, at several prices in parallel.

Every price uses the same random numbers: the same initial states, and the same random numbers at the same step of the
same episode. This makes the comparison between two prices less noisy.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lazymdp._files import replacing
from lazymdp.learn.deep.acting import Choice, Exploration, empty_stack, push_frame
from lazymdp.learn.deep.algorithm import Algorithm, act
from lazymdp.learn.deep.host_env import HostEnv, Outcome
from lazymdp.learn.deep.jax_env import JaxEnv, State, restart_where
from lazymdp.learn.deep.networks import Parameters

CHUNK = 100
"""Steps between two checks of whether all episodes have ended."""
MAX_STEPS = 10_000
"""Time limit of an evaluation episode in steps, if the environment has no limit of its own."""
_EVALUATION = 1  # mixed into the seed, so that evaluation episodes differ from training episodes


@dataclass(frozen=True, repr=False)
class AgentEvaluation:
    """Evaluation episodes at E prices, N episodes each.

    Arrays are `[E, N]`, or `[R, E, N]` for R runs, unless noted.

    Attributes:
        etas: `[E]` (or `[R, E]`) prices.
        returns: Return of each episode, price excluded.
        steps: Length of each episode in steps.
        controls: Number of steps in which the agent took control.
        unfinished: Whether the episode was stopped at `max_steps`; it then counts up to that step.
    """

    etas: NDArray[np.float64]
    returns: NDArray[np.float64]
    steps: NDArray[np.float64]
    controls: NDArray[np.float64]
    unfinished: NDArray[np.bool_]

    @property
    def control_rate(self) -> NDArray[np.float64]:
        """`[E]` (or `[R, E]`) share of all steps in which the agent took control."""
        return self.controls.sum(axis=-1) / self.steps.sum(axis=-1)

    @property
    def mean_return(self) -> NDArray[np.float64]:
        """`[E]` (or `[R, E]`) mean return, price excluded."""
        return self.returns.mean(axis=-1)

    def __repr__(self) -> str:
        rows = zip(self.etas.ravel(), self.mean_return.ravel(), self.control_rate.ravel(), strict=True)
        listed = ", ".join(f"eta {eta:g}: return {mean:.3g} at {rate:.1%} control" for eta, mean, rate in rows)
        return f"AgentEvaluation({self.returns.shape[-1]} episodes each; {listed})"

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one row per episode: eta, episode, return, steps, controls, unfinished."""
        count = self.returns.shape[-1]
        columns = (
            np.repeat(self.etas.ravel(), count), np.tile(np.arange(count), self.etas.size), self.returns.ravel(),
            self.steps.ravel().astype(int), self.controls.ravel().astype(int), self.unfinished.ravel().astype(int),
        )  # fmt: skip
        with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write("eta,episode,return,steps,controls,unfinished\n")
            file.writelines(",".join(map(str, row)) + "\n" for row in zip(*(c.tolist() for c in columns), strict=True))


class Episode(NamedTuple):
    """Evaluation episodes in progress in a compiled environment; fields are `[E * N]`, ordered by price."""

    states: State
    action: Array  # last executed action
    totals: Array  # [E * N, 3] return, steps and controls so far
    alive: Array  # whether the episode is still in progress


def play_compiled(
    algorithm: Algorithm,
    parameters: Parameters,
    episode: Episode,
    etas: Array,
    key: Array,
    epsilon: Array,
    max_steps: Array,
) -> Episode:
    """Plays `CHUNK` steps of every evaluation episode in a compiled environment.

    Args:
        algorithm: The algorithm.
        parameters: Parameters of its network.
        episode: The episodes in progress.
        etas: `[E]` prices.
        key: Random key.
        epsilon: Probability of a random choice.
        max_steps: Time limit of an episode in steps.
    """
    env: JaxEnv = algorithm.env  # type: ignore[assignment, unused-ignore]
    n_prices, count = etas.size, episode.alive.size // etas.size
    eta = jnp.repeat(etas, count)

    def step(episode: Episode, key: Array) -> tuple[Episode, None]:
        choice_key, step_key, start_key = jax.random.split(key, 3)
        observation = jax.vmap(env.observe)(episode.states)
        uniform = jnp.tile(jax.random.uniform(choice_key, (3, count)), (1, n_prices))
        choice = act(algorithm, parameters, observation, eta, episode.action, uniform, Exploration(epsilon))
        keys, starts = (jnp.tile(jax.random.split(k, count), n_prices) for k in (step_key, start_key))
        states, reward, terminated, truncated = jax.vmap(env.step)(episode.states, choice.executed, keys)
        ended = terminated | truncated
        states = jax.vmap(restart_where)(ended, jax.vmap(env.reset)(starts), states)
        made = jnp.stack([reward, jnp.ones(eta.size), 1.0 - choice.lazy], -1)
        counts = episode.alive & (episode.totals[:, 1] < max_steps)
        totals = episode.totals + counts[:, None] * made
        return Episode(
            states, jnp.where(ended, env.noop, choice.executed), totals, episode.alive & ~(counts & ended)
        ), None

    return jax.lax.scan(step, episode, jax.random.split(key, CHUNK))[0]


def evaluate_compiled(
    algorithm: Algorithm, play: Callable[..., Episode], parameters: Parameters, etas: NDArray[np.float64], episodes:
        int,
    seed: int, epsilon: float, max_steps: int, progress: Callable[[int, int], None] | None = None,
) -> AgentEvaluation:  # fmt: skip
    """Plays whole episodes in a compiled environment, at all prices in parallel.

    Args:
        algorithm: The algorithm.
        play: `play_compiled` of this algorithm, jitted; for several runs, vectorized over parameters, episodes and
            prices.
        parameters: Parameters of the network, or of the networks of R runs.
        etas: `[E]` prices, or `[R, E]`.
        episodes: Number of episodes per price.
        seed: Random seed.
        epsilon: Probability of a random choice.
        max_steps: Time limit of an episode in steps.
        progress: Called with the number of steps done per episode and the time limit.
    """
    env: JaxEnv = algorithm.env  # type: ignore[assignment, unused-ignore]
    shape = etas.shape
    key, start_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), _EVALUATION))
    started = Episode(
        _vectorized(env.reset)(jax.random.split(start_key, episodes)),
        jnp.full(episodes, env.noop, jnp.int32),
        jnp.zeros((episodes, 3)),
        jnp.ones(episodes, bool),
    )

    def at_every_price(one: Array) -> Array:
        rows = jnp.broadcast_to(one, (*shape, *one.shape))
        return rows.reshape(*shape[:-1], shape[-1] * episodes, *one.shape[1:])

    episode, prices = jax.tree.map(at_every_price, started), jnp.asarray(etas, dtype=jnp.float32)
    for done in range(0, max_steps, CHUNK):
        key, chunk_key = jax.random.split(key)
        episode = play(parameters, episode, prices, chunk_key, epsilon, max_steps)
        if progress is not None:
            progress(min(done + CHUNK, max_steps), max_steps)
        if not bool(episode.alive.any()):
            break
    returns, steps, controls = np.moveaxis(np.asarray(episode.totals, dtype=float), -1, 0).reshape(3, *shape, episodes)
    return AgentEvaluation(etas, returns, steps, controls, np.asarray(episode.alive).reshape(*shape, episodes))


@functools.cache
def _vectorized(function: Any) -> Any:
    """Returns a function jitted and vectorized over its first argument; cached per function."""
    return jax.jit(jax.vmap(function))


def choose_on_host(
    algorithm: Algorithm, parameters: Parameters, stack: Any, action: Array, outcome: Outcome, eta: Array, key: Array,
    epsilon: Array,
) -> tuple[Any, Choice]:  # fmt: skip
    """Returns the updated frame stack of a group of environments on the host, and the choices for the group."""
    observation, stack = push_frame(stack, outcome.frame, outcome.restarted)  # type: ignore[arg-type, unused-ignore]
    action = jnp.where(outcome.restarted, algorithm.env.noop, action)
    uniform = jax.random.uniform(key, (3, eta.size))
    return stack, act(algorithm, parameters, observation, eta, action, uniform, Exploration(epsilon))


def evaluate_on_host(
    env: HostEnv, choose: Callable[..., tuple[Any, Choice]], parameters: Parameters, eta: float, episodes: int, seed:
        int,
    epsilon: float, max_steps: int,
) -> AgentEvaluation:  # fmt: skip
    """Plays whole episodes in environments on the host, at one price.

    Args:
        env: The environments, one per episode.
        choose: `choose_on_host` of the algorithm, jitted.
        parameters: Parameters of the network.
        eta: Price.
        episodes: Number of episodes.
        seed: Random seed.
        epsilon: Probability of a random choice.
        max_steps: Time limit of an episode in steps.
    """
    totals, alive, lazy = np.zeros((episodes, 3)), np.ones(episodes, dtype=bool), np.zeros(episodes, dtype=bool)
    sizes = [part.stop - part.start for part in env.groups]
    stacks = [empty_stack(size, env.shape, env.dtype, env.n_frames) for size in sizes]
    actions = [jnp.full(size, env.noop) for size in sizes]
    key = jax.random.key(seed)
    env.start(_EVALUATION * 2**32 + seed)
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


def joined(parts: list[AgentEvaluation]) -> AgentEvaluation:
    """Concatenates several evaluations along the prices."""
    names = ("etas", "returns", "steps", "controls", "unfinished")
    return AgentEvaluation(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
