"""Training a deep agent, as a run that can be put down and picked up again.

Everything a run is, environments and random numbers included, is arrays: a run that goes on from `arrays` makes the
same steps as one that was never interrupted, bit for bit on a CPU. No files are written here;
`lazymdp.checkpoints` does that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.dial import Dial, uniform
from lazymdp.learn.games import Game, from_mdp, minatar
from lazymdp.learn.playing import DialAgent
from lazymdp.learn.settings import TrainConfig, check_settings
from lazymdp.mdp import MDP

REPORTED = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Prices under which episodes are reported: each under the nearest."""


class Diverged(RuntimeError):
    """Training went wrong: a number is no longer finite."""


@dataclass(frozen=True)
class Metrics:
    """Episodes that ended since the report before, under the nearest of the prices `REPORTED`.

    Attributes:
        step: Agent steps so far.
        eta: The price.
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


def make_game(env: str) -> Game:
    """The compiled game of that name."""
    family, _, name = env.partition("/")
    if family == "minatar":
        return minatar(name)
    try:
        made = gym.make(env)
    except gym.error.Error as error:
        raise ValueError(f"there is no environment {env!r}: {error}") from error
    limit = None if made.spec is None else made.spec.max_episode_steps
    return from_mdp(MDP.from_gymnasium(made, 0.99), limit)


def make_default(name: str, n_actions: int) -> Callable[[Any], Any]:
    """`uniform`, or always one action, given by its number."""
    if name == "uniform":
        return uniform(n_actions)
    if not name.isdecimal() or int(name) >= n_actions:
        raise ValueError(f"the default policy {name!r} is neither uniform nor an action, 0 to {n_actions - 1}.")
    row = jnp.eye(n_actions)[int(name)]
    return lambda observations: jnp.broadcast_to(row, (observations.shape[0], n_actions))


class Training:
    """A run under way.

    Args:
        config: What is trained.
        arrays: Of a run with the same config, to go on from.
    """

    def __init__(self, config: TrainConfig, arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        game = make_game(config.env)
        check_settings(config.settings)
        self.config = config
        self.dial = Dial(game, config.settings, make_default(config.default, game.n_actions))
        self._iterate = jax.jit(self.dial.iterate, donate_argnums=0)
        self._learner = jax.jit(self.dial.init)(jax.random.key(config.seed))
        if arrays is not None:
            self._learner = _filled(self._learner, arrays)
        self._episodes: list[Any] = []

    @property
    def steps_per_iteration(self) -> int:
        """Agent steps of a rollout."""
        return self.config.settings.n_envs * self.config.settings.rollout

    @property
    def step(self) -> int:
        """Agent steps so far."""
        return int(self._learner.iteration) * self.steps_per_iteration

    @property
    def done(self) -> bool:
        """Whether all steps are made."""
        return int(self._learner.iteration) >= self.config.settings.iterations

    def advance(self) -> None:
        """One rollout and its fit."""
        self._learner, episodes = self._iterate(self._learner)
        self._episodes.append(episodes)

    def report(self) -> list[Metrics]:
        """What ended since the last report; raises `Diverged` where the network no longer gives numbers."""
        finite = all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(self._learner.parameters))
        if not finite:
            raise Diverged(f"the network is no longer finite after {self.step:,} steps; lower the learning rate.")
        if not self._episodes:
            return []
        ended, eta, score, steps, controls = (
            np.concatenate([np.asarray(part[place]).ravel() for part in self._episodes]) for place in range(5)
        )
        self._episodes.clear()
        over = ended.astype(bool)
        eta, score, steps, controls = eta[over], score[over], steps[over], controls[over]
        nearest = np.abs(np.log10(eta + 1e-3)[:, None] - np.log10(np.array(REPORTED) + 1e-3)).argmin(axis=1)
        found = []
        for place in np.unique(nearest):
            here = nearest == place
            share = float(controls[here].sum() / steps[here].sum())
            found.append(
                Metrics(
                    self.step,
                    REPORTED[place],
                    int(here.sum()),
                    float(score[here].mean()),
                    float(steps[here].mean()),
                    share,
                )
            )
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything the run is, by name."""
        return {name: np.asarray(_plain(leaf)) for name, leaf in _named(self._learner)}

    def agent(self) -> DialAgent:
        """What has been learned so far."""
        return DialAgent(self.dial, jax.tree.map(jnp.copy, self._learner.parameters))  # the run's own are given away


def train(
    config: TrainConfig,
    *,
    arrays: Mapping[str, NDArray[Any]] | None = None,
    on_report: Callable[[Training, list[Metrics]], None] | None = None,
    seconds: float = 5.0,
) -> DialAgent:
    """Trains an agent.

    Args:
        config: What is trained on what.
        arrays: Of a run with the same config (`Training.arrays`), to go on from.
        on_report: Called every `seconds` and at the end with the run and what ended since; it may save `run.arrays()`.
        seconds: Between two reports.
    """
    run = Training(config, arrays)
    told = time.monotonic()
    while not run.done:
        run.advance()
        if time.monotonic() - told >= seconds and not run.done:
            metrics = run.report()
            if on_report is not None:
                on_report(run, metrics)
            told = time.monotonic()
    metrics = run.report()
    if on_report is not None:
        on_report(run, metrics)
    return run.agent()


def _named(tree: Any) -> list[tuple[str, Any]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


def _plain(leaf: Any) -> Any:
    """Random keys as the numbers they are made of."""
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def _filled(template: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """A tree like `template` with the numbers of `arrays`."""
    leaves = []
    for name, leaf in _named(template):
        if name not in arrays:
            raise ValueError(f"the checkpoint lacks {name}: it is of another learner or version.")
        found, wanted = arrays[name], _plain(leaf)
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            raise ValueError(f"{name} is {found.shape} in the checkpoint, expected {wanted.shape}: other settings.")
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        leaves.append(jax.random.wrap_key_data(jnp.asarray(found)) if is_key else jnp.asarray(found))
    return jax.tree.unflatten(jax.tree.structure(template), leaves)
