"""Return against control over prices, of a recorded agent: one point per price, and the default policy alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._env_outcomes import env_name
from lazymdp.defaults.protocol import noop_of
from lazymdp.explain.environments import first_action
from lazymdp.explain.players import ExactPlayer, OtherPlayer, Player, TrainedPlayer
from lazymdp.measure.statistics import mean_interval

EPISODES = 50
"""Episodes per price."""
FEWER_EPISODES = 20
"""Episodes per price of an agent with a critic and of a trained agent in another environment, which play one by one."""
MOST_PRICES = 8
"""Largest number of prices of an exact agent, beside its own."""
LONGEST = 1_000
"""Steps after which an episode is stopped, except those of a trained agent in the environment of its training."""

_QUANTILES = (0.25, 0.5, 0.75, 0.9, 0.95)
"""Of the lazy-gaps of an agent with a critic: the prices at which it plays, if they are positive."""

Progress = Callable[[int, int], None]


def frontier(player: Player, *, seed: int = 0, progress: Progress | None = None) -> list[dict[str, float | None]]:
    """Plays whole episodes at several prices, and with the default policy alone.

    Args:
        player: The agent in its environment, which is the one that is played. An exact agent is solved again at every
            price; a trained agent for one price has this one. An agent with a critic is never lazy at price 0; above,
            it acts where the critic's lazy-gap exceeds the price. Atari games are left out, because they take minutes
            on a CPU.
        seed: Random seed; every price has the same one.
        progress: Called with the amount of work done and the total amount.

    Returns:
        Points: `eta` (None for the default policy alone), `return` (mean, price excluded), `low` and `high` (95%
        interval over episodes), `control_rate`. An empty list if the agent has no values.
    """
    if isinstance(player, TrainedPlayer) and not env_name(player.env).startswith("ALE/"):
        return _trained(player, seed, progress)
    if isinstance(player, ExactPlayer):
        return _exact(player, seed, progress)
    if isinstance(player, OtherPlayer) and player.critic is not None:
        return _with_critic(player, seed, progress)
    return []


def _trained(player: TrainedPlayer, seed: int, progress: Progress | None) -> list[dict[str, float | None]]:
    if not player.in_training_env:
        reported = map(float, player.trained.algorithm.config.reported_etas) if player.trained.is_dial else ()
        return _at_prices(player, sorted({*reported, player.eta}), seed, FEWER_EPISODES, progress)
    played = player.trained.evaluate(episodes=EPISODES, seed=seed, progress=progress)
    points = [
        _point(float(eta), played.returns[place], float(played.control_rate[place]))
        for place, eta in enumerate(played.etas)
    ]
    alone = played.default_alone
    return [*points, _point(None, alone.returns[0], 0.0)]


def _exact(player: ExactPlayer, seed: int, progress: Progress | None) -> list[dict[str, float | None]]:
    """Plays the optimal policies at its own price, and at prices between the critical ones, where they do not tie."""
    critical = np.unique(player.critical[np.isfinite(player.critical) & (player.critical > 0.0)])
    between = np.sqrt(critical[1:] * critical[:-1]) if critical.size > 1 else critical / 2.0
    if between.size > MOST_PRICES - 1:
        between = between[np.linspace(0, between.size - 1, MOST_PRICES - 1).round().astype(int)]
    return _at_prices(player, sorted({0.0, player.eta, *between.tolist()}), seed, EPISODES, progress)


def _at_prices(
    player: TrainedPlayer | ExactPlayer, etas: list[float], seed: int, episodes: int, progress: Progress | None
) -> list[dict[str, float | None]]:
    """Plays an agent in its environment at some prices, and the default policy alone."""
    prices, points = [*etas, None], []
    for place, eta in enumerate(prices):
        choose = (lambda *_: player.env.lazy_action) if eta is None else player.at(eta).choose
        returns, controls, steps = _play(player, choose, seed, episodes)
        points.append(_point(eta, returns, controls / steps))
        if progress is not None:
            progress(place + 1, len(prices))
    return points


def _with_critic(player: OtherPlayer, seed: int, progress: Progress | None) -> list[dict[str, float | None]]:
    """Plays an agent that is lazy where the critic's lazy-gap is at most the price."""
    gaps: list[float] = []

    def threshold(eta: float | None) -> Callable[[Any, int], int]:
        def choose(observation: Any, last: int) -> int:
            if eta is None:
                return player.env.lazy_action
            action = player.choose(observation, last)
            choice = np.array([action - first_action(player.env)])
            gap = float(player.judge([observation], np.array([last]), choice).lazy_gap[0])
            if eta == 0.0:
                gaps.append(gap)
            return action if gap > eta or eta == 0.0 else player.env.lazy_action

        return choose

    points: list[dict[str, float | None]] = []
    prices: list[float | None] = [0.0]
    while prices:
        eta = prices.pop(0)
        returns, controls, steps = _play(player, threshold(eta), seed, FEWER_EPISODES)
        points.append(_point(eta, returns, controls / steps))
        if eta == 0.0:
            found = np.unique(np.quantile(gaps, _QUANTILES))
            prices = [*found[found > 0.0].tolist(), None]
        if progress is not None:
            progress(len(points), len(points) + len(prices))
    return points


def _play(
    player: Player, choose: Callable[[Any, int], int], seed: int, episodes: int
) -> tuple[NDArray[np.float64], float, float]:
    """Plays episodes; returns their returns, and the total numbers of steps in control and of steps."""
    env, returns, controls, steps = player.env, np.zeros(episodes), 0.0, 0.0
    for episode in range(episodes):
        observation, _ = env.reset(seed=seed + episode)
        last, over, length = noop_of(env.env), False, 0
        while not over and length < LONGEST:
            observation, _, terminated, truncated, info = env.step(choose(observation, last))
            last, over, length = info["base_action"], terminated or truncated, length + 1
            returns[episode] += info["base_reward"]
            controls += info["took_control"]
        steps += length
    return returns, controls, steps


def _point(eta: float | None, returns: NDArray[np.float64], control_rate: float) -> dict[str, float | None]:
    interval = mean_interval(returns)
    low, high = float(interval.low), float(interval.high)
    return {"eta": eta, "return": float(interval.mean), "low": low, "high": high, "control_rate": control_rate}
