"""An evaluation after training that takes no longer than the training did.

What an episode will take is not known: a trained agent may play ten times as long as one that learns. So one episode is
played at every price, and then as many as the time left allows. A round of more episodes takes at most proportionally
longer, because episodes are played in parallel. Every round begins anew, so that the result is that of `agent.evaluate`
with the same number of episodes. The time limit includes all rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.deep.agent import Agent
from lazymdp.learn.deep.evaluation_episodes import AgentEvaluation

MOST_EPISODES = 100
"""Number of episodes at each price if there is enough time."""
FEWEST_EPISODES = 10
"""Number of episodes at each price below which prices are left out instead."""


def evaluate_within(
    agent: Agent,
    seconds: float,
    *,
    seed: int = 0,
    further: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> AgentEvaluation:
    """Plays whole episodes at the prices that training reported on, in at most about as many seconds as are given.

    It plays from 10 to 100 episodes at each price, as many as there is time for. If there is not even time for 10, it
    leaves out prices, but never the first, the last, and the default policy alone, whatever these take.

    Args:
        agent: The agent.
        seconds: Time limit.
        seed: Random seed.
        further: Number of prices at which the same number of episodes will be played after this, within the limit.
        progress: Called with the amount of work done and the total amount of a round.
    """
    begin = time.monotonic()
    etas = agent.evaluate(episodes=1, seed=seed, max_steps=1).etas
    compiling = (time.monotonic() - begin) * (2 if further else 1)  # each number of episodes is compiled separately
    rows = etas.size + 1  # the last one is the default policy alone

    def play(etas: NDArray[np.float64], episodes: int) -> tuple[AgentEvaluation, float]:
        """Returns an evaluation, and for how many episodes per price there is time left, further prices included."""
        started = time.monotonic()
        played = agent.evaluate(etas, episodes=episodes, seed=seed, progress=progress)
        now = time.monotonic()
        per_row = max(now - started, 1e-9) / (episodes * rows)
        return played, (begin + seconds - now - compiling) / (per_row * (rows + further))

    played, possible = play(etas, 1)
    if possible >= MOST_EPISODES:
        return play(etas, MOST_EPISODES)[0]
    if possible < FEWEST_EPISODES:
        prices = int(max(possible, 0.0) * (rows + further) / FEWEST_EPISODES) - 1 - further
        kept = np.linspace(0, etas.size - 1, max(2, prices)).round().astype(int)
        return play(etas[np.unique(kept)], FEWEST_EPISODES)[0]
    played, possible = play(etas, FEWEST_EPISODES)
    episodes = min(int(possible), MOST_EPISODES)
    return play(etas, episodes)[0] if episodes >= 2 * FEWEST_EPISODES else played
