"""Runs under way: a learner with compiled games, as one program, or with environments that step on the host.

Both are driven the same way: `advance` makes an iteration, `arrays` tells everything the run is, by name, and a new one
given these arrays goes on from there.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.deep.dqn import DQN
from lazymdp.learn.deep.host_env import Host, Seen
from lazymdp.learn.deep.pqn import Dial

Arrays = Mapping[str, NDArray[Any]]
_MEMORY = ".replay"  # what a run remembers: told apart from the rest, as it is large and changes little
_UNREPEATED = (".rollout", ".lessons")  # what is not worth keeping where episodes cannot be picked up again


class Compiled:
    """A learner and its games as one program.

    Args:
        learner: The learner.
        seed: Of the run.
        start: Further arguments of `learner.init`.
    """

    def __init__(self, learner: Dial | DQN, seed: int, **start: Any) -> None:
        self._iterate = jax.jit(learner.iterate, donate_argnums=0)
        self.state: Any = jax.jit(learner.init)(jax.random.key(seed), **start)
        self._episodes: list[Any] = []
        self.iteration = 0

    def advance(self) -> None:
        """One iteration, begun; the one before is waited for, else JAX would take on many at once."""
        self.state, episodes = self._iterate(self.state)
        jax.block_until_ready(self._episodes[-1:])
        self._episodes.append(episodes)
        self.iteration += 1

    def episodes(self) -> NDArray[np.float64]:
        """`[5, K]` the episodes since the last call that are over: 1, eta, score, steps, controls."""
        parts = [np.stack([np.asarray(x, dtype=float).ravel() for x in part]) for part in self._episodes]
        self._episodes.clear()
        return _over(parts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything the run is but what it remembers, by name."""
        return _named(self.state, but=(_MEMORY,))

    def restore(self, arrays: Arrays) -> None:
        """Goes on from `arrays`."""
        self.state = _filled(self.state, arrays, but=(_MEMORY,))
        self.iteration = int(self.state.iteration)

    def close(self) -> None:
        """Nothing to end."""


class Hosted:
    """A learner whose environments step on the host, group by group; the learner works while they step.

    Args:
        learner: The learner.
        host: The environments.
        seed: Of the run.
        start: Further arguments of `learner.init_host`.
    """

    def __init__(self, learner: Dial | DQN, host: Host, seed: int, **start: Any) -> None:
        self.learner, self.host, self.seed = learner, host, seed
        self._learn = jax.jit(learner.learn, donate_argnums=0, static_argnames="due")
        self._close = jax.jit(learner.close, donate_argnums=0)
        self.state: Any = learner.init_host(jax.random.key(seed), host, **start)
        self._turn: Any = None
        self._episodes: list[NDArray[Any]] = []
        self.iteration = 0
        self._in_flight = False  # whether choices have been made whose outcome `receive` will tell
        self._has_lessons = False

    def advance(self) -> None:
        """One iteration, with the gradient steps that fall into it; after the last, those that are left."""
        self._begin()
        rollout = self.learner.config.rollout
        for slot in range(1, rollout + 1):
            self._step(slot)
            self._work(slot)
        self.state = self._close(self.state)
        self.iteration, self._has_lessons = self.iteration + 1, True
        if self.iteration == self.learner.config.iterations:
            for slot in range(1, rollout + 1):
                self._work(slot)

    def episodes(self) -> NDArray[np.float64]:
        """`[5, K]` the episodes since the last call that are over: 1, eta, score, steps, controls."""
        parts = [part.astype(float) for part in self._episodes]
        self._episodes.clear()
        return _over(parts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything the run is but what it remembers, by name."""
        self._begin()
        without = (_MEMORY,) if self.host.repeats else (_MEMORY, *_UNREPEATED)
        environments = {f"host.{name}": array for name, array in self.host.arrays().items()}
        return {**_named(self.state, but=without), **environments}

    def restore(self, arrays: Arrays) -> None:
        """Goes on from `arrays`; where episodes cannot be picked up, those under way are cut off."""
        without = (_MEMORY,) if self.host.repeats else (_MEMORY, *_UNREPEATED)
        self.state = _filled(self.state, arrays, but=without)
        self.iteration = int(self.state.iteration)
        self.host.restore(self.seed, {name[5:]: array for name, array in arrays.items() if name.startswith("host.")})
        self._in_flight, self._has_lessons = True, self.host.repeats and self.iteration > 0

    def close(self) -> None:
        """Ends the environments."""
        self.host.close()

    def _begin(self) -> None:
        """Starts the environments and makes the first choices, if that has not been done."""
        if not self._in_flight:
            self.host.start(self.seed)
        if self._turn is None:
            self._turn = self._compiled_turn()  # while the environments start
        if not self._in_flight:
            self._step(0)
            self._in_flight = True

    def _step(self, slot: int) -> None:
        for group, part in enumerate(self.host.groups):
            seen = self.host.receive(group)
            self.state, told = self._turn(self.state, seen, np.int32(part.start), np.int32(slot))
            actions, *episodes = np.asarray(told)  # waits
            self.host.send(group, actions.astype(np.int64))
            self._episodes.append(np.stack(episodes))

    def _compiled_turn(self) -> Any:
        host, count = self.host, self.host.groups[0].stop
        frame = host.shape[:-1] if host.stack > 1 else host.shape
        flag = jax.ShapeDtypeStruct((count,), bool)
        reward = jax.ShapeDtypeStruct((count,), np.float32)
        seen: Any = Seen(jax.ShapeDtypeStruct((count, *frame), host.dtype), reward, flag, flag, flag)
        turn = jax.jit(self.learner.turn, donate_argnums=0)
        return turn.lower(self.state, seen, np.int32(0), np.int32(0)).compile()

    def _work(self, slot: int) -> None:
        due = self.learner.due(self.iteration, slot, self._has_lessons)
        if due is not None:
            self.state = self._learn(self.state, slot, due=due)


def remembered(state: Any, since: int, now: int) -> dict[str, NDArray[Any]]:
    """What a run remembers of the steps from `since` to `now`, both included."""
    rows = next(iter(state.replay)).shape[0]
    picked = jnp.arange(since, now + 1) % rows
    return {name: np.asarray(ring[picked]) for name, ring in state.replay._asdict().items()}


def recalled(state: Any, since: int, arrays: Arrays) -> Any:
    """The state, with what `remembered` told put back."""
    rows = next(iter(state.replay)).shape[0]
    picked = (since + np.arange(len(arrays["column"]))) % rows
    rings = state.replay._asdict()
    return state._replace(replay=state.replay._replace(**_put_back(rings, picked, {n: arrays[n] for n in rings})))


@functools.partial(jax.jit, donate_argnums=0)  # in place: there may be no room for two
def _put_back(rings: dict[str, Any], picked: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: ring.at[picked].set(arrays[name]) for name, ring in rings.items()}


def _over(parts: list[NDArray[Any]]) -> NDArray[np.float64]:
    if not parts:
        return np.zeros((5, 0))
    told = np.concatenate(parts, axis=1)
    return told[:, told[0] > 0.0]


def _named(tree: Any, but: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """The leaves by name, except for names that begin as one of `but`: these are not even looked at."""
    leaves = ((jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree))
    return {name: np.asarray(_plain(leaf)) for name, leaf in leaves if not name.startswith(but)}


def _plain(leaf: Any) -> Any:
    """Random keys as the numbers they are made of."""
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _filled(template: Any, arrays: Arrays, but: tuple[str, ...] = ()) -> Any:
    """A tree like `template` with the numbers of `arrays`, except for names that begin as one of `but`."""
    leaves = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(template):
        name = jax.tree_util.keystr(path)
        if but and name.startswith(but):
            leaves.append(leaf)
            continue
        if name not in arrays:
            raise ValueError(f"the checkpoint lacks {name}: it is of another learner or version.")
        found, wanted = arrays[name], _plain(leaf)
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise ValueError(
                f"{name} is {found.dtype} {found.shape} in the checkpoint, expected {wanted.dtype} {wanted.shape}: "
                "other settings."
            )
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        # A copy: what is given away later must not be the checkpoint's own memory.
        leaves.append(jax.random.wrap_key_data(jnp.array(found)) if is_key else jnp.array(found))
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def filled_parameters(template: Any, arrays: Arrays) -> Any:
    """A network's parameters out of the arrays of a run."""
    prefix = ".parameters"
    return _filled(template, {name[len(prefix) :]: leaf for name, leaf in arrays.items() if name.startswith(prefix)})
