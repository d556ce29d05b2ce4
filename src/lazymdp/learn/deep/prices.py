"""The price of control: a single price, a range of prices, or a price steered towards a control budget.

All three are one distribution from which the price of an episode is drawn: 0 with probability `zero_share`, otherwise
log-uniform between `low` and `high`. A single price is a range whose ends coincide. A budget moves both ends: after
each iteration

`eta <- eta * exp( step * (control rate - budget) )`

with the control rate of the greedy choices, since exploration is not what is steered. This is dual ascent on
`log eta`, which needs no scale of rewards. Where the control rate jumps at a price, as in any finite model, the mean
over time meets the budget while the price swings about the jump.

A transition does not depend on the price, so that a replayed step can be learned from at any price: see `relabel`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lazymdp.learn.deep.config import AlgorithmConfig

SMALLEST_PRICE = 1e-4
"""A budget does not steer the price below this, so that it can rise again."""


class Price(NamedTuple):
    """Distribution of the price of an episode. The fields are scalars; in a population, `[R]` for R members."""

    low: Array  # lowest price above 0
    high: Array  # highest price
    zero_share: Array  # probability of price 0


def initial(config: AlgorithmConfig) -> Price:
    """The distribution at the start of a run."""
    low, high = config.eta_range
    return price(low, high, config.zero_share if config.is_range else 0.0)


def price(low: float, high: float, zero_share: float = 0.0) -> Price:
    """The distribution as arrays."""
    return Price(*(jnp.asarray(number, dtype=jnp.float32) for number in (low, high, zero_share)))


def draw(prices: Price, key: Array, shape: tuple[int, ...]) -> Array:
    """Draws prices of the given shape."""
    zero, place = jax.random.uniform(key, (2, *shape))
    ratio = jnp.where(prices.low > 0.0, prices.high / jnp.maximum(prices.low, 1e-30), 1.0)
    return jnp.where(zero < prices.zero_share, 0.0, prices.low * jnp.exp(place * jnp.log(ratio)))


def relabel(prices: Price, config: AlgorithmConfig, key: Array, shape: tuple[int, ...]) -> Array:
    """Prices at which to learn from replayed steps: drawn afresh from a range, or the single price there is."""
    return draw(prices, key, shape) if config.is_range else jnp.broadcast_to(prices.low, shape)


def steer(prices: Price, config: AlgorithmConfig, greedy: Array, controls: Array, steps: Array) -> Price:
    """Moves the price towards the control budget, if there is one.

    Args:
        prices: The distribution during this iteration.
        config: Settings, with the budget.
        greedy: Number of greedy choices in this iteration.
        controls: Number of those that took control.
        steps: Agent steps so far.
    """
    if config.control_budget is None:
        return prices
    rate = controls / jnp.maximum(1, greedy)
    moved = prices.low * jnp.exp(config.budget_step * (rate - config.control_budget))
    eta = jnp.where(steps > config.steers_from, jnp.maximum(SMALLEST_PRICE, moved), prices.low)
    return prices._replace(low=eta, high=eta)
