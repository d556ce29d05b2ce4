"""Playing a trained network: its frontier of return and control, the price that meets a budget, what matters where."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.learn.dial import Dial

CHUNK = 100
"""Steps between two looks at whether all episodes are over."""


@dataclass(frozen=True)
class Played:
    """Episodes of evaluation: one row per price, one column per episode, `[E, N]`.

    Attributes:
        etas: `[E]`.
        score: Return, price excluded.
        steps: Length.
        controls: Steps in which the agent took control.
    """

    etas: NDArray[np.float64]
    score: NDArray[np.float64]
    steps: NDArray[np.float64]
    controls: NDArray[np.float64]

    @property
    def control_frequency(self) -> NDArray[np.float64]:
        """`[E]` share of all steps in which the agent took control."""
        return self.controls.sum(axis=1) / self.steps.sum(axis=1)


@dataclass(frozen=True)
class Budget:
    """The price that meets a budget of control, as far as the episodes tell.

    Attributes:
        eta: The price.
        eta_low: Lower and ...
        eta_high: ... upper end of its 95 % bootstrap interval over episodes, within the prices looked at.
        control_frequency: Share of steps in control at this price, read off the same episodes.
        score: Mean return there, price excluded.
    """

    eta: float
    eta_low: float
    eta_high: float
    control_frequency: float
    score: float


class DialAgent:
    """A trained network, and what can be asked of it.

    Args:
        dial: The learner it was trained by.
        parameters: Of its network.
    """

    def __init__(self, dial: Dial, parameters: Any) -> None:
        self.dial, self.parameters = dial, parameters
        self._values = jax.jit(dial.network.apply)
        self._start = jax.jit(jax.vmap(dial.game.init))
        self._play = jax.jit(functools.partial(play, dial))

    def q(self, observations: ArrayLike, eta: ArrayLike) -> NDArray[np.float32]:
        """`[N, A]` values of taking control in `[N, ...]` observations at price `eta` (a number or `[N]`)."""
        seen = jnp.asarray(observations)
        prices = jnp.broadcast_to(jnp.asarray(eta, dtype=jnp.float32), seen.shape[:1])
        return np.asarray(self._values(self.parameters, seen, prices))[:, : self.dial.game.n_actions]

    def lazy_gap(self, observations: ArrayLike, eta: ArrayLike) -> NDArray[np.float32]:
        """`[N]` best value minus the default's mean value."""
        values = self.q(observations, eta)
        return values.max(-1) - (values * np.asarray(self.dial.default(jnp.asarray(observations)))).sum(-1)

    def critical_eta(self, observations: ArrayLike, *, points: int = 129) -> NDArray[np.float64]:
        """`[N]` the largest price at which the agent takes control; 0 where it never does.

        Read off `points` prices over the range trained on, with a straight line between the last two.
        """
        prices = self._prices(points)
        excess = np.array([self.lazy_gap(observations, price) - price for price in prices])  # [P, N]
        critical = np.zeros(excess.shape[1])
        for place, column in enumerate(excess.T):
            above = np.flatnonzero(column > 0.0)
            if above.size:
                last = above[-1]
                critical[place] = prices[last]
                if last + 1 < points:
                    rise = column[last] / (column[last] - column[last + 1])
                    critical[place] += rise * (prices[last + 1] - prices[last])
        return critical

    def frontier(
        self,
        etas: Sequence[float] | NDArray[np.float64],
        *,
        episodes: int = 100,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int = 10_000,
        progress: Callable[[int, int], None] | None = None,
    ) -> Played:
        """Plays `episodes` whole episodes at each price.

        Args:
            etas: Prices.
            episodes: Per price.
            seed: Of the evaluation; the same episodes' worth of chance at every price.
            epsilon: Share of random choices.
            max_steps: Steps after which an episode counts as it is.
            progress: Called with steps made and `max_steps`.
        """
        prices = np.asarray(etas, dtype=float)
        if prices.ndim != 1 or not prices.size or not (prices >= 0.0).all():
            raise ValueError(f"etas are {etas}, expected a list of prices of at least 0.")
        if episodes < 1 or max_steps < 1:
            raise ValueError(f"episodes is {episodes} and max_steps {max_steps}, expected at least 1.")
        eta = jnp.repeat(jnp.asarray(prices, dtype=jnp.float32), episodes)
        key = jax.random.key(seed)
        starts = jax.random.split(key, episodes)
        states = self._start(jnp.tile(starts, prices.size))
        totals, alive = jnp.zeros((eta.size, 3)), jnp.ones(eta.size, dtype=bool)
        for done in range(0, max_steps, CHUNK):
            key, chunk_key = jax.random.split(key)
            states, totals, alive = self._play(self.parameters, states, totals, alive, eta, chunk_key, epsilon)
            if progress is not None:
                progress(min(done + CHUNK, max_steps), max_steps)
            if not bool(alive.any()):
                break
        score, steps, controls = np.asarray(totals, dtype=float).T.reshape(3, prices.size, episodes)
        return Played(prices, score, steps, controls)

    def for_budget(self, control_frequency: float, *, points: int = 17, episodes: int = 100, seed: int = 0) -> Budget:
        """The smallest price at which the agent takes control in at most that share of steps.

        Found on evaluation episodes at `points` prices over the range trained on, then at as many between the two that
        enclose it. Where the frequency jumps from one price to the next, what is met lies below what was asked.
        """
        if not 0.0 <= control_frequency <= 1.0:
            raise ValueError(f"control_frequency is {control_frequency}, expected a share of steps between 0 and 1.")
        coarse = self.frontier(self._prices(points), episodes=episodes, seed=seed)
        first = _first_within(coarse.control_frequency, control_frequency)
        between = np.linspace(coarse.etas[max(0, first - 1)], coarse.etas[first], points)
        fine = self.frontier(between, episodes=episodes, seed=seed)
        place = _first_within(fine.control_frequency, control_frequency)
        generator = np.random.default_rng(seed)
        found = []
        for _ in range(500):
            rows = generator.integers(episodes, size=episodes)
            share = fine.controls[:, rows].sum(axis=1) / fine.steps[:, rows].sum(axis=1)
            found.append(fine.etas[_first_within(share, control_frequency)])
        low, high = np.quantile(found, [0.025, 0.975])
        met, score = float(fine.control_frequency[place]), float(fine.score[place].mean())
        return Budget(float(fine.etas[place]), float(low), float(high), met, score)

    def _prices(self, points: int) -> NDArray[np.float64]:
        """0, then prices over the range trained on, even in their logarithm."""
        config = self.dial.config
        return np.append(0.0, np.geomspace(config.eta_low, config.eta_high, points - 1))


def play(
    dial: Dial, parameters: Any, states: Any, totals: Any, alive: Any, eta: Any, key: Any, epsilon: Any
) -> tuple[Any, Any, Any]:
    """Some steps of evaluation.

    Args:
        dial: The learner.
        parameters: Of its network.
        states: `[N]` of the games.
        totals: `[N, 3]` return, steps and controls of each first episode so far.
        alive: `[N]` bool, whether it still goes on.
        eta: `[N]` prices.
        key: Random key.
        epsilon: Share of random choices.

    Returns:
        States, totals and alive afterwards.
    """

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        states, totals, alive = carry
        choice_key, step_key = jax.random.split(key)
        choice = dial.act(parameters, jax.vmap(dial.game.observe)(states), eta, choice_key, epsilon)
        keys = jax.random.split(step_key, eta.size)
        states, reward, ended, cut = jax.vmap(dial.game.step)(states, choice.executed, keys)
        made = jnp.stack([reward, jnp.ones(eta.size), 1.0 - choice.lazy], -1)
        return (states, totals + alive[:, None] * made, alive & ~(ended | cut)), None

    return jax.lax.scan(step, (states, totals, alive), jax.random.split(key, CHUNK))[0]


def _first_within(frequency: NDArray[np.float64], wanted: float) -> int:
    """The first of increasing prices whose frequency is at most what is wanted; the last if none is."""
    within = frequency <= wanted
    return int(np.argmax(within)) if within.any() else len(frequency) - 1
