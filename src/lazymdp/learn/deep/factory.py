"""Builds environments, default policies, algorithms and trained agents from a config or a run folder."""

from __future__ import annotations

import copy
import functools
import importlib
import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp._arguments import check_choice
from lazymdp.defaults import protocol
from lazymdp.defaults.forms import BadAnswer, Constant, Repeat, Table, Uniform
from lazymdp.defaults.sb3 import model_file
from lazymdp.envs.toy_text import read_table
from lazymdp.learn.deep import compiled_defaults
from lazymdp.learn.deep.agent import Agent
from lazymdp.learn.deep.algorithm import Algorithm
from lazymdp.learn.deep.atari import AtariHost
from lazymdp.learn.deep.compiled_defaults import CompiledDefault, unflattened
from lazymdp.learn.deep.config import DQNConfig
from lazymdp.learn.deep.dqn import DQN
from lazymdp.learn.deep.env_failures import running
from lazymdp.learn.deep.gymnasium_env import (
    EnvFactory,
    close_env,
    has_own_wrappers,
    make_again,
    make_gymnasium_env,
    name_of,
    time_limit,
    where_to_run,
)
from lazymdp.learn.deep.host_env import GymnasiumHost, HostEnv
from lazymdp.learn.deep.jax_env import JaxEnv, from_table, minatar
from lazymdp.learn.deep.named_arrays import parameters_from
from lazymdp.learn.deep.networks import Parameters, is_finite, resize_head
from lazymdp.learn.deep.pqn import PQN
from lazymdp.learn.deep.run_folder import CHECKPOINTS, Checkpoint, RunFolder
from lazymdp.learn.deep.train_config import GIVEN_IN_PYTHON, WORDS, TrainConfig
from lazymdp.learn.deep.trust import check_trusted, find_run, names_function, names_module


def make_env(
    env: str | EnvFactory, n_envs: int, n_groups: int = 1, env_kwargs: Mapping[str, Any] | None = None
) -> JaxEnv | HostEnv:
    """Makes an environment: compiled where possible, otherwise `n_envs` copies on the host.

    Args:
        env: Name of the environment, or a factory: a function that returns a new Gymnasium environment.
        n_envs: Number of copies.
        n_groups: Number of groups of Atari emulators; with two, one steps while the other waits for its actions.
        env_kwargs: Keyword arguments of `gymnasium.make`.
    """
    if env == GIVEN_IN_PYTHON:
        raise ValueError(
            "the environment of this run was given in Python: give it again, as env= of lz.learn.load or "
            "lz.learn.resume."
        )
    family, _, name = env.partition("/") if isinstance(env, str) else ("", "", "")
    if family == "minatar":
        return minatar(name)
    if family == "ALE":
        return AtariHost(str(env), n_envs, n_groups)
    made = make_gymnasium_env(env, env_kwargs)
    try:
        # A wrapper may change observations, rewards or actions, which the table does not know.
        if getattr(made.unwrapped, "P", None) is None or has_own_wrappers(made):
            return GymnasiumHost(env, n_envs, env_kwargs)
        model, actions = from_table(read_table(made.unwrapped), time_limit(made)), made.action_space
        first = int(actions.start) if isinstance(actions, spaces.Discrete) else 0
        noop, again = protocol.noop_of(made) - first, functools.partial(make_again, env, env_kwargs)
        return replace(
            model, space=made.observation_space, first_action=first, noop=noop, make=again, name=name_of(env)
        )
    finally:
        close_env(made, name_of(env))


def make_default_policy(
    form: Any, env: JaxEnv | HostEnv, needs_probabilities: bool = True, times: int = 2
) -> CompiledDefault:
    """Makes a compiled default policy.

    Args:
        form: The number of an action as text; the folder of a run, whose network acts greedily (`RUN`),
            epsilon-greedily (`RUN:epsilon=0.1`) or by a softmax of its values at a temperature (`RUN:softmax=0.5`);
            `module:function`; or any form that `lazymdp.defaults.protocol` lists. Unless it is a word, an action, a
            table or a run, it is called back on the host.
        env: Environment in which the policy acts.
        needs_probabilities: Whether the policy must return probabilities, as the structured form requires.
        times: How often a policy that is called back is asked about the same observations, to find out whether it does.
    """
    if isinstance(form, Agent):
        raise TypeError("default_policy is an Agent: give agent.as_default().")
    actions = spaces.Discrete(env.n_actions, start=env.first_action)
    space = spaces.Box(-np.inf, np.inf, env.shape) if env.space is None else env.space
    if isinstance(form, str | os.PathLike):
        form = os.fspath(form)
        if form in WORDS:
            return _word_default(form, env)
        named = find_run(form)
        if named is not None:
            return _network_default(*named, env)
        form = _from_text(form, actions)

    @functools.cache
    def examples() -> NDArray[Any]:
        return _examples(env, space)

    def seen() -> protocol.Examples:
        found = protocol.Examples(unflattened(space, examples()), len(examples()))
        begin_again()  # the time of the environment, which has made the examples, is not that of the policy
        return found

    try:
        with running("the default policy, on first observations of the environment") as begin_again:
            policy = protocol.make_default(form, actions, space, env.noop + env.first_action, batched=seen)
    except BadAnswer as error:
        raise protocol.BadDefault(
            f"the default policy fails on first observations of the environment: {error}"
        ) from error
    if isinstance(policy, Uniform):
        return compiled_defaults.uniform(env.n_actions)
    if isinstance(policy, Repeat):
        return compiled_defaults.repeat(env.n_actions)
    if isinstance(policy, Constant):
        return compiled_defaults.fixed(policy.action - env.first_action, env.n_actions)
    if isinstance(policy, Table):
        # A model may have an extra terminal state, in which no action is taken.
        added = np.full((env.shape[0] - len(policy.table), env.n_actions), 1.0 / env.n_actions)
        return compiled_defaults.table(np.concatenate([policy.table, added]))
    return compiled_defaults.CalledBack(policy, actions, space, examples(), needs_probabilities, times)


def _word_default(word: str, env: JaxEnv | HostEnv) -> CompiledDefault:
    """Returns a default policy that is given by one of `WORDS`."""
    if word == "noop":
        return compiled_defaults.fixed(env.noop, env.n_actions)
    return (compiled_defaults.uniform if word == "uniform" else compiled_defaults.repeat)(env.n_actions)


def make_algorithm(
    config: TrainConfig, default_policy: Any = None, n_envs: int | None = None, env: str | EnvFactory | None = None
) -> Algorithm:
    """Makes the algorithm with its environment and default policy.

    Args:
        config: The run.
        default_policy: Default policy that replaces the config's, in any form that `make_default_policy` accepts.
        n_envs: Number of environments, if it differs from the config's because the algorithm will not be trained.
        env: Environment that replaces the config's.
    """
    settings = config.settings
    # PQN learns while emulators step, and two groups keep the emulators busy. DQN waits for its updates: use one group.
    n_groups = 1 if isinstance(settings, DQNConfig) else 2
    count = n_envs or settings.n_envs
    made = make_env(config.env, count, n_groups, config.env_kwargs) if env is None else make_env(env, count, n_groups)
    return _algorithm_in(made, config, config.default_policy if default_policy is None else default_policy)


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


def load(
    folder: str | os.PathLike[str],
    which: str = "last",
    default_policy: Any = None,
    *,
    env: str | EnvFactory | None = None,
    trust: bool = False,
) -> Agent:
    """Loads the agent of a run.

    Args:
        folder: Folder of the run.
        which: The `last` or the `best` checkpoint.
        default_policy: Default policy that replaces the run's own. It must be given if the run's own was a Python
            object, which cannot be saved.
        env: Environment that replaces the run's own. It must be given if the run's own was a factory.
        trust: Allow the run to run code that it names: to import the modules of its environment (`module:Id-v0`) and
            its default policy (`module:function`), and to read a Stable-Baselines3 model, which is a pickle. Trust only
            runs of people whom you trust.
    """
    run = RunFolder(folder)
    check_choice(which, "which", CHECKPOINTS)
    config = run.config()
    check_trusted(run.path, config, trust, "lz.learn.load", env=env is None, default_policy=default_policy is None)
    if default_policy is None:
        run.check_copies()
    checkpoint = _read(run, which)
    return _agent_of(run, which, checkpoint, make_algorithm(config, default_policy, 1, env))


def warm_start(algorithm: Algorithm) -> Parameters | None:
    """Returns the initial parameters if the settings name a run to start from, else None."""
    config = algorithm.config
    if not isinstance(config, DQNConfig) or not config.warm_start:
        return None
    folder = Path(config.warm_start)
    agent = _load_network(folder, algorithm.env)
    if not isinstance(agent.algorithm, DQN):
        raise ValueError(f"warm_start is {folder}, which is not a dqn run: its network cannot start one.")
    _check_fits(agent, folder, algorithm.env)
    before, after = (algorithm.env.n_actions + one.form.extra_outputs for one in (agent.algorithm, algorithm))
    theirs = agent.algorithm.config
    if theirs.reward_scale != config.reward_scale:
        raise ValueError(
            f"reward_scale is {config.reward_scale:g}, but {theirs.reward_scale:g} in warm_start ({folder}): use that."
        )
    parameters = resize_head(agent.parameters, before, after, config.eta_range[0] / config.reward_scale)
    wanted = jax.eval_shape(algorithm.network.init, jax.random.key(0))
    if jax.tree.map(jnp.shape, parameters) != jax.tree.map(jnp.shape, wanted):
        raise ValueError(
            f"warm_start is {folder}, whose network has another architecture: use its --network, --hidden and kind of "
            f"price ({theirs.network or 'none'}, {' '.join(map(str, theirs.hidden))}, eta {theirs.eta})."
        )
    return parameters


def _algorithm_in(env: JaxEnv | HostEnv, config: TrainConfig, default_policy: Any) -> Algorithm:
    """Returns the algorithm of a run in an environment."""
    settings = config.settings
    compiled = make_default_policy(default_policy, env, needs_probabilities=settings.form == "structured")
    if isinstance(settings, DQNConfig):
        return DQN(env, settings, compiled, config.total_steps)
    return PQN(env, settings, compiled)


def _read(run: RunFolder, which: str) -> Checkpoint:
    """Returns a checkpoint of a run; raises an error if there is none."""
    checkpoint = run.read(which)
    if checkpoint is None:
        raise FileNotFoundError(f"{run.path} has no {which} checkpoint yet.")
    return checkpoint


def _agent_of(run: RunFolder, which: str, checkpoint: Checkpoint, algorithm: Algorithm) -> Agent:
    """Returns the agent of a checkpoint."""
    parameters = parameters_from(jax.eval_shape(algorithm.network.init, jax.random.key(0)), checkpoint.arrays)
    if not is_finite(parameters):
        raise ValueError(f"the {which} checkpoint of {run.path} is damaged: the network's weights are not finite.")
    return make_agent(algorithm, parameters, float(checkpoint.arrays[".price.low"]))


def _load_network(folder: Path, env: JaxEnv | HostEnv) -> Agent:
    """Loads another run for its network; its default policy is not used, and its environment is closed.

    A run whose environment was given in Python, or would import a module, is assumed to have been trained in `env`.
    """
    run = RunFolder(folder)
    config = run.config()
    if config.env == GIVEN_IN_PYTHON or names_module(config.env, config.env_kwargs):
        return _agent_of(run, "last", _read(run, "last"), _algorithm_in(env, config, "uniform"))
    agent = load(folder, default_policy="uniform")
    agent.algorithm.env.close()
    return agent


def _from_text(text: str, actions: spaces.Discrete) -> Any:
    """Returns the default policy that a text names, in a form that `lazymdp.defaults` accepts."""
    if text in WORDS or model_file(text) is not None:
        return text
    if re.fullmatch(r"-?\d+", text) and actions.contains(int(text)):
        return int(text)
    if text == GIVEN_IN_PYTHON:
        raise ValueError(
            "the default policy of this run was given in Python: give it again, as default_policy= of lz.learn.load or "
            "lz.learn.resume."
        )
    if names_function(text):
        return _imported(text)
    first, last = int(actions.start), int(actions.start + actions.n - 1)
    raise ValueError(
        f"default_policy is {text!r}, expected uniform, noop, repeat, an action from {first} to {last}, the folder of "
        "a run, a file, or module:function."
    )


def _imported(text: str) -> Any:
    """Imports the object that `module:name` names."""
    module, _, name = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"default_policy is {text!r}, but there is no such run, and the module {module} cannot be imported: "
            f"{error}.{where_to_run(text, error)}"
        ) from error
    where = getattr(found, "__file__", module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"default_policy is {text!r}, but {where} defines no {name}.")
        found = getattr(found, part)
    return found


def _examples(env: JaxEnv | HostEnv, space: spaces.Space[Any]) -> NDArray[Any]:
    """Returns `[B, ...]` observations as the network receives them, to try default policies on."""
    sizes = {*env.shape, *compiled_defaults.shape_sizes(space), env.n_actions}
    count = next(count for count in itertools.count(2) if count not in sizes)  # see `takes_batches`
    if isinstance(env, GymnasiumHost):
        return env.first_frames(count)
    if isinstance(space, spaces.Discrete):
        return np.eye(env.shape[0], dtype=np.float32)[np.arange(count) % int(space.n)]
    drawn = copy.deepcopy(space)
    drawn.seed(0)
    return np.stack([drawn.sample() for _ in range(count)])


def _network_default(folder: Path, manner: str, env: JaxEnv | HostEnv) -> CompiledDefault:
    """Returns the network of a run as a default policy; `manner` is empty, `epsilon=...` or `softmax=...`."""
    kind, number = choice_of(manner)
    agent = _load_network(folder, env)
    _check_fits(agent, folder, env)

    def values(observations: jax.Array) -> jax.Array:
        price = jnp.zeros(observations.shape[0])
        return agent.algorithm.network.apply(agent.parameters, observations, price)[:, : env.n_actions]

    if kind == "softmax":
        return compiled_defaults.softmax(values, number)
    return compiled_defaults.greedy(values, number)


def choice_of(manner: str) -> tuple[str, float]:
    """Returns how the network of a run chooses: `greedy` and its epsilon, or `softmax` and its temperature.

    Args:
        manner: What follows the folder of the run: empty, `greedy`, `epsilon=...` or `softmax=...`.
    """
    kind, _, given = manner.partition("=")
    try:
        number = float(given or 0.0)
    except ValueError as error:
        raise ValueError(f"default_policy ends in {manner!r}, but {given!r} is not a number.") from error
    if kind == "softmax" and number > 0.0:
        return "softmax", number
    if manner in ("", "greedy") or (kind == "epsilon" and given and 0.0 <= number <= 1.0):
        return "greedy", number
    raise ValueError(f"default_policy ends in {manner!r}, expected RUN (greedy), RUN:epsilon=0.1 or RUN:softmax=0.5.")


def _check_fits(agent: Agent, folder: Path, env: JaxEnv | HostEnv) -> None:
    """Raises an error if a run was trained in an environment with other observations or actions."""
    theirs = agent.algorithm.env
    if theirs.shape != env.shape or theirs.n_actions != env.n_actions:
        raise ValueError(
            f"the run {folder} was trained on observations of shape {theirs.shape} with {theirs.n_actions} actions, "
            f"but this environment has shape {env.shape} and {env.n_actions} actions."
        )
