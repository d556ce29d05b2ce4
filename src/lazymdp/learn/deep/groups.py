"""Environments on the host, in groups: a group's part of what is on the device, and its stacks of frames."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from lazymdp.learn.deep.host_env import Host


class Group(NamedTuple):
    """The environments from `begin` on, `size` of them."""

    begin: Any
    size: int

    def part(self, tree: Any) -> Any:
        """Of `[N, ...]` arrays, the group's `[M, ...]`."""
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, self.begin, self.size), tree)

    def put(self, tree: Any, parts: Any) -> Any:
        """`[N, ...]` arrays with the group's part replaced."""
        return jax.tree.map(lambda x, new: jax.lax.dynamic_update_slice_in_dim(x, new, self.begin, 0), tree, parts)

    def put_row(self, ring: Any, new: Any, row: Any) -> Any:
        """A `[T, N, ...]` array with the group's part of a row replaced."""
        start = (row, self.begin, *(0 for _ in new.shape[1:]))
        return jax.lax.dynamic_update_slice(ring, new[None].astype(ring.dtype), start)


def empty_stack(host: Host, n_envs: int) -> Any:
    """`[N, ..., S]` black frames; nothing where one frame is an observation."""
    return jnp.zeros((n_envs, *host.shape), host.dtype) if host.stack > 1 else ()


def pushed(stack: Any, frame: Any, over: Any) -> tuple[Any, Any]:
    """The observation, newest frame last, and the stack with it; frames of an episode that is over are black."""
    if isinstance(stack, tuple):
        return frame, stack
    kept = stack[..., 1:] * ~over.reshape(-1, *(1 for _ in stack.shape[1:]))
    stack = jnp.concatenate([kept, frame[..., None]], -1)
    return stack, stack
