"""A critic for agents that have no values of their own: Q of *the agent's* policy, by fitted Q evaluation.

The agent plays with exploration: an episode may begin with random actions, and later one step in `_EXPLORE` is random.
A small network then learns `Q(s, a)`: the return if `a` is executed in `s` and the agent chooses afterwards. The target
is an n-step return,

    r_1 + gamma r_2 + ... + gamma^(n-1) r_n + gamma^n Q(s_n, agent(s_n)),

which ends before the next random action, so that everything after `a` was the agent's own choice, and the target is not
biased by the exploration. Rewards include the price. The critic reports two numbers about itself, from episodes that it
was not fitted to: the root mean square of its one-step TD errors, and the correlation of its values with Monte Carlo
returns. A critic whose correlation is low explains nothing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp._env_outcomes import check_seen
from lazymdp.defaults.protocol import noop_of
from lazymdp.explain.environments import batched, first_action
from lazymdp.explain.players import Player
from lazymdp.explain.small_network import BATCH, SmallNetwork, check_input, feature_rows, features

Array = NDArray[np.float64]

STEPS = 20_000
"""Steps that are played for the fit; a quarter as many are played to judge it."""
UPDATES = 10_000
"""Gradient steps."""
_N_STEPS = 20
"""Longest n-step return."""
_EXPLORE = 20
"""One step in this many is random, on average."""
_RANDOM_START = 20
"""Largest number of random actions at the beginning of an episode."""
_LEARNING_RATE, _TARGET_INTERVAL = 1e-3, 250
_HELD_OUT = 0.2
_SMALL_TAIL = 0.05
"""Weight of the unknown return after a truncation, below which a Monte Carlo return counts."""


class FittedCritic:
    """Estimated values of an agent's actions.

    Attributes:
        about: `method`, `gamma`, `steps` and `updates` of the fit; `td_error`, the root mean square of one-step TD
            errors on held-out episodes; `value_spread`, the standard deviation of the values there; `correlation` with
            the `returns` Monte Carlo returns, or None if these do not vary.
    """

    def __init__(self, space: gym.Space[Any], network: SmallNetwork, about: dict[str, Any]) -> None:
        self._space, self._network, self.about = space, network, about

    def q(self, observations: Any) -> Array:
        """Returns `[T, A]` values of a batch of observations."""
        return self._network(feature_rows(self._space, observations))


def fit_critic(
    player: Player, *, gamma: float = 0.99, seed: int = 0, max_steps: int = 27_000, steps: int = STEPS,
    updates: int = UPDATES,
) -> FittedCritic:  # fmt: skip
    """Evaluates the policy of an agent.

    Args:
        player: The agent in its environment, whose default policy must have probabilities if the agent can be lazy.
        gamma: Discount factor.
        seed: Random seed.
        max_steps: Number of steps after which an episode is truncated.
        steps: Steps to play for the fit.
        updates: Gradient steps.
    """
    space = player.env.observation_space
    check_input(space, "critic")
    rng = np.random.default_rng([seed, 0xC717])
    played = _play(player, rng, steps, max_steps, explore=True)
    cut = max(1, int(_HELD_OUT * len(played)))
    if len(played) < 2:
        raise ValueError(f"the critic cannot be fitted: {steps} steps are less than two episodes.")
    network = _fit(played[cut:], gamma, rng, updates, player.eta or 0.0)
    judged = _play(player, rng, steps // 4, max_steps, explore=False)
    about = {
        "method": f"fitted Q evaluation, {_N_STEPS}-step TD", "gamma": gamma, "steps": steps, "updates": updates,
        **_td_error(network, played[:cut], gamma, player.eta or 0.0), **_correlation(network, judged, gamma),
    }  # fmt: skip
    return FittedCritic(space, network, about)


class _Episode(NamedTuple):
    """An episode of T steps."""

    seen: Array  # [T + 1, F] features of the observations
    action: NDArray[np.int64]  # [T] executed actions, numbered from 0
    own: NDArray[np.int64]  # [T + 1] the agent's own choices; A is lazy
    random: NDArray[np.bool_]  # [T] whether the step was exploration instead
    reward: Array  # [T] with the price
    default: Array  # [T + 1, A] probabilities of the default policy
    terminated: bool


def _play(player: Player, rng: np.random.Generator, steps: int, max_steps: int, *, explore: bool) -> list[_Episode]:
    """Plays at least this many steps. Without `explore`, only the beginnings of episodes are random."""
    episodes, total = [], 0
    while total < steps:
        episodes.append(_episode(player, rng, min(max_steps, max(steps - total, 2 * _RANDOM_START)), explore))
        total += len(episodes[-1].action)
    return episodes


def _episode(player: Player, rng: np.random.Generator, limit: int, explore: bool) -> _Episode:
    env, first, space = player.env, first_action(player.env), player.env.observation_space
    n_actions, prefix = (
        env.lazy_action - first,
        int(rng.integers(_RANDOM_START)) * int(rng.random() < 0.5 or not explore),
    )
    observation, _ = env.reset(seed=int(rng.integers(2**31)))
    check_seen(env, observation, 0)
    last, terminated, truncated = noop_of(env.env), False, False
    seen, lasts, own = [observation], [last], [player.choose(observation, last)]
    rows: list[tuple[int, bool, float]] = []
    while not (terminated or truncated) and len(rows) < limit:
        is_random = len(rows) < prefix or (explore and rng.random() < 1.0 / _EXPLORE)
        choice = int(rng.integers(n_actions)) + first if is_random else own[-1]
        observation, reward, terminated, truncated, info = env.step(choice)
        check_seen(env, observation, len(rows) + 1)
        last = info["base_action"]
        rows.append((last - first, is_random, float(reward)))
        seen.append(observation.copy() if isinstance(observation, np.ndarray) else observation)
        lasts.append(last)
        own.append(player.choose(observation, last))
    action, is_random_row, rewards = (np.array(column) for column in zip(*rows, strict=True))
    default = env.default_policy.probabilities(batched(space, seen), np.array(lasts))
    chances = np.full((len(seen), n_actions), np.nan) if default is None else np.asarray(default, dtype=np.float64)
    return _Episode(
        np.array([features(space, one) for one in seen]), action.astype(np.int64), np.array(own) - first,
        is_random_row.astype(bool), rewards, chances, bool(terminated),
    )  # fmt: skip


# -- fitting ---------------------------------------------------------------------------------------------------------


class _Sample(NamedTuple):
    """N pairs of a state and an action, with their n-step returns."""

    seen: Array  # [N, F]
    action: NDArray[np.int64]  # [N]
    gain: Array  # [N] discounted rewards of the first n steps
    weight: Array  # [N] gamma^n, or 0 after a termination
    after: Array  # [N, F]
    own: NDArray[np.int64]  # [N] the agent's choice after n steps
    default: Array  # [N, A]
    random: NDArray[np.bool_]  # [N]


def _sample(episodes: list[_Episode], gamma: float, longest: int) -> _Sample:
    """Returns every step of the episodes with its n-step return, which ends before the next random action."""
    parts = []
    for episode in episodes:
        length = len(episode.action)
        stops = np.append(np.flatnonzero(episode.random), length)
        step = np.arange(length)
        end = np.minimum(stops[np.searchsorted(stops, step, side="right")], step + longest)
        gain = np.array(
            [_gain(episode.reward, gamma, int(first), int(last)) for first, last in zip(step, end, strict=True)]
        )
        ended = episode.terminated & (end == length)
        weight = np.where(ended, 0.0, gamma ** (end - step))
        parts.append(
            _Sample(episode.seen[:-1], episode.action, gain, weight, episode.seen[end], episode.own[end],
                    episode.default[end], episode.random)
        )  # fmt: skip
    return _Sample(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _gain(rewards: Array, gamma: float, first: int, last: int) -> float:
    return float(rewards[first:last] @ gamma ** np.arange(last - first))


def _values(q: Array, own: NDArray[np.int64], default: Array, eta: float) -> Array:
    """Returns `[N]` values of the agent's own choices; the lazy value is the mean under the default, plus the price."""
    is_lazy = own == q.shape[1]
    taken = q[np.arange(len(q)), np.where(is_lazy, 0, own)]
    return np.where(is_lazy, (q * np.where(is_lazy[:, None], default, 0.0)).sum(axis=1) + eta, taken)


def _fit(episodes: list[_Episode], gamma: float, rng: np.random.Generator, updates: int, eta: float) -> SmallNetwork:
    data = _sample(episodes, gamma, _N_STEPS)
    returns = np.concatenate([_returns(episode, gamma) for episode in episodes])
    n_actions = data.default.shape[1]
    network = SmallNetwork(data.seen, n_actions, float(returns.mean()), float(returns.std()) or 1.0, rng)
    explored, target = np.flatnonzero(data.random), np.zeros(len(data.gain))
    for update in range(updates):
        if update % _TARGET_INTERVAL == 0:
            target = data.gain + data.weight * _values(network(data.after), data.own, data.default, eta)
        rows = rng.integers(len(target), size=BATCH)
        if explored.size:  # half of the batch: otherwise actions that the agent does not choose would be rare
            rows[: BATCH // 2] = explored[rng.integers(explored.size, size=BATCH // 2)]
        network.update(data.seen[rows], data.action[rows], target[rows], _LEARNING_RATE * (1.0 - update / updates))
    return network


# -- judging ---------------------------------------------------------------------------------------------------------


def _returns(episode: _Episode, gamma: float) -> Array:
    """Returns `[T]` discounted sums of the rewards from each step to the end."""
    returns, total = np.empty(len(episode.reward)), 0.0
    for step in reversed(range(len(returns))):
        returns[step] = total = episode.reward[step] + gamma * total
    return returns


def _td_error(network: SmallNetwork, episodes: list[_Episode], gamma: float, eta: float) -> dict[str, float]:
    """Returns the root mean square of one-step TD errors, and the spread of the values."""
    data = _sample(episodes, gamma, 1)
    found = network(data.seen)[np.arange(len(data.action)), data.action]
    target = data.gain + data.weight * _values(network(data.after), data.own, data.default, eta)
    return {"td_error": float(np.sqrt(np.mean((found - target) ** 2))), "value_spread": float(found.std())}


def _correlation(network: SmallNetwork, episodes: list[_Episode], gamma: float) -> dict[str, Any]:
    """Returns the correlation of the values with Monte Carlo returns, and the number of returns.

    A return counts from the last random action of an episode. Near a truncation, where the rest of the return is
    unknown, it does not.
    """
    found, returns = [], []
    for episode in episodes:
        length = len(episode.action)
        step = np.arange(length)
        first = int(np.flatnonzero(episode.random)[-1]) if episode.random.any() else 0
        known = (step >= first) & (episode.terminated | (gamma ** (length - step) < _SMALL_TAIL))
        found.append(network(episode.seen[:-1])[step, episode.action][known])
        returns.append(_returns(episode, gamma)[known])
    values, gains = np.concatenate(found), np.concatenate(returns)
    varies = len(gains) > 2 and gains.std() > 1e-9 and values.std() > 1e-9
    return {"correlation": float(np.corrcoef(values, gains)[0, 1]) if varies else None, "returns": len(gains)}
