"""Conversion between the state of a run and named arrays, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lazymdp.learn.deep.export import agent_parameters

Arrays = Mapping[str, NDArray[Any]]
_Tree = TypeVar("_Tree")


def to_named(tree: Any, without: tuple[str, ...] = ()) -> dict[str, NDArray[Any]]:
    """Returns the leaves of a tree by name, except those whose names begin with one of `without`."""
    leaves = ((jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree))
    named = (pair for pair in leaves if not (without and pair[0].startswith(without)))
    return {name: np.asarray(_plain(leaf)) for name, leaf in named}


def from_named(template: _Tree, arrays: Arrays, without: tuple[str, ...] = ()) -> _Tree:
    """Returns `template` with its leaves replaced by `arrays`, except those whose names begin with one of `without`."""
    leaves = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(template):
        name = jax.tree_util.keystr(path)
        if without and name.startswith(without):
            leaves.append(leaf)
            continue
        if name not in arrays:
            raise ValueError(f"the checkpoint lacks {name}: it belongs to another algorithm or version.")
        found, wanted = arrays[name], jax.eval_shape(_plain, leaf)
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise ValueError(
                f"{name} is {found.dtype} {found.shape} in the checkpoint, expected {wanted.dtype} {wanted.shape}: it "
                "belongs to a run with other settings."
            )
        # Copy, because the leaf may be donated later and must not share memory with the checkpoint.
        leaves.append(jax.random.wrap_key_data(jnp.array(found)) if _is_key(leaf) else jnp.array(found))
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def parameters_from(template: _Tree, arrays: Arrays) -> _Tree:
    """Returns the network parameters of the agent of a run, given its arrays; an exported agent has half precision."""
    return from_named(template, {name: _single(leaf) for name, leaf in agent_parameters(arrays).items()})


def _single(leaf: NDArray[Any]) -> NDArray[Any]:
    return leaf.astype(np.float32) if leaf.dtype == np.float16 else leaf


def _is_key(leaf: Array) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _plain(leaf: Array) -> Array:
    """Converts a random key to the integers it consists of; returns other leaves unchanged."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf
