"""Training a deep agent, as a run that can be put down and picked up again.

Everything a run is, environments and random numbers included, is arrays: a run that goes on from `arrays` makes the
same steps as one that was never interrupted, bit for bit on a CPU. The exception is Atari, whose emulators cannot be
put down: there new episodes begin. Files are written by `lazymdp.checkpoints`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp import defaults
from lazymdp.checkpoints import RunFolder
from lazymdp.cli_output import training_bar
from lazymdp.default_forms import Table
from lazymdp.learn import device_defaults
from lazymdp.learn.agents import Agent, DialAgent, DQNAgent
from lazymdp.learn.atari import AtariHost
from lazymdp.learn.device_defaults import Default
from lazymdp.learn.dial import Dial
from lazymdp.learn.dqn import DQN
from lazymdp.learn.driving import Arrays, Compiled, Hosted, filled_parameters, recalled, remembered
from lazymdp.learn.games import Game, from_mdp, minatar
from lazymdp.learn.hosts import GymnasiumHost, Host, make_env
from lazymdp.learn.networks import warm_start
from lazymdp.learn.saved import CONFIG, Checkpoint, Memory, read_checkpoint, read_config
from lazymdp.learn.settings import DQNConfig, TrainConfig, check_settings
from lazymdp.mdp import MDP

GIVEN = "given in Python"
"""Name of a default policy that has none on disk."""
ENOUGH = 20
"""Episodes on which a judgement of how good a run is must rest at least."""


class Diverged(RuntimeError):
    """Training went wrong: a number is no longer finite."""


@dataclass(frozen=True)
class Metrics:
    """Episodes that ended since the report before; of the dial, under the nearest of `DialConfig.prices`.

    Attributes:
        step: Agent steps so far.
        eta: The price; of DQN, the mean over these episodes.
        episodes: How many ended.
        score: Mean return, price excluded.
        length: Mean number of steps.
        control: Share of steps in control, exploration included.
    """

    step: int
    eta: float
    episodes: int
    score: float
    length: float
    control: float


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
        return from_mdp(MDP.from_gymnasium(made, 0.99), limit)._replace(space=made.observation_space)
    finally:
        made.close()


def make_default(form: Any, game: Game | Host) -> Default:
    """A default policy as the learners ask it.

    Args:
        form: `uniform`, `noop`, `repeat`, the number of an action; the folder of a run of ours, whose network acts
            greedily (`RUN`), with random actions among its own (`RUN:epsilon=0.1`) or by a softmax of its values
            (`RUN:softmax=0.5`, the temperature); or any form that `lazymdp.defaults` knows. A callable or an object is
            asked on the host, and has to tell probabilities.
        game: What it acts in.
    """
    n_actions = game.n_actions
    if isinstance(form, Agent):
        raise TypeError("an agent acts as default policy as agent.as_default().")
    if isinstance(form, os.PathLike):
        form = os.fspath(form)
    if isinstance(form, str):
        if form == "uniform":
            return device_defaults.uniform(n_actions)
        if form == "repeat":
            return device_defaults.repeat(n_actions)
        if form == "noop" or (form.isdecimal() and int(form) < n_actions):
            return device_defaults.fixed(game.noop if form == "noop" else int(form), n_actions)
        if form == GIVEN:
            raise ValueError("the default policy of this run was given in Python: give it again, as default=.")
        folder, _, manner = form.partition(":")
        if (Path(folder) / CONFIG).is_file():
            return _network_default(Path(folder), manner, game)
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
    policy = defaults.make_default(form, actions, seen, game.noop + int(actions.start), batched=True)
    if isinstance(policy, Table):
        added = np.full((game.shape[0] - len(policy.table), n_actions), 1.0 / n_actions)  # states in which nobody acts
        return device_defaults.table(np.concatenate([policy.table, added]))
    return device_defaults.called_back(policy, actions, seen)


def check(config: TrainConfig) -> None:
    """Refuses what cannot be trained, before anything is written."""
    learner = _learner(config, None, n_envs=1)
    if isinstance(learner, DQN) and learner.config.warm_start:
        _warm_parameters(learner)
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
    learner = _learner(config, default, n_envs=1)
    parameters = filled_parameters(jax.eval_shape(learner.network.init, jax.random.key(0)), checkpoint.arrays)
    if not _finite(parameters):
        raise ValueError(f"the {which} checkpoint of {folder} is damaged: its network holds no numbers.")
    return _agent(learner, parameters, checkpoint.arrays.get(".eta"))


class Training:
    """A run under way.

    Args:
        config: What is trained.
        arrays: Of a run with the same config, to go on from.
        memory: What that run remembered, oldest first.
        default: A default policy in place of the config's, in any form that `make_default` knows.
    """

    def __init__(
        self, config: TrainConfig, arrays: Arrays | None = None, memory: Sequence[Memory] = (), default: Any = None
    ) -> None:
        self.config = config
        self.learner = _learner(config, default)
        start = {}
        if isinstance(self.learner, DQN) and self.learner.config.warm_start and arrays is None:
            start = {"parameters": _warm_parameters(self.learner)}
        self._run: Compiled | Hosted
        if isinstance(self.learner.game, Game):
            self._run = Compiled(self.learner, config.seed, **start)
        else:
            self._run = Hosted(self.learner, self.learner.game, config.seed, **start)
        self._worths: dict[float, list[float]] = {}  # of episodes since the last call of `quality`, by price
        self._means: dict[float, float] = {}
        self._prices = (0.0,) if isinstance(config.settings, DQNConfig) else config.settings.prices
        if arrays is not None:
            self._run.restore(arrays)
            if not _finite(self._run.state.parameters):
                raise ValueError("the checkpoint is damaged: its network holds no numbers.")
            self._check_memory(memory)
            for part in memory:
                self._run.state = recalled(self._run.state, part.first, part.arrays)

    @property
    def steps_per_iteration(self) -> int:
        """Agent steps of a rollout."""
        return self.config.settings.n_envs * self.config.settings.rollout

    @property
    def step(self) -> int:
        """Agent steps so far."""
        return self._run.iteration * self.steps_per_iteration

    @property
    def done(self) -> bool:
        """Whether all steps are made."""
        return self._run.iteration >= self.config.settings.iterations

    def advance(self) -> None:
        """One rollout and what is learned of it."""
        self._run.advance()

    def report(self) -> list[Metrics]:
        """What ended since the last report; raises `Diverged` where the network no longer gives numbers."""
        if not _finite(self._run.state.parameters):
            raise Diverged(f"the network is no longer finite after {self.step:,} steps; lower the learning rate.")
        _, eta, score, steps, controls = self._run.episodes()
        one_price = isinstance(self.learner, DQN)
        prices = np.array(self._prices)
        nearest = np.abs(np.log10(eta + 1e-3)[:, None] - np.log10(prices + 1e-3)).argmin(axis=1)
        price = prices[nearest]
        found = []
        for told in np.unique(price):
            here = price == told
            share = float(controls[here].sum() / steps[here].sum())
            means = float(score[here].mean()), float(steps[here].mean())
            paid = float(eta[here].mean()) if one_price else float(told)
            found.append(Metrics(self.step, paid, int(here.sum()), *means, share))
            self._worths.setdefault(float(told), []).extend((score - eta * controls)[here].tolist())
        return found

    def quality(self) -> float | None:
        """Mean return after the price of the episodes reported since the last answer; None where they are too few.

        The mean of a mean for each price, so that it does not matter at which prices episodes happen to end; a price at
        which none did counts as before. Until there was one at every price, nothing is said.
        """
        if sum(map(len, self._worths.values())) < ENOUGH:
            return None
        self._means |= {price: float(np.mean(of)) for price, of in self._worths.items()}
        self._worths = {}
        return float(np.mean(list(self._means.values()))) if len(self._means) == len(self._prices) else None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything the run is but what it remembers, by name."""
        return self._run.arrays()

    def memory(self, since: int = 0) -> Memory | None:
        """What it remembers of the steps from `since` on, counted for one environment; None if it has no memory."""
        if not isinstance(self.learner, DQN):
            return None
        needed = self._remembered()
        first, last = max(since, needed.start), needed.stop - 1
        return Memory(first, last, remembered(self._run.state, first, last))

    def _remembered(self) -> range:
        """The steps of every environment that the run remembers."""
        if not isinstance(self.learner, DQN):
            return range(0)
        now = self._run.iteration * self.config.settings.rollout
        return range(max(now - self.learner.rows + 1, 0), now + 1)

    def _check_memory(self, memory: Sequence[Memory]) -> None:
        """Refuses memory that lacks a step."""
        wanted = self._remembered()
        for part in memory:
            if part.first <= wanted.start:
                wanted = range(max(wanted.start, part.last + 1), wanted.stop)
        if wanted:
            raise ValueError(
                f"the run remembered what happened at steps {wanted.start} to {wanted.stop - 1} of every environment, "
                "but that is missing: memory-*.safetensors of its folder, or `memory` of `Training`."
            )

    @property
    def remembers(self) -> int:
        """Steps of every environment that are remembered."""
        return self.learner.rows if isinstance(self.learner, DQN) else 0

    def agent(self) -> Agent:
        """What has been learned so far."""
        state = self._run.state
        parameters = jax.tree.map(jnp.copy, state.parameters)  # the run's own are given away
        return _agent(self.learner, parameters, getattr(state, "eta", None))

    def close(self) -> None:
        """Ends the environments."""
        self._run.close()


def train(
    config: TrainConfig,
    *,
    default: Any = None,
    folder: str | Path | None = None,
    checkpoint_seconds: float = 20.0,
    progress: bool = False,
    on_report: Callable[[Training, list[Metrics]], None] | None = None,
    seconds: float = 2.0,
    stop: Callable[[], bool] = lambda: False,
) -> Agent:
    """Trains an agent.

    Args:
        config: What is trained on what.
        default: A default policy in place of the config's: a table, a callable, a model, anything `make_default` knows.
        folder: Where the run is kept. If it is there already, it goes on from its last checkpoint.
        checkpoint_seconds: Between two checkpoints in the folder: what may be lost.
        progress: Show a bar with steps a second, score, control and the time left.
        on_report: Called every `seconds` and at the end with the run and what ended since.
        seconds: Between two reports.
        stop: Asked after every iteration: True ends the run with a last report, a checkpoint and `KeyboardInterrupt`.

    Returns:
        A `DialAgent` or a `DQNAgent`.
    """
    if not isinstance(config, TrainConfig):
        raise TypeError(f"config is {config!r}, expected lz.learn.TrainConfig(env).")
    if not checkpoint_seconds > 0.0:
        raise ValueError(f"checkpoint_seconds is {checkpoint_seconds}, expected a number above 0.")
    config = config if default is None else replace(config, default=GIVEN)
    files = None if folder is None else RunFolder(Path(folder))
    checkpoint: Checkpoint | None = None
    memory: list[Memory] = []
    with ExitStack() as ending:
        if files is not None and files.begun:
            config = files.same(config)
            ending.enter_context(files.claimed())
            checkpoint, memory = files.picked_up()
        run = Training(config, None if checkpoint is None else checkpoint.arrays, memory, default)
        ending.callback(run.close)
        if files is not None and not files.begun:
            files.create(config)
            ending.enter_context(files.claimed())
        total = config.settings.iterations * run.steps_per_iteration
        show = ending.enter_context(training_bar(total, run.step)) if progress else None
        told = saved = time.monotonic()
        stopped = False
        while not (run.done or stopped):
            run.advance()
            stopped = stop() and not run.done
            last, now = stopped or run.done, time.monotonic()
            if last or now - told >= seconds:
                metrics, told = run.report(), now
                for tell in (show, on_report):
                    if tell is not None:
                        tell(run, metrics)
                if files is not None:
                    files.append(metrics)
                    if last or now - saved >= checkpoint_seconds:
                        files.keep(run)
                        saved = time.monotonic()
        if stopped:
            raise KeyboardInterrupt
        return run.agent()


def _learner(config: TrainConfig, default: Any, n_envs: int | None = None) -> Dial | DQN:
    """The learner; `n_envs` in place of the config's where it is not to be trained."""
    check_settings(config.settings)
    if not 0 <= config.seed < 2**31:
        raise ValueError(f"seed is {config.seed}, expected a whole number from 0 to {2**31 - 1}.")
    # The dial waits for emulators, so these must never wait for it. DQN waits for its updates: one group is less work.
    n_groups = 1 if isinstance(config.settings, DQNConfig) else 2
    game = make_game(config.env, n_envs or config.settings.n_envs, n_groups)
    asked = make_default(config.default if default is None else default, game)
    if isinstance(config.settings, DQNConfig):
        return DQN(game, config.settings, asked)
    return Dial(game, config.settings, asked)


def _agent(learner: Dial | DQN, parameters: Any, eta: Any) -> Agent:
    if isinstance(learner, DQN):
        return DQNAgent(
            learner, parameters, learner.config.eta if learner.config.control_budget is None else float(eta)
        )
    return DialAgent(learner, parameters)


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
        return device_defaults.softmax(values, number)
    if kind in ("", "greedy") or (kind == "epsilon" and 0.0 <= number <= 1.0):
        return device_defaults.greedy(values, number)
    raise ValueError(
        f"a run acts as default greedily (RUN), or as RUN:epsilon=0.1 or RUN:softmax=0.5, not as {manner!r}."
    )


def _warm_parameters(learner: DQN) -> Any:
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


def _fits(agent: Agent, folder: Path, game: Game | Host) -> None:
    made_for = agent.learner.game
    if made_for.shape != game.shape or made_for.n_actions != game.n_actions:
        raise ValueError(
            f"the run {folder} was trained on observations of shape {made_for.shape} with {made_for.n_actions} "
            f"actions, this environment has {game.shape} and {game.n_actions}."
        )


def _finite(parameters: Any) -> bool:
    return all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(parameters))


def _close(game: Game | Host) -> None:
    if not isinstance(game, Game):
        game.close()
