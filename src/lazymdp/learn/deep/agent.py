"""Trained agents: how they act, their values and lazy-gaps, and how they are evaluated."""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import (
    LARGEST,
    check_count,
    check_flag,
    check_integer,
    check_number,
    check_probability,
    check_progress,
    check_seed,
    plain_array,
    price_array,
    several,
    shown,
)
from lazymdp.learn.deep import host_evaluation
from lazymdp.learn.deep.acting import Exploration, act
from lazymdp.learn.deep.algorithm import Algorithm
from lazymdp.learn.deep.compiled_defaults import HostDefault, greedy, raising_failures, softmax
from lazymdp.learn.deep.config import LARGEST_PRICE
from lazymdp.learn.deep.evaluation_episodes import (
    MAX_STEPS,
    AgentEvaluation,
    DoubtfulFrontier,
    evaluate_compiled,
    play_compiled,
    with_default_alone,
)
from lazymdp.learn.deep.host_env import GymnasiumHost
from lazymdp.learn.deep.jax_env import JaxEnv
from lazymdp.learn.deep.networks import Parameters
from lazymdp.learn.deep.observations import to_batch
from lazymdp.learn.deep.price_search import ControlRatePrice, price_of_rate
from lazymdp.learn.deep.single_env import make_single
from lazymdp.wrappers.lazy_action import LazyAction

_MOST_ROWS = 32_768
"""Largest number of pairs of observation and price that the network is applied to at once; 70 MB on Atari."""
_MOST_POINTS = 1_000_000
"""Largest number of prices in the grid of `critical_eta`."""


class Agent:
    """A trained agent.

    `predict` has the signature of Stable-Baselines3, so an agent can act wherever a model of that library can, in
    environments with a lazy action: `wrap` and `make_env` make them. Observations may have any form in which an
    environment returns them: arrays, numbers of states, dicts and tuples; the channels of images may come first.

    Args:
        algorithm: The algorithm that trained the agent.
        parameters: Parameters of its network.
        eta: The single price that the agent was trained for, or None for a dial.
    """

    def __init__(self, algorithm: Algorithm, parameters: Parameters, eta: float | None) -> None:
        self.algorithm, self.parameters, self.eta = algorithm, parameters, eta
        self._price_is = "was trained for the single price"
        self._rng = np.random.default_rng(0)
        self._apply = jax.jit(algorithm.network.apply)
        self._act = jax.jit(functools.partial(act, algorithm))
        self._default = jax.jit(algorithm.default_policy)
        self._play = jax.jit(functools.partial(play_compiled, algorithm))
        self._choose_in_slots = jax.jit(functools.partial(host_evaluation.choose_in_slots, algorithm))
        self._choose_in_group = jax.jit(functools.partial(host_evaluation.choose_in_group, algorithm))

    def __repr__(self) -> str:
        prices = "a dial for eta from {:g} to {:g}".format(*self.algorithm.config.eta_range)
        if self.eta is not None:
            prices = f"eta {self.eta:g}"
        env = self.algorithm.env
        return f"Agent({self.algorithm.config.name}, {prices}, observations {env.shape}, {env.n_actions} actions)"

    @property
    def is_dial(self) -> bool:
        """Whether the agent has a range of prices, one of which must be given to act."""
        return self.eta is None

    @property
    def lazy_action(self) -> int:
        """Index of the lazy action, as in `LazyAction`: one more than the environment's last action."""
        return self.algorithm.env.first_action + self.algorithm.env.n_actions

    @property
    def default_policy(self) -> HostDefault:
        """The default policy that the agent was trained with, as a `DefaultPolicy`."""
        return HostDefault(
            lambda seen, last: self._default(self._batch(seen)[0], jnp.asarray(last)), self.algorithm.env.first_action
        )

    def at(self, eta: float) -> Agent:
        """Returns the agent fixed at one price, which need not be given again; an agent for one price has no other."""
        fixed = copy.copy(self)
        fixed.eta = self._price(eta)
        fixed._price_is = "is fixed at the price" if self.is_dial else self._price_is
        fixed._rng = np.random.default_rng(0)
        return fixed

    def set_random_seed(self, seed: int) -> None:
        """Seeds the random choices of `predict` with `deterministic=False`; the seed is 0 when an agent is made."""
        self._rng = np.random.default_rng(check_seed(seed))

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: ArrayLike | None = None,
        deterministic: bool = True,
        eta: ArrayLike | None = None,
    ) -> tuple[NDArray[np.int64] | np.int64, NDArray[np.int64]]:
        """Chooses an action, or to be lazy; the signature is that of Stable-Baselines3.

        A default policy may depend on the last executed action, and the value of being lazy then does, too. `state`
        carries this action from one call to the next. `predict` does not see what the default policy did; it assumes
        a deterministic one, such as `repeat`. Otherwise give `[info["base_action"]]` of the last step as `state`. If
        the default policy does not depend on the last action, `state` has no effect and need not be given.

        Args:
            observation: One observation, or a batch of N.
            state: What the last call returned: `[N]` last executed actions. By default, episodes begin.
            episode_start: `[N]` whether an episode begins, so that its `state` is ignored.
            deterministic: Choose the best action; a tie is lazy. Otherwise choose at random from all actions and being
                lazy with the probability `final_epsilon` of training; `set_random_seed` makes this reproducible.
            eta: Price, a number or `[N]`; required for a dial, which extrapolates outside the range it was trained for.

        Returns:
            The action, or `[N]` actions for a batch, with the numbers of the environment (`lazy_action` is lazy); and
            the new `state`.
        """
        env = self.algorithm.env
        seen, single = to_batch(env, observation)
        count = len(seen)
        last, begins = np.full(count, env.noop), _begins(False if episode_start is None else episode_start, count)
        if state is not None:
            last = np.where(begins, env.noop, self._last(state, "state", count, env.first_action))
        uniform, epsilon = np.full((3, count), 0.5, dtype=np.float32), 0.0
        if not check_flag(deterministic, "deterministic"):
            uniform[:2] = self._rng.random((2, count), dtype=np.float32)
            epsilon = self.algorithm.config.final_epsilon
        with raising_failures(self.algorithm.default_policy):
            choice = self._act(self.parameters, seen, self._prices(eta, count), last, uniform, Exploration(epsilon))
            executed = np.asarray(choice.executed, dtype=np.int64) + env.first_action
        actions = np.where(choice.lazy, self.lazy_action, executed)
        return actions[0] if single else actions, executed

    def wrap(self, env: gym.Env[Any, Any], eta: float | None = None) -> LazyAction[Any]:
        """Adds the lazy action to an environment, over the default policy that the agent was trained with.

        Args:
            env: An environment with the observations and actions of the one that the agent was trained in.
            eta: Price; required for a dial.
        """
        trained = self.algorithm.env
        wrapped = LazyAction(env, self.default_policy, self._price(eta))
        if (wrapped.lazy_action, wrapped.action_space.n) != (self.lazy_action, trained.n_actions + 1):  # type: ignore[attr-defined]
            raise ValueError(
                f"env has the action space {env.action_space}, but the agent was trained with {trained.n_actions} "
                f"actions from {trained.first_action}."
            )
        return wrapped

    def make_env(self, eta: float | None = None, render_mode: str | None = None) -> LazyAction[Any]:
        """Makes the environment that the agent was trained in, with its preprocessing and the lazy action.

        Args:
            eta: Price; required for a dial.
            render_mode: Render mode of the environment.
        """
        price = self._price(eta)
        return self.wrap(make_single(self.algorithm.env, render_mode), price)

    def q(self, observations: Any, eta: ArrayLike | None = None) -> NDArray[np.float32]:
        """Returns `[N, A]` values of taking control at price `eta` (a number or `[N]`; required for a dial).

        For a single observation, here and in `lazy_gap` and `critical_eta`, the result has no axis `N`.
        """
        seen, single = self._batch(observations)
        prices = self._prices(eta, len(seen))
        outputs = np.asarray(self._apply(self.parameters, seen, prices)[:, : self.algorithm.env.n_actions])
        return outputs[0] if single else outputs

    def lazy_gap(
        self, observations: Any, eta: ArrayLike | None = None, last_actions: ArrayLike | None = None
    ) -> NDArray[np.float32]:
        """Returns `[N]` lazy-gaps: the value of the best action minus the mean value under the default policy.

        The agent takes control where the lazy-gap exceeds `eta`.

        Args:
            observations: `[N, ...]` observations, or a single one.
            eta: Price, a number or `[N]`; required for a dial.
            last_actions: `[N]` last executed actions, numbered from 0, for a default policy that depends on them; by
                default the no-op.
        """
        seen, single = self._batch(observations)
        gaps = self._lazy_gaps(seen, self._prices(eta, len(seen)), last_actions)
        return gaps[0] if single else gaps

    def _lazy_gaps(self, seen: Array, prices: Array, last_actions: ArrayLike | None) -> NDArray[np.float32]:
        """Returns the lazy-gaps of N observations at prices `[N]` or `[N, K]`, in the shape of the prices."""
        noop, count = self.algorithm.env.noop, len(seen)
        last = np.full(count, noop) if last_actions is None else self._last(last_actions, "last_actions", count)
        default = self._default(seen, jnp.asarray(last))  # [N, A]
        outputs = self._apply(self.parameters, seen, prices)
        control, lazy = self.algorithm.form.values(outputs, default if prices.ndim == 1 else default[:, None], prices)
        return np.asarray(control.max(-1) - (lazy - prices))

    def as_default(self, *, epsilon: float = 0.0, temperature: float | None = None) -> HostDefault:
        """Returns the agent as a default policy, for example for `lz.LazyAction`.

        As a default policy the agent is never lazy. A dial uses its values at price 0.

        Args:
            epsilon: Probability of a random action.
            temperature: Temperature of a softmax over the values; by default the best action is taken.
        """
        check_probability(epsilon, "epsilon")
        if temperature is not None and (not 0.0 < temperature < np.inf or epsilon != 0.0):
            raise ValueError(
                f"temperature is {temperature} and epsilon {epsilon}, expected a temperature above 0 and no epsilon."
            )
        price = self._price(0.0 if self.is_dial else None)

        def values(observations: Any) -> Any:
            return self.q(observations, price)

        policy = greedy(values, epsilon) if temperature is None else softmax(values, temperature)
        return HostDefault(policy, self.algorithm.env.first_action)

    def evaluate(
        self,
        etas: Sequence[float] | NDArray[np.float64] | None = None,
        *,
        episodes: int = 100,
        seed: int = 0,
        epsilon: float = 0.0,
        max_steps: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> AgentEvaluation:
        """Plays whole episodes at each price, and with the default policy alone.

        A `DoubtfulFrontier` warning names the prices at which, beyond 95% intervals, the return is higher than at a
        lower price, or the return after the price is lower than that of the default policy alone.

        Args:
            etas: `[E]` prices, or one price; by default those that training reported on.
            episodes: Number of episodes per price.
            seed: Random seed. Every price and the default policy alone use the same random numbers.
            epsilon: Probability of a random choice.
            max_steps: Time limit of an episode in steps; by default the environment's own, or 10,000 if it has none.
            progress: Called with the amount of work done and the total amount.
        """
        if etas is None:
            etas = self.algorithm.config.reported_etas if self.eta is None else (self.eta,)
        given = several(etas, "etas", "a list of prices")
        prices = np.array([self._price(eta) for eta in given])
        if max_steps is not None:
            check_count(max_steps, "max_steps", "a number of steps")
        check_progress(progress)
        episodes, seed, epsilon = _check_play(episodes, seed, epsilon)
        played = with_default_alone(
            self._played(np.append(prices, np.inf), episodes, seed, epsilon, max_steps=max_steps, progress=progress)
        )
        for doubt in played.doubts():
            warnings.warn(doubt, DoubtfulFrontier, stacklevel=2)
        return played

    def _played(
        self, prices: NDArray[np.float64], episodes: int, seed: int, epsilon: float, *, max_steps: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> AgentEvaluation:  # fmt: skip
        """Plays whole episodes at `[E]` prices; at an infinite price, with the default policy alone."""
        env = self.algorithm.env
        options = (prices, episodes, seed, epsilon, max_steps or env.max_steps or MAX_STEPS, progress)
        with raising_failures(self.algorithm.default_policy):
            if isinstance(env, JaxEnv):
                return evaluate_compiled(self.algorithm, self._play, self.parameters, *options)
            if isinstance(env, GymnasiumHost):
                return host_evaluation.evaluate_in_slots(env, self._choose_in_slots, self.parameters, *options)
            return host_evaluation.evaluate_in_groups(env, self._choose_in_group, self.parameters, *options)

    def critical_eta(
        self, observations: Any, *, last_actions: ArrayLike | None = None, points: int = 129
    ) -> NDArray[np.float64]:
        """Returns `[N]`, the largest price at which a dial takes control for each observation; 0 if it never does.

        The lazy-gap is computed at `points` prices over the range trained for. The result is interpolated linearly
        between the last price at which the agent takes control and the next one. `last_actions` is as in `lazy_gap`.
        """
        prices, (seen, single) = self._price_grid(points), self._batch(observations)
        noop, count = self.algorithm.env.noop, len(seen)
        last = np.full(count, noop) if last_actions is None else self._last(last_actions, "last_actions", count)
        rows = max(1, _MOST_ROWS // points)  # the network keeps its features for all prices of a row
        excess = np.zeros((len(seen), points))
        for first in range(0, len(seen), rows):
            part = slice(first, first + rows)
            grid = jnp.broadcast_to(jnp.asarray(prices, jnp.float32), (len(seen[part]), points))
            excess[part] = self._lazy_gaps(seen[part], grid, last[part]) - prices
        critical = np.zeros(len(seen))
        for place, column in enumerate(excess):
            above = np.flatnonzero(column > 0.0)
            if above.size:
                last = above[-1]
                critical[place] = prices[last]
                if last + 1 < prices.size:
                    share = column[last] / (column[last] - column[last + 1])
                    critical[place] += share * (prices[last + 1] - prices[last])
        return critical[0] if single else critical

    def for_control_rate(
        self,
        share: float,
        *,
        evaluation: AgentEvaluation | None = None,
        episodes: int = 100,
        seed: int = 0,
        epsilon: float = 0.0,
    ) -> ControlRatePrice:
        """Finds the smallest price at and above which a dial takes control in at most `share` of the steps.

        The agent is evaluated on whole episodes, first at the prices that training reported on, then by bisection
        between the two that enclose the answer. If the control rate jumps at a price, the rate found may lie below
        `share`. If even the largest price leads to more control than `share`, that price is returned. (Unlike
        `EtaPath.for_control_rate`, this counts steps without discounting.)

        Args:
            share: Largest control rate allowed.
            evaluation: An evaluation to start from instead of the first one, with the same `episodes`, `seed` and
                `epsilon`.
            episodes: Number of episodes per price.
            seed: Random seed.
            epsilon: Probability of a random choice.
        """
        share = check_number(share, "share", 0.0, 1.0, "a share of steps between 0 and 1")
        episodes, seed, epsilon = _check_play(episodes, seed, epsilon)
        self._check_dial()
        if evaluation is not None and evaluation.returns.shape != (evaluation.etas.size, episodes):
            raise ValueError(f"evaluation has {evaluation.returns.shape[-1]} episodes per price, expected {episodes}.")

        def played(prices: NDArray[np.float64]) -> AgentEvaluation:
            return self._played(prices, episodes, seed, epsilon)

        return price_of_rate(share, evaluation or played(np.array(self.algorithm.config.reported_etas)), played)

    def _batch(self, observations: Any) -> tuple[Array, bool]:
        """Returns observations in the form that the network expects, `[N, ...]`, and whether it was a single one."""
        seen, single = to_batch(self.algorithm.env, observations)
        return jnp.asarray(seen), single

    def _price(self, eta: float | None) -> float:
        """Returns one price; raises an error for a price that the agent was not trained for."""
        if eta is not None:
            eta = check_number(eta, "eta", -LARGEST, LARGEST, "one price: a finite number")
        self._prices(eta, 1)
        return eta if self.eta is None and eta is not None else float(self.eta or 0.0)

    def _prices(self, eta: ArrayLike | None, count: int) -> Array:
        """Returns prices as `[N]`; raises an error for prices that the agent was not trained for."""
        if eta is None and self.eta is None:
            raise ValueError(
                "the agent is a dial, trained for a range of prices: give eta, or fix the agent at one price, "
                "agent.at(eta)."
            )
        given = price_array(float(self.eta or 0.0) if eta is None else eta)
        if given.shape not in ((), (1,), (count,)):
            raise ValueError(f"eta has shape {given.shape}, expected one price, or [{count}]: one per observation.")
        prices = np.broadcast_to(given, (count,))
        if self.eta is None and not ((prices >= 0.0) & (prices <= LARGEST_PRICE)).all():
            raise ValueError(f"eta is {shown(eta)}, expected prices from 0 to {LARGEST_PRICE:g}.")
        if self.eta is not None:
            odd = prices[~np.isclose(prices, self.eta, rtol=1e-4, atol=1e-7)]
            if odd.size:
                raise ValueError(f"eta is {odd[0]:g}, but the agent {self._price_is} {self.eta:g}.")
        return jnp.asarray(prices, dtype=jnp.float32)

    def _last(self, actions: Any, name: str, count: int, first: int = 0) -> NDArray[np.int64]:
        """Returns `[N]` last executed actions, numbered from 0, given those numbered from `first`."""
        given = plain_array(actions, f"{name} is")
        whole = given.dtype.kind in "iu" or (given.dtype.kind == "f" and bool((given == np.round(given)).all()))
        if not whole or given.shape not in ((), (1,), (count,)):
            raise ValueError(f"{name} is {shown(actions)}, expected [{count}] integers: the last executed actions.")
        last = first + self.algorithm.env.n_actions - 1
        if given.size and not first <= given.min() <= given.max() <= last:
            raise ValueError(f"{name} is {shown(actions)}, expected actions from {first} to {last}.")
        return np.broadcast_to(given.astype(np.int64) - first, (count,))

    def _price_grid(self, points: int) -> NDArray[np.float64]:
        """Returns `[points]` prices: 0, then log-spaced prices over the range trained for."""
        self._check_dial()
        points = check_integer(points, "points", 3, _MOST_POINTS, f"at least 3 and at most {_MOST_POINTS} prices")
        return np.append(0.0, np.geomspace(*self.algorithm.config.eta_range, points - 1))

    def _check_dial(self) -> None:
        if self.eta is not None:
            remedy = (
                "ask the dial itself" if self.algorithm.config.is_range else "train one for a range, eta=(low, high)"
            )
            raise ValueError(f"the agent {self._price_is} {self.eta:g}: {remedy}.")


def _begins(given: ArrayLike, count: int) -> NDArray[Any]:
    """Returns whether episodes begin, one flag or `[N]`, and raises an error for anything else."""
    begins = plain_array(given, "episode_start is")
    if begins.dtype.kind not in "biuf" or not np.isin(begins, (0, 1)).all() or begins.shape not in ((), (1,), (count,)):
        raise ValueError(f"episode_start is {shown(given)}, expected [{count}] flags: whether an episode begins.")
    return begins.astype(bool)


def _check_play(episodes: int, seed: int, epsilon: float) -> tuple[int, int, float]:
    """Returns the settings of an evaluation as plain numbers, and raises an error if one is invalid."""
    count = check_count(episodes, "episodes", "a number of episodes")
    largest = 2**31 - 1  # that of a run
    checked = check_integer(seed, "seed", 0, largest, f"an integer from 0 to {largest}")
    return count, checked, check_probability(epsilon, "epsilon")
