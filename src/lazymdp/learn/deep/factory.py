"""Builds environments, default policies, algorithms and trained agents from a config or a run folder."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from lazymdp.defaults import protocol
from lazymdp.defaults.forms import Table
from lazymdp.envs.toy_text import read_table
from lazymdp.learn.deep import compiled_defaults
from lazymdp.learn.deep.agent import Agent
from lazymdp.learn.deep.algorithm import Algorithm
from lazymdp.learn.deep.atari import AtariHost
from lazymdp.learn.deep.compiled_defaults import CompiledDefault
from lazymdp.learn.deep.config import DQNConfig, TrainConfig
from lazymdp.learn.deep.dqn import DQN
from lazymdp.learn.deep.host_env import GymnasiumHost, HostEnv, make_gymnasium_env
from lazymdp.learn.deep.jax_env import JaxEnv, from_table, minatar
from lazymdp.learn.deep.named_arrays import is_finite, parameters_from
from lazymdp.learn.deep.networks import Parameters, resize_head
from lazymdp.learn.deep.pqn import PQN
from lazymdp.learn.deep.run_folder import RunFolder, find_run

PYTHON_OBJECT = "given in Python"
"""Placeholder in a config for a default policy that was given as a Python object."""


def make_env(env: str, n_envs: int, n_groups: int = 1) -> JaxEnv | HostEnv:
    """Makes an environment by name: compiled where possible, otherwise `n_envs` copies on the host.

    Args:
        env: Name of the environment.
        n_envs: Number of copies.
        n_groups: Number of groups of Atari emulators; with two, one steps while the other waits for its actions.
    """
    family, _, name = env.partition("/")
    if family == "minatar":
        return minatar(name)
    if family == "ALE":
        return AtariHost(env, n_envs, n_groups)
    made = make_gymnasium_env(env)
    try:
        if getattr(made.unwrapped, "P", None) is None:
            return GymnasiumHost(env, n_envs)
        limit = None if made.spec is None else made.spec.max_episode_steps
        again = functools.partial(make_gymnasium_env, env)
        return replace(from_table(read_table(made.unwrapped), limit), space=made.observation_space, make=again)
    finally:
        made.close()


def make_default_policy(form: Any, env: JaxEnv | HostEnv, needs_probabilities: bool = True) -> CompiledDefault:
    """Makes a compiled default policy.

    Args:
        form: `uniform`, `noop`, `repeat`, or the number of an action; the folder of a run, whose network acts greedily
            (`RUN`), epsilon-greedily (`RUN:epsilon=0.1`) or by a softmax of its values at a temperature
            (`RUN:softmax=0.5`); or any form that `lazymdp.defaults` accepts, which is called back on the host.
        env: Environment in which the policy acts.
        needs_probabilities: Whether the policy must return probabilities, as the structured form requires.
    """
    n_actions = env.n_actions
    if isinstance(form, Agent):
        raise TypeError("default_policy is an Agent: give agent.as_default().")
    if isinstance(form, os.PathLike):
        form = os.fspath(form)
    if isinstance(form, str):
        if form == "uniform":
            return compiled_defaults.uniform(n_actions)
        if form == "repeat":
            return compiled_defaults.repeat(n_actions)
        if form == "noop" or (form.isdecimal() and int(form) < n_actions):
            return compiled_defaults.fixed(env.noop if form == "noop" else int(form), n_actions)
        if form == PYTHON_OBJECT:
            raise ValueError("the default policy of this run was given in Python: give it again, as default_policy=.")
        named = find_run(form)
        if named is not None:
            return _network_default(*named, env)
        if not Path(form).is_file():
            raise ValueError(
                f"default_policy is {form!r}, expected uniform, noop, repeat, an action from 0 to {n_actions - 1}, the "
                "folder of a run, or a file."
            )
    actions, space = spaces.Discrete(n_actions, start=env.first_action), env.space
    if not isinstance(space, spaces.Box | spaces.Discrete):
        raise ValueError(
            f"default_policy is a Python object, which works for Box and Discrete observations only, not for {space}. "
            "Use uniform, noop, repeat, the number of an action, or a run."
        )
    policy = protocol.make_default(form, actions, space, env.noop + int(actions.start), batched=True)
    if isinstance(policy, Table):
        # A model may have an extra terminal state, in which no action is taken.
        added = np.full((env.shape[0] - len(policy.table), n_actions), 1.0 / n_actions)
        return compiled_defaults.table(np.concatenate([policy.table, added]))
    return compiled_defaults.called_back(policy, actions, space, needs_probabilities)


def make_algorithm(config: TrainConfig, default_policy: Any = None, n_envs: int | None = None) -> Algorithm:
    """Makes the algorithm with its environment and default policy.

    Args:
        config: The run.
        default_policy: Default policy that replaces the config's, in any form that `make_default_policy` accepts.
        n_envs: Number of environments, if it differs from the config's because the algorithm will not be trained.
    """
    settings = config.settings
    # PQN learns while emulators step, and two groups keep the emulators busy. DQN waits for its updates: use one group.
    n_groups = 1 if isinstance(settings, DQNConfig) else 2
    env = make_env(config.env, n_envs or settings.n_envs, n_groups)
    form = config.default_policy if default_policy is None else default_policy
    compiled = make_default_policy(form, env, needs_probabilities=settings.form == "structured")
    return DQN(env, settings, compiled) if isinstance(settings, DQNConfig) else PQN(env, settings, compiled)


def make_agent(algorithm: Algorithm, parameters: Parameters, eta: float) -> Agent:
    """Makes a trained agent; `eta` is the final price of a run with a control budget, and ignored for other runs."""
    config = algorithm.config
    if config.is_range:
        return Agent(algorithm, parameters, None)
    return Agent(algorithm, parameters, config.eta_range[0] if config.control_budget is None else eta)


def check(config: TrainConfig, default_policy: Any = None) -> None:
    """Raises an error if the config cannot be trained; nothing is written."""
    algorithm = make_algorithm(config, default_policy, n_envs=1)
    try:
        warm_start(algorithm)
    finally:
        algorithm.env.close()


def load(folder: str | os.PathLike[str], which: str = "last", default_policy: Any = None) -> Agent:
    """Loads the agent of a run.

    Args:
        folder: Folder of the run.
        which: The `last` or the `best` checkpoint.
        default_policy: Default policy that replaces the run's own.
    """
    run = RunFolder(folder)
    if which not in ("last", "best"):
        raise ValueError(f"which is {which!r}, expected last or best.")
    config, checkpoint = run.config(), run.read(which)
    if checkpoint is None:
        raise FileNotFoundError(f"{run.path} has no {which} checkpoint yet.")
    algorithm = make_algorithm(config, default_policy, n_envs=1)
    parameters = parameters_from(jax.eval_shape(algorithm.network.init, jax.random.key(0)), checkpoint.arrays)
    if not is_finite(parameters):
        raise ValueError(f"the {which} checkpoint of {run.path} is damaged: the network's weights are not finite.")
    return make_agent(algorithm, parameters, float(checkpoint.arrays[".price.low"]))


def warm_start(algorithm: Algorithm) -> Parameters | None:
    """Returns the initial parameters if the settings name a run to start from, else None."""
    config = algorithm.config
    if not isinstance(config, DQNConfig) or not config.warm_start:
        return None
    folder = Path(config.warm_start)
    agent = load(folder, default_policy="uniform")
    if not isinstance(agent.algorithm, DQN):
        raise ValueError(f"warm_start is {folder}, which is not a dqn run: its network cannot start one.")
    _check_fits(agent, folder, algorithm.env)
    agent.algorithm.env.close()
    before, after = (algorithm.env.n_actions + one.form.extra_outputs for one in (agent.algorithm, algorithm))
    parameters = resize_head(agent.parameters, before, after, config.eta_range[0])
    wanted = jax.eval_shape(algorithm.network.init, jax.random.key(0))
    if jax.tree.map(jnp.shape, parameters) != jax.tree.map(jnp.shape, wanted):
        theirs = agent.algorithm.config
        raise ValueError(
            f"warm_start is {folder}, whose network has another architecture: use its --network, --hidden and kind of "
            f"price ({theirs.network or 'none'}, {' '.join(map(str, theirs.hidden))}, eta {theirs.eta})."
        )
    return parameters


def _network_default(folder: Path, manner: str, env: JaxEnv | HostEnv) -> CompiledDefault:
    """Returns the network of a run as a default policy; `manner` is empty, `epsilon=...` or `softmax=...`."""
    agent = load(folder, default_policy="uniform")  # the default policy of that run is not used
    _check_fits(agent, folder, env)
    agent.algorithm.env.close()

    def values(observations: jax.Array) -> jax.Array:
        price = jnp.zeros(observations.shape[0])
        return agent.algorithm.network.apply(agent.parameters, observations, price)[:, : env.n_actions]

    kind, _, given = manner.partition("=")
    try:
        number = float(given or 0.0)
    except ValueError as error:
        raise ValueError(f"default_policy ends in {manner!r}, but {given!r} is not a number.") from error
    if kind == "softmax" and number > 0.0:
        return compiled_defaults.softmax(values, number)
    if manner in ("", "greedy") or (kind == "epsilon" and given and 0.0 <= number <= 1.0):
        return compiled_defaults.greedy(values, number)
    raise ValueError(f"default_policy ends in {manner!r}, expected RUN (greedy), RUN:epsilon=0.1 or RUN:softmax=0.5.")


def _check_fits(agent: Agent, folder: Path, env: JaxEnv | HostEnv) -> None:
    """Raises an error if a run was trained in an environment with other observations or actions."""
    theirs = agent.algorithm.env
    if theirs.shape != env.shape or theirs.n_actions != env.n_actions:
        raise ValueError(
            f"the run {folder} was trained on observations of shape {theirs.shape} with {theirs.n_actions} actions, "
            f"but this environment has shape {env.shape} and {env.n_actions} actions."
        )
