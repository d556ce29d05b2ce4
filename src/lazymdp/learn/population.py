"""Many runs of the dial as one program: seeds times prices, vectorised over the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lazymdp.learn.dial import Dial, Learner


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
        self.advance = jax.jit(self._advance, donate_argnums=0)

    def start(self, seeds: Sequence[int], prices: Sequence[tuple[float, float, float]]) -> Learner:
        """Every seed with every range of prices: `len(prices) * len(seeds)` runs, seeds fastest."""
        keys = jnp.stack([jax.random.key(seed) for _ in prices for seed in seeds])
        return self.init(keys, jnp.array([price for price in prices for _ in seeds]))

    def _advance(self, learners: Learner) -> tuple[Learner, Summary]:
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
