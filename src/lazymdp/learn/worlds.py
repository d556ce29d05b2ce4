"""What tabular learning runs on: a model, an environment that carries one, or any environment with Discrete spaces."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lazymdp.learn.steps import SEVERAL, Rule, Table, World, first_choice, one_step
from lazymdp.mdp import MDP


def as_model(source: MDP | gym.Env[Any, Any], gamma: float) -> MDP | gym.Env[Any, Any]:
    """The model itself, or read from an environment that carries `P`; any other environment is returned as it is."""
    if isinstance(source, MDP):
        return source
    if not isinstance(source, gym.Env):
        raise TypeError(f"expected an MDP or a Gymnasium environment, got {type(source).__name__}.")
    if getattr(source.unwrapped, "P", None) is not None:
        return MDP.from_gymnasium(source, gamma)
    for name, space in (("observation", source.observation_space), ("action", source.action_space)):
        if not isinstance(space, gym.spaces.Discrete) or space.start != 0:
            raise ValueError(
                f"tabular learning needs Discrete {name}s that start at 0, but {source} has {space}. "
                "Wrap the environment so that it counts its states, or use a deep learner."
            )
    return source


def sizes(source: MDP | gym.Env[Any, Any]) -> tuple[int, int]:
    """Numbers of states and actions."""
    if isinstance(source, MDP):
        return source.n_states, source.n_actions
    return int(source.observation_space.n), int(source.action_space.n)  # type: ignore[attr-defined]


def world_of(mdp: MDP, event: NDArray[np.bool_]) -> World:
    """A model as the flat arrays the compiled steps read."""
    matrix = mdp.transitions
    lengths = np.diff(matrix.indptr)
    first = matrix.indices[matrix.indptr[:-1]]
    return World(
        np.where(lengths == 1, first.astype(np.uint32), SEVERAL),
        matrix.indptr,
        matrix.indices,
        _running_sums(matrix),
        mdp.rewards.reshape(-1),
        mdp.absorbing,
        np.cumsum(mdp.start),
        event,
    )


def check_event(event: ArrayLike | None, n_states: int) -> NDArray[np.bool_]:
    """The event as a mask `[S]`, or empty."""
    if event is None:
        return np.zeros(0, dtype=bool)
    mask = np.asarray(event)
    if mask.shape != (n_states,) or mask.dtype != np.bool_:
        raise ValueError(
            f"event has shape {mask.shape} and type {mask.dtype}, expected one bool for each of the {n_states} states."
        )
    return mask


def _running_sums(matrix: sp.csr_array) -> NDArray[np.float64]:
    """Running sums of the entries of each row."""
    sums = np.cumsum(matrix.data)
    before = np.concatenate([[0.0], sums])[matrix.indptr[:-1]]
    return sums - np.repeat(before, np.diff(matrix.indptr))


def play(
    env: gym.Env[Any, Any], rule: Rule, table: Table, count: int, max_steps: int, epsilon: float, epsilon_step: float,
    occupancy: NDArray[np.int64], before: NDArray[np.int64], event: NDArray[np.bool_], seed: int | None,
) -> tuple[float, int, int]:  # fmt: skip
    """`steps.episodes` on an environment instead of a model: the same choices and updates, the steps its own."""
    n_actions = int(rule.n_actions)
    score, controls, total = 0.0, 0, 0
    for episode in range(count):
        explore_below = np.uint64(max(0.0, epsilon - episode * epsilon_step) * 4294967296.0)
        observation, _ = env.reset(seed=seed if episode == 0 else None)
        state, happened = int(observation), False
        choice, executed = first_choice(table, rule, state, explore_below)
        for _ in range(max_steps):
            observation, reward, terminated, truncated, _ = env.step(int(executed))
            following = int(observation)
            score += float(reward)
            controls += choice < n_actions
            total += 1
            if occupancy.size:
                occupancy[state] += 1
            if before.size:
                happened = happened or bool(event[state])
                before[state] += not happened
            choice, executed = one_step(
                table, rule, state, choice, executed, float(reward), following, not terminated, explore_below
            )
            if terminated or truncated:
                break
            state = following
    return score, controls, total
