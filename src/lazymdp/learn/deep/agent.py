"""Trained agents: values, lazy-gaps, evaluation, and the price at which a dial meets a control rate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from lazymdp._arrays import sample_rows
from lazymdp.learn.deep.algorithm import Algorithm
from lazymdp.learn.deep.compiled_defaults import greedy, softmax
from lazymdp.learn.deep.evaluation_episodes import (
    MAX_STEPS,
    AgentEvaluation,
    choose_on_host,
    evaluate_compiled,
    evaluate_on_host,
    joined,
    play_compiled,
)
from lazymdp.learn.deep.jax_env import JaxEnv
from lazymdp.learn.deep.networks import Parameters
from lazymdp.measure.statistics import skewed_mean_interval


@dataclass(frozen=True)
class ControlRatePrice:
    """The price at which a dial meets a control rate, estimated from evaluation episodes.

    Attributes:
        eta: The price.
        eta_low: Lower end of its 95% confidence interval, within the range of prices trained for.
        eta_high: Upper end of the interval.
        control_rate: Share of steps in control at this price, in the same episodes.
        mean_return: Mean return at this price, price excluded.
    """

    eta: float
    eta_low: float
    eta_high: float
    control_rate: float
    mean_return: float


class Agent:
    """A trained agent.

    Observations are batches `[N, ...]` in the form in which the environment returns them. States may also be given as
    integers `[N]`, and images with channels first.

    Args:
        algorithm: The algorithm that trained the agent.
        parameters: Parameters of its network.
        eta: The single price that the agent was trained for, or None for a dial.
    """

    def __init__(self, algorithm: Algorithm, parameters: Parameters, eta: float | None) -> None:
        self.algorithm, self.parameters, self.eta = algorithm, parameters, eta
        self._apply = jax.jit(algorithm.network.apply)
        self._play = jax.jit(functools.partial(play_compiled, algorithm))
        self._choose = jax.jit(functools.partial(choose_on_host, algorithm))

    def __repr__(self) -> str:
        prices = "a dial for eta from {:g} to {:g}".format(*self.algorithm.config.eta_range)
        if self.eta is not None:
            prices = f"eta {self.eta:g}"
        env = self.algorithm.env
        return f"Agent({self.algorithm.config.name}, {prices}, observations {env.shape}, {env.n_actions} actions)"

    @property
    def is_dial(self) -> bool:
        """Whether the agent was trained for a range of prices."""
        return self.eta is None

    def q(self, observations: ArrayLike, eta: ArrayLike | None = None) -> NDArray[np.float32]:
        """Returns `[N, A]` values of taking control at price `eta` (a number or `[N]`; required for a dial)."""
        seen = self._observations(observations)
        prices = self._prices(eta, len(seen))
        outputs = self._apply(self.parameters, seen, prices)
        return np.asarray(outputs[:, : self.algorithm.env.n_actions])

    def lazy_gap(
        self, observations: ArrayLike, eta: ArrayLike | None = None, last_actions: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Returns `[N]` lazy-gaps: the value of the best action minus the mean value under the default policy.

        The agent takes control where the lazy-gap exceeds `eta`.

        Args:
            observations: `[N, ...]` observations.
            eta: Price, a number or `[N]`; required for a dial.
            last_actions: `[N]` last executed actions, for a default policy that depends on them; by default the no-op.
        """
        seen = self._observations(observations)
        prices = self._prices(eta, len(seen))
        env, form = self.algorithm.env, self.algorithm.form
        last = np.full(len(seen), env.noop) if last_actions is None else last_actions
        outputs = self._apply(self.parameters, seen, prices)
        control, lazy = form.values(outputs, self.algorithm.default_policy(seen, jnp.asarray(last)), prices)
        return np.asarray(control.max(-1) - (lazy - prices))

    def as_default(self, *, epsilon: float = 0.0, temperature: float | None = None) -> AgentDefault:
        """Returns the agent as a default policy, for example for `lz.LazyAction`.

        As a default policy the agent is never lazy. A dial uses its values at price 0.

        Args:
            epsilon: Probability of a random action.
            temperature: Temperature of a softmax over the values; by default the best action is taken.
        """
        _check_epsilon(epsilon)
        if temperature is not None and (not 0.0 < temperature < np.inf or epsilon != 0.0):
            raise ValueError(
                f"temperature is {temperature} and epsilon {epsilon}, expected a temperature above 0 and no epsilon."
            )
        return AgentDefault(self, epsilon, temperature)

    def evaluate(
        self,
        etas: Sequence[float] | NDArray[np.float64] | None = None,
        *,
        episodes: int = 100,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> AgentEvaluation:
        """Plays whole episodes at each price.

        Args:
            etas: `[E]` prices; by default those that training reported on.
            episodes: Number of episodes per price.
            seed: Random seed. Every price uses the same random numbers.
            epsilon: Probability of a random choice.
            max_steps: Time limit of an episode in steps; by default the environment's own, or 10,000 if it has none.
            progress: Called with the amount of work done and the total amount.
        """
        if etas is None:
            etas = self.algorithm.config.reported_etas if self.eta is None else (self.eta,)
        prices = np.asarray(etas, dtype=float)
        if prices.ndim != 1 or not prices.size:
            raise ValueError(f"etas is {etas!r}, expected a list of prices.")
        self._prices(prices, prices.size)
        if episodes < 1 or (max_steps is not None and max_steps < 1):
            raise ValueError(f"episodes is {episodes} and max_steps {max_steps}, expected at least 1.")
        _check_epsilon(epsilon)
        env = self.algorithm.env
        limit = max_steps or env.max_steps or MAX_STEPS
        if isinstance(env, JaxEnv):
            return evaluate_compiled(
                self.algorithm, self._play, self.parameters, prices, episodes, seed, epsilon, limit, progress
            )
        host, parts = env.like(episodes), []
        try:
            for place, price in enumerate(prices):
                parts.append(
                    evaluate_on_host(host, self._choose, self.parameters, price, episodes, seed, epsilon, limit)
                )
                if progress is not None:
                    progress(place + 1, prices.size)
        finally:
            host.close()
        return joined(parts)

    def critical_eta(self, observations: ArrayLike, *, points: int = 129) -> NDArray[np.float64]:
        """Returns `[N]`, the largest price at which a dial takes control for each observation; 0 if it never does.

        The lazy-gap is computed at `points` prices over the range trained for. The result is interpolated linearly
        between the last price at which the agent takes control and the next one.
        """
        prices = self._price_grid(points)
        excess = np.array([self.lazy_gap(observations, price) - price for price in prices])  # [P, N]
        critical = np.zeros(excess.shape[1])
        for place, column in enumerate(excess.T):
            above = np.flatnonzero(column > 0.0)
            if above.size:
                last = above[-1]
                critical[place] = prices[last]
                if last + 1 < prices.size:
                    share = column[last] / (column[last] - column[last + 1])
                    critical[place] += share * (prices[last + 1] - prices[last])
        return critical

    def for_control_rate(
        self, share: float, *, points: int = 17, episodes: int = 100, seed: int = 0, epsilon: float = 0.0
    ) -> ControlRatePrice:
        """Finds the smallest price at and above which a dial takes control in at most `share` of the steps.

        The agent is evaluated on whole episodes, first at `points` prices over the range trained for, then at prices
        between the two that enclose the answer. If the control rate jumps at a price, the rate found may lie below
        `share`. If even the largest price leads to more control than `share`, that price is returned. (Unlike
        `EtaPath.for_control_rate`, this counts steps without discounting.)
        """
        if not 0.0 <= share <= 1.0:
            raise ValueError(f"share is {share}, expected a share of steps between 0 and 1.")
        played = self.evaluate(self._price_grid(points), episodes=episodes, seed=seed, epsilon=epsilon)
        first = _first_within(played.control_rate, share)
        if first > 0:
            between = np.linspace(played.etas[first - 1], played.etas[first], points)[1:-1]
            played = joined([played, self.evaluate(between, episodes=episodes, seed=seed, epsilon=epsilon)])
        order = np.argsort(played.etas)
        etas, controls, steps = played.etas[order], played.controls[order], played.steps[order]
        rate = controls.sum(axis=1) / steps.sum(axis=1)
        place = _first_within(rate, share)
        excess = skewed_mean_interval((controls - share * steps).T)  # 0 where the rate equals `share`
        low, high = _crossing(etas, excess.low), _crossing(etas, excess.high)
        eta, mean = float(etas[place]), float(played.returns[order][place].mean())
        return ControlRatePrice(eta, min(eta, low), max(eta, high), float(rate[place]), mean)

    def _observations(self, observations: ArrayLike) -> Array:
        """Returns observations `[N, ...]` in the shape that the network expects."""
        seen, shape = np.asarray(observations), self.algorithm.env.shape
        if seen.ndim == 1 and len(shape) == 1 and np.issubdtype(seen.dtype, np.integer):
            if seen.size and not 0 <= seen.min() <= seen.max() < shape[0]:
                raise ValueError(f"states are {seen.min()} to {seen.max()}, expected 0 to {shape[0] - 1}.")
            seen = np.eye(shape[0], dtype=np.float32)[seen]
        if seen.shape[1:] == (shape[-1], *shape[:-1]) and len(shape) == 3:
            seen = np.moveaxis(seen, 1, -1)
        if seen.shape[1:] != shape:
            remedy = ": give [observation] for a single one." if seen.shape == shape else "."
            raise ValueError(
                f"observations have shape {seen.shape}, expected [N, {', '.join(map(str, shape))}], as in training"
                + remedy
            )
        return jnp.asarray(seen)

    def _prices(self, eta: ArrayLike | None, count: int) -> Array:
        """Returns prices as `[N]`; raises an error for prices that the agent was not trained for."""
        if eta is None and self.eta is None:
            raise ValueError("the agent is a dial, trained for a range of prices: give eta.")
        prices = np.broadcast_to(np.asarray(self.eta if eta is None else eta, dtype=float), (count,))
        if self.eta is None and not ((prices >= 0.0) & np.isfinite(prices)).all():
            raise ValueError(f"eta is {eta!r}, expected prices of at least 0.")
        if self.eta is not None:
            odd = prices[~np.isclose(prices, self.eta, rtol=1e-4, atol=1e-7)]
            if odd.size:
                raise ValueError(f"eta is {odd[0]:g}, but the agent was trained for the single price {self.eta:g}.")
        return jnp.asarray(prices, dtype=jnp.float32)

    def _price_grid(self, points: int) -> NDArray[np.float64]:
        """Returns `[points]` prices: 0, then log-spaced prices over the range trained for."""
        if self.eta is not None:
            raise ValueError(
                f"the agent was trained for the single price {self.eta:g}: train one for a range, eta=(low, high)."
            )
        if points < 3:
            raise ValueError(f"points is {points}, expected at least 3.")
        return np.append(0.0, np.geomspace(*self.algorithm.config.eta_range, points - 1))


class AgentDefault:
    """A trained agent as a `DefaultPolicy`."""

    def __init__(self, agent: Agent, epsilon: float, temperature: float | None) -> None:
        self._first = agent.algorithm.env.first_action
        price = 0.0 if agent.eta is None else agent.eta

        def values(observations: Any) -> Any:
            return agent.q(observations, price)

        self._policy = greedy(values, epsilon) if temperature is None else softmax(values, temperature)

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns `[B]` actions."""
        rows = self.probabilities(observations, last_actions)
        return sample_rows(rows, rng.random(len(rows))) + self._first

    def probabilities(self, observations: Any, last_actions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns `[B, A]` probabilities."""
        return np.asarray(self._policy(observations, last_actions), dtype=np.float64)


def _first_within(rate: NDArray[np.float64], share: float) -> int:
    """Returns the first index from which all rates are at most `share`, or the last index if there is none.

    Args:
        rate: `[E]` control rates at increasing prices.
        share: Largest rate allowed.
    """
    above = np.flatnonzero(rate > share)
    return min(int(above[-1]) + 1, len(rate) - 1) if above.size else 0


def _crossing(etas: NDArray[np.float64], excess: NDArray[np.float64]) -> float:
    """Returns the price at which the excess `[E]` falls to 0, by linear interpolation between two prices."""
    place = _first_within(excess, 0.0)
    if place == 0 or excess[place] > 0.0:
        return float(etas[place])
    before, after = excess[place - 1 : place + 1]
    return float(etas[place] + after / (before - after) * (etas[place] - etas[place - 1]))


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon <= 1.0:
        raise ValueError(f"epsilon is {epsilon}, expected a probability between 0 and 1.")
