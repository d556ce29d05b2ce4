"""Many runs of the dial as one program: seeds times prices, vectorised over the device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.learn.dial import Dial, Learner
from lazymdp.learn.games import compiled
from lazymdp.learn.playing import CHUNK, Playing, play


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
        self._play = jax.jit(jax.vmap(functools.partial(play, dial), in_axes=(0, 0, 0, 0, None, None)))

    def start(self, seeds: Sequence[int], prices: Sequence[tuple[float, float, float]]) -> Learner:
        """Every seed with every range of prices: `len(prices) * len(seeds)` runs, seeds fastest."""
        keys = jnp.stack([jax.random.key(seed) for _ in prices for seed in seeds])
        return self.init(keys, jnp.array([price for price in prices for _ in seeds]))

    def evaluate(
        self, learners: Learner, etas: ArrayLike, *, episodes: int = 100, seed: int = 0, max_steps: int = 5_000
    ) -> NDArray[np.float64]:
        """Plays whole episodes with the greedy policy of every run.

        Args:
            learners: R runs.
            etas: `[R, E]` prices at which to play each.
            episodes: Per run and price.
            seed: Of the evaluation.
            max_steps: Steps after which an episode counts as it is.

        Returns:
            `[R, E, 3]` mean return (price excluded), mean length, and share of steps in control.
        """
        prices = np.asarray(etas, dtype=np.float32)
        n_runs, n_etas = prices.shape
        eta = jnp.asarray(np.repeat(prices, episodes, axis=1))
        key, start_key = jax.random.split(jax.random.key(seed))
        keys = jax.random.split(start_key, eta.shape)
        game = compiled(self.dial.game)
        states = jax.jit(jax.vmap(jax.vmap(game.init)))(keys)
        playing = Playing(states, jnp.full(eta.shape, game.noop, jnp.int32), jnp.zeros((*eta.shape, 3)), eta >= 0.0)
        for _ in range(0, max_steps, CHUNK):
            key, chunk_key = jax.random.split(key)
            chunk_keys = jax.random.split(chunk_key, n_runs)
            playing = self._play(learners.parameters, playing, eta, chunk_keys, 0.0, max_steps)
            if not bool(playing.alive.any()):
                break
        score, steps, controls = np.moveaxis(
            np.asarray(playing.totals, dtype=float).reshape(n_runs, n_etas, episodes, 3), -1, 0
        )
        return np.stack([score.mean(-1), steps.mean(-1), controls.sum(-1) / steps.sum(-1)], axis=-1)

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
