"""Trained networks, and what can be asked of them: values, the frontier of return and control, a budget's price."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lazymdp.learn.deep.compiled_defaults import greedy, softmax
from lazymdp.learn.deep.dqn import DQN
from lazymdp.learn.deep.evaluation_episodes import MAX_STEPS, Played, joined, look, play, played_compiled, played_hosted
from lazymdp.learn.deep.jax_env import Game
from lazymdp.learn.deep.pqn import Dial
from lazymdp.measure.statistics import skewed_mean_interval


@dataclass(frozen=True)
class Budget:
    """The price that meets a budget of control, as far as the episodes tell.

    Attributes:
        eta: The price.
        eta_low: Lower and ...
        eta_high: ... upper end of its 95 % interval over episodes, within the prices looked at.
        control_frequency: Share of steps in control at this price, read off the same episodes.
        score: Mean return there, price excluded.
    """

    eta: float
    eta_low: float
    eta_high: float
    control_frequency: float
    score: float


class Agent:
    """A trained network, and what can be asked of it.

    Observations are `[N, ...]` as the environment shows them; states by their number, and images with the channels
    first, are understood, too.

    Args:
        learner: What it was trained by.
        parameters: Of its network.
    """

    def __init__(self, learner: Dial | DQN, parameters: Any) -> None:
        self.learner, self.parameters = learner, parameters
        self.eta = 0.0  # the price where none is given
        self._values = jax.jit(learner.network.apply)
        self._play, self._look = (jax.jit(functools.partial(one, learner)) for one in (play, look))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(observations {self.learner.game.shape}, {self.learner.game.n_actions} actions)"

    def q(self, observations: ArrayLike, eta: ArrayLike | None = None) -> NDArray[np.float32]:
        """`[N, A]` values of taking control in `[N, ...]` observations at price `eta` (a number or `[N]`).

        If not given, 0 for the dial, and for DQN the one price it knows.
        """
        return self._outputs(self._seen(observations), eta)[:, : self.learner.game.n_actions]

    def lazy_gap(
        self, observations: ArrayLike, eta: ArrayLike | None = None, last_actions: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """`[N]` best value minus the default's mean value; `last_actions` for a default that looks at them."""
        eta, seen = self.eta if eta is None else eta, self._seen(observations)
        values, n_actions = self._outputs(seen, eta), self.learner.game.n_actions
        best = values[:, :n_actions].max(-1)
        if not self.learner.config.structured:
            return best - (values[:, n_actions] - np.asarray(eta, dtype=np.float32))
        last = np.full(len(best), self.learner.game.noop) if last_actions is None else last_actions
        return best - (values * np.asarray(self.learner.default(seen, jnp.asarray(last)))).sum(-1)

    def as_default(self, *, epsilon: float = 0.0, temperature: float | None = None) -> AgentDefault:
        """Its actions as a default policy of others, for `lz.LazyAction`: at price 0, always in control.

        Args:
            epsilon: Share of random actions.
            temperature: Of a softmax over the values in place of the best action.
        """
        _check_epsilon(epsilon)
        if temperature is not None and (not 0.0 < temperature < np.inf or epsilon != 0.0):
            raise ValueError(f"temperature is {temperature}, expected a number above 0, and no epsilon ({epsilon}).")
        return AgentDefault(self, epsilon, temperature)

    def frontier(
        self,
        etas: Sequence[float] | NDArray[np.float64],
        *,
        episodes: int = 100,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Played:
        """Plays `episodes` whole episodes at each price.

        Args:
            etas: Prices.
            episodes: Per price.
            seed: Of the evaluation; the same episodes' worth of chance at every price.
            epsilon: Share of random choices.
            max_steps: Steps after which an episode counts as it is; the environment's own limit if not given, or
                10,000 where it has none.
            progress: Called with what is done and how much there is.
        """
        prices = np.asarray(etas, dtype=float)
        if prices.ndim != 1 or not prices.size or not ((prices >= 0.0) & np.isfinite(prices)).all():
            raise ValueError(f"etas are {etas}, expected a list of prices of at least 0.")
        self._check_prices(prices)
        if episodes < 1 or (max_steps is not None and max_steps < 1):
            raise ValueError(f"episodes is {episodes} and max_steps {max_steps}, expected at least 1.")
        _check_epsilon(epsilon)
        game = self.learner.game
        limit = max_steps or getattr(game, "max_steps", None) or MAX_STEPS
        if isinstance(game, Game):
            return played_compiled(
                self.learner, self._play, self.parameters, prices, episodes, seed, epsilon, limit, progress
            )
        host, parts = game.like(episodes), []
        try:
            for place, price in enumerate(prices):
                parts.append(played_hosted(host, self._look, self.parameters, price, episodes, seed, epsilon, limit))
                if progress is not None:
                    progress(place + 1, prices.size)
        finally:
            host.close()
        return joined(parts)

    def _seen(self, observations: ArrayLike) -> Any:
        """`[N, ...]` as the network takes them."""
        seen, shape = np.asarray(observations), self.learner.game.shape
        if seen.ndim == 1 and len(shape) == 1 and np.issubdtype(seen.dtype, np.integer):
            if seen.size and not 0 <= seen.min() <= seen.max() < shape[0]:
                raise ValueError(f"states are {seen.min()} to {seen.max()}, expected 0 to {shape[0] - 1}.")
            seen = np.eye(shape[0], dtype=np.float32)[seen]
        if seen.shape[1:] == (shape[-1], *shape[:-1]) and len(shape) == 3:
            seen = np.moveaxis(seen, 1, -1)
        if seen.shape[1:] != shape:
            raise ValueError(
                f"observations are of shape {seen.shape}, expected [N, ...] of {shape}, what the agent was trained on"
                + (": give [observation] for one." if seen.shape == shape else ".")
            )
        return jnp.asarray(seen)

    def _outputs(self, seen: Any, eta: ArrayLike | None) -> NDArray[np.float32]:
        prices = np.broadcast_to(np.asarray(self.eta if eta is None else eta, dtype=float), seen.shape[:1])
        if not ((prices >= 0.0) & np.isfinite(prices)).all():
            raise ValueError(f"eta is {eta!r}, expected prices of at least 0.")
        self._check_prices(prices)
        return np.asarray(self._values(self.parameters, seen, jnp.asarray(prices, dtype=jnp.float32)))

    def _check_prices(self, prices: NDArray[np.float64]) -> None:
        """Refuses prices that the network cannot know."""


class DQNAgent(Agent):
    """A trained network of DQN, for one price.

    Args:
        learner: What it was trained by.
        parameters: Of its network.
        eta: The price, as it was in the end.
    """

    def __init__(self, learner: DQN, parameters: Any, eta: float) -> None:
        super().__init__(learner, parameters)
        self.eta = eta

    def _check_prices(self, prices: NDArray[np.float64]) -> None:
        odd = prices[~np.isclose(prices, self.eta, rtol=1e-4, atol=1e-7)]
        if odd.size:
            raise ValueError(f"eta is {odd[0]:g}, but the agent was trained for {self.eta:g} alone.")


class DialAgent(Agent):
    """A trained network that knows every price."""

    learner: Dial

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
                if last + 1 < prices.size:
                    rise = column[last] / (column[last] - column[last + 1])
                    critical[place] += rise * (prices[last + 1] - prices[last])
        return critical

    def for_budget(
        self, control_frequency: float, *, points: int = 17, episodes: int = 100, seed: int = 0, epsilon: float = 0.0
    ) -> Budget:
        """The smallest price from which on the agent takes control in at most that share of steps.

        Found on evaluation episodes at `points` prices over the range trained on, then at as many between the two that
        enclose it. Where the frequency jumps from one price to the next, what is met lies below what was asked; where
        even the largest price leaves more control, it is that price.
        """
        if not 0.0 <= control_frequency <= 1.0:
            raise ValueError(f"control_frequency is {control_frequency}, expected a share of steps between 0 and 1.")
        played = self.frontier(self._prices(points), episodes=episodes, seed=seed, epsilon=epsilon)
        first = _first_within(played.control_frequency, control_frequency)
        if first > 0:
            between = np.linspace(played.etas[first - 1], played.etas[first], points)[1:-1]
            played = joined([played, self.frontier(between, episodes=episodes, seed=seed, epsilon=epsilon)])
        order = np.argsort(played.etas)
        etas, controls, steps = played.etas[order], played.controls[order], played.steps[order]
        frequency = controls.sum(axis=1) / steps.sum(axis=1)
        place = _first_within(frequency, control_frequency)
        over = skewed_mean_interval((controls - control_frequency * steps).T)  # the budget is met where the mean is 0
        low, high = _crossing(etas, over.low), _crossing(etas, over.high)
        eta, score = float(etas[place]), float(played.score[order][place].mean())
        return Budget(eta, min(eta, low), max(eta, high), float(frequency[place]), score)

    def _prices(self, points: int) -> NDArray[np.float64]:
        """0 if it was trained for, then prices over the range trained on, even in their logarithm."""
        config = self.learner.config
        if config.free_share == 1.0 or (config.free_share == 0.0 and config.eta_low == config.eta_high):
            price = 0.0 if config.free_share == 1.0 else config.eta_low
            raise ValueError(f"the agent was trained for price {price:g} alone: ask one trained for a range of prices.")
        if points < 3:
            raise ValueError(f"points is {points}, expected at least 3.")
        free = [0.0] if config.free_share > 0.0 else []
        return np.append(free, np.geomspace(config.eta_low, config.eta_high, points - len(free)))


class AgentDefault:
    """A trained agent as a `DefaultPolicy`."""

    def __init__(self, agent: Agent, epsilon: float, temperature: float | None) -> None:
        self._first = getattr(agent.learner.game, "first_action", 0)
        self._default = greedy(agent.q, epsilon) if temperature is None else softmax(agent.q, temperature)

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """`[B]` actions."""
        below = self.probabilities(observations, last_actions).cumsum(axis=1)
        return (rng.random(len(below))[:, None] >= below[:, :-1]).sum(axis=1) + self._first

    def probabilities(self, observations: Any, last_actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """`[B, A]`."""
        return np.asarray(self._default(observations, last_actions), dtype=np.float64)


def _first_within(frequency: NDArray[np.float64], wanted: float) -> int:
    """The first of increasing prices from which on the frequency is at most what is wanted; the last if none is."""
    over = np.flatnonzero(frequency > wanted)
    return min(int(over[-1]) + 1, len(frequency) - 1) if over.size else 0


def _crossing(etas: NDArray[np.float64], excess: NDArray[np.float64]) -> float:
    """Where the excess falls to 0, on a straight line between two prices."""
    place = _first_within(excess, 0.0)
    if place == 0 or excess[place] > 0.0:
        return float(etas[place])
    before, after = excess[place - 1 : place + 1]
    return float(etas[place] + after / (before - after) * (etas[place] - etas[place - 1]))


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"epsilon is {epsilon}, expected a share between 0 and 1.")
