"""Gymnasium environments: made from an id or a factory, looked at, and closed; the size of their rewards."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from lazymdp._arguments import safe_repr, safe_str
from lazymdp._env_outcomes import flag_of, reward_of
from lazymdp.learn.deep.env_failures import LARGEST_REWARD, EnvironmentFailed, running, said_by
from lazymdp.wrappers.lazy_action import LazyAction

EnvFactory = Callable[[], gym.Env[Any, Any]]
"""A function that returns a new Gymnasium environment."""
_OWN_MODULE = "To use an environment that a module of yours registers, give module:Id-v0."


def measure_reward_scale(env: str | EnvFactory, env_kwargs: Mapping[str, Any] | None = None) -> float:
    """Returns the root mean square of the rewards other than 0 in 1,000 random steps, to two digits, or 1.

    Zeros are left out, because values are as large as rewards even if these are rare.
    """
    name, made = name_of(env), make_gymnasium_env(env, env_kwargs)
    first, count = actions_of(made, name)
    rng, rewards, where = np.random.default_rng(0), np.zeros(1_000), ""
    try:
        ended = True
        for place in range(rewards.size):
            if ended:
                where = f"{name}, reset at random step {place + 1} before training"
                with running(where):
                    made.reset(seed=place)
            where = f"{name}, random step {place + 1} before training"
            with running(where):
                _, reward, terminated, truncated, _ = made.step(first + int(rng.integers(count)))
            rewards[place] = reward_of(reward, None)  # nan and others are refused when training begins
            ended = flag_of(terminated, "terminated") or flag_of(truncated, "truncated")
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise EnvironmentFailed(f"{where}: {said_by(error)}.") from error
    finally:
        close_env(made, name)
    paid = rewards[(rewards != 0.0) & (np.abs(rewards) <= LARGEST_REWARD)]
    scale = float(f"{np.sqrt(np.mean(paid**2)):.2g}") if paid.size else 1.0
    return scale if 0.0 < scale < np.inf else 1.0


def close_env(env: gym.Env[Any, Any], name: str) -> None:
    """Closes an environment. An error of it is only a warning: it must not hide the reason why a run ends."""
    try:
        with running(f"{name}, close()"):
            env.close()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        warnings.warn(f"{name}: close() raised {safe_repr(error)}, which does not affect the run.", stacklevel=2)


def make_gymnasium_env(env: str | EnvFactory, env_kwargs: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """Makes a Gymnasium environment from its id and keyword arguments, or from a factory."""
    made: Any = None
    check_env(env)
    if not isinstance(env, str):
        try:
            with running(f"{name_of(env)}, making the environment"):
                made = env()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise EnvironmentFailed(f"{name_of(env)} raised {safe_repr(error)}.") from error
    else:
        given = f"env is {env!r}" + (f" with {safe_repr(dict(env_kwargs))}" if env_kwargs else "")
        try:
            with running(f"{env}, making the environment"):
                made = gym.make(env, **(env_kwargs or {}))
        except gym.error.UnregisteredEnv as error:
            module, _, name = env.rpartition(":")
            remedy = f"The module {module} was imported, but it does not register {name}." if module else _OWN_MODULE
            raise ValueError(f"{given}, which cannot be made: {safe_str(error)} {remedy}") from error
        except (gym.error.Error, ImportError, TypeError, ValueError) as error:
            raise ValueError(f"{given}, which cannot be made: {safe_str(error)}{where_to_run(env, error)}") from error
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise EnvironmentFailed(f"{given}, which cannot be made: {safe_repr(error)}") from error
    if not isinstance(made, gym.Env):
        raise TypeError(f"{name_of(env)} returned a {type(made).__name__}, expected a Gymnasium environment.")
    if any(isinstance(wrapper, LazyAction) for wrapper in _wrappers(made)):
        raise ValueError(
            f"{name_of(env)} has a lazy action already: give the environment without LazyAction, because training adds "
            "the lazy action itself."
        )
    return made


def where_to_run(named: str, error: BaseException) -> str:
    """Returns what to do if the module of `module:Id-v0` or `module:function` is not found, or nothing."""
    missing = error.__cause__ or error  # Gymnasium raises another error from the one that has the name
    module = named.partition(":")[0].partition(".")[0]
    if ":" not in named or not isinstance(missing, ModuleNotFoundError) or missing.name != module:
        return ""
    return f" Run this in the folder that holds {module}.py, or add that folder to PYTHONPATH."


def make_again(
    env: str | EnvFactory, env_kwargs: Mapping[str, Any] | None, options: Mapping[str, Any]
) -> gym.Env[Any, Any]:
    """Makes an environment of training once more, with further keyword arguments such as a `render_mode`."""
    if options and not isinstance(env, str):
        raise ValueError(
            f"{name_of(env)} takes no {', '.join(options)}: make the environment yourself, and give it to "
            "agent.wrap(env, eta)."
        )
    return make_gymnasium_env(env, {**(env_kwargs or {}), **options})


def check_env(env: Any) -> None:
    """Raises an error if an environment is given neither as an id nor as a factory."""
    if isinstance(env, str) or (callable(env) and not isinstance(env, gym.Env)):
        return
    raise TypeError(
        f"env is {safe_repr(env)}, expected an id or a factory: a function that returns a new environment, such as "
        "lambda: gym.make('CartPole-v1')."
    )


def name_of(env: str | EnvFactory) -> str:
    """Returns the id of an environment, or the name of its factory, for messages."""
    return env if isinstance(env, str) else f"the factory {getattr(env, '__qualname__', None) or safe_repr(env)}"


def time_limit(env: gym.Env[Any, Any]) -> int | None:
    """Returns the time limit of an episode in steps, or None if the environment has no wrapper that limits it."""
    limits = [wrapper._max_episode_steps for wrapper in _wrappers(env) if isinstance(wrapper, gym.wrappers.TimeLimit)]
    return min(limits, default=None)


def has_own_wrappers(env: gym.Env[Any, Any]) -> bool:
    """Returns whether an environment has other wrappers than those of `gymnasium.make`, which change nothing."""
    plain = (gym.wrappers.TimeLimit, gym.wrappers.OrderEnforcing, gym.wrappers.PassiveEnvChecker)
    return any(type(wrapper) not in plain for wrapper in _wrappers(env))


def _wrappers(env: gym.Env[Any, Any]) -> Iterator[gym.Wrapper[Any, Any, Any, Any]]:
    """Yields the wrappers of an environment, the outermost first."""
    while isinstance(env, gym.Wrapper):
        yield env
        env = env.env


def actions_of(env: gym.Env[Any, Any], name: str) -> tuple[int, int]:
    """Returns the first action and the number of actions."""
    if not isinstance(env.action_space, spaces.Discrete):
        raise ValueError(f"{name} has the action space {env.action_space}, expected Discrete.")
    return int(env.action_space.start), int(env.action_space.n)
