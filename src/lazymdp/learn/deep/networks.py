"""Networks of the deep learners, as pairs of pure functions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
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
    price: Any  # [3, width]
    dense: list[eqx.nn.Linear]
    norms: list[eqx.nn.LayerNorm]
    head: eqx.nn.Linear

    def __init__(self, n_inputs: int, n_outputs: int, hidden: tuple[int, ...], key: Any) -> None:
        keys = jax.random.split(key, len(hidden) + 2)
        self.price = jax.random.uniform(keys[0], (3, _PRICE_WIDTH), minval=-1.0) / jnp.sqrt(3.0)
        widths = (n_inputs, *hidden)
        self.dense = [
            eqx.nn.Linear(width + (_PRICE_WIDTH if layer == 1 else 0), after, key=k)
            for layer, (width, after, k) in enumerate(zip(widths, hidden, keys[2:], strict=False))
        ]
        self.norms = [eqx.nn.LayerNorm(width) for width in hidden]
        self.head = eqx.nn.Linear(hidden[-1] + (_PRICE_WIDTH if len(hidden) == 1 else 0), n_outputs, key=keys[1])

    def __call__(self, observation: Any, eta: Any) -> Any:
        # Three products written out: as one of matrices they are kernels of their own, and slow ones backwards.
        price = jax.nn.relu(sum(kernel * x for kernel, x in zip(self.price, _price_features(eta), strict=True)))
        x = _numbers(observation).ravel()
        for layer, (dense, norm) in enumerate(zip(self.dense, self.norms, strict=True)):
            x = jax.nn.relu(norm(dense(jnp.concatenate([x, price]) if layer == 1 else x)))
        return self.head(jnp.concatenate([x, price]) if len(self.dense) == 1 else x)


class _PixelLayers(eqx.Module):  # type: ignore[misc, unused-ignore]
    price: eqx.nn.Linear
    kernels: list[Any]
    norms: list[eqx.nn.LayerNorm]
    dense: eqx.nn.Linear
    dense_norm: eqx.nn.LayerNorm
    head: eqx.nn.Linear

    def __init__(self, shape: tuple[int, ...], n_outputs: int, key: Any) -> None:
        keys = jax.random.split(key, len(_NATURE) + 3)
        height, width, before = shape
        self.kernels, self.norms = [], []
        for (channels, size, stride), k in zip(_NATURE, keys[3:], strict=True):
            self.kernels.append(jax.nn.initializers.he_normal()(k, (size, size, before, channels)))
            self.norms.append(eqx.nn.LayerNorm(channels))
            height, width, before = (height - size) // stride + 1, (width - size) // stride + 1, channels
        self.price = eqx.nn.Linear(3, 2 * _PRICE_WIDTH, key=keys[0])
        self.dense = eqx.nn.Linear(height * width * before + 2 * _PRICE_WIDTH, 512, key=keys[1])
        self.dense_norm = eqx.nn.LayerNorm(512)
        self.head = eqx.nn.Linear(512, n_outputs, key=keys[2])

    def __call__(self, observations: Any, eta: Any) -> Any:
        # Half precision but for the head, on devices that are made for it.
        kind = jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
        price = jax.nn.relu(jax.vmap(self.price)(_price_features(eta)))
        x = _numbers(observations, kind)
        for kernel, norm, (_, _, stride) in zip(self.kernels, self.norms, _NATURE, strict=True):
            x = _convolved(x, kernel.astype(kind), stride, "VALID")
            x = jax.nn.relu(_normed(norm, x))
        x = jnp.concatenate([x.reshape(x.shape[0], -1), price.astype(kind)], -1)
        x = x @ self.dense.weight.T.astype(kind) + self.dense.bias.astype(kind)
        return jax.vmap(self.head)(jax.nn.relu(_normed(self.dense_norm, x)).astype(jnp.float32))


def _numbers(observations: Any, kind: Any = jnp.float32) -> Any:
    """What a network computes with; pixels, that is `uint8`, are divided by 255."""
    return observations.astype(kind) / (255.0 if observations.dtype == jnp.uint8 else 1.0)


def _price_features(eta: Any) -> Any:
    """`[..., 3]` of prices `[...]`: what the network sees of them."""
    log = jnp.log10(eta + 1e-3)
    return jnp.stack([log, log * log, jnp.ones_like(log)], -1)


def _normed(norm: eqx.nn.LayerNorm, x: Any) -> Any:
    """Layer norm over the last axis, in single precision."""
    single = x.astype(jnp.float32)
    mean = single.mean(-1, keepdims=True)
    spread = jnp.square(single - mean).mean(-1, keepdims=True)
    return ((single - mean) * jax.lax.rsqrt(spread + norm.eps) * norm.weight + norm.bias).astype(x.dtype)


def _convolved(x: Any, kernel: Any, stride: int, padding: str) -> Any:
    """A convolution; where the stride divides the kernel's size, as one without stride over blocks of pixels.

    The result is the same. Few channels waste most of what a GPU's matrix units can do, and blocks have more of them.
    On a CPU it is a product of matrices: XLA's own convolutions are no faster there, and in a loop ten times slower.
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


def dial_network(shape: tuple[int, ...], n_outputs: int, kind: str | None, hidden: tuple[int, ...]) -> Network:
    """A network that sees the price, with layer norm before each ReLU.

    An MLP in which the price joins after the first layer; or Nature's convolutions, a dense layer of 512 that the price
    joins, and values in single precision.

    Args:
        shape: Of an observation.
        n_outputs: A, or A + 1.
        kind: `nature` or `mlp`; if not given, `nature` for images large enough, else `mlp`.
        hidden: Widths of an `mlp`.
    """
    kind = _kind(shape, kind)
    make: Callable[[Any], Any]
    if kind == "nature":
        make = functools.partial(_PixelLayers, shape, n_outputs)
    else:
        make = functools.partial(_DialLayers, prod(shape), n_outputs, hidden)
    template = eqx.filter_eval_shape(make, jax.random.key(0))
    static = eqx.partition(template, lambda leaf: hasattr(leaf, "shape"))[1]

    def init(key: Any) -> Any:
        return eqx.partition(make(key), eqx.is_array)[0]

    def apply(parameters: Any, observations: Any, eta: Any) -> Any:
        layers = eqx.combine(parameters, static)
        return (layers if kind == "nature" else jax.vmap(layers))(observations, eta)

    return Network(init, apply)


def _kind(shape: tuple[int, ...], kind: str | None) -> str:
    """The kind of network, chosen by what is seen if none is given."""
    is_image = len(shape) == 3 and min(shape[:2]) >= _SMALLEST_IMAGE
    kind = kind or ("nature" if is_image else "mlp")
    if (kind == "nature" and not is_image) or (kind == "minatar" and len(shape) != 3):
        raise ValueError(f"observations are of shape {shape}, expected images (height, width, channels) for {kind!r}.")
    return kind


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
    kind = _kind(shape, kind)
    convolutions: tuple[tuple[int, int, int], ...] = {"nature": _NATURE, "minatar": _MINATAR, "mlp": ()}[kind]
    widths = {"nature": (512,), "minatar": (), "mlp": hidden}[kind]

    kernels: list[tuple[int, ...]] = []
    image = shape
    for channels, size, stride in convolutions:
        kernels.append((size, size, image[-1], channels))
        image = (-(-image[0] // stride), -(-image[1] // stride), channels)
    dense = (prod(image), *widths, n_outputs)
    kernels += itertools.pairwise(dense)

    def init(key: Any) -> Any:
        draw = jax.nn.initializers.glorot_uniform()
        keys = jax.random.split(key, len(kernels))
        return tuple(Layer(draw(k, kernel), jnp.zeros(kernel[-1])) for k, kernel in zip(keys, kernels, strict=True))

    def apply(parameters: Any, observations: Any, eta: Any) -> Any:
        x = _numbers(observations)
        for (kernel, bias), (_, _, stride) in zip(parameters, convolutions, strict=False):
            x = jax.nn.relu(_convolved(x, kernel, stride, "SAME") + bias)
        x = x.reshape(x.shape[0], -1)
        *inner, head = parameters[len(convolutions) :]
        for kernel, bias in inner:
            x = jax.nn.relu(x @ kernel + bias)
        return x @ head.kernel + head.bias

    return Network(init, apply)


def warm_start(parameters: Any, from_outputs: int, to_outputs: int, eta: float = 0.0) -> Any:
    """Parameters to start another network from: with the lazy output added (A to A + 1), or taken away.

    An added one starts as the mean of the others plus `eta`, which is what being lazy is worth if the default is
    uniform (Prop. 2). The choices are then those of the structured form at this price. Where the others come from a
    plain DQN, they lack the price of the first step; so does the lazy one, and the choices are the same.

    Args:
        parameters: Of `q_network`.
        from_outputs: Outputs of the network they are of.
        to_outputs: Outputs of the one to be started.
        eta: Price.
    """
    *inner, head = parameters
    if head.bias.shape != (from_outputs,):
        raise ValueError(f"the network has {head.bias.shape[0]} outputs, not {from_outputs}.")
    if to_outputs == from_outputs - 1:
        head = Layer(head.kernel[:, :-1], head.bias[:-1])
    elif to_outputs == from_outputs + 1:
        kernel, bias = head.kernel.mean(1, keepdims=True), head.bias.mean(keepdims=True) + eta
        head = Layer(jnp.concatenate([head.kernel, kernel], 1), jnp.concatenate([head.bias, bias]))
    elif to_outputs != from_outputs:
        raise ValueError(f"from {from_outputs} to {to_outputs} outputs: expected one more, one less or as many.")
    return (*inner, head)
