"""The small network: its gradients fit a batch, and observations become rows of numbers."""

import gymnasium as gym
import numpy as np

from lazymdp.explain.small_network import SmallNetwork, feature_rows


def test_the_gradient_is_that_of_the_squared_error():
    """Many updates on one batch fit it."""
    rng = np.random.default_rng(0)
    seen, action, target = rng.normal(size=(64, 3)), rng.integers(2, size=64), rng.normal(size=64)
    network = SmallNetwork(seen, 2, 0.0, 1.0, rng)
    for update in range(2000):
        network.update(seen, action, target, 1e-2 if update < 1000 else 1e-3)
    assert np.abs(network(seen)[np.arange(64), action] - target).max() < 0.1


def test_features_of_a_batch():
    np.testing.assert_array_equal(
        feature_rows(gym.spaces.Discrete(3, start=1), np.array([1, 3])), [[1, 0, 0], [0, 0, 1]]
    )
    space = gym.spaces.Dict(a=gym.spaces.Box(0, 9, (2,)), b=gym.spaces.Discrete(4))
    found = feature_rows(space, {"a": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": np.array([0, 3])})
    np.testing.assert_array_equal(found, [[1, 2, 0], [3, 4, 3]])
