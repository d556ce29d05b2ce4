"""The lazy-MDP of Section 3 for environments: one more action, which lets a default policy act.

`LazyMDP` is the same transform of a known model. This wrapper needs nothing but `reset` and `step`, and any learner
that can handle a `Discrete` action space can learn in it when to take control.
"""

from __future__ import annotations

import operator
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp._arguments import check_eta, check_seed
from lazymdp._env_outcomes import checked_reward
from lazymdp.defaults.protocol import ask, make_default, noop_of

ObsType = TypeVar("ObsType")

STREAM = int.from_bytes(b"lazy")
"""Added to the seed, so that the default policy does not use the random numbers of the base environment."""


class LazyAction(gym.Wrapper[ObsType, Any, ObsType, Any], gym.utils.RecordConstructorArgs):
    """Adds the lazy action, which lets the default policy act; every other action costs `eta`.

    ## Spaces

    A `Discrete(n, start)` action space becomes `Discrete(n + 1, start)`, and the lazy action is the last one,
    `start + n`. The observation space does not change. Action masks (`action_masks()`, `info["action_mask"]`) are
    extended: the lazy action is always allowed.

    ## Rewards

    The reward of the base environment, minus `eta` if the agent took control: `base_reward + control_cost`.

    ## Information

    Every step returns `took_control` (bool), `base_action` (int, the executed action), `base_reward` (float, the
    reward without the price) and `control_cost` (float, `-eta` or 0; as in the paper, a cost is negative). The last
    step of an episode also returns `control_rate` (float, the share of its steps in control) and `base_return`
    (float, the undiscounted sum of its base rewards).

    ## Randomness

    The default policy draws from a generator of its own, which `reset(seed=)` seeds. The random numbers of the base
    environment are the same with and without this wrapper.

    Args:
        env: An environment with a `Discrete` action space.
        default_policy: The policy that acts when the agent is lazy; `lazymdp.defaults.protocol` lists the accepted
            forms.
        eta: Price of one step in control: any finite number. A negative price is a bonus for taking control.

    Attributes:
        lazy_action: Index of the lazy action.
        default_policy: The default policy as a `DefaultPolicy`.
        eta: The price of the current episode. `set_eta` changes it.

    Example:
        >>> env = LazyAction(gym.make("FrozenLake-v1", is_slippery=False), default_policy=1, eta=0.25)
        >>> _ = env.reset(seed=0)
        >>> _, reward, *_, info = env.step(2)
        >>> reward, info["base_action"], info["took_control"]
        (-0.25, 2, True)
        >>> _, reward, *_, info = env.step(env.lazy_action)
        >>> reward, info["base_action"], info["took_control"]
        (0.0, 1, False)
    """

    def __init__(self, env: gym.Env[ObsType, Any], default_policy: Any = "uniform", eta: float = 0.1) -> None:
        # The recorded arguments are not copied, because a default policy may hold a network.
        gym.utils.RecordConstructorArgs.__init__(self, default_policy=default_policy, eta=eta, _disable_deepcopy=True)
        super().__init__(env)
        self._base_space = check_discrete(env.action_space)
        self.action_space = with_lazy_action(self._base_space)
        self.lazy_action = int(self._base_space.start + self._base_space.n)
        self._noop = noop_of(env)
        self.default_policy = make_default(
            default_policy, self._base_space, env.observation_space, self._noop, batched=False
        )
        self.eta = self._next_eta = check_eta(eta)
        self._rng = np.random.default_rng()
        self._running = False
        self._mask: NDArray[Any] | None = None

    def set_eta(self, eta: float) -> None:
        """Sets the price of the following episodes; a running episode keeps its price to its end."""
        self._next_eta = check_eta(eta)
        if not self._running:
            self.eta = self._next_eta

    def seed_default(self, seed: int) -> None:
        """Seeds the generator of the default policy, as `reset` with a seed does."""
        self._rng = np.random.default_rng([STREAM, check_seed(seed)])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ObsType, dict[str, Any]]:
        """Starts an episode. A seed also seeds the generator of the default policy."""
        if seed is not None:
            self.seed_default(seed)
        self._observation, info = self.env.reset(seed=seed, options=options)
        self.eta = self._next_eta
        self._running = True
        self._last_action = self._noop
        self._steps = self._controls = 0
        self._base_return = 0.0
        return self._observation, self._with_mask(info)

    def step(self, action: SupportsIndex) -> tuple[ObsType, SupportsFloat, bool, bool, dict[str, Any]]:
        """Executes `action`, or an action of the default policy if it is the lazy one; the class describes `info`."""
        if not self._running:
            raise gym.error.ResetNeeded("No episode is running: call reset() before step().")
        choice = operator.index(action)
        if not self._base_space.start <= choice <= self.lazy_action:
            raise ValueError(
                f"action is {choice}, expected {self._base_space.start} to {self.lazy_action} "
                f"({self.lazy_action} is lazy)."
            )
        took_control = choice != self.lazy_action
        base_action = choice if took_control else self._default_action()
        self._observation, given, terminated, truncated, info = self.env.step(base_action)
        reward = checked_reward(self.env, given, terminated, truncated, self._steps + 1)
        cost = 0.0 - self.eta if took_control else 0.0  # `0.0 - eta` and not `-eta`, which is -0.0 if eta is 0
        self._last_action = base_action
        self._steps += 1
        self._controls += took_control
        self._base_return += reward
        info = self._with_mask(info) | {
            "took_control": took_control,
            "base_action": base_action,
            "base_reward": reward,
            "control_cost": cost,
        }
        if terminated or truncated:
            self._running = False
            info |= {"control_rate": self._controls / self._steps, "base_return": self._base_return}
        return self._observation, reward + cost, terminated, truncated, info

    def action_masks(self) -> NDArray[np.bool_]:
        """Returns `[n + 1]` flags of the allowed actions.

        They are those of the base environment, if it has a mask, and True for the lazy action.
        """
        if self.env.has_wrapper_attr("action_masks"):
            return extended_mask(self.env.get_wrapper_attr("action_masks")(), self._base_space).astype(bool)
        if self._mask is not None:
            return self._mask.astype(bool)
        return np.ones(int(self._base_space.n) + 1, dtype=bool)

    def _default_action(self) -> int:
        batch = batch_of_one(self.env.observation_space, self._observation)
        last, step = np.array([self._last_action]), np.array([self._steps])
        return int(ask(self.default_policy, batch, self._rng, last, self._base_space, step)[0])

    def _with_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        """Returns `info` with the lazy action added to its mask, if it has one, and remembers the mask."""
        self._mask = None
        if "action_mask" not in info:
            return info
        self._mask = extended_mask(info["action_mask"], self._base_space)
        return info | {"action_mask": self._mask}


def check_discrete(space: gym.Space[Any]) -> spaces.Discrete:
    """Returns the action space, and raises an error if it is not `Discrete`."""
    if not isinstance(space, spaces.Discrete):
        raise TypeError(
            f"the action space is {space}, expected Discrete: the lazy action is added to a finite list of actions."
        )
    return space


def with_lazy_action(space: spaces.Discrete) -> spaces.Discrete:
    """Returns the space with one more action at its end."""
    return spaces.Discrete(int(space.n) + 1, start=int(space.start))


def extended_mask(mask: Any, space: spaces.Discrete) -> NDArray[Any]:
    """Extends a mask `[..., n]` of allowed actions to `[..., n + 1]`, with the lazy action allowed."""
    given = np.asarray(mask)
    if given.shape[-1:] != (space.n,):
        raise ValueError(
            f"the action mask has shape {given.shape}, expected {space.n} entries along its last axis: one per action."
        )
    return np.concatenate([given, np.ones_like(given[..., :1])], axis=-1)


def batch_of_one(space: gym.Space[Any], observation: Any) -> Any:
    """Returns one observation as a batch of size 1, in the layout of a vector environment."""
    if isinstance(space, spaces.Dict):
        return {key: batch_of_one(part, observation[key]) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(batch_of_one(part, given) for part, given in zip(space, observation, strict=True))
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        return np.asarray(observation)[None]
    return (observation,)
