"""What tabular learning runs on: a model, an environment that carries one, or any environment with Discrete spaces."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lazymdp.learn.tabular.kernel import first_choice, one_step
from lazymdp.learn.tabular.kernel_data import SEVERAL, Lane, Plan, World, widened
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


def world_of(mdp: MDP, event: NDArray[np.bool_], width: int) -> World:
    """A model as the flat arrays the compiled steps read."""
    matrix, shape = mdp.transitions, (mdp.n_states, mdp.n_actions)
    lengths = np.diff(matrix.indptr)
    first = matrix.indices[matrix.indptr[:-1]].astype(np.uint32) * np.uint32(width)
    following = np.where(lengths == 1, first, SEVERAL).astype(np.uint64).reshape(shape)
    possible = np.flatnonzero(mdp.start)
    return World(
        widened(np.hstack([following.view(np.float64), mdp.rewards]), width),
        np.concatenate([[0], np.cumsum(widened(lengths.reshape(shape), width))]).astype(np.int32),
        matrix.indices.astype(np.uint32) * np.uint32(width),
        _running_sums(matrix),
        np.uint64(possible[0] * width),
        possible.astype(np.uint32) * np.uint32(width),
        np.cumsum(mdp.start[possible]),
        widened(event[:, None], width) if event.size else event,
        bool((lengths == 1).all() and not mdp.absorbing[possible].any()),
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


def play(env: gym.Env[Any, Any], lane: Lane, plan: Plan, event: NDArray[np.bool_], seed: int) -> None:
    """`steps.play_any` on an environment instead of a model: the same choices and updates, the steps its own."""
    rule, table = lane.rule, lane.table
    n_actions, width = int(rule.n_actions), int(rule.width)
    score, controls, total = 0.0, 0, 0
    for point in range(plan.first, plan.last):
        for episode in range(plan.edges[point], plan.edges[point + 1]):
            explore = np.uint64(max(0.0, plan.epsilon - episode * plan.epsilon_step) * 4294967296.0)
            observation, _ = env.reset(seed=seed if episode == 0 else None)
            state, happened = int(observation), False
            choice, executed = first_choice(table, rule, state, explore)
            for _ in range(plan.max_steps):
                observation, reward, terminated, truncated, _ = env.step(int(executed))
                following = int(observation)
                score += float(reward)
                controls += choice < n_actions
                total += 1
                if lane.before.size:
                    happened = happened or bool(event[state])
                    lane.before[state * width] += not happened
                choice, executed = one_step(
                    table, rule, state, choice, executed, float(reward), following, not terminated, explore
                )
                if terminated or truncated:
                    break
                state = following
        lane.seen[point] = score, controls, total
