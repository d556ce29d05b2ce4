"""The canonical form of a run: however it is written, its id is a hash of what decides its result and nothing else.

`zero_share` says nothing about a run at a single price, `network = "mlp"` is what CartPole has anyway, and action 00 is
action 0. Whoever adjusts what only the dial of a study uses should not have to make all other runs again.
"""

from __future__ import annotations

import re
from collections.abc import Set
from contextlib import suppress
from dataclasses import replace
from typing import Any

from lazymdp.learn.deep.config import DQNConfig, PQNConfig, default_config, is_control
from lazymdp.sweep.extras import deep
from lazymdp.sweep.run_spec import reference


def canonical_config(
    env: str, algorithm: str, given: dict[str, Any], env_kwargs: dict[str, Any], unused: Set[str] = frozenset()
) -> PQNConfig | DQNConfig:
    """Returns the settings of a run for whole iterations; those that change nothing have their defaults.

    Args:
        env: Name of the environment.
        algorithm: `pqn` or `dqn`.
        given: Settings that replace the defaults.
        env_kwargs: Keyword arguments of `gymnasium.make`.
        unused: Settings that the run does not use for a reason that the others do not tell.
    """
    made = default_config(env, algorithm, **given)  # checks the settings that are left out, too
    usual = _usual_network(env, env_kwargs, look="network" in given)
    unused = unused | replace(made, network=made.network or usual).unused
    if made.network == usual and default_config(env, algorithm, **_without(given, {"network"})).network is None:
        unused = unused | {"network"}
    made = default_config(env, algorithm, **_without(given, unused))
    return replace(made, steps=made.total_steps)


def canonical_policy(text: str) -> str:
    """Returns a default policy in which an action, or how the network of a run chooses, is written in one way."""
    if re.fullmatch(r"-?\d+", text):
        return str(int(text))
    found = reference(text)
    if found is None:
        return text
    kind, name, manner = found
    word, _, number = manner.partition("=")
    with suppress(ValueError):  # what is no number is reported when the policy is made
        manner = f"{word}={number_text(float(number))}"
    return ":".join([kind, name, *([] if manner in ("", "greedy", "epsilon=0") else [manner])])


def number_text(number: float) -> str:
    """Returns the shortest text that is read as the same number; -0 is 0."""
    text = f"{number + 0.0:g}"
    return text if float(text) == number else repr(float(number))


def _usual_network(env: str, env_kwargs: dict[str, Any], look: bool) -> Any:
    """Returns the default network of an environment; if `look`, a control problem is made to see its observations."""
    if not look or not is_control(env):
        return "nature" if env.startswith("ALE/") else "mlp"
    made = deep("factory").make_env(env, 1, env_kwargs=env_kwargs)
    try:
        return deep("networks").architecture(made.shape, None)
    finally:
        made.close()


def _without(given: dict[str, Any], names: Set[str]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name not in names}
