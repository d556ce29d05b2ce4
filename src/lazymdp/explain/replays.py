"""What would have followed: moments of a recording, replayed with the default policy in the place of the agent.

The environment is brought back to the state before a step by repeating the episode: the same seed and the same actions.
From there, it continues twice: once the agent makes its choice, once the default policy acts for one step. In both
cases the agent plays on, until the episode ends or rewards count for less than `LEAST_WEIGHT` of one now. This is
repeated with other random numbers for what follows, the same ones in both cases. Returns are discounted, because an
agent that only loses time would otherwise seem to lose nothing.

New random numbers are given to the default policy, to environments that draw from Gymnasium's generator
(`env.np_random`), among them the compiled ones, and to the emulator of Atari games. Others repeat their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_count, check_gamma, check_seed
from lazymdp.explain.environments import first_action
from lazymdp.explain.players import Player
from lazymdp.explain.recording import LONGEST, Recording
from lazymdp.measure.statistics import mean_interval
from lazymdp.wrappers.lazy_action import LazyAction

MOST_STEPS = 4_000
"""Number of steps per moment from which fewer repetitions are made."""
FEWEST = 4
"""Smallest number of repetitions."""
LEAST_WEIGHT = 1e-3
"""Weight below which the discounted rewards of a replay are left out: after 688 steps with a discount of 0.99."""
NOT_REPEATED = "The episode could not be repeated: its rewards differ from the recorded ones."


def what_followed(
    player: Player,
    recording: Recording,
    moments: Sequence[tuple[int, int]],
    *,
    samples: int = 20,
    gamma: float = 0.99,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Replays moments with the agent and with the default policy.

    Args:
        player: The recorded agent in its environment.
        recording: The recording.
        moments: Moments, (episode, step).
        samples: Number of repetitions of each moment; fewer if the episodes are long.
        gamma: Discount factor of the returns.
        seed: Random seed.
        progress: Called with the number of moments done and their total number.

    Returns:
        For each moment: `episode`, `step`, `return_agent` and `return_default` (mean discounted sums of the rewards
        from that step on, price excluded), `low` and `high` (95% interval of their difference, agent minus default
        policy), and `note` (text or None). A moment that cannot be repeated has a note instead of returns.
    """
    check_count(samples, "samples", "the number of repetitions")
    check_gamma(gamma)
    check_seed(seed)
    found = []
    for place, (episode, step) in enumerate(moments):
        found.append(_replayed(player, recording, episode, step, samples, gamma, seed))
        if progress is not None:
            progress(place + 1, len(moments))
    return found


def _replayed(
    player: Player, recording: Recording, episode: int, step: int, samples: int, gamma: float, seed: int
) -> dict[str, Any]:
    steps, reset_seed = recording.steps(episode), int(recording.summary(episode)["seed"])
    row: dict[str, Any] = {"episode": episode, "step": step}
    count = min(samples, max(FEWEST, MOST_STEPS // (2 * len(steps["reward"]))))
    own, by_default = np.zeros(count), np.zeros(count)
    likely, first = steps["default_probability"][step], first_action(player.env)
    likely = likely / likely.sum()  # networks compute in single precision, and a third is then not exact enough
    for sample in range(count):
        rng = np.random.default_rng([seed, episode, step, sample])
        drawn = int(rng.choice(likely.size, p=likely)) + first if np.isfinite(likely).all() else player.env.lazy_action
        future = int(rng.integers(2**31))
        for returns, action in ((own, int(steps["choice"][step]) + first), (by_default, drawn)):
            followed = _followed(player, steps, step, reset_seed, action, future, gamma)
            if followed is None:
                return {**row, "return_agent": None, "return_default": None, "note": NOT_REPEATED}
            returns[sample] = followed
    lead = mean_interval(own - by_default)
    return {
        **row,
        "return_agent": float(own.mean()),
        "return_default": float(by_default.mean()),
        "low": float(lead.low),
        "high": float(lead.high),
        "note": None,
    }


def _followed(
    player: Player, steps: dict[str, NDArray[Any]], step: int, reset_seed: int, action: int, future: int, gamma: float
) -> float | None:
    """Repeats an episode up to a step, takes an action there, and returns the discounted sum of the rewards from there.

    Returns None if the rewards on the way differ from the recorded ones.
    """
    env, first = player.env, first_action(player.env)
    env.reset(seed=reset_seed)
    for before in range(step):
        _, _, terminated, truncated, info = env.step(int(steps["action"][before]) + first)
        if terminated or truncated or info["base_reward"] != steps["reward"][before]:
            return None
    _draw_others(env, future)
    total, weight = 0.0, 1.0
    for _ in range(LONGEST):
        observation, _, terminated, truncated, info = env.step(action)
        total, weight = total + weight * info["base_reward"], gamma * weight
        if terminated or truncated or weight < LEAST_WEIGHT:
            break
        action = player.choose(observation, info["base_action"])
    return total


def _draw_others(env: LazyAction[Any], seed: int) -> None:
    """Gives new random numbers to the default policy and to the environment, whose state stays as it is."""
    env.seed_default(seed)
    base: Any = env.unwrapped
    if hasattr(base, "ale"):  # the emulator has a generator of its own, for sticky actions
        state = base.clone_state(include_rng=False)
        base.seed_game(seed)
        base.load_game()
        base.restore_state(state)
    base.np_random = np.random.default_rng(seed)
