"""Plays episodes of an agent in which chosen steps are handed over to a default policy.

Several episodes are played in lockstep, so that the agent and the importance measure are called with batches. Every
episode has a seed of its own, which determines the environment and the default policy: two plays with the same seeds
differ only in the steps that are handed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from lazymdp._arguments import MOST_COUNTED, check_callable, check_count, check_gamma, shown
from lazymdp._env_outcomes import check_seen
from lazymdp.defaults.forms import BadAnswer, check_actions
from lazymdp.wrappers.lazy_action import LazyAction

AGENT, DEFAULT, RECORDED = 0, 1, 2
"""Who acts on a step: the agent, the default policy, or the executed action of a recorded episode."""

Importance = Callable[[Any], Any]
"""Maps a batch of observations `[N, ...]` to `[N]` numbers; larger is more important."""

Rule = Callable[[int, NDArray[np.int64], NDArray[np.float64]], NDArray[np.int64]]
"""Maps a step, the indices of the running episodes `[n]` and the importance of their observations `[n]` to who acts."""

_BATCH = 64
"""Largest number of episodes that are played in lockstep, each in an environment of its own."""


@dataclass(frozen=True, eq=False)
class Episode:
    """A whole episode of `L` steps.

    Attributes:
        seed: Seed of its reset.
        total: Its return, discounted with the `gamma` of the player.
        actions: `[L]` executed actions.
        rewards: `[L]` rewards.
        importance: `[L]` importance of the observation before each step; 0 if no measure was given.
        handed: `[L]` whether the rule handed the step over to the default policy; the agent's own lazy steps are not
            counted.
    """

    seed: int
    total: float
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    importance: NDArray[np.float64]
    handed: NDArray[np.bool_]


class Player:
    """Plays episodes of one agent in copies of one environment.

    Args:
        agent: An object with `predict(observations, deterministic=True) -> (actions, state)`, or a callable from
            observations `[N, ...]` to `[N]` actions. The last action plus one is the lazy action of `LazyAction`: an
            agent may be lazy by itself.
        env: The id of a Gymnasium environment, or a function that makes one. Its actions are `Discrete`.
        default_policy: The default policy, in any form that `LazyAction` accepts.
        gamma: Discount of the returns.
        max_steps: Number of steps after which an episode is truncated; by default the environment decides.
    """

    def __init__(
        self,
        agent: Any,
        env: str | Callable[[], gym.Env[Any, Any]],
        default_policy: Any,
        gamma: float,
        max_steps: int | None,
    ) -> None:
        if not callable(getattr(agent, "predict", None)) and not callable(agent):
            raise TypeError(
                f"agent is {shown(agent)}, expected an object with predict, or a callable from observations to actions."
            )
        if not isinstance(env, str) and not callable(env):
            raise TypeError(f"env is {shown(env)}, expected the id of an environment, or a function that makes one.")
        self.agent, self.env, self.default_policy = agent, env, default_policy
        self.gamma = check_gamma(gamma)
        self.max_steps = MOST_COUNTED if max_steps is None else check_count(max_steps, "max_steps", "a number of steps")
        self._envs: list[LazyAction[Any]] = []

    def play(
        self,
        seeds: Sequence[int],
        rule: Rule | None = None,
        importance: Importance | None = None,
        recorded: Sequence[Episode] | None = None,
    ) -> list[Episode]:
        """Plays one episode per seed.

        Args:
            seeds: Seeds of the resets.
            rule: Decides who acts; by default always the agent.
            importance: Measures the importance of observations for the rule and for the record.
            recorded: The episodes, one per seed, from which recorded actions are taken.
        """
        while len(self._envs) < min(_BATCH, len(seeds)):
            self._envs.append(LazyAction(self._make(), self.default_policy, 0.0))
        episodes: list[Episode] = []
        for first in range(0, len(seeds), _BATCH):
            episodes += self._lockstep(seeds[first : first + _BATCH], first, rule, importance, recorded)
        return episodes

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs:
            env.close()
        self._envs = []

    def _make(self) -> gym.Env[Any, Any]:
        return gym.make(self.env) if isinstance(self.env, str) else self.env()

    def _lockstep(
        self,
        seeds: Sequence[int],
        first: int,
        rule: Rule | None,
        importance: Importance | None,
        recorded: Sequence[Episode] | None,
    ) -> list[Episode]:
        envs = self._envs[: len(seeds)]
        lazy = envs[0].lazy_action
        observations = [env.reset(seed=int(seed))[0] for env, seed in zip(envs, seeds, strict=True)]
        for env, observation in zip(envs, observations, strict=True):
            check_seen(env, observation, 0)
        steps: list[list[tuple[int, float, float, bool]]] = [[] for _ in seeds]
        state: Any = None
        running, step = np.arange(len(seeds)), 0
        while running.size:
            batch = _stacked(envs[0].observation_space, [observations[row] for row in running])
            scores = _measured(importance, batch, running.size)
            who = np.zeros(running.size, int) if rule is None else rule(step, first + running, scores)
            actions, state = self._act(batch, running.size, state, envs[0].action_space)
            over = np.zeros(running.size, dtype=bool)
            for column, row in enumerate(running.tolist()):
                action = lazy if who[column] == DEFAULT else actions[column]
                if who[column] == RECORDED and recorded is not None:
                    action = recorded[first + row].actions[step]
                observations[row], _, terminated, truncated, info = envs[row].step(int(action))
                check_seen(envs[row], observations[row], step + 1)
                told = (info["base_action"], info["base_reward"], float(scores[column]), bool(who[column] == DEFAULT))
                steps[row].append(told)
                over[column] = terminated or truncated or step + 1 >= self.max_steps
            if isinstance(state, np.ndarray):  # an agent of `lz.learn` wants to know the actions that were executed
                state = np.array([steps[row][-1][0] for row in running[~over]], dtype=np.int64)
            running, step = running[~over], step + 1
        return [self._episode(int(seed), rows) for seed, rows in zip(seeds, steps, strict=True)]

    def _act(self, batch: Any, count: int, state: Any, space: Any) -> tuple[NDArray[np.int64], Any]:
        predict = getattr(self.agent, "predict", None)
        if predict is None:
            answer, state = self.agent(batch), None
        elif state is None:
            answer, state = predict(batch, deterministic=True)
        else:
            answer, state = predict(batch, state=state, deterministic=True)
        if isinstance(state, tuple):
            raise TypeError("the agent keeps a recurrent state, which is not supported: give an agent without memory.")
        try:
            return check_actions(answer, count, space), state
        except BadAnswer as error:
            raise ValueError(f"the actions of the agent do not fit the environment: {error}") from None

    def _episode(self, seed: int, steps: list[tuple[int, float, float, bool]]) -> Episode:
        actions, rewards, importance, handed = (np.array(column) for column in zip(*steps, strict=True))
        total = float(rewards @ self.gamma ** np.arange(rewards.size))
        return Episode(seed, total, actions.astype(np.int64), rewards, importance, handed)


def check_importance(importance: Any) -> None:
    """Raises an error if a measure of importance is not a function."""
    check_callable(importance, "importance", "a callable from observations [N, ...] to [N] numbers")


def episode_seeds(seed: int, count: int) -> list[int]:
    """Returns the seeds of `count` episodes."""
    return [int(one) for one in np.random.default_rng(seed).integers(2**31, size=count)]


def uniforms(seed: int, step: int, episodes: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Returns `[n]` random numbers that depend on nothing but the seed, the step and the episode."""
    return np.random.default_rng([seed, step]).random(count)[episodes]


def _stacked(space: gym.Space[Any], observations: list[Any]) -> Any:
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        return np.array(observations)
    empty: Any = create_empty_array(space, len(observations))
    return concatenate(space, observations, empty)


def _measured(importance: Importance | None, batch: Any, count: int) -> NDArray[np.float64]:
    if importance is None:
        return np.zeros(count)
    scores = np.asarray(importance(batch))
    if scores.shape != (count,) or scores.dtype.kind not in "biuf" or not np.isfinite(scores).all():
        raise ValueError(
            f"importance returned {shown(scores)} for {count} observations, expected {count} finite numbers: one per "
            "observation."
        )
    return scores.astype(np.float64)
