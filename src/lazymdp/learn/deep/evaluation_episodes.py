"""Evaluation: whole episodes with a fixed network, at several prices and with the default policy alone.

Every price uses the same random numbers: the same initial states, and the same random numbers at the same step of the
same episode. This makes the comparison between two prices less noisy. At an infinite price, the agent is always lazy:
this is how the functions here are told to let the default policy act alone.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lazymdp._files import replacing
from lazymdp.learn.deep.acting import Choice, Exploration, act
from lazymdp.learn.deep.algorithm import Algorithm
from lazymdp.learn.deep.jax_env import JaxEnv, State, restart_where
from lazymdp.learn.deep.networks import Parameters
from lazymdp.measure.statistics import Interval, mean_interval, skewed_mean_interval

CHUNK = 100
"""Steps between two checks of whether all episodes have ended."""
MAX_STEPS = 10_000
"""Time limit of an evaluation episode in steps, if the environment has no limit of its own."""
EVALUATION = 1
"""Mixed into the seed, so that evaluation episodes differ from training episodes."""
_ARRAYS = ("etas", "returns", "steps", "controls", "unfinished")
_ALWAYS, _LAST = 2.0, 0.999  # a probability above 1, and a random number that `choose` turns into the lazy action


class DoubtfulFrontier(UserWarning):
    """The frontier of an agent has a shape that the frontier of a well-trained agent cannot have."""


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
        default_alone: The same N episodes with the default policy alone, as an evaluation at the single price
            infinity; None if they were not played.
    """

    etas: NDArray[np.float64]
    returns: NDArray[np.float64]
    steps: NDArray[np.float64]
    controls: NDArray[np.float64]
    unfinished: NDArray[np.bool_]
    default_alone: AgentEvaluation | None = None

    @property
    def control_rate(self) -> NDArray[np.float64]:
        """`[E]` (or `[R, E]`) share of all steps in which the agent took control."""
        return self.controls.sum(axis=-1) / self.steps.sum(axis=-1)

    @property
    def mean_return(self) -> NDArray[np.float64]:
        """`[E]` (or `[R, E]`) mean return, price excluded."""
        return self.returns.mean(axis=-1)

    @property
    def return_interval(self) -> Interval:
        """Mean return and its 95% bootstrap interval over episodes, each `[E]` (or `[R, E]`)."""
        return mean_interval(np.moveaxis(self.returns, -1, 0))

    @property
    def net_returns(self) -> NDArray[np.float64]:
        """Return of each episode after the price: `returns - eta * controls`."""
        prices = np.where(np.isinf(self.etas), 0.0, self.etas)  # the default policy alone pays nothing
        return self.returns - prices[..., None] * self.controls

    def __repr__(self) -> str:
        rows = zip(self.etas.ravel(), self.mean_return.ravel(), self.control_rate.ravel(), strict=True)
        listed = [f"eta {eta:g}: return {mean:.3g} at {rate:.1%} control" for eta, mean, rate in rows]
        if self.default_alone is not None:
            listed.append(f"default policy alone: return {self.default_alone.mean_return[0]:.3g}")
        return f"AgentEvaluation({self.returns.shape[-1]} episodes each; {', '.join(listed)})"

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes one row per episode: eta, episode, return, steps, controls, unfinished.

        The episodes of the default policy alone come last; their `eta` is `inf`.
        """
        with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.write("eta,episode,return,steps,controls,unfinished\n")
            for part in (self, *([] if self.default_alone is None else [self.default_alone])):
                file.writelines(",".join(map(str, row)) + "\n" for row in part._rows())

    def doubts(self) -> list[str]:
        """Returns what contradicts that the agent is optimal at every price, beyond 95% intervals over episodes.

        An optimal agent's return does not rise with the price, and after the price it is at least that of the default
        policy alone. (This holds for discounted returns, and closely for these, which are not discounted.) The
        intervals allow for skewed returns, and for one episode they are infinite.
        """
        found: list[str] = []
        if self.etas.ndim != 1:
            return found
        stopped = float(self.unfinished.mean())
        first = f" But first raise max_steps: {stopped:.0%} of the episodes were stopped early." if stopped else ""
        order = np.argsort(self.etas, kind="stable")
        _, low, high = (part[order] for part in skewed_mean_interval(self.returns.T))
        higher = [place for place in range(1, order.size) if low[place] > high[:place].min()]
        if higher:
            lower = {int(high[:place].argmin()) for place in higher}
            above, below = (
                ", ".join(f"{self.etas[order[place]]:g}" for place in sorted(some)) for some in (higher, lower)
            )
            found.append(
                f"the return rises with the price: at eta = {above} it is higher than at eta = {below}. Train longer, "
                f"or for a narrower range of prices.{first}"
            )
        if self.default_alone is not None:
            net = skewed_mean_interval(self.net_returns.T)
            alone = skewed_mean_interval(self.default_alone.returns.T)
            worse = [f"{eta:g}" for eta in self.etas[net.high < alone.low]]
            if worse:
                found.append(
                    f"at eta = {', '.join(worse)}, the agent's return after the price is lower than that of the "
                    f"default policy alone: train longer.{first}"
                )
        return found

    def _rows(self) -> list[tuple[Any, ...]]:
        count = self.returns.shape[-1]
        columns = (
            np.repeat(self.etas.ravel(), count), np.tile(np.arange(count), self.etas.size), self.returns.ravel(),
            self.steps.ravel().astype(int), self.controls.ravel().astype(int), self.unfinished.ravel().astype(int),
        )  # fmt: skip
        return list(zip(*(column.tolist() for column in columns), strict=True))


def joined(parts: Sequence[AgentEvaluation]) -> AgentEvaluation:
    """Concatenates several evaluations along the prices; the default policy alone is that of the first part."""
    arrays: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _ARRAYS}
    return replace(parts[0], **arrays)


def selected(evaluation: AgentEvaluation, which: Any) -> AgentEvaluation:
    """Returns the evaluation at some of its `[E]` prices, given by a slice or by indices."""
    return replace(evaluation, **{name: getattr(evaluation, name)[which] for name in _ARRAYS})


def with_default_alone(evaluation: AgentEvaluation) -> AgentEvaluation:
    """Moves the last of `[E]` prices, which is infinite, to `default_alone`."""
    alone = selected(evaluation, slice(-1, None))
    return replace(selected(evaluation, slice(None, -1)), default_alone=alone)


def choose_at(
    algorithm: Algorithm, parameters: Parameters, observation: Array, eta: Array, last_action: Array, uniform: Array,
    epsilon: Array | float,
) -> Choice:  # fmt: skip
    """Makes epsilon-greedy choices as `act` does; where the price is infinite, the choice is lazy."""
    alone = jnp.isinf(eta)
    explore, random_choice, default_draw = uniform
    forced = jnp.stack([explore, jnp.where(alone, _LAST, random_choice), default_draw])
    price, chance = jnp.where(alone, 0.0, eta), jnp.where(alone, _ALWAYS, epsilon)
    return act(algorithm, parameters, observation, price, last_action, forced, Exploration(chance))


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
        choice = choose_at(algorithm, parameters, observation, eta, episode.action, uniform, epsilon)
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
    algorithm: Algorithm, play: Callable[..., Episode], parameters: Parameters, etas: NDArray[np.float64],
    episodes: int, seed: int, epsilon: float, max_steps: int, progress: Callable[[int, int], None] | None = None,
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
    key, start_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), EVALUATION))
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
