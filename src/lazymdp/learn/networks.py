"""Networks of the deep learners, as pairs of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

_PRICE_WIDTH = 32
_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, size and stride of each convolution
_MINATAR = ((16, 3, 1),)
_SMALLEST_IMAGE = 36  # the side below which Nature's strides leave almost nothing


class Network(NamedTuple):
    """`init: key -> parameters` and `apply: (parameters, observations [N, ...], eta [N]) -> [N, C]`."""

    init: Callable[[Any], Any]
    apply: Callable[[Any, Any, Any], Any]


class _DialLayers(eqx.Module):  # type: ignore[misc, unused-ignore]
    price: eqx.nn.Linear
    dense: list[eqx.nn.Linear]
    norms: list[eqx.nn.LayerNorm]
    head: eqx.nn.Linear

    def __init__(self, n_inputs: int, n_outputs: int, hidden: tuple[int, ...], key: Any) -> None:
        keys = jax.random.split(key, len(hidden) + 2)
        self.price = eqx.nn.Linear(3, _PRICE_WIDTH, key=keys[0])
        widths = (n_inputs, *hidden)
        self.dense = [
            eqx.nn.Linear(width + (_PRICE_WIDTH if layer == 1 else 0), after, key=k)
            for layer, (width, after, k) in enumerate(zip(widths, hidden, keys[2:], strict=False))
        ]
        self.norms = [eqx.nn.LayerNorm(width) for width in hidden]
        self.head = eqx.nn.Linear(hidden[-1] + (_PRICE_WIDTH if len(hidden) == 1 else 0), n_outputs, key=keys[1])

    def __call__(self, observation: Any, eta: Any) -> Any:
        log = jnp.log10(eta + 1e-3)
        price = jax.nn.relu(self.price(jnp.stack([log, log * log, jnp.ones_like(log)])))
        x = observation.astype(jnp.float32).ravel()
        for layer, (dense, norm) in enumerate(zip(self.dense, self.norms, strict=True)):
            x = jax.nn.relu(norm(dense(jnp.concatenate([x, price]) if layer == 1 else x)))
        return self.head(jnp.concatenate([x, price]) if len(self.dense) == 1 else x)


def dial_network(shape: tuple[int, ...], n_outputs: int, hidden: tuple[int, ...]) -> Network:
    """An MLP with layer norm before each ReLU; the price joins after the first layer."""
    template = eqx.filter_eval_shape(_DialLayers, prod(shape), n_outputs, hidden, jax.random.key(0))
    static = eqx.partition(template, lambda leaf: hasattr(leaf, "shape"))[1]

    def init(key: Any) -> Any:
        return eqx.partition(_DialLayers(prod(shape), n_outputs, hidden, key), eqx.is_array)[0]

    def apply(parameters: Any, observations: Any, eta: Any) -> Any:
        return jax.vmap(eqx.combine(parameters, static))(observations, eta)

    return Network(init, apply)


class Layer(NamedTuple):
    """Of a network for `dqn`: a tuple of these is its parameters, the last one gives the values."""

    kernel: Any  # [inputs, outputs], or [size, size, inputs, outputs] of a convolution
    bias: Any  # [outputs]


def q_network(shape: tuple[int, ...], n_outputs: int, kind: str | None, hidden: tuple[int, ...]) -> Network:
    """A network without a price, for a single one: what is given as price is not looked at.

    Convolutions (padded to keep the size, but for strides), dense layers, ReLU between; Xavier-uniform kernels, biases
    0. Pixels, that is `uint8`, are divided by 255.

    Args:
        shape: Of an observation.
        n_outputs: A, or A + 1.
        kind: `nature` or `minatar`, Dopamine's; `mlp`; if not given, `nature` for images large enough, else `mlp`.
        hidden: Widths of an `mlp`.
    """
    is_image = len(shape) == 3 and min(shape[:2]) >= _SMALLEST_IMAGE
    kind = kind or ("nature" if is_image else "mlp")
    if kind != "mlp" and len(shape) != 3:
        raise ValueError(f"observations are of shape {shape}, expected (height, width, channels) for {kind!r}.")
    convolutions: tuple[tuple[int, int, int], ...] = {"nature": _NATURE, "minatar": _MINATAR, "mlp": ()}[kind]
    widths = {"nature": (512,), "minatar": (), "mlp": hidden}[kind]

    kernels: list[tuple[int, ...]] = []
    image = shape
    for channels, size, stride in convolutions:
        kernels.append((size, size, image[-1], channels))
        image = (-(-image[0] // stride), -(-image[1] // stride), channels)
    dense = (prod(image), *widths, n_outputs)
    kernels += pairwise(dense)

    def init(key: Any) -> Any:
        draw = jax.nn.initializers.glorot_uniform()
        keys = jax.random.split(key, len(kernels))
        return tuple(Layer(draw(k, kernel), jnp.zeros(kernel[-1])) for k, kernel in zip(keys, kernels, strict=True))

    def apply(parameters: Any, observations: Any, eta: Any) -> Any:
        x = observations.astype(jnp.float32) / (255.0 if observations.dtype == jnp.uint8 else 1.0)
        for (kernel, bias), (_, _, stride) in zip(parameters, convolutions, strict=False):
            strides, order = (stride, stride), ("NHWC", "HWIO", "NHWC")
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, strides, "SAME", dimension_numbers=order) + bias)
        x = x.reshape(x.shape[0], -1)
        *inner, head = parameters[len(convolutions) :]
        for kernel, bias in inner:
            x = jax.nn.relu(x @ kernel + bias)
        return x @ head.kernel + head.bias

    return Network(init, apply)
