"""Networks of the deep learners, as pairs of pure functions."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

_PRICE_WIDTH = 32


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
