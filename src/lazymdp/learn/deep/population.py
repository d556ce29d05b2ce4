"""Many runs of the dial as one program: seeds times prices, vectorised over the device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from lazymdp.learn.deep.evaluation_episodes import Played, play, played_compiled
from lazymdp.learn.deep.pqn import Dial, Learner


class Summary(NamedTuple):
    """Episodes that ended, `[R]` each for R runs: their number, and sums of score, steps and controls."""

    episodes: Any
    score: Any
    steps: Any
    controls: Any


class Population:
    """Runs that differ in their seed and in the prices they draw.

    Args:
        dial: The learner they share.
        chunk: Iterations per call of `advance`.
    """

    def __init__(self, dial: Dial, chunk: int = 10) -> None:
        self.dial, self.chunk = dial, chunk
        self.init = jax.jit(jax.vmap(dial.init))
        self._advance = jax.jit(self._iterate, donate_argnums=0)
        self._play = jax.jit(jax.vmap(functools.partial(play, dial), in_axes=(0, 0, 0, None, None, None)))

    def start(self, seeds: Sequence[int], prices: Sequence[tuple[float, float, float]]) -> Learner:
        """Every seed with every range of prices: `len(prices) * len(seeds)` runs, seeds fastest."""
        keys = jnp.stack([jax.random.key(seed) for _ in prices for seed in seeds])
        return self.init(keys, jnp.array([price for price in prices for _ in seeds]))

    def advance(self, learners: Learner) -> tuple[Learner, Summary]:
        """`chunk` iterations of all runs, and what ended in them; the runs given are used up."""
        return self._advance(learners)  # type: ignore[no-any-return, unused-ignore]

    def evaluate(
        self,
        learners: Learner,
        etas: ArrayLike,
        *,
        episodes: int = 100,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int = 5_000,
    ) -> Played:
        """Plays whole episodes with every run, all with the same chance.

        Args:
            learners: R runs.
            etas: `[R, E]` prices at which to play each.
            episodes: Per run and price.
            seed: Of the evaluation.
            epsilon: Share of random choices.
            max_steps: Steps after which an episode counts as it is.
        """
        prices = np.asarray(etas, dtype=float)
        return played_compiled(self.dial, self._play, learners.parameters, prices, episodes, seed, epsilon, max_steps)

    def _iterate(self, learners: Learner) -> tuple[Learner, Summary]:
        def once(learner: Learner, _: Any) -> tuple[Learner, Summary]:
            learner, episodes = self.dial.iterate(learner)
            ended = episodes.ended
            return learner, Summary(
                ended.sum(),
                (ended * episodes.score).sum(),
                (ended * episodes.steps).sum(),
                (ended * episodes.controls).sum(),
            )

        learners, summaries = jax.lax.scan(jax.vmap(once, in_axes=(0, None)), learners, None, self.chunk)
        return learners, jax.tree.map(lambda x: x.sum(0), summaries)
