"""The two ways to run an algorithm: as one compiled scan, or over environments that step on the host.

Both repeat the same `turn`. After a turn of all environments, the updates that are due are made. An iteration is
`rollout` such steps. The whole state of a run is arrays: `arrays` returns them by name, and `restore` continues from
them.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from lazymdp.learn.deep import prices
from lazymdp.learn.deep.acting import Episodes, Group
from lazymdp.learn.deep.algorithm import Algorithm
from lazymdp.learn.deep.env_failures import EnvironmentFailed
from lazymdp.learn.deep.host_env import HostEnv, Outcome
from lazymdp.learn.deep.jax_env import JaxEnv, restart_where
from lazymdp.learn.deep.named_arrays import Arrays, from_named, to_named
from lazymdp.learn.deep.networks import Parameters
from lazymdp.learn.deep.prices import Price
from lazymdp.learn.deep.turn import Run, before, end_iteration, new_run, refilled, turn

_REPLAY = ".learner.replay"  # saved separately: it is large, and little of it changes between checkpoints
_NOT_RESUMED = (".learner.rollout", ".learner.lessons")  # not saved if a resumed run starts new episodes


# -- one compiled scan -----------------------------------------------------------------------------------------------


def start_compiled(
    algorithm: Algorithm, key: Array, price: Price | None = None, parameters: Parameters | None = None
) -> Run:
    """Starts a run on compiled environments and makes its first choices."""
    env, n_envs = _compiled(algorithm), algorithm.config.n_envs
    key, run_key, env_key, choice_key = jax.random.split(key, 4)
    run = new_run(algorithm, run_key, price, parameters)
    states = jax.vmap(env.reset)(jax.random.split(env_key, n_envs))
    never, zeros = jnp.zeros(n_envs, bool), jnp.zeros(n_envs)
    outcome = Outcome(jax.vmap(env.observe)(states), zeros, never, never, ~never)
    uniform = jax.random.uniform(choice_key, (3, n_envs))
    group = Group(0, n_envs)
    run, _, _ = turn(algorithm, run, outcome, group, jnp.int32(0), uniform, run.actors.eta)
    return run._replace(env=states, key=key)


def iterate(algorithm: Algorithm, run: Run) -> tuple[Run, Episodes]:
    """Makes one iteration on compiled environments; also returns the episodes `[T, N]` that ended in it."""
    env, config = _compiled(algorithm), algorithm.config
    shape = (config.rollout, config.n_envs)
    # All random numbers of the rollout are drawn at once, which takes fewer kernels than drawing them step by step.
    key, choice_key, eta_key, step_key, start_key, update_key, end_key = jax.random.split(run.key, 7)
    drawn = (
        1 + jnp.arange(config.rollout),
        jax.random.uniform(choice_key, (shape[0], 3, shape[1])),
        prices.draw(run.price, eta_key, shape),
        jax.random.split(step_key, shape),
        jax.vmap(jax.vmap(env.reset))(jax.random.split(start_key, shape)),
        jax.random.split(update_key, config.rollout),
    )

    def step(run: Run, drawn: Any) -> tuple[Run, Episodes]:
        slot, uniform, new_eta, keys, starts, update_key = drawn
        states, reward, terminated, truncated = jax.vmap(env.step)(run.env, run.actors.action, keys)
        states = jax.vmap(restart_where)(terminated | truncated, starts, states)
        lost = jnp.zeros_like(terminated)
        outcome = Outcome(jax.vmap(env.observe)(states), reward, terminated, truncated, lost)
        group = Group(0, config.n_envs)
        run, _, episodes = turn(algorithm, run._replace(env=states), outcome, group, slot, uniform, new_eta)
        if algorithm.updates_after_steps:
            count = algorithm.updates_due(run.iteration, slot)
            learner = algorithm.update(run.learner, run.iteration, slot, run.price, update_key, count)
            run = run._replace(learner=learner)
        return run, episodes

    # Unrolling by 2 is 2% faster on a GPU; with updates inside the loop, it would take twice as long on a CPU.
    run, episodes = jax.lax.scan(step, run, drawn, unroll=1 if algorithm.updates_after_steps else 2)
    return end_iteration(algorithm, run, end_key)._replace(key=key), episodes


def _compiled(algorithm: Algorithm) -> JaxEnv:
    if not isinstance(algorithm.env, JaxEnv):
        raise TypeError(f"{algorithm.env} steps on the host and cannot be compiled.")
    return algorithm.env


class CompiledLoop:
    """Runs an algorithm and its environments as one compiled program.

    Args:
        algorithm: The algorithm.
        seed: Random seed.
        parameters: Initial parameters of the network; random by default.
    """

    def __init__(self, algorithm: Algorithm, seed: int, parameters: Parameters | None = None) -> None:
        self.algorithm = algorithm
        self._iterate = jax.jit(functools.partial(iterate, algorithm), donate_argnums=0)
        start = jax.jit(functools.partial(start_compiled, algorithm))
        self.run: Run = start(jax.random.key(seed), parameters=parameters)
        self._episodes: list[Episodes] = []
        self._unchecked: tuple[int, Array] | None = None
        self.iteration = 0

    def advance(self) -> None:
        """Starts an iteration and waits for the previous one, since JAX would otherwise queue many of them.

        Raises `EnvironmentFailed` if the previous one met a reward or an observation that is not finite.
        """
        self.run, episodes = self._iterate(self.run)
        self._check(self._unchecked)
        self._unchecked = (self.iteration, episodes.spoiled)
        self._episodes.append(episodes)
        self.iteration += 1

    def episodes(self) -> NDArray[np.float64]:
        """Returns the K episodes that ended since the last call, `[5, K]`: 1, eta, return, steps, controls."""
        self._check(self._unchecked)
        parts = [np.stack([np.asarray(x, dtype=float).ravel() for x in part[:5]]) for part in self._episodes]
        self._episodes.clear()
        return _ended(parts)

    def _check(self, given: tuple[int, Array] | None) -> None:
        """Raises an error if an environment returned what cannot be learned from; waits for the end of the iteration.

        Args:
            given: Number of an iteration, and `Episodes.spoiled` of its steps, `[T, N]`.
        """
        if given is None or not (found := np.asarray(given[1])).any():
            return
        step, env = (int(one) for one in np.argwhere(found)[0])
        config = self.algorithm.config
        what = "a reward" if found[step, env] == 1 else "an observation"
        raise EnvironmentFailed(
            f"{_compiled(self.algorithm).name}, environment {env} of {config.n_envs} (from 0), agent step "
            f"{(given[0] * config.rollout + step + 1) * config.n_envs:,}: it returned {what} that is not finite or too "
            "large."
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the state of the run by name, without the replay buffer."""
        self._check(self._unchecked)
        return to_named(self.run, without=(_REPLAY,))

    def restore(self, arrays: Arrays) -> None:
        """Continues from the `arrays` of another loop."""
        self.run = from_named(self.run, arrays, without=(_REPLAY,))
        self.iteration = int(self.run.iteration)

    def refill(self, acting: Algorithm, iterations: int) -> None:
        """Repeats the last iterations without learning, to fill a replay buffer that was lost.

        Args:
            acting: The same algorithm without its updates.
            iterations: Number of iterations.
        """
        act_only = jax.jit(functools.partial(iterate, acting), donate_argnums=0)
        price, self.run = jax.tree.map(jnp.copy, self.run.price), before(self.run, iterations)
        for _ in range(iterations):
            self.run, _ = act_only(self.run)
        rollout = self.algorithm.config.rollout
        first = (self.iteration - iterations) * rollout
        self.run = refilled(self.run._replace(price=price), first, iterations * rollout)

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


# -- environments on the host ----------------------------------------------------------------------------------------


class HostLoop:
    """Runs an algorithm whose environments step on the host, group by group, while the device computes updates.

    Args:
        algorithm: The algorithm.
        seed: Random seed.
        parameters: Initial parameters of the network; random by default.
        ends: Numbers of iterations after which the run ends or could have ended, if it was extended; by default the
            config's. There, updates that would be made during the next iteration are made at once, so that a run
            that is extended after its end equals one that was extended before.
    """

    def __init__(
        self, algorithm: Algorithm, seed: int, parameters: Parameters | None = None, ends: tuple[int, ...] = ()
    ) -> None:
        self.algorithm, self.seed = algorithm, seed
        self._ends = ends or (algorithm.config.iterations,)
        self.env: HostEnv = algorithm.env  # type: ignore[assignment]
        self._update = jax.jit(self._updated, donate_argnums=0, static_argnames="count")
        self._end_iteration = jax.jit(self._iteration_ended, donate_argnums=0)
        # As one program: operation by operation, JAX would compile some seventy.
        start = jax.jit(functools.partial(new_run, algorithm))
        self.run: Run = start(jax.random.key(seed), parameters=parameters)
        self._turn: Any = None
        self._episodes: list[NDArray[Any]] = []
        self.iteration = 0
        self._in_flight = False  # whether actions have been sent whose outcome has not been received
        self._has_lessons = True  # False if there is no previous rollout to learn from

    def advance(self) -> None:
        """Makes one iteration with the updates due in it; at an end of the run, also makes those that remain."""
        self._begin()
        rollout = self.algorithm.config.rollout
        for slot in range(1, rollout + 1):
            self._step(slot)
            self._learn(slot)
        self.run = self._end_iteration(self.run)
        self.iteration, self._has_lessons = self.iteration + 1, True
        if self.iteration in self._ends and self.algorithm.updates_carry_over:
            for slot in range(1, rollout + 1):
                self._learn(slot)
            self._has_lessons = False

    def episodes(self) -> NDArray[np.float64]:
        """Returns the K episodes that ended since the last call, `[5, K]`: 1, eta, return, steps, controls."""
        parts = [part.astype(float) for part in self._episodes]
        self._episodes.clear()
        return _ended(parts)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the state of the run by name, without the replay buffer."""
        self._begin()
        environments = {f"env.{name}": array for name, array in self.env.arrays().items()}
        return {**to_named(self.run, without=self._not_saved), **environments}

    def restore(self, arrays: Arrays) -> None:
        """Continues from the `arrays` of another loop. Episodes that cannot be restored are lost."""
        self.run = from_named(self.run, arrays, without=self._not_saved)
        self.iteration = int(self.run.iteration)
        self.env.restore(self.seed, {name[4:]: array for name, array in arrays.items() if name.startswith("env.")})
        has_rollout = self.env.repeats and self.iteration not in self._ends
        self._in_flight, self._has_lessons = True, has_rollout or not self.algorithm.updates_carry_over

    def refill(self, acting: Algorithm, iterations: int) -> None:
        """Repeats the last iterations without learning, like `CompiledLoop.refill`."""
        learning, self.algorithm = self.algorithm, acting
        price, self.run = jax.tree.map(jnp.copy, self.run.price), before(self.run, iterations)
        self.iteration -= iterations
        for _ in range(iterations):
            self.advance()
        self._episodes.clear()
        self.algorithm = learning
        rollout = learning.config.rollout
        first = (self.iteration - iterations) * rollout
        self.run = refilled(self.run._replace(price=price), first, iterations * rollout)

    def close(self) -> None:
        """Closes the environments."""
        self.env.close()

    @property
    def _not_saved(self) -> tuple[str, ...]:
        return (_REPLAY,) if self.env.repeats else (_REPLAY, *_NOT_RESUMED)

    def _begin(self) -> None:
        """Starts the environments and makes the first choices, unless this has been done."""
        if not self._in_flight:
            self.env.start(self.seed)
        if self._turn is None:
            self._turn = self._compiled_turn()  # while the environments start
        if not self._in_flight:
            self._step(0)
            self._in_flight = True

    def _step(self, slot: int) -> None:
        for group, part in enumerate(self.env.groups):
            outcome = self.env.receive(group)
            self.run, sent = self._turn(self.run, outcome, np.int32(part.start), np.int32(slot))
            actions, *episodes = np.asarray(sent)  # waits for the device
            self.env.send(group, actions.astype(np.int64))
            self._episodes.append(np.stack(episodes))

    def _learn(self, slot: int) -> None:
        count = self.algorithm.updates_due(self.iteration, slot) if self._has_lessons else 0
        if count or self.algorithm.copy_due(self.iteration, slot):
            self.run = self._update(self.run, slot, count=count)

    def _group_turn(self, run: Run, outcome: Outcome, begin: Array, slot: Array) -> tuple[Run, Array]:
        """Makes a turn of a group; returns the run and, in one array to transfer, `[6, M]` actions and episodes."""
        group = Group(begin, outcome.reward.shape[0])
        key, choice_key, eta_key = jax.random.split(run.key, 3)
        uniform = jax.random.uniform(choice_key, (3, group.size))
        new_eta = prices.draw(run.price, eta_key, (group.size,))
        run, actions, episodes = turn(self.algorithm, run._replace(key=key), outcome, group, slot, uniform, new_eta)
        # What cannot be learned from has been refused by the environments themselves.
        return run, jnp.stack([part.astype(jnp.float32) for part in (actions, *episodes[:5])])

    def _compiled_turn(self) -> Any:
        env, count = self.env, self.env.groups[0].stop
        flag = jax.ShapeDtypeStruct((count,), bool)
        frame = jax.ShapeDtypeStruct((count, *env.frame_shape), env.dtype)
        outcome = Outcome(frame, jax.ShapeDtypeStruct((count,), np.float32), flag, flag, flag)
        compiled = jax.jit(self._group_turn, donate_argnums=0)
        return compiled.lower(self.run, outcome, np.int32(0), np.int32(0)).compile()

    def _updated(self, run: Run, slot: Array, count: int) -> Run:
        key, update_key = jax.random.split(run.key)
        learner = self.algorithm.update(run.learner, run.iteration, slot, run.price, update_key, count)
        return run._replace(learner=learner, key=key)

    def _iteration_ended(self, run: Run) -> Run:
        key, end_key = jax.random.split(run.key)
        return end_iteration(self.algorithm, run, end_key)._replace(key=key)


def _ended(parts: list[NDArray[Any]]) -> NDArray[np.float64]:
    """Concatenates `[5, M]` parts and keeps the episodes that ended, `[5, K]`."""
    episodes = np.concatenate(parts, axis=1) if parts else np.zeros((5, 0))
    return episodes[:, episodes[0] > 0.0]


def make_loop(
    algorithm: Algorithm, seed: int, parameters: Parameters | None = None, ends: tuple[int, ...] = ()
) -> CompiledLoop | HostLoop:
    """Makes the loop that suits the algorithm's environment; `HostLoop` explains `ends`."""
    if isinstance(algorithm.env, JaxEnv):
        return CompiledLoop(algorithm, seed, parameters)
    return HostLoop(algorithm, seed, parameters, ends)
