"""Plays episodes of an agent in compiled environments, with chosen steps handed over to random actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.deep.jax_env import JaxEnv
from lazymdp.measure.handover import AGENT, DEFAULT, RECORDED, Episode, Importance, Rule


class CompiledPlayer:
    """Does what `lazymdp.measure.handover.Player` does, for a compiled environment and the uniform default policy.

    All episodes step in one program, also those that have ended, whose steps are not recorded.

    Args:
        env: The environment.
        act: Maps observations `[N, ...]` to `[N]` actions.
        max_steps: Number of steps after which an episode is truncated.
    """

    def __init__(self, env: JaxEnv, act: Callable[[Any], NDArray[Any]], max_steps: int) -> None:
        self._act, self.max_steps = act, max_steps
        self._reset = jax.jit(jax.vmap(lambda seed: _started(env, seed)))
        self._step = jax.jit(jax.vmap(lambda *given: _stepped(env, *given), in_axes=(0, 0, 0, None, 0)))

    def play(
        self,
        seeds: Sequence[int],
        rule: Rule | None = None,
        importance: Importance | None = None,
        recorded: Sequence[Episode] | None = None,
    ) -> list[Episode]:
        """Plays one episode per seed; the arguments are those of `Player.play`."""
        keys = jnp.asarray(seeds, dtype=jnp.uint32)
        states, observed = self._reset(keys)
        steps: list[list[tuple[int, float, float, bool]]] = [[] for _ in seeds]
        running, step = np.arange(len(seeds)), 0
        while running.size:
            seen = np.asarray(observed)
            scores = np.zeros(len(seeds)) if importance is None else np.asarray(importance(seen), dtype=float)
            who = np.full(len(seeds), AGENT)
            if rule is not None:
                who[running] = rule(step, running, scores[running])
            actions = np.asarray(self._act(seen), dtype=np.int32)
            if recorded is not None:
                for row in running[who[running] == RECORDED]:
                    actions[row] = recorded[row].actions[step]
            states, observed, *told = self._step(states, keys, actions, step, who == DEFAULT)
            executed, rewards, over = (np.asarray(each) for each in told)
            for row in running.tolist():
                steps[row].append(
                    (int(executed[row]), float(rewards[row]), float(scores[row]), bool(who[row] == DEFAULT))
                )
            step += 1
            running = running[~over[running]] if step < self.max_steps else running[:0]
        return [_episode(int(seed), rows) for seed, rows in zip(seeds, steps, strict=True)]

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


def _started(env: JaxEnv, seed: Any) -> tuple[Any, Any]:
    state = env.reset(jax.random.key(seed))
    return state, env.observe(state)


def _stepped(env: JaxEnv, state: Any, seed: Any, action: Any, step: Any, handed: Any) -> tuple[Any, ...]:
    """Makes a step; everything random follows from the seed of the episode and the number of the step."""
    env_key, default_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), step + 1))
    executed = jnp.where(handed, jax.random.randint(default_key, (), 0, env.n_actions), action)
    state, reward, terminated, truncated = env.step(state, executed, env_key)
    return state, env.observe(state), executed, reward, terminated | truncated


def _episode(seed: int, steps: list[tuple[int, float, float, bool]]) -> Episode:
    actions, rewards, importance, handed = (np.array(column) for column in zip(*steps, strict=True))
    return Episode(seed, float(rewards.sum()), actions.astype(np.int64), rewards, importance, handed.astype(bool))
