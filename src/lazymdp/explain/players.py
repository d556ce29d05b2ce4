"""The agents that can be recorded, behind one interface: how they choose, and how they judge the states they meet.

A trained agent of `lz.learn` and an exact solution know the value of every action, and when to be lazy. Any other agent
(a Stable-Baselines3 model, an object with `predict`, a callable) is never lazy, unless it was made for an environment
with the lazy action, and knows no values; a critic (`lazymdp.explain.critic`) can estimate them.
"""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp.defaults.protocol import noop_of
from lazymdp.defaults.sb3 import is_stable_baselines
from lazymdp.envs.model_world import ModelWorld
from lazymdp.exact.path import EtaPath, eta_path
from lazymdp.exact.policies import named
from lazymdp.exact.solve import solve
from lazymdp.explain.environments import batched, first_action, open_env, unbatched
from lazymdp.lazy import LazyMDP
from lazymdp.mdp import MDP
from lazymdp.wrappers.lazy_action import LazyAction

_LARGEST_PATH = 10_000
"""Largest number of states for which the exact eta-path, and with it `critical_eta`, is computed."""


class Judgement(NamedTuple):
    """What an agent, or its critic, thinks of T states. Unknown numbers are NaN."""

    q: NDArray[np.float64]
    """`[T, A]` values of taking control with each action, price included."""
    value: NDArray[np.float64]
    """`[T]` values, price included."""
    lazy_gap: NDArray[np.float64]
    """`[T]` lazy-gaps."""
    critical_eta: NDArray[np.float64]
    """`[T]` largest prices at which the agent takes control."""
    default_probability: NDArray[np.float64]
    """`[T, A]` probabilities of the default policy."""


class Player(Protocol):
    """An agent in an environment."""

    @property
    def name(self) -> str:
        """Description of the agent."""

    @property
    def default_name(self) -> str:
        """Description of the default policy."""

    @property
    def eta(self) -> float | None:
        """Price, or None if the agent has none."""

    @property
    def gamma(self) -> float | None:
        """Discount factor of the agent, or None if it is unknown."""

    @property
    def env(self) -> LazyAction[Any]:
        """The environment, with the lazy action."""

    @property
    def action_names(self) -> Sequence[str] | None:
        """Names of the actions that the agent knows, or None."""

    def choose(self, observation: Any, last_action: int) -> int:
        """Returns an action with the number of the environment, or `env.lazy_action`."""

    def judge(self, observations: list[Any], last_actions: NDArray[np.int64], choices: NDArray[np.int64]) -> Judgement:
        """Judges T states.

        Args:
            observations: T observations.
            last_actions: `[T]` actions executed before, with the numbers of the environment.
            choices: `[T]` choices that the agent made, numbered from 0; A is lazy.
        """

    def predict(self, observations: Any, state: Any = None, deterministic: bool = True) -> tuple[NDArray[Any], Any]:
        """Chooses for a batch of observations, with the signature of Stable-Baselines3."""

    def values(self, observations: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the values `q` `[N, A]` and the lazy-gaps `[N]` of a batch of observations."""


class TrainedPlayer:
    """A trained agent of `lz.learn`.

    Args:
        agent: The agent.
        env: The environment; by default that of training.
        eta: Price; required for a dial.
        default_name: Description of the default policy.

    Attributes:
        in_training_env: Whether the environment is that of training, in which the agent can play many episodes at once.
    """

    action_names: Sequence[str] | None = None

    def __init__(
        self, agent: Any, env: str | gym.Env[Any, Any] | None, eta: float | None, default_name: str = "as in training"
    ) -> None:
        if eta is None and isinstance(env, LazyAction) and agent.is_dial:
            eta = env.eta
        self.gamma: float | None = float(agent.algorithm.config.gamma)
        self.trained, self._dial = agent, agent if agent.is_dial else None
        self._agent = agent if eta is None and not agent.is_dial else agent.at(eta)
        self.eta, self.default_name = float(self._agent.eta), default_name
        self.name = f"{agent.algorithm.config.name.upper()} {'dial' if agent.is_dial else 'agent'}"
        if isinstance(env, str) and env.startswith("minatar/") and env == agent.algorithm.env.name:
            env = None  # the same game, which has no other settings
        self.in_training_env = env is None
        if env is None:
            self.env = _own_env(self._agent)
        elif isinstance(env, LazyAction):
            self.env = agent.wrap(env.env, eta)  # checks that the actions fit
        else:
            self.env = agent.wrap(open_env(env), eta)

    def at(self, eta: float) -> TrainedPlayer:
        """Returns the same agent at another price, in the same environment."""
        other = copy.copy(self)
        other.eta, other._agent = eta, self.trained if self._dial is None else self.trained.at(eta)
        return other

    def choose(self, observation: Any, last_action: int) -> int:
        """Returns the agent's action; a tie is lazy."""
        return int(self._agent.predict(observation, state=[last_action])[0])

    def judge(self, observations: list[Any], last_actions: NDArray[np.int64], choices: NDArray[np.int64]) -> Judgement:
        """Judges T states with the agent's network."""
        seen = batched(self.env.observation_space, observations)
        last = last_actions - first_action(self.env)
        q = np.asarray(self._agent.q(seen), dtype=np.float64)
        gap = np.asarray(self._agent.lazy_gap(seen, last_actions=last), dtype=np.float64)
        critical = np.full(len(gap), np.nan)
        if self._dial is not None:
            critical = self._dial.critical_eta(seen, last_actions=last)
        value = q.max(axis=1) + np.maximum(self.eta - gap, 0.0)  # the lazy value is max q - lazy_gap + eta
        return Judgement(q, value, gap, critical, self._agent.default_policy.probabilities(seen, last_actions))

    def predict(self, observations: Any, state: Any = None, deterministic: bool = True) -> tuple[NDArray[Any], Any]:
        """Chooses for a batch of observations."""
        return self._agent.predict(observations, state=state, deterministic=deterministic)

    def values(self, observations: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the values and the lazy-gaps of the agent's network."""
        return np.asarray(self._agent.q(observations), float), np.asarray(self._agent.lazy_gap(observations), float)


class ExactPlayer:
    """The optimal agent of a finite model at one price.

    Args:
        model: The base model, a lazy-MDP or the eta-path of one.
        env: Environment whose observations are the states of the model; by default the model itself is played.
        eta: Price; a lazy-MDP has its own.
        default_policy: Name of a default policy or a table `[S, A]`; a lazy-MDP and a path have their own.
    """

    def __init__(
        self,
        model: MDP | LazyMDP | EtaPath,
        env: str | gym.Env[Any, Any] | None,
        eta: float | None,
        default_policy: Any,
    ) -> None:
        if isinstance(model, LazyMDP):
            if eta is not None and eta != model.eta:
                raise ValueError(f"eta is {eta}, but the lazy-MDP has the price {model.eta}: leave eta out.")
            eta = model.eta
        if eta is None:
            raise ValueError("eta is missing: the exact agent needs the price of taking control.")
        if not isinstance(model, MDP) and default_policy is not None:
            raise ValueError("default_policy is given, but the model has its own: leave it out.")
        mdp: MDP = model if isinstance(model, MDP) else model.mdp
        given = "uniform" if default_policy is None else default_policy
        self.default_name = given if isinstance(given, str) and isinstance(model, MDP) else "a table"
        table = named(mdp, given) if isinstance(given, str) else given
        if not isinstance(model, MDP):
            table = model.default_policy
        self._lazy = LazyMDP(mdp, table, eta)
        self.eta = self._lazy.eta
        base: Any = ModelWorld(mdp) if env is None else open_env(env.env if isinstance(env, LazyAction) else env)
        _check_states(mdp, base)
        self.env = LazyAction(base, self._lazy.default_policy[: base.observation_space.n], self.eta)
        self.action_names, self.gamma = mdp.action_names, float(mdp.gamma)
        self.name = f"Exact agent ({mdp.n_states} states, gamma {mdp.gamma:g})"
        self._solution = solve(self._lazy)
        self.critical = _critical(model if isinstance(model, EtaPath) else mdp, self._lazy)

    def at(self, eta: float) -> ExactPlayer:
        """Returns the optimal agent of the same model at another price, in the same environment."""
        other = copy.copy(self)
        other.eta, other._lazy = eta, LazyMDP(self._lazy.mdp, self._lazy.default_policy, eta)
        other._solution = solve(other._lazy)
        return other

    def choose(self, observation: Any, last_action: int) -> int:
        """Returns the optimal action; a tie is lazy."""
        return int(self._solution.action[self._states([observation])[0]]) + first_action(self.env)

    def judge(self, observations: list[Any], last_actions: NDArray[np.int64], choices: NDArray[np.int64]) -> Judgement:
        """Looks up the solution."""
        states, found = self._states(observations), self._solution
        return Judgement(
            found.q[states], found.value[states], found.lazy_gap[states], self.critical[states],
            self._lazy.default_policy[states],
        )  # fmt: skip

    def predict(self, observations: Any, state: Any = None, deterministic: bool = True) -> tuple[NDArray[Any], Any]:
        """Chooses for a batch of observations."""
        return self._solution.action[self._states(observations)] + first_action(self.env), None

    def values(self, observations: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Looks up the solution."""
        states = self._states(observations)
        return self._solution.q[states], self._solution.lazy_gap[states]

    def _states(self, observations: Any) -> NDArray[np.int64]:
        space: Any = self.env.observation_space
        return np.array(observations, dtype=np.int64) - int(space.start)


class Critic(Protocol):
    """An estimate of the values of an agent's actions."""

    about: dict[str, Any]
    """How the critic was fitted and how good it is."""

    def q(self, observations: Any) -> NDArray[np.float64]:
        """Returns `[T, A]` values of taking control with each action, price included."""


class OtherPlayer:
    """An agent without values: a Stable-Baselines3 model, an object with `predict`, or a callable.

    Args:
        agent: The agent. `predict(observation)` may return a pair, whose first entry is the action.
        env: The environment. In a `LazyAction` environment, the agent may choose the lazy action.
        eta: Price; by default that of a `LazyAction` environment, otherwise none, which costs nothing.
        default_policy: Default policy in any form; by default that of a `LazyAction` environment or the uniform one.
        name: Description of the agent.
        critic: An estimate of the values, or None if they are unknown.
    """

    action_names: Sequence[str] | None = None
    gamma: float | None = None

    def __init__(
        self, agent: Any, env: str | gym.Env[Any, Any] | None, eta: float | None, default_policy: Any, name: str | None,
        critic: Critic | None = None,
    ) -> None:  # fmt: skip
        if env is None:
            raise ValueError("env is missing: this agent does not know its environment.")
        self._may_be_lazy = isinstance(env, LazyAction)
        if isinstance(env, LazyAction):
            eta = env.eta if eta is None else eta
            default_policy = env.default_policy if default_policy is None else default_policy
            base: gym.Env[Any, Any] = env.env
        else:
            base = open_env(env)
        given = "uniform" if default_policy is None else default_policy
        self.env, self.eta = LazyAction(base, given, 0.0 if eta is None else eta), eta
        self.default_name = str(given) if isinstance(given, str | int) else type(self.env.default_policy).__name__
        self.name, self.critic = name or _described(agent), critic
        self._agent, self._options = _callable_of(agent)
        if is_stable_baselines(agent):
            self._check_spaces(agent)

    def choose(self, observation: Any, last_action: int) -> int:
        """Returns the agent's action, and raises an error if the environment does not have it."""
        answer = self._agent(observation, **self._options)
        action = answer[0] if isinstance(answer, tuple) else answer
        low, high = first_action(self.env), self.env.lazy_action - (not self._may_be_lazy)
        try:
            number = operator.index(np.asarray(action).item())
        except (TypeError, ValueError) as error:
            raise ValueError(f"the agent chose {action!r}, expected an action from {low} to {high}.") from error
        if not low <= number <= high:
            raise ValueError(f"the agent chose action {number}, but the environment has the actions {low} to {high}.")
        return number

    def judge(self, observations: list[Any], last_actions: NDArray[np.int64], choices: NDArray[np.int64]) -> Judgement:
        """Judges T states with the critic.

        The lazy-gap is the value of the *agent's own* action minus the mean value under the default policy: what it
        costs to let the default policy act once. For an agent that takes the best action this is the usual lazy-gap.
        """
        seen = batched(self.env.observation_space, observations)
        count, n_actions = len(observations), self.env.lazy_action - first_action(self.env)
        found = self.env.default_policy.probabilities(seen, last_actions)
        default = np.full((count, n_actions), np.nan) if found is None else np.asarray(found, dtype=np.float64)
        unknown = np.full(count, np.nan)
        if self.critic is None:
            return Judgement(np.full((count, n_actions), np.nan), unknown, unknown, unknown, default)
        q = np.asarray(self.critic.q(seen), dtype=np.float64)
        lazy = (q * default).sum(axis=1)
        is_lazy = choices == n_actions
        taken = np.where(is_lazy, q.max(axis=1), q[np.arange(count), np.where(is_lazy, 0, choices)])
        value = np.where(is_lazy, lazy + (self.eta or 0.0), taken)
        return Judgement(q, value, taken - lazy, unknown, default)

    def predict(self, observations: Any, state: Any = None, deterministic: bool = True) -> tuple[NDArray[Any], Any]:
        """Chooses for each observation of a batch."""
        each = unbatched(self.env.observation_space, observations)
        return np.array([self.choose(one, 0) for one in each]), None

    def values(self, observations: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the values of the critic, and the lazy-gaps of the agent's own choices."""
        seen, first = list(unbatched(self.env.observation_space, observations)), first_action(self.env)
        choices = self.predict(observations)[0] - first
        judged = self.judge(seen, np.full(len(seen), noop_of(self.env.env)), choices)
        return judged.q, judged.lazy_gap

    def _check_spaces(self, agent: Any) -> None:
        """Raises an error if a Stable-Baselines3 model does not fit; images may have their channels first or last."""
        expected = self.env.action_space if self._may_be_lazy else self.env.env.action_space
        if agent.action_space != expected:
            raise ValueError(
                f"the agent was made for the actions {agent.action_space}, but the environment has {expected}."
            )
        known, seen = agent.observation_space, self.env.observation_space
        if sorted(known.shape or ()) != sorted(seen.shape or ()):
            raise ValueError(f"the agent was made for the observations {known}, but the environment has {seen}.")


def _own_env(agent: Any) -> LazyAction[Any]:
    """Makes the environment of training, with images if it can be rendered."""
    try:
        return agent.make_env(render_mode="rgb_array")
    except (TypeError, ValueError, gym.error.Error):  # it has no such render mode
        return agent.make_env()


def _check_states(mdp: MDP, env: gym.Env[Any, Any]) -> None:
    space, actions = env.observation_space, env.action_space
    if not isinstance(space, spaces.Discrete):
        raise ValueError(f"env has the observations {space}, expected the {mdp.n_states} states of the model.")
    # A model may have one state more, in which episodes end (see MDP.from_gymnasium).
    if not int(space.n) <= mdp.n_states <= int(space.n) + 1:
        raise ValueError(f"env has {space.n} states, but the model has {mdp.n_states}: they do not belong together.")
    if not isinstance(actions, spaces.Discrete) or int(actions.n) != mdp.n_actions:
        raise ValueError(f"env has the actions {actions}, but the model has {mdp.n_actions} actions.")


def _critical(model: MDP | EtaPath, lazy: LazyMDP) -> NDArray[np.float64]:
    """Returns `[S]` critical prices; NaN for a large model or one for which the path cannot be computed."""
    if isinstance(model, EtaPath):
        return model.critical_eta
    if model.n_states <= _LARGEST_PATH and model.gamma < 1.0:
        return eta_path(model, lazy.default_policy).critical_eta
    return np.full(model.n_states, np.nan)


def _callable_of(agent: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the function that chooses an action, and the options with which it is called."""
    if isinstance(agent, type):
        raise TypeError(f"agent is the class {agent.__name__}, expected an object of it, such as {agent.__name__}().")
    if callable(getattr(agent, "predict", None)):
        known = inspect.signature(agent.predict).parameters
        return agent.predict, {"deterministic": True} if "deterministic" in known else {}
    if callable(agent):
        return agent, {}
    raise TypeError(
        f"agent is {agent!r}, expected a trained agent, a model with eta, a Stable-Baselines3 model, an object with "
        "predict, a callable, or the path of one of these."
    )


def _described(agent: Any) -> str:
    name = getattr(agent, "__qualname__", None)
    if isinstance(name, str) and "<lambda>" not in name:
        return name
    return "a function" if name is not None else type(agent).__name__
