"""The quality of a run: means by price, windows with too few episodes, and the state on disk."""

import numpy as np
import pytest

pytest.importorskip("jax")

from lazymdp.learn.deep.training_run import ENOUGH_EPISODES, Quality


def test_it_is_the_mean_over_prices_of_the_mean_at_each_price():
    window = Quality(2)
    assert window.close() is None
    window.add(np.array([0, 0]), np.array([99.0, 99.0]))
    assert window.close() is None  # two lucky episodes prove nothing, and the window continues
    window.add(np.zeros(ENOUGH_EPISODES, int), np.zeros(ENOUGH_EPISODES))
    assert window.close() is None  # nor do many at one price alone
    window.add(np.array([0] * 30 + [1] * 10), np.array([1.0] * 30 + [3.0] * 10))
    assert window.close() == 2.0
    window.add(np.ones(ENOUGH_EPISODES, int), np.full(ENOUGH_EPISODES, 5.0))
    assert window.close() == 3.0  # the first price keeps its last mean
    assert window.close() is None


def test_it_does_not_depend_on_how_episodes_are_divided_and_continues_from_its_arrays():
    rng = np.random.default_rng(0)
    price, net = rng.integers(3, size=1000), rng.normal(size=1000) * 10.0 ** rng.integers(-8, 8, size=1000)
    whole, parts = Quality(3), Quality(3)
    whole.add(price, net)
    for piece in np.split(np.arange(1000), [1, 17, 400, 401]):
        parts.add(price[piece], net[piece])
        another = Quality(3)
        another.restore(parts.arrays())
        parts = another
    assert whole.close() == parts.close() is not None
    with pytest.raises(ValueError, match=r"the checkpoint lacks quality\.sum"):
        Quality(2).restore(whole.arrays())
