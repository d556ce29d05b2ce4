"""Games, default policies, learners and trained agents, out of what a config or a folder says."""

from __future__ import annotations

import os
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
from lazymdp.learn.deep.agent import Agent, DialAgent, DQNAgent
from lazymdp.learn.deep.atari import AtariHost
from lazymdp.learn.deep.compiled_defaults import Default
from lazymdp.learn.deep.config import DQNConfig, TrainConfig, check_settings
from lazymdp.learn.deep.dqn import DQN
from lazymdp.learn.deep.host_env import GymnasiumHost, Host, make_env
from lazymdp.learn.deep.jax_env import Game, from_table, minatar
from lazymdp.learn.deep.loops import filled_parameters
from lazymdp.learn.deep.networks import warm_start
from lazymdp.learn.deep.pqn import Dial
from lazymdp.learn.deep.saved import named_run, read_checkpoint, read_config

GIVEN = "given in Python"
"""Name of a default policy that has none on disk."""


def make_game(env: str, n_envs: int, n_groups: int = 1) -> Game | Host:
    """The environment of that name: compiled where that can be, else `n_envs` copies on the host.

    Args:
        env: Its name.
        n_envs: Copies.
        n_groups: Of Atari's emulators, one of which steps while the other waits for its actions.
    """
    family, _, name = env.partition("/")
    if family == "minatar":
        return minatar(name)
    if family == "ALE":
        return AtariHost(env, n_envs, n_groups)
    made = make_env(env)
    try:
        if getattr(made.unwrapped, "P", None) is None:
            return GymnasiumHost(env, n_envs)
        limit = None if made.spec is None else made.spec.max_episode_steps
        return from_table(read_table(made.unwrapped), limit)._replace(space=made.observation_space)
    finally:
        made.close()


def make_default(form: Any, game: Game | Host, structured: bool = True) -> Default:
    """A default policy as the learners ask it.

    Args:
        form: `uniform`, `noop`, `repeat`, the number of an action; the folder of a run of ours, whose network acts
            greedily (`RUN`), with random actions among its own (`RUN:epsilon=0.1`) or by a softmax of its values
            (`RUN:softmax=0.5`, the temperature); or any form that `lazymdp.defaults` knows. A callable or an object is
            asked on the host, and has to tell probabilities if the learner is structured.
        game: What it acts in.
        structured: Whether the learner derives the lazy value.
    """
    n_actions = game.n_actions
    if isinstance(form, Agent):
        raise TypeError("an agent acts as default policy as agent.as_default().")
    if isinstance(form, os.PathLike):
        form = os.fspath(form)
    if isinstance(form, str):
        if form == "uniform":
            return compiled_defaults.uniform(n_actions)
        if form == "repeat":
            return compiled_defaults.repeat(n_actions)
        if form == "noop" or (form.isdecimal() and int(form) < n_actions):
            return compiled_defaults.fixed(game.noop if form == "noop" else int(form), n_actions)
        if form == GIVEN:
            raise ValueError("the default policy of this run was given in Python: give it again, as default=.")
        named = named_run(form)
        if named is not None:
            return _network_default(*named, game)
        if not Path(form).is_file():
            raise ValueError(
                f"the default policy {form!r} is neither uniform, noop, repeat, nor an action, 0 to {n_actions - 1}, "
                "nor the folder of a run, nor a file."
            )
    actions, seen = spaces.Discrete(n_actions, start=getattr(game, "first_action", 0)), game.space
    if not isinstance(seen, spaces.Box | spaces.Discrete):
        raise ValueError(
            f"the default policy would have to be asked about observations of {seen}; this can be done for Box and "
            "Discrete only. Elsewhere it is uniform, noop, repeat, the number of an action, or a run."
        )
    policy = protocol.make_default(form, actions, seen, game.noop + int(actions.start), batched=True)
    if isinstance(policy, Table):
        added = np.full((game.shape[0] - len(policy.table), n_actions), 1.0 / n_actions)  # states in which nobody acts
        return compiled_defaults.table(np.concatenate([policy.table, added]))
    return compiled_defaults.called_back(policy, actions, seen, structured)


def make_learner(config: TrainConfig, default: Any, n_envs: int | None = None) -> Dial | DQN:
    """The learner; `n_envs` in place of the config's where it is not to be trained."""
    check_settings(config.settings)
    if not 0 <= config.seed < 2**31:
        raise ValueError(f"seed is {config.seed}, expected a whole number from 0 to {2**31 - 1}.")
    # The dial waits for emulators, so these must never wait for it. DQN waits for its updates: one group is less work.
    n_groups = 1 if isinstance(config.settings, DQNConfig) else 2
    game = make_game(config.env, n_envs or config.settings.n_envs, n_groups)
    asked = make_default(config.default if default is None else default, game, config.settings.structured)
    if isinstance(config.settings, DQNConfig):
        return DQN(game, config.settings, asked)
    return Dial(game, config.settings, asked)


def make_agent(learner: Dial | DQN, parameters: Any, eta: Any) -> Agent:
    """A trained agent; `eta` is the price that a DQN with a budget has come to."""
    if isinstance(learner, DQN):
        return DQNAgent(
            learner, parameters, learner.config.eta if learner.config.control_budget is None else float(eta)
        )
    return DialAgent(learner, parameters)


def check(config: TrainConfig) -> None:
    """Refuses what cannot be trained, before anything is written."""
    learner = make_learner(config, None, n_envs=1)
    if isinstance(learner, DQN) and learner.config.warm_start:
        warm_parameters(learner)
    _close(learner.game)


def load(folder: str | Path, which: str = "last", default: Any = None) -> Agent:
    """The agent of a run on disk.

    Args:
        folder: Of the run.
        which: Its `last` or `best` checkpoint.
        default: A default policy in place of the run's own.
    """
    folder = Path(folder)
    if which not in ("last", "best"):
        raise ValueError(f"which is {which!r}, expected last or best.")
    config, checkpoint = read_config(folder), read_checkpoint(folder, which)
    if checkpoint is None:
        raise FileNotFoundError(f"{folder} has no {which} checkpoint yet.")
    learner = make_learner(config, default, n_envs=1)
    parameters = filled_parameters(jax.eval_shape(learner.network.init, jax.random.key(0)), checkpoint.arrays)
    if not finite(parameters):
        raise ValueError(f"the {which} checkpoint of {folder} is damaged: its network holds no numbers.")
    return make_agent(learner, parameters, checkpoint.arrays.get(".eta"))


def warm_parameters(learner: DQN) -> Any:
    """Parameters to start from, of the run that the settings name."""
    folder = Path(str(learner.config.warm_start))
    agent = load(folder, default="uniform")
    if not isinstance(agent.learner, DQN):
        raise ValueError(f"{folder} is not a run of dqn: its network cannot start one.")
    _fits(agent, folder, learner.game)
    _close(agent.learner.game)
    n_actions = learner.game.n_actions
    before, after = (n_actions + (not one.config.structured) for one in (agent.learner, learner))
    parameters = warm_start(agent.parameters, before, after, learner.first_price())
    found, wanted = jax.tree.map(jnp.shape, (parameters, jax.eval_shape(learner.network.init, jax.random.key(0))))
    if found != wanted:
        theirs = agent.learner.config
        raise ValueError(
            f"the network of {folder} is of another form: give --network and --hidden as there "
            f"({theirs.network or 'none'}, {' '.join(map(str, theirs.hidden))})."
        )
    return parameters


def _network_default(folder: Path, manner: str, game: Game | Host) -> Default:
    """The network of a run, compiled into the step of another."""
    agent = load(folder, default="uniform")  # its own is not asked
    _fits(agent, folder, game)
    _close(agent.learner.game)

    def values(observations: Any) -> Any:
        price = jnp.zeros(observations.shape[0])
        return agent.learner.network.apply(agent.parameters, observations, price)[:, : game.n_actions]

    kind, _, given = manner.partition("=")
    try:
        number = float(given or 0.0)
    except ValueError as error:
        raise ValueError(f"{given!r} in {manner!r} is no number.") from error
    if kind == "softmax" and number > 0.0:
        return compiled_defaults.softmax(values, number)
    if manner in ("", "greedy") or (kind == "epsilon" and given and 0.0 <= number <= 1.0):
        return compiled_defaults.greedy(values, number)
    raise ValueError(
        f"a run acts as default greedily (RUN), or as RUN:epsilon=0.1 or RUN:softmax=0.5, not as {manner!r}."
    )


def _fits(agent: Agent, folder: Path, game: Game | Host) -> None:
    made_for = agent.learner.game
    if made_for.shape != game.shape or made_for.n_actions != game.n_actions:
        raise ValueError(
            f"the run {folder} was trained on observations of shape {made_for.shape} with {made_for.n_actions} "
            f"actions, this environment has {game.shape} and {game.n_actions}."
        )


def finite(parameters: Any) -> bool:
    """Whether a network holds numbers."""
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(parameters))


def _close(game: Game | Host) -> None:
    if not isinstance(game, Game):
        game.close()
