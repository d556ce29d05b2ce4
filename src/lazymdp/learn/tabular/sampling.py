"""What tabular learning samples from: a model, or a Gymnasium environment with Discrete spaces."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numba
import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import shown
from lazymdp._env_outcomes import check_seen, checked_reward
from lazymdp.learn.tabular import kernel
from lazymdp.learn.tabular.kernel_data import Plan, Rule, Tables, World
from lazymdp.mdp import MDP


def as_model(source: MDP | gym.Env[Any, Any], gamma: float) -> MDP | gym.Env[Any, Any]:
    """Returns the model, or the model of an environment that has a transition table `P`, or else the environment."""
    if isinstance(source, MDP):
        return source
    if not isinstance(source, gym.Env):
        raise TypeError(f"source is {shown(source)}, expected an MDP or a Gymnasium environment.")
    if getattr(source.unwrapped, "P", None) is not None:
        return MDP.from_gymnasium(source, gamma)
    for name, space in (("observation", source.observation_space), ("action", source.action_space)):
        if not isinstance(space, gym.spaces.Discrete) or space.start != 0:
            raise ValueError(
                f"tabular learning needs Discrete {name}s that start at 0, but {source} has {space}. "
                "Wrap the environment so that its states are numbered, or train a deep agent."
            )
    return source


def sizes(source: MDP | gym.Env[Any, Any]) -> tuple[int, int]:
    """Returns the numbers of states and actions."""
    if isinstance(source, MDP):
        return source.n_states, source.n_actions
    return int(source.observation_space.n), int(source.action_space.n)  # type: ignore[attr-defined]


def world_of(mdp: MDP) -> World:
    """Converts a model to the arrays of the compiled loop."""
    ends, shape = mdp.transitions.indptr.astype(np.int64), (mdp.n_states, mdp.n_actions)
    counts, rows = np.diff(ends), np.arange(ends.size - 1)
    # Each row of `bounds` has one entry more than it has successors. So has each row of `successors`: its last one is
    # never read.
    successors = np.zeros(ends[-1] + rows.size, dtype=np.uint64)
    successors[np.arange(ends[-1]) + np.repeat(rows, counts)] = mdp.transitions.indices
    first, start_states = ends[:-1] + rows, np.flatnonzero(mdp.start)
    return World(
        n_outcomes=counts.reshape(shape).astype(np.uint64),
        next_state=successors[first].reshape(shape),
        first=first.reshape(shape).astype(np.uint64),
        successors=successors,
        bounds=cumulative_bounds(mdp.transitions.data, ends),
        rewards=mdp.rewards,
        absorbing=mdp.absorbing,
        start_states=start_states.astype(np.uint64),
        start_bounds=cumulative_bounds(mdp.start[start_states], np.array([0, start_states.size])),
    )


@numba.njit(cache=True)
def cumulative_bounds(probabilities: NDArray[np.float64], ends: NDArray[np.int64]) -> NDArray[np.float64]:
    """Computes the bounds of `kernel.sample` for rows of probabilities.

    Args:
        probabilities: `[N]` the rows, one after the other.
        ends: `[R + 1]` row `i` is `probabilities[ends[i] : ends[i + 1]]`.

    Returns:
        `[N + R]` cumulative probabilities. Each row starts with 0 and ends with exactly 1, so that an outcome of
        probability 0 is never drawn even if the row does not sum to 1 exactly.
    """
    bounds = np.zeros(probabilities.size + ends.size - 1)
    for row in range(ends.size - 1):
        total = 0.0
        for k in range(ends[row], ends[row + 1]):
            total += probabilities[k]
            bounds[k + row + 1] = total
        for k in range(ends[row], ends[row + 1]):
            bounds[k + row + 1] /= total
    return bounds


def _state(env: gym.Env[Any, Any], observation: Any, step: int) -> np.uint64:
    """Returns an observation as a state. Compiled code would use one outside the space as an index."""
    check_seen(env, observation, step)
    return np.uint64(np.asarray(observation).item())


def play_environment(
    env: gym.Env[Any, Any], rule: Rule, tables: Tables, plan: Plan, points: tuple[int, int],
    curves: NDArray[np.float64], seed: int,
) -> None:  # fmt: skip
    """Does what `kernel.play` does, in an environment instead of a model: the same choices and updates."""
    for point in range(*points):
        rewards, controls, steps = 0.0, 0, 0
        for episode in range(plan.edges[point], plan.edges[point + 1]):
            epsilon = kernel.episode_epsilon(plan, episode)
            observation, _ = env.reset(seed=seed if episode == 0 else None)
            state = _state(env, observation, 0)
            choice, action = map(np.uint64, kernel.choose(rule, tables, state, epsilon))
            for step in range(1, plan.max_steps + 1):
                observation, given, terminated, truncated, _ = env.step(int(action))
                next_state, reward = (
                    _state(env, observation, step),
                    checked_reward(env, given, terminated, truncated, step),
                )
                rewards += reward
                controls += bool(choice < rule.n_actions)
                steps += 1
                if terminated:
                    kernel.learn_step(rule, tables, state, choice, action, reward, 0.0, 0.0)
                    break
                choice, action = map(
                    np.uint64,
                    kernel.learn_and_choose(rule, tables, state, choice, action, reward, next_state, epsilon),
                )
                if truncated:
                    break
                state = next_state
        curves[point] = rewards, controls, steps
