"""Observations in every form that an environment may return them in: single or a batch, as in training."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("jax")

from lazymdp.learn.deep.observations import to_batch

SPACES = {
    "Box": spaces.Box(-1.0, 1.0, (4,)),
    "image": spaces.Box(0, 255, (6, 5, 3), np.uint8),
    "Discrete": spaces.Discrete(7, start=2),
    "MultiDiscrete": spaces.MultiDiscrete([3, 2]),
    "MultiBinary": spaces.MultiBinary(4),
    "Tuple": spaces.Tuple([spaces.Discrete(3), spaces.Box(0.0, 1.0, (2,))]),
    "Dict": spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Dict({"c": spaces.Box(0.0, 1.0, (2, 2))})}),
}


def trained_in(space):
    """What `to_batch` needs to know of an environment."""
    flat = space if isinstance(space, spaces.Box) else spaces.flatten_space(space)
    return SimpleNamespace(space=space, shape=flat.shape, dtype=np.uint8 if flat.dtype == np.uint8 else np.float32)


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_one_observation_and_a_batch_become_what_the_network_was_trained_with(space):
    env = trained_in(space)
    space.seed(0)
    samples = [space.sample() for _ in range(5)]
    expected = np.stack([one if isinstance(space, spaces.Box) else spaces.flatten(space, one) for one in samples])
    for one, row in zip(samples, expected, strict=True):
        seen, single = to_batch(env, one)
        assert single
        np.testing.assert_array_equal(seen, row[None])
    batch = gym.vector.utils.concatenate(space, samples, gym.vector.utils.create_empty_array(space, 5))
    for given in (batch, expected.astype(np.float32 if env.dtype == np.float32 else np.uint8)):
        seen, single = to_batch(env, given)
        assert not single
        np.testing.assert_array_equal(seen, expected)


def test_images_may_have_their_channels_first_and_stay_bytes():
    space = SPACES["image"]
    env, image = trained_in(space), np.random.default_rng(0).integers(256, size=(6, 5, 3))
    for given in (image, np.moveaxis(image, -1, 0), [np.moveaxis(image, -1, 0)]):
        seen, _ = to_batch(env, given)
        assert seen.dtype == np.uint8
        np.testing.assert_array_equal(seen[0], image)


def test_other_observations_are_refused():
    with pytest.raises(ValueError, match=r"observations have shape \(3,\), expected \[N, 4\], as in training"):
        to_batch(trained_in(SPACES["Box"]), np.zeros(3))
    with pytest.raises(ValueError, match="observations have the state 1, expected states from 2 to 8"):
        to_batch(trained_in(SPACES["Discrete"]), [1, 3])
    with pytest.raises(ValueError, match=r"the observations do not fit Dict\(.*KeyError"):
        to_batch(trained_in(SPACES["Dict"]), {"a": 1})


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_an_empty_batch_is_refused(space):
    with pytest.raises(ValueError, match="observations are an empty batch, expected at least one"):
        to_batch(trained_in(space), gym.vector.utils.create_empty_array(space, 0))


@pytest.mark.parametrize(
    ("space", "seen", "message"),
    [
        (
            spaces.Box(0, 255, (2,), np.uint8),
            np.array([[0, 300]]),
            r"observations\[0, 1\] is 300, expected",
        ),
        (spaces.MultiDiscrete([2, 3]), np.array([[1, -1]]), r"observation\[1\] is -1, expected an entry of"),
        (spaces.Dict(a=spaces.Box(0, 9, (2,), np.uint8)), {"a": [[0, -5]]}, r"observation\['a'\]\[1\] is -5"),
        (
            spaces.Tuple([spaces.Discrete(3)]),
            (np.array([-1]),),
            r"observation\[0\] is -1, expected an integer from 0 to 2",
        ),
    ],
)
def test_observations_that_would_become_others_are_refused(space, seen, message):
    flat = space if isinstance(space, spaces.Box) else spaces.flatten_space(space)
    env = SimpleNamespace(space=space, shape=flat.shape, dtype=np.uint8 if flat.dtype == np.uint8 else np.float32)
    with pytest.raises(ValueError, match=message):
        to_batch(env, seen)
