"""The turn that both ways to run an algorithm repeat, and the state of a run between turns.

In a turn, a group of environments reports the outcome of its last actions. The statistics of the episodes are updated,
the algorithm chooses the next actions, and records them. `end_iteration` follows the last turn of a rollout.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from lazymdp.learn.deep import prices
from lazymdp.learn.deep.acting import (
    Actors,
    Episodes,
    Exploration,
    Group,
    act,
    add_step,
    empty_stack,
    new_actors,
    note_choice,
    note_extremes,
    push_frame,
    spoiled,
)
from lazymdp.learn.deep.algorithm import Algorithm, Learner
from lazymdp.learn.deep.host_env import Outcome
from lazymdp.learn.deep.jax_env import State
from lazymdp.learn.deep.networks import Parameters
from lazymdp.learn.deep.prices import Price


class Run(NamedTuple):
    """The state of a run, except for environments that step on the host."""

    learner: Learner
    price: Price  # distribution from which the price of an episode is drawn
    actors: Actors  # [N] the episodes in progress
    stack: Array | tuple[()]  # [N, ..., S] the last frames if observations are stacks, otherwise ()
    env: State  # [N] states of compiled environments, otherwise ()
    key: Array  # random key
    iteration: Array  # number of completed iterations


def new_run(algorithm: Algorithm, key: Array, price: Price | None = None, parameters: Parameters | None = None) -> Run:
    """Returns a run before its first step.

    Args:
        algorithm: The algorithm.
        key: Random key.
        price: Distribution of prices; by default the config's. It consists of arrays, so that runs with different
            prices can share one program.
        parameters: Initial parameters of the network; random by default.
    """
    env, config = algorithm.env, algorithm.config
    key, network_key, price_key = jax.random.split(key, 3)
    price = prices.initial(config) if price is None else price
    actors = new_actors(prices.draw(price, price_key, (config.n_envs,)), env.noop)
    stack = empty_stack(config.n_envs, env.shape, env.dtype, env.n_frames)
    return Run(algorithm.init(network_key, parameters), price, actors, stack, (), key, jnp.int32(0))


def turn(
    algorithm: Algorithm, run: Run, outcome: Outcome, group: Group, slot: Array, uniform: Array, new_eta: Array
) -> tuple[Run, Array, Episodes]:
    """Processes the outcome of a group's last actions and makes its next choices.

    Args:
        algorithm: The algorithm.
        run: The run.
        outcome: `[M]` outcome of the last actions.
        group: The environments.
        slot: Step of the iteration, starting at 1; 0 at the start of the run.
        uniform: `[3, M]` random numbers for the choices.
        new_eta: `[M]` prices for episodes that begin now.

    Returns:
        The run, `[M]` actions to execute, and the episodes that ended.
    """
    config, env = algorithm.config, algorithm.env
    actors, stack = group.part((run.actors, run.stack))
    eta, restarted = actors.eta, outcome.restarted
    actors, totals = add_step(actors, outcome.reward, restarted, new_eta, env.noop)
    returns, steps, controls = totals.T
    bad = spoiled(outcome.reward, outcome.frame)  # type: ignore[arg-type, unused-ignore]
    episodes = Episodes(restarted & ~outcome.lost, eta, returns, steps, controls, bad)

    observation, stack = push_frame(stack, outcome.frame, restarted)
    epsilon = algorithm.epsilon((run.iteration * config.rollout + slot) * config.n_envs)
    last_choice = jnp.where(actors.lazy, env.n_actions, actors.action)
    # Random choices last only while epsilon is high: later, they would throw away what a good policy achieves.
    exploration = Exploration(epsilon, config.exploration_persistence * epsilon, actors.exploring, last_choice)
    choice = act(algorithm, algorithm.acting(run.learner), observation, actors.eta, actors.action, uniform, exploration)
    reward = jnp.clip(outcome.reward, -1.0, 1.0) if config.clip_rewards else outcome.reward
    learner = algorithm.record(
        run.learner,
        group,
        run.iteration,
        slot,
        outcome,
        reward,
        observation,
        actors.eta,
        choice,  # type: ignore[arg-type, unused-ignore]
    )
    actors = note_extremes(actors, reward, choice.value, run.iteration == 0)
    actors, stack = group.put((run.actors, run.stack), (note_choice(actors, choice), stack))
    return run._replace(learner=learner, actors=actors, stack=stack), choice.executed, episodes


def end_iteration(algorithm: Algorithm, run: Run, key: Array) -> Run:
    """Lets the algorithm learn from the rollout, and steers the price toward a control budget."""
    config, iteration = algorithm.config, run.iteration + 1
    learner = algorithm.end_rollout(run.learner, run.iteration, run.price, key)
    greedy, controls = run.actors.greedy.sum(0)
    price = prices.steer(run.price, config, greedy, controls, iteration * config.steps_per_iteration)
    actors = run.actors._replace(greedy=jnp.zeros_like(run.actors.greedy))
    if config.control_budget is not None:  # episodes in progress continue at the new price
        actors = actors._replace(eta=jnp.full_like(actors.eta, price.low))
    return run._replace(learner=learner, price=price, actors=actors, iteration=iteration)


def before(run: Run, iterations: int) -> Run:
    """Returns the run with its number of iterations reduced."""
    return run._replace(iteration=run.iteration - iterations)


def refilled(run: Run, first: int, steps: int) -> Run:
    """Returns a run whose last `steps` steps were recorded from step `first` on, which is excluded from learning.

    Its observation was made before the buffer was lost.
    """
    learner: Any = run.learner
    n_rows = learner.replay.reward.shape[0]
    if steps >= n_rows:  # it has been overwritten
        return run
    buffer = learner.replay._replace(truncated=learner.replay.truncated.at[first % n_rows].set(True))
    return run._replace(learner=learner._replace(replay=buffer))
