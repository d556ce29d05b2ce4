"""The price of control: a single price, a range of prices, or a price steered toward a control budget.

In all three cases, the price of an episode is drawn from one distribution: 0 with probability `zero_share`, otherwise
log-uniform between `low` and `high`. A single price is a range whose ends coincide. A run may start at price 0,
because at a high price an agent that has learned nothing stays lazy: a single price then rises to its final value, and
in a range the share of price 0 falls. A budget moves both ends after each iteration:

`eta <- eta * exp( step * (control rate - budget) )`

The control rate is that of the greedy choices, because exploration should not move the price. This is dual ascent on
`log eta`, which does not depend on the scale of the rewards. If the control rate jumps at a price, as in any finite
model, the price oscillates around the jump, and the control rate meets the budget on average over time.

A transition does not depend on the price, so the network can learn from a replayed step at any price: see `relabel`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lazymdp.learn.deep.config import AlgorithmConfig, DQNConfig

SMALLEST_PRICE = 1e-4
"""A budget does not steer the price below this; otherwise it could take very long to rise again."""


class Price(NamedTuple):
    """Distribution of the price of an episode. Fields are scalars, or `[R]` in a population of R runs."""

    low: Array  # lowest positive price
    high: Array  # highest price
    zero_share: Array  # probability of price 0


def initial(config: AlgorithmConfig) -> Price:
    """Returns the distribution at the start of a run."""
    low, high = config.eta_range
    warm = config.control_budget is None and config.zero_fraction > 0.0
    if not config.is_range:
        return price(0.0, 0.0) if warm else price(low, high)
    return price(low, high, 1.0 if warm else config.zero_share)


def price(low: float, high: float, zero_share: float = 0.0) -> Price:
    """Returns the distribution as arrays."""
    return Price(*(jnp.asarray(number, dtype=jnp.float32) for number in (low, high, zero_share)))


def draw(prices: Price, key: Array, shape: tuple[int, ...]) -> Array:
    """Draws prices of the given shape."""
    zero, place = jax.random.uniform(key, (2, *shape))
    return jnp.where(zero < prices.zero_share, 0.0, _positive(prices, place))


def relabel(prices: Price, config: DQNConfig, key: Array) -> Array:
    """Returns prices for the replayed steps of a batch: `[B]` times the single price, or `[B, K]` prices of a range.

    The first of the K prices of a step is 0. The others are log-uniform, one in each of K - 1 equal parts of the range,
    so that every step is learned from over the whole range.
    """
    if not config.is_range:
        return jnp.broadcast_to(prices.low, (config.batch_size,))
    parts = config.prices_per_step - 1
    place = jax.random.uniform(key, (config.batch_size, parts))
    positive = _positive(prices, (jnp.arange(parts) + place) / parts)
    return jnp.concatenate([jnp.zeros_like(positive[:, :1]), positive], -1)


def learned_shares(prices: Price, config: DQNConfig) -> Array:
    """Returns `[K]` weights of the prices at which replayed steps are learned from; they add up to 1.

    While all episodes are played at price 0, only price 0 is learned. When `zero_share` is reached, all prices have the
    same weight.
    """
    positive = (1.0 - prices.zero_share) / (1.0 - config.zero_share)
    weights = jnp.full(config.prices_per_step, positive).at[0].set(1.0)
    return weights / weights.sum()


def _positive(prices: Price, place: Array) -> Array:
    """Returns the positive prices at places from 0 to 1 on the logarithmic scale of the range."""
    ratio = jnp.where(prices.low > 0.0, prices.high / jnp.maximum(prices.low, 1e-30), 1.0)
    return prices.low * jnp.exp(place * jnp.log(ratio))


def steer(prices: Price, config: AlgorithmConfig, greedy: Array, controls: Array, steps: Array) -> Price:
    """Moves the price: toward the control budget, or from price 0 to its final distribution, if the settings say so.

    Args:
        prices: The distribution during this iteration.
        config: Settings, including the budget.
        greedy: Number of greedy choices in this iteration.
        controls: Number of greedy choices that took control.
        steps: Agent steps so far.
    """
    if config.control_budget is None:
        return prices if config.zero_fraction == 0.0 else _warmed_up(prices, config, steps)
    rate = controls / jnp.maximum(1, greedy)
    moved = prices.low * jnp.exp(config.budget_step * (rate - config.control_budget))
    eta = jnp.where(steps > config.steers_from, jnp.maximum(SMALLEST_PRICE, moved), prices.low)
    return prices._replace(low=eta, high=eta)


def _warmed_up(prices: Price, config: AlgorithmConfig, steps: Array) -> Price:
    """Returns the distribution on the way from price 0 to the final one; see `zero_fraction` of the settings."""
    left = jnp.clip(2.0 - 2.0 * steps / (config.zero_fraction * config.total_steps), 0.0, 1.0)
    if config.is_range:
        return prices._replace(zero_share=config.zero_share + (1.0 - config.zero_share) * left)
    eta = (1.0 - left) * config.eta_range[0]
    return prices._replace(low=eta, high=eta)
