"""Prices: drawn from their distribution, relabelled, steered towards a control budget."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

from lazymdp.learn.deep import prices  # noqa: E402
from lazymdp.learn.deep.config import FIRST_PRICE, DQNConfig, PQNConfig  # noqa: E402


def test_prices_are_log_uniform_in_the_range_and_sometimes_0():
    config = PQNConfig(eta=(0.01, 1.0), zero_share=0.25)
    eta = np.asarray(prices.draw(prices.initial(config), jax.random.key(0), (4000,)))
    assert abs((eta == 0.0).mean() - 0.25) < 0.03
    paid = eta[eta > 0.0]
    assert paid.min() >= 0.0099 and paid.max() <= 1.001
    assert abs((paid < 0.1).mean() - 0.5) < 0.04  # uniform in the logarithm


@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_a_single_price_is_always_drawn(eta):
    price = prices.initial(DQNConfig(eta=eta))
    for drawn in (
        prices.draw(price, jax.random.key(0), (50,)),
        prices.relabel(price, DQNConfig(eta=eta, batch_size=50), jax.random.key(0)),
    ):
        np.testing.assert_array_equal(drawn, np.full(50, eta, np.float32))


def test_replayed_steps_of_a_range_are_learned_from_at_0_and_at_prices_drawn_afresh():
    config = DQNConfig(eta=(0.01, 1.0), batch_size=500, prices_per_step=5)
    first, second = (
        np.asarray(prices.relabel(prices.initial(config), config, jax.random.key(seed))) for seed in (0, 1)
    )
    assert first.shape == (500, 5) and (first[:, 0] == 0.0).all()
    assert (first[:, 1:] != second[:, 1:]).mean() > 0.99
    parts = 10.0 ** (
        np.log10(first[:, 1:]) * 2.0
    )  # each of four prices lies in its own quarter of the logarithmic scale
    edges = np.logspace(-4, 0, 5)
    assert (parts >= 0.999 * edges[:-1]).all() and (parts <= 1.001 * edges[1:]).all()


def test_a_budget_raises_the_price_while_there_is_too_much_control():
    config = DQNConfig(eta=0.1, control_budget=0.3, budget_step=0.5, learning_starts=1000)
    price = prices.initial(config)

    def steered(controls, steps=2000, price=price):
        return prices.steer(price, config, jnp.int32(100), jnp.int32(controls), jnp.int32(steps))

    for controls in (0, 30, 80):
        moved = steered(controls)
        np.testing.assert_allclose(moved.low, 0.1 * np.exp(0.5 * (controls / 100 - 0.3)), rtol=1e-5)
        assert moved.high == moved.low and moved.zero_share == 0.0
    assert steered(80, steps=1000) == price  # nothing has been learned yet
    nothing = prices.steer(price, config, jnp.int32(0), jnp.int32(0), jnp.int32(2000))  # no greedy choice: no control
    np.testing.assert_allclose(nothing.low, 0.1 * np.exp(-0.15), rtol=1e-5)
    lowest = prices.price(prices.SMALLEST_PRICE, prices.SMALLEST_PRICE)
    assert steered(0, price=lowest) == lowest  # from where it can rise again
    assert float(steered(100, price=lowest).low) > prices.SMALLEST_PRICE


def test_a_range_can_start_with_price_0_alone():
    config = DQNConfig(eta=(0.01, 1.0), zero_share=0.4, zero_fraction=0.5, steps=102_400, prices_per_step=3)
    price = prices.initial(config)
    assert price.zero_share == 1.0
    np.testing.assert_allclose(prices.learned_shares(price, config), [1.0, 0.0, 0.0])
    expected = {
        25_600: (1.0, [1, 0, 0]),
        38_400: (0.7, [0.5, 0.25, 0.25]),
        51_200: (0.4, [1 / 3] * 3),
        102_400: (0.4, [1 / 3] * 3),
    }
    for steps, (share, weights) in expected.items():
        price = prices.steer(price, config, jnp.int32(1), jnp.int32(0), jnp.int32(steps))
        np.testing.assert_allclose(price.zero_share, share, rtol=1e-6)
        np.testing.assert_allclose(prices.learned_shares(price, config), weights, rtol=1e-6)
    assert price.low == np.float32(0.01) and price.high == 1.0


@pytest.mark.parametrize("kind", [DQNConfig, PQNConfig])
def test_a_single_price_can_rise_from_0(kind):
    config = kind(eta=0.2, zero_fraction=0.5, steps=102_400, n_envs=16, rollout=64)
    price = prices.initial(config)
    for steps, eta in {0: 0.0, 25_600: 0.0, 38_400: 0.1, 51_200: 0.2, 102_400: 0.2}.items():
        price = prices.steer(price, config, jnp.int32(1), jnp.int32(0), jnp.int32(steps))
        np.testing.assert_allclose([price.low, price.high], eta, rtol=1e-6)
        np.testing.assert_allclose(prices.draw(price, jax.random.key(0), (9,)), eta, rtol=1e-6)


def test_a_budget_does_not_start_at_price_0():
    config = DQNConfig(eta=0.1, zero_fraction=0.5, control_budget=0.3)
    np.testing.assert_allclose([prices.initial(config).low, prices.initial(config).high], 0.1, rtol=1e-6)


def test_every_price_of_a_range_counts_the_same_unless_it_starts_with_price_0():
    config = DQNConfig(eta=(0.01, 1.0), zero_share=0.5)
    np.testing.assert_allclose(prices.learned_shares(prices.initial(config), config), [0.25] * 4)


def test_without_a_budget_the_price_stays():
    config = PQNConfig(eta=0.1)
    price = prices.initial(config)
    assert prices.steer(price, config, jnp.int32(9), jnp.int32(9), jnp.int32(10**6)) is price


def test_a_budget_without_a_price_starts_from_a_small_one():
    price = prices.initial(PQNConfig(eta=0.0, control_budget=0.2))
    np.testing.assert_allclose([price.low, price.high], FIRST_PRICE)
