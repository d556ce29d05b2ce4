"""A small neural network in NumPy, for the learners of this package, which work without JAX."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp.explain.environments import flat_size, flattened, unbatched

Array = NDArray[np.float64]

BATCH = 64
"""Rows of a batch. Products of matrices of this size use one core; larger ones are slow if the other cores are busy."""
_HIDDEN = (64, 64)
_LARGEST_INPUT = 5_000


class SmallNetwork:
    """A network with two hidden layers, trained by Adam. Inputs and outputs are standardized.

    Args:
        seen: `[N, F]` inputs, whose mean and standard deviation are used.
        outputs: Number of outputs.
        mean: Mean of the outputs.
        scale: Standard deviation of the outputs.
        rng: Random generator of the initial weights.
    """

    def __init__(self, seen: Array, outputs: int, mean: float, scale: float, rng: np.random.Generator) -> None:
        self._mean, self._deviation = seen.mean(axis=0), seen.std(axis=0) + 1e-6
        self._offset, self._scale = mean, scale
        sizes = (seen.shape[1], *_HIDDEN, outputs)
        self._weights = [rng.normal(size=(one, other)) * np.sqrt(2.0 / one) for one, other in pairwise(sizes)] + [
            np.zeros(size) for size in sizes[1:]
        ]
        self._weights[len(_HIDDEN)] *= 0.01
        self._moments = [(np.zeros_like(weight), np.zeros_like(weight)) for weight in self._weights]
        self._count = 0

    def __call__(self, seen: Array) -> Array:
        """Returns `[N, O]` outputs for inputs `[N, F]`."""
        parts = [self.layers(seen[first : first + BATCH])[-1] for first in range(0, len(seen), BATCH)]
        return self._offset + self._scale * np.concatenate(parts)

    def layers(self, seen: Array) -> list[Array]:
        """Returns the standardized input, the hidden layers and the standardized output."""
        depth = len(_HIDDEN) + 1
        layers = [np.clip((seen - self._mean) / self._deviation, -10.0, 10.0)]
        for layer in range(depth):
            out = layers[-1] @ self._weights[layer] + self._weights[depth + layer]
            layers.append(out if layer == depth - 1 else np.maximum(out, 0.0))
        return layers

    def update(self, seen: Array, column: NDArray[np.int64], target: Array, rate: float) -> None:
        """Makes a gradient step on the squared error of one output, `column [N]`, of each row."""
        layers, rows = self.layers(seen), np.arange(len(column))
        back = np.zeros_like(layers[-1])
        back[rows, column] = (layers[-1][rows, column] - (target - self._offset) / self._scale) / len(column)
        self.descend(layers, back, rate)

    def descend(self, layers: list[Array], back: Array, rate: float) -> None:
        """Makes a step of Adam, given the layers and the gradient `[N, O]` of the loss by the standardized output."""
        depth = len(_HIDDEN) + 1
        gradients: list[Array] = [np.empty(0)] * (2 * depth)
        for layer in reversed(range(depth)):
            gradients[layer], gradients[depth + layer] = layers[layer].T @ back, back.sum(axis=0)
            back = (back @ self._weights[layer].T) * (layers[layer] > 0.0)
        self._count += 1
        for weight, gradient, (first, second) in zip(self._weights, gradients, self._moments, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            step = first / (1.0 - 0.9**self._count)
            weight -= rate * step / (np.sqrt(second / (1.0 - 0.999**self._count)) + 1e-8)


def features(space: gym.Space[Any], observation: Any) -> Array:
    """Returns an observation as numbers; the state of a `Discrete` space as a one-hot vector."""
    if isinstance(space, spaces.Discrete):
        return np.eye(int(space.n))[int(observation) - int(space.start)]
    return flattened(space, observation)


def feature_rows(space: gym.Space[Any], observations: Any) -> Array:
    """Returns `[N, F]` features of a batch of observations, in the layout of Gymnasium's vector environments."""
    return np.array([features(space, row) for row in unbatched(space, observations)])


def check_input(space: gym.Space[Any], what: str) -> None:
    """Raises an error if observations are not numbers, or too many of them, for `what` to be fitted."""
    size = flat_size(space, has_frames=False)
    if size is None or size > _LARGEST_INPUT:
        found = "not numbers" if size is None else f"{size} numbers"
        raise ValueError(f"the {what} cannot be fitted: observations are {found}, expected at most {_LARGEST_INPUT}.")
