"""Q-networks as Equinox modules: observations and prices in, values out.

There are two kinds of network, MLPs and convolutional networks, each with or without the price as an input and with or
without layer norm (PQN needs layer norm; Dopamine's DQN has none). The features of the price are concatenated after the
first dense layer of an MLP, or after the convolutions. What comes before does not depend on the price, so that several
prices for one observation cost little more than one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray

Parameters = Any
"""The arrays of a network, as a pytree."""

NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Output channels, kernel size and stride of each convolution of the Nature DQN."""
MINATAR = ((16, 3, 1),)
"""The same for Dopamine's MinAtar network."""
NATURE_WIDTH = 512
"""Width of the dense layer of the Nature DQN."""
SMALLEST_IMAGE = 36
"""Side length in pixels below which Nature's strides leave almost nothing of an image."""
UNBOUNDED = 1e6
"""Bounds of an observation space from here on say nothing about typical observations."""
MLP_PRICE_WIDTH, CONV_PRICE_WIDTH = 32, 64
"""Number of features computed from the price."""


class Network(NamedTuple):
    """A network as two pure functions."""

    init: Callable[[Array], Parameters]  # random key -> parameters
    apply: Callable[[Parameters, Array, Array], Array]
    """`(parameters, observations [M, ...], eta [M])` to outputs `[M, C]`, or with prices `[M, K]` to `[M, K, C]`."""


def q_network(
    shape: tuple[int, ...], n_outputs: int, kind: str | None, hidden: tuple[int, ...], *, priced: bool, norm: bool,
    space: spaces.Space[Any] | None = None, reward_scale: float = 1.0,
) -> Network:  # fmt: skip
    """Returns a Q-network.

    Args:
        shape: Shape of an observation.
        n_outputs: Number of outputs, A or A + 1.
        kind: `nature`, `minatar` or `mlp`; by default `nature` for images that are large enough, else `mlp`.
        hidden: Widths of the hidden layers of an `mlp`.
        priced: Whether the price is an input.
        norm: Whether layer norm precedes each ReLU, as PQN requires. Otherwise the network is Dopamine's:
            Xavier-uniform kernels, zero biases, `SAME` padding.
        space: Observation space. Numbers whose largest magnitude is below 0.1, or finite and above 100, are divided by
            it. (Those in between are used as they are: on CartPole, dividing them made learning worse.)
        reward_scale: Unit of the values and prices that the layers compute with.
    """
    kind, magnitude = architecture(shape, kind), _magnitude(space, shape)

    def make(key: Array) -> DenseNet | ConvNet:
        if kind == "mlp":
            return DenseNet(prod(shape), n_outputs, hidden, priced, norm, key)
        layers, widths = (NATURE, (NATURE_WIDTH,)) if kind == "nature" else (MINATAR, ())
        return ConvNet(shape, n_outputs, layers, widths, priced, norm, key)

    template = eqx.filter_eval_shape(make, jax.random.key(0))
    static = eqx.partition(template, lambda leaf: hasattr(leaf, "shape"))[1]

    def init(key: Array) -> Parameters:
        return eqx.partition(make(key), eqx.is_array)[0]

    def apply(parameters: Parameters, observations: Array, eta: Array) -> Array:
        scaled = observations if magnitude is None else observations / magnitude
        return reward_scale * eqx.combine(parameters, static)(scaled, eta / reward_scale)

    return Network(jax.jit(init), apply)


def architecture(shape: tuple[int, ...], kind: str | None) -> str:
    """Returns the architecture, chosen by the shape of an observation if none is given."""
    is_image = len(shape) == 3 and min(shape[:2]) >= SMALLEST_IMAGE
    kind = kind or ("nature" if is_image else "mlp")
    if (kind == "nature" and not is_image) or (kind == "minatar" and len(shape) != 3):
        raise ValueError(
            f"network is {kind!r}, which needs images (height, width, channels), but observations have shape {shape}."
        )
    return kind


def _magnitude(space: spaces.Space[Any] | None, shape: tuple[int, ...]) -> NDArray[np.float32] | None:
    """Returns what to divide each number in an observation by; None for pixels."""
    if space is None or not space.is_np_flattenable:
        return None
    box = space if isinstance(space, spaces.Box) else spaces.utils.flatten_space(space)
    if not isinstance(box, spaces.Box) or box.dtype == np.uint8 or box.shape != shape:
        return None
    largest = np.maximum(np.abs(box.low), np.abs(box.high)).astype(np.float32)
    odd = (largest > 0.0) & (largest < 0.1) | (largest > 100.0) & (largest < UNBOUNDED)
    return np.where(odd, largest, np.float32(1.0)) if odd.any() else None


class Dense(eqx.Module):  # type: ignore[misc, unused-ignore]
    """A dense layer, optionally with layer norm.

    With `like_linear`, kernel and bias are initialized uniformly as in `eqx.nn.Linear`; otherwise the kernel is
    Xavier-uniform and the bias is zero.
    """

    kernel: Array  # [inputs, outputs]
    bias: Array  # [outputs]
    norm: eqx.nn.LayerNorm | None

    def __init__(self, n_inputs: int, n_outputs: int, key: Array, *, like_linear: bool, norm: bool) -> None:
        weight_key, bias_key = jax.random.split(key)
        if like_linear:
            bound = 1.0 / jnp.sqrt(n_inputs)
            self.kernel = jax.random.uniform(weight_key, (n_inputs, n_outputs), minval=-bound, maxval=bound)
            self.bias = jax.random.uniform(bias_key, (n_outputs,), minval=-bound, maxval=bound)
        else:
            self.kernel = jax.nn.initializers.glorot_uniform()(weight_key, (n_inputs, n_outputs))
            self.bias = jnp.zeros(n_outputs)
        self.norm = eqx.nn.LayerNorm(n_outputs) if norm else None

    def __call__(self, x: Array, price: Array | None = None) -> Array:
        """Maps `[M, inputs]` to `[M, outputs]`, in the precision of `x`.

        The features of the price, if given, are the last inputs: `[M, features]`, or `[M, K, features]` for K prices,
        which gives `[M, K, outputs]`. In the latter case, the product with `x` is computed only once.
        """
        kernel = self.kernel.astype(x.dtype)
        if price is not None and price.ndim > x.ndim:
            x = _product(x, kernel[: x.shape[-1]])[:, None] + _product(price, kernel[x.shape[-1] :])
        else:
            x = _product(x if price is None else jnp.concatenate([x, price], -1), kernel)
        x = x + self.bias.astype(x.dtype)
        return x if self.norm is None else _normed(self.norm, x)


def _product(x: Array, kernel: Array) -> Array:
    """Returns `x @ kernel` for `[..., inputs]`; on a CPU, the gradient of a product of two matrices is much faster."""
    return (x.reshape(-1, x.shape[-1]) @ kernel).reshape(*x.shape[:-1], -1)


class DenseNet(eqx.Module):  # type: ignore[misc, unused-ignore]
    """An MLP; the features of the price are concatenated after the first layer."""

    price: Array | None  # [3, MLP_PRICE_WIDTH]
    layers: list[Dense]
    head: Dense

    def __init__(
        self, n_inputs: int, n_outputs: int, hidden: tuple[int, ...], priced: bool, norm: bool, key: Array
    ) -> None:
        price_key, head_key, *keys = jax.random.split(key, len(hidden) + 2)
        extra = MLP_PRICE_WIDTH if priced else 0
        self.price = jax.random.uniform(price_key, (3, extra), minval=-1.0) / jnp.sqrt(3.0) if priced else None
        widths = [n_inputs, *hidden]
        inputs = [width + (extra if layer == 1 else 0) for layer, width in enumerate(widths)]
        self.layers = [
            Dense(before, after, k, like_linear=norm, norm=norm)
            for before, after, k in zip(inputs, hidden, keys, strict=False)
        ]
        self.head = Dense(inputs[-1], n_outputs, head_key, like_linear=norm, norm=False)

    def __call__(self, observations: Array, eta: Array) -> Array:
        """Maps `[M, ...]` observations and `[M]` or `[M, K]` prices to `[M, C]` or `[M, K, C]` values."""
        x = _numbers(observations).reshape(observations.shape[0], -1)
        for number, layer in enumerate([*self.layers, self.head]):
            x = layer(x, self._price(eta) if number == 1 and self.price is not None else None)
            x = x if layer is self.head else jax.nn.relu(x)
        return x

    def _price(self, eta: Array) -> Array:
        # Three products written out: a matrix product would be a separate kernel, and a slow one in the backward pass.
        parts = zip(self.price, jnp.moveaxis(price_features(eta), -1, 0), strict=True)  # type: ignore[arg-type, unused-ignore]
        return jax.nn.relu(sum(kernel * feature[..., None] for kernel, feature in parts))


class ConvNet(eqx.Module):  # type: ignore[misc, unused-ignore]
    """Convolutions and dense layers; the features of the price are concatenated after the convolutions.

    With layer norm, convolutions have no padding and no bias, and everything but the head is computed in bfloat16,
    unless the device is a CPU. Otherwise the network is Dopamine's: `SAME` padding, biases, single precision.
    """

    kernels: list[Array]  # [size, size, inputs, outputs] each
    biases: list[Array] | None  # [outputs] each
    norms: list[eqx.nn.LayerNorm] | None
    price: Dense | None
    layers: list[Dense]
    head: Dense
    strides: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self, shape: tuple[int, ...], n_outputs: int, convolutions: tuple[tuple[int, int, int], ...],
        widths: tuple[int, ...], priced: bool, norm: bool, key: Array,
    ) -> None:  # fmt: skip
        conv_key, dense_key, head_key, price_key = jax.random.split(key, 4)
        draw = jax.nn.initializers.he_normal() if norm else jax.nn.initializers.glorot_uniform()
        height, width, before = shape
        self.kernels, self.strides = [], tuple(stride for _, _, stride in convolutions)
        for (channels, size, stride), k in zip(
            convolutions, jax.random.split(conv_key, len(convolutions)), strict=True
        ):
            self.kernels.append(draw(k, (size, size, before, channels)))
            height, width = ((n - size) // stride + 1 if norm else -(-n // stride) for n in (height, width))
            before = channels
        sizes = [kernel.shape[-1] for kernel in self.kernels]
        self.biases = None if norm else [jnp.zeros(n) for n in sizes]
        self.norms = [eqx.nn.LayerNorm(n) for n in sizes] if norm else None
        extra = CONV_PRICE_WIDTH if priced else 0
        self.price = Dense(3, extra, price_key, like_linear=norm, norm=False) if priced else None
        inputs = [height * width * before + extra, *widths]
        self.layers = [
            Dense(n, after, k, like_linear=norm, norm=norm)
            for n, after, k in zip(inputs, widths, jax.random.split(dense_key, max(1, len(widths))), strict=False)
        ]
        self.head = Dense(inputs[-1], n_outputs, head_key, like_linear=norm, norm=False)

    def __call__(self, observations: Array, eta: Array) -> Array:
        """Maps `[M, height, width, channels]` observations and `[M]` or `[M, K]` prices to values."""
        half = self.norms is not None and jax.default_backend() != "cpu"
        x = _numbers(observations, jnp.bfloat16 if half else jnp.float32)
        for number, (kernel, stride) in enumerate(zip(self.kernels, self.strides, strict=True)):
            if self.norms is not None:
                x = _normed(self.norms[number], convolve(x, kernel.astype(x.dtype), stride, "VALID"))
            elif self.biases is not None:
                x = convolve(x, kernel, stride, "SAME") + self.biases[number]
            x = jax.nn.relu(x)
        x = x.reshape(x.shape[0], -1)
        price = None if self.price is None else jax.nn.relu(self.price(price_features(eta))).astype(x.dtype)
        for layer in self.layers:
            x, price = jax.nn.relu(layer(x, price)), None
        return self.head(x.astype(jnp.float32), None if price is None else price.astype(jnp.float32))


def price_features(eta: Array) -> Array:
    """Returns `[..., 3]` features of prices `[...]`: `x = log10(eta + 0.001)`, `x^2` and 1."""
    log = jnp.log10(eta + 1e-3)
    return jnp.stack([log, log * log, jnp.ones_like(log)], -1)


def _numbers(observations: Array, dtype: Any = jnp.float32) -> Array:
    """Converts observations to floats; pixels (`uint8`) are divided by 255."""
    return observations.astype(dtype) / (255.0 if observations.dtype == jnp.uint8 else 1.0)


def _normed(norm: eqx.nn.LayerNorm, x: Array) -> Array:
    """Applies layer norm over the last axis, computed in single precision."""
    single = x.astype(jnp.float32)
    mean = single.mean(-1, keepdims=True)
    spread = jnp.square(single - mean).mean(-1, keepdims=True)
    return ((single - mean) * jax.lax.rsqrt(spread + norm.eps) * norm.weight + norm.bias).astype(x.dtype)


def convolve(x: Array, kernel: Array, stride: int, padding: str) -> Array:
    """Computes a convolution in the way that is fastest on the device.

    If the stride divides the size of the kernel, the convolution becomes one with stride 1 over blocks of pixels.
    Blocks have more channels than pixels, and a few channels would leave most of a GPU's matrix units idle. On a CPU,
    the convolution becomes a matrix product: XLA's own convolutions are no faster there, and ten times slower inside a
    loop.

    Args:
        x: `[M, height, width, inputs]` images.
        kernel: `[size, size, inputs, outputs]` weights.
        stride: Stride in both directions.
        padding: `VALID` or `SAME`.
    """
    size, _, n_channels, n_outputs = kernel.shape
    if stride > 1 and size % stride == 0:
        places = [(n - size) // stride + 1 if padding == "VALID" else -(-n // stride) for n in x.shape[1:3]]
        spans = [(place - 1) * stride + size for place in places]
        extra = [max(0, span - n) for span, n in zip(spans, x.shape[1:3], strict=True)]
        x = jnp.pad(x, ((0, 0), *((more // 2, more - more // 2) for more in extra), (0, 0)))[:, : spans[0], : spans[1]]
        rows, columns, half = spans[0] // stride, spans[1] // stride, size // stride
        x = x.reshape(-1, rows, stride, columns, stride, n_channels).transpose(0, 1, 3, 2, 4, 5)
        kernel = kernel.reshape(half, stride, half, stride, n_channels, n_outputs).transpose(0, 2, 1, 3, 4, 5)
        x, kernel = x.reshape(-1, rows, columns, stride**2 * n_channels), kernel.reshape(half, half, -1, n_outputs)
        stride, padding = 1, "VALID"
    if stride == 1 and jax.default_backend() == "cpu":
        more = kernel.shape[0] - 1
        if padding == "SAME":
            x = jnp.pad(x, ((0, 0), *[(more // 2, more - more // 2)] * 2, (0, 0)))
        height, width = x.shape[1] - more, x.shape[2] - more
        shifts = itertools.product(range(more + 1), repeat=2)
        seen = [x[:, down : down + height, right : right + width] for down, right in shifts]
        return jnp.concatenate(seen, -1) @ kernel.reshape(-1, n_outputs)
    order = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x, kernel, (stride, stride), padding, dimension_numbers=order)


def resize_head(parameters: Parameters, from_outputs: int, to_outputs: int, eta: float = 0.0) -> Parameters:
    """Returns parameters with the lazy output added (A to A + 1 outputs) or removed, to initialize another network.

    A new lazy output starts as the mean of the others plus `eta`, which is its value under a uniform default policy
    (Prop. 2). The choices are then those of the structured form at this price. If the parameters come from a plain DQN,
    the other outputs do not include the price of the first step. Then neither does the lazy output, and the choices are
    the same.

    Args:
        parameters: Parameters of a `q_network`.
        from_outputs: Number of its outputs.
        to_outputs: Number of outputs after resizing.
        eta: Price.
    """
    kernel, bias = parameters.head.kernel, parameters.head.bias
    if bias.shape != (from_outputs,):
        raise ValueError(f"the network has {bias.shape[0]} outputs, not {from_outputs}.")
    if to_outputs == from_outputs - 1:
        kernel, bias = kernel[:, :-1], bias[:-1]
    elif to_outputs == from_outputs + 1:
        kernel = jnp.concatenate([kernel, kernel.mean(1, keepdims=True)], 1)
        bias = jnp.concatenate([bias, bias.mean(keepdims=True) + eta])
    elif to_outputs != from_outputs:
        raise ValueError(f"from {from_outputs} to {to_outputs} outputs: expected one more, one less or as many.")
    return eqx.tree_at(lambda tree: (tree.head.kernel, tree.head.bias), parameters, (kernel, bias))


def is_finite(parameters: Parameters) -> bool:
    """Returns whether all numbers in a tree of arrays are finite."""
    return all(bool(np.isfinite(np.asarray(leaf)).all()) for leaf in jax.tree.leaves(parameters))


def rounded(parameters: Parameters) -> Parameters:
    """Returns parameters rounded to half precision, as those of an exported agent, but stored in single precision."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float16).astype(jnp.float32), parameters)
