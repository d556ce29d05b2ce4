"""Many runs as one program: every seed with every range of prices, vectorized on the device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from lazymdp.learn.deep import prices
from lazymdp.learn.deep.algorithm import Algorithm
from lazymdp.learn.deep.compiled_defaults import greedy
from lazymdp.learn.deep.evaluation_episodes import AgentEvaluation, Episode, evaluate_compiled, play_compiled
from lazymdp.learn.deep.loops import iterate, start_compiled
from lazymdp.learn.deep.networks import Network, Parameters
from lazymdp.learn.deep.turn import Run


class Summary(NamedTuple):
    """Statistics of the episodes that ended in each of R runs; fields are `[R]`."""

    episodes: Array  # number of episodes
    returns: Array  # sum of their returns, price excluded
    steps: Array  # sum of their lengths in steps
    controls: Array  # sum of their controls


class Population:
    """Runs that differ in their seed and in the range from which prices are drawn.

    Args:
        algorithm: The algorithm of all runs. If it is configured for a range of prices, the price is an input of its
            network. Otherwise, every run has a single price.
        chunk: Number of iterations per call of `advance`.
        defaults: `[R, ...]` parameters of a network for each run, whose greedy choice is the default policy of that
            run. By default, all runs have the default policy of the algorithm.
        default_network: The network of these default policies, which is asked for its values at price 0.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        chunk: int = 10,
        defaults: Parameters | None = None,
        default_network: Network | None = None,
    ) -> None:
        self.algorithm, self.chunk, self.defaults, self.default_network = algorithm, chunk, defaults, default_network
        self._start = jax.jit(jax.vmap(self._start_one))
        self._advance = jax.jit(self._iterate, donate_argnums=0)
        self._play = jax.jit(jax.vmap(self._play_one, in_axes=(0, 0, 0, 0, None, None, None)))

    def start(self, seeds: Sequence[int], ranges: Sequence[tuple[float, float, float]]) -> Run:
        """Starts every seed with every range of prices: `len(ranges) * len(seeds)` runs, seeds fastest.

        Args:
            seeds: Random seeds.
            ranges: For each range, the lowest positive price, the highest price, and the share of episodes at price 0.
                If the two prices are equal, the run is a specialist.
        """
        members = [(seed, given) for given in ranges for seed in seeds]
        return self.start_members([seed for seed, _ in members], [given for _, given in members])

    def start_members(
        self,
        seeds: Sequence[int],
        ranges: Sequence[tuple[float, float, float]],
        parameters: Parameters | None = None,
    ) -> Run:
        """Starts R runs, the first seed with the first range of prices and so on.

        Args:
            seeds: `[R]` random seeds.
            ranges: `[R]` ranges of prices, as in `start`.
            parameters: `[R, ...]` initial parameters of the networks; random by default.
        """
        keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        low, high, zero = np.array(ranges, dtype=np.float32).T
        if not self.algorithm.config.is_range and (low != high).any():
            raise ValueError(
                f"ranges has {ranges[int((low != high).argmax())]}, but eta is {self.algorithm.config.eta}: for runs "
                "with several prices, the algorithm needs a range, so that its network sees the price."
            )
        price = prices.Price(jnp.asarray(low), jnp.asarray(high), jnp.asarray(zero))
        return self._start(keys, price, parameters, self.defaults)

    def advance(self, runs: Run) -> tuple[Run, Summary]:
        """Makes `chunk` iterations of all runs; returns the runs and a summary. The runs passed in are donated."""
        return self._advance(runs, self.defaults)  # type: ignore[no-any-return, unused-ignore]

    def evaluate(
        self,
        runs: Run,
        etas: ArrayLike,
        *,
        episodes: int = 100,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int = 5_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> AgentEvaluation:
        """Plays whole episodes with every run, all with the same random numbers.

        Args:
            runs: R runs.
            etas: `[R, E]` prices for each run.
            episodes: Number of episodes per run and price.
            seed: Random seed.
            epsilon: Probability of a random choice.
            max_steps: Time limit of an episode in steps.
            progress: Called with the number of steps done per episode and the time limit.
        """
        given = np.asarray(etas, dtype=float)
        play = functools.partial(self._play, self.defaults)
        parameters = runs.learner.agent
        return evaluate_compiled(self.algorithm, play, parameters, given, episodes, seed, epsilon, max_steps, progress)

    def _with_default(self, default: Parameters | None) -> Algorithm:
        """Returns the algorithm of one run, given the network of its default policy."""
        algorithm, network = self.algorithm, self.default_network
        if default is None or network is None:
            return algorithm
        policy = greedy(lambda seen: network.apply(default, seen, jnp.zeros(len(seen)))[:, : algorithm.env.n_actions])
        made: Any = type(algorithm)
        return made(algorithm.env, algorithm.config, policy)  # type: ignore[no-any-return, unused-ignore]

    def _start_one(
        self, key: Array, price: prices.Price, parameters: Parameters | None, default: Parameters | None
    ) -> Run:
        return start_compiled(self._with_default(default), key, price, parameters)

    def _play_one(self, default: Parameters | None, *given: Any) -> Episode:
        return play_compiled(self._with_default(default), *given)

    def _iterate(self, runs: Run, defaults: Parameters | None) -> tuple[Run, Summary]:
        def once(run: Run, default: Parameters | None) -> tuple[Run, Summary]:
            run, episodes = iterate(self._with_default(default), run)
            ended = episodes.ended
            sums = ((ended * column).sum() for column in (episodes.returns, episodes.steps, episodes.controls))
            return run, Summary(ended.sum(), *sums)

        runs, summaries = jax.lax.scan(lambda runs, _: jax.vmap(once)(runs, defaults), runs, None, self.chunk)
        return runs, jax.tree.map(lambda x: x.sum(0), summaries)
