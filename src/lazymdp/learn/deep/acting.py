"""An epsilon-greedy choice among the actions and being lazy, for many environments at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from lazymdp.learn.deep.backup import lazy_value


class Choice(NamedTuple):
    """What the agents choose, `[N]` each."""

    column: Any  # of the network's output that the step teaches
    executed: Any  # action of the base game
    lazy: Any
    greedy: Any  # not made to explore
    value: Any  # of the state to the greedy agent


def choose(q: Any, probabilities: Any, eta: Any, uniform: Any, epsilon: Any) -> Choice:
    """Chooses by values `q`, at random with probability `epsilon`.

    Args:
        q: `[N, A]` values of taking control (structured), or `[N, A + 1]` with that of being lazy last.
        probabilities: `[N, A]` of the default policy.
        eta: `[N]` prices.
        uniform: `[3, N]` random numbers between 0 and 1.
        epsilon: Share of choices drawn evenly from all A + 1.
    """
    n_actions = probabilities.shape[-1]
    structured = q.shape[-1] == n_actions
    explore, which, drawn = uniform
    control = q[:, :n_actions]
    mean = (control * probabilities).sum(-1) if structured else q[:, n_actions] - eta
    best = control.max(-1)
    greedy = jnp.where(mean + eta >= best, n_actions, control.argmax(-1))
    choice = jnp.where(explore < epsilon, jnp.int32(which * (n_actions + 1)), greedy)
    by_default = (drawn[:, None] >= jnp.cumsum(probabilities, -1)[:, :-1]).sum(-1)
    executed = jnp.where(choice == n_actions, by_default, choice)
    column = executed if structured else choice
    return Choice(column, executed, choice == n_actions, choice == greedy, lazy_value(best, mean, eta))
