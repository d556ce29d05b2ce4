"""`LazyAction` for vector environments: many environments, and one call of the default policy per step."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import LARGEST, check_seed, plain_array, price_array, real_array
from lazymdp._env_outcomes import BadOutcome
from lazymdp.defaults.protocol import ask, make_default, noop_action
from lazymdp.wrappers.lazy_action import STREAM, check_discrete, extended_mask, with_lazy_action


class LazyVectorAction(VectorWrapper[Any, Any, Any, Any, NDArray[Any]], gym.utils.RecordConstructorArgs):
    """Adds the lazy action to each of N environments, as `LazyAction` does to one.

    The default policy is called once per step, with the observations of the environments that are lazy on that step.
    The differences from `LazyAction` are:

    * `info` holds arrays `[N]`, each with a mask `[N]` under the name `_key`, as in Gymnasium's vector environments.
    * Autoreset: under NEXT_STEP, the step after the end of an episode only resets. It costs nothing, does not call
      the default policy, and has False in every mask. Under SAME_STEP, `info["final_info"]` also holds the keys of the
      last step of the finished episodes. Under DISABLED, the caller resets with `options={"reset_mask": ...}`.
    * A callable as default policy receives the whole batch of observations.
    * `reset(seed=)` seeds one generator for all environments. A list of seeds that contains None does not seed it.

    Args:
        env: A vector environment with a `Discrete` single action space.
        default_policy: The policy that acts when the agent is lazy; `lazymdp.defaults.protocol` lists the accepted
            forms.
        eta: Price of one step in control: one number, or `[N]`, one per environment.

    Attributes:
        lazy_action: Index of the lazy action.
        default_policy: The default policy as a `DefaultPolicy`.
        eta: `[N]` prices of the current episodes. `set_eta` changes them.

    Example:
        >>> venv = LazyVectorAction(gym.make_vec("FrozenLake-v1", num_envs=2), default_policy="uniform", eta=[0.0, 0.5])
        >>> _ = venv.reset(seed=0)
        >>> _, rewards, *_, info = venv.step(np.array([2, 2]))
        >>> rewards, info["took_control"]
        (array([ 0. , -0.5]), array([ True,  True]))
    """

    def __init__(
        self, env: VectorEnv[Any, Any, NDArray[Any]], default_policy: Any = "uniform", eta: ArrayLike = 0.1
    ) -> None:
        # The recorded arguments are not copied, because a default policy may hold a network.
        gym.utils.RecordConstructorArgs.__init__(self, default_policy=default_policy, eta=eta, _disable_deepcopy=True)
        super().__init__(env)
        self._base_space = check_discrete(env.single_action_space)
        if env.action_space.shape != (env.num_envs,):
            raise ValueError(
                f"the vector environment steps {env.action_space.shape} of its {env.num_envs} environments at a time, "
                "expected all of them: create it with batch_size equal to num_envs."
            )
        self.single_action_space = with_lazy_action(self._base_space)
        self.action_space = batch_space(self.single_action_space, env.num_envs)
        self.lazy_action = int(self._base_space.start + self._base_space.n)
        meanings = _call_each(env, "get_action_meanings")
        self._noop = noop_action(self._base_space, None if meanings is None else meanings[0])
        self.default_policy = make_default(
            default_policy, self._base_space, env.single_observation_space, self._noop, batched=True
        )
        self._autoreset = _autoreset_mode(env)
        self.eta = self._check_etas(eta)
        self._next_eta = self.eta.copy()
        self._rng = np.random.default_rng()
        self._mask: NDArray[Any] | None = None
        self._started = False
        self._done = np.ones(env.num_envs, dtype=bool)
        self._last_actions = np.full(env.num_envs, self._noop)
        self._steps = np.zeros(env.num_envs, dtype=np.int64)
        self._controls = np.zeros(env.num_envs, dtype=np.int64)
        self._base_returns = np.zeros(env.num_envs)

    def set_eta(self, eta: ArrayLike) -> None:
        """Sets the price of the following episodes: one number, or `[N]`, one per environment.

        A running episode keeps its price to its end.
        """
        self._next_eta = self._check_etas(eta)
        self.eta = np.where(self._done, self._next_eta, self.eta)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in all environments, or in those that `options["reset_mask"]` `[N]` selects.

        A seed also seeds the generator of the default policy.
        """
        starting = np.ones(self.num_envs, dtype=bool)
        if options is not None and "reset_mask" in options:
            starting = np.array(options["reset_mask"], dtype=bool)  # the base environment may remove it from the dict
        self._observations, infos = self.env.reset(seed=seed, options=options)
        seeds = np.ravel(seed).tolist()
        if None not in seeds:
            self._rng = np.random.default_rng([STREAM, *map(check_seed, seeds)])
        self._started = True
        self._begin(starting)
        return self._observations, self._with_mask(infos)

    def step(self, actions: ArrayLike) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Executes the actions `[N]`, and the default policy's where they are lazy; the class describes `info`."""
        if not self._started:
            raise gym.error.ResetNeeded("No episode is running: call reset() before step().")
        choices = self._check_choices(actions)
        resetting = self._done  # all False under SAME_STEP, where the next episode starts on the same step
        lazy = (choices == self.lazy_action) & ~resetting
        took_control = ~lazy & ~resetting
        base_actions = self._base_actions(choices, lazy)

        self._observations, given, terminated, truncated, infos = self.env.step(base_actions)
        rewards = self._checked_rewards(given)
        costs = np.where(took_control, 0.0 - self.eta, 0.0)
        done = np.asarray(terminated, dtype=bool) | np.asarray(truncated, dtype=bool)
        if self._autoreset is AutoresetMode.NEXT_STEP:
            self._begin(resetting)
        self._last_actions = np.where(resetting, self._noop, base_actions)
        self._steps += ~resetting
        self._controls += took_control
        self._base_returns += np.where(resetting, 0.0, rewards)

        infos = self._with_mask(infos)
        keys = {
            "took_control": took_control,
            "base_action": base_actions,
            "base_reward": rewards,
            "control_cost": costs,
        }
        _add(infos, keys, ~resetting)
        if done.any():
            ends = {"control_rate": self._controls / np.maximum(self._steps, 1), "base_return": self._base_returns}
            _add(infos, ends, done)
            if self._autoreset is AutoresetMode.SAME_STEP:
                final = infos["final_info"] = dict(infos.get("final_info", {}))
                infos["_final_info"] = done
                _add(final, keys | ends, done)
                self._begin(done)
                done = np.zeros_like(done)
        self._done = done
        return self._observations, rewards + costs, terminated, truncated, infos

    def action_masks(self) -> NDArray[np.bool_]:
        """Returns `[N, n + 1]` flags of the allowed actions.

        They are those of the base environments, if they have masks, and True for the lazy action.
        """
        masks = _call_each(self.env, "action_masks")
        if masks is not None:
            return extended_mask(np.stack(masks), self._base_space).astype(bool)
        if self._mask is not None:
            return self._mask.astype(bool)
        return np.ones((self.num_envs, int(self._base_space.n) + 1), dtype=bool)

    def _begin(self, starting: NDArray[np.bool_]) -> None:
        """Starts counting an episode in the environments that `starting` `[N]` selects."""
        self.eta = np.where(starting, self._next_eta, self.eta)
        self._done = self._done & ~starting
        self._last_actions = np.where(starting, self._noop, self._last_actions)
        for tally in (self._steps, self._controls, self._base_returns):
            tally[starting] = 0

    def _base_actions(self, choices: NDArray[np.int64], lazy: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Returns the actions to execute `[N]`; an environment that only resets ignores its action."""
        actions = np.where(choices == self.lazy_action, self._noop, choices)
        if lazy.any():
            actions[lazy] = ask(
                self.default_policy,
                rows_of(self.env.single_observation_space, self._observations, lazy),
                self._rng,
                self._last_actions[lazy],
                self._base_space,
                self._steps[lazy],
                np.flatnonzero(lazy),
            )
        return actions

    def _check_choices(self, actions: ArrayLike) -> NDArray[np.int64]:
        choices = plain_array(actions, "actions are")
        if choices.shape != (self.num_envs,) or not np.issubdtype(choices.dtype, np.integer):
            raise ValueError(
                f"actions are {choices.dtype} of shape {choices.shape}, expected integers of shape ({self.num_envs},)."
            )
        outside = (choices < self._base_space.start) | (choices > self.lazy_action)
        if outside.any():
            index = int(np.argmax(outside))
            raise ValueError(
                f"action is {choices[index]} in environment {index}, expected {self._base_space.start} to "
                f"{self.lazy_action} ({self.lazy_action} is lazy)."
            )
        return choices.astype(np.int64)

    def _checked_rewards(self, given: ArrayLike) -> NDArray[np.float64]:
        rewards = real_array(given, "the rewards of the environments")
        if not np.isfinite(rewards).all():
            index = int(np.argmin(np.isfinite(rewards)))
            raise BadOutcome(
                f"{self.env}, environment {index}, step {self._steps[index] + 1} of the episode: it returned the "
                f"reward {rewards[index]}, expected a finite number."
            )
        return rewards

    def _check_etas(self, eta: ArrayLike) -> NDArray[np.float64]:
        etas = price_array(eta)
        if etas.shape not in ((), (self.num_envs,)):
            raise ValueError(
                f"eta has shape {etas.shape}, expected one number or ({self.num_envs},): one per environment."
            )
        etas = np.full(self.num_envs, etas)
        valid = np.abs(etas) <= LARGEST
        if not valid.all():
            index = int(np.argmin(valid))
            raise ValueError(
                f"eta is {etas[index]} in environment {index}, expected a number between {-LARGEST:g} and {LARGEST:g}."
            )
        return etas

    def _with_mask(self, infos: dict[str, Any]) -> dict[str, Any]:
        infos = dict(infos)
        self._mask = None
        if "action_mask" in infos:
            self._mask = infos["action_mask"] = extended_mask(infos["action_mask"], self._base_space)
        if "action_mask" in infos.get("final_info", {}):
            final = infos["final_info"]
            infos["final_info"] = final | {"action_mask": extended_mask(final["action_mask"], self._base_space)}
        return infos


def rows_of(space: gym.Space[Any], observations: Any, rows: NDArray[np.bool_]) -> Any:
    """Returns the observations that `rows` `[N]` selects, in the layout of the whole batch."""
    if rows.all():
        return observations
    if isinstance(space, spaces.Dict):
        return {key: rows_of(part, observations[key], rows) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(rows_of(part, given, rows) for part, given in zip(space, observations, strict=True))
    if isinstance(observations, np.ndarray):
        return observations[rows]
    return tuple(observation for observation, row in zip(observations, rows, strict=True) if row)


def _add(infos: dict[str, Any], keys: dict[str, NDArray[Any]], rows: NDArray[np.bool_]) -> None:
    """Adds copies of the values and their masks to `infos`; values outside of `rows` `[N]` are 0."""
    for key, values in keys.items():
        infos[key] = np.where(rows, values, np.zeros_like(values))
        infos[f"_{key}"] = rows.copy()


def _autoreset_mode(env: VectorEnv[Any, Any, Any]) -> AutoresetMode:
    """Returns the autoreset mode of a vector environment, NEXT_STEP if it does not declare one.

    The attribute takes precedence over `metadata`, because ale_py writes the mode of its latest instance into a
    dict that all instances share.
    """
    mode = getattr(env.unwrapped, "autoreset_mode", None) or env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    return AutoresetMode(mode)


def _call_each(env: VectorEnv[Any, Any, Any], name: str) -> tuple[Any, ...] | None:
    """Calls a method of each sub-environment; returns None if it cannot be called or if one of them lacks it."""
    base: Any = env.unwrapped
    if not hasattr(base, "call") or not all(base.call("has_wrapper_attr", name)):
        return None
    return tuple(base.call(name))
