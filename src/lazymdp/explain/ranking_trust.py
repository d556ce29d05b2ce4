"""How far a ranking can be trusted: the fidelity of each measure of importance for a recorded agent.

The steps that a measure calls most important are handed to the default policy, or all others are, and the loss of
return is compared with that of random steps (`lazymdp.measure.fidelity`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from lazymdp._arguments import check_choice, check_count, check_seed
from lazymdp.explain.critic import fit_critic
from lazymdp.explain.env_copies import Factory, copies_of
from lazymdp.explain.players import OtherPlayer, Player
from lazymdp.explain.record import make_player
from lazymdp.measure.fidelity import MODES, Fidelity, fidelity
from lazymdp.measure.fidelity import SHARES as ALL_SHARES
from lazymdp.measure.importance import action_gap, importance_advice

SHARES = (0.1, 0.2, 0.4)
"""Shares of the steps that are handed over for a report, in which time counts."""
EPISODES = 20
"""Episodes for each share."""
LONGEST = 1_000
"""Steps after which an episode is stopped."""
_MEASURES: dict[str, Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]] = {
    "lazy_gap": lambda q, gap: gap,
    "action_gap": lambda q, gap: action_gap(q),
    "importance_advice": lambda q, gap: importance_advice(q),
}


def ranking_trust(
    agent: Any,
    env: str | gym.Env[Any, Any] | None = None,
    *,
    mode: str = "replace",
    eta: float | None = None,
    episodes: int = EPISODES,
    seed: int = 0,
    default_policy: Any = None,
    gamma: float | None = None,
    trust: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Fidelity]:
    """Measures the fidelity of lazy-gap, action-gap and importance advice for an agent of any form.

    Args:
        agent: The agent, in any form that `lz.explain.record` accepts. If it has no values of its own, a critic is
            fitted to its play.
        env: The environment; by default that of the agent.
        mode: "replace": hand the most important steps to the default policy. "keep": hand all others over.
        eta: Price of taking control; required for a dial and for a model.
        episodes: Episodes for each measure and share of the steps.
        seed: Random seed.
        default_policy: Default policy of an agent that has none, by default uniform.
        gamma: Discount of a model and of the critic, by default 0.99.
        trust: Allow code to run that the agent names.
        progress: Called with the number of measures done and their total number.

    Returns:
        The curves of each measure, by name. Their `area()` is the distance to the curve of random steps: larger is
        better, and 0 is no better than random. Their `handed` says how many steps were in fact handed over.

    Raises:
        ValueError: The environment cannot be copied; see `lazymdp.explain.env_copies`.
    """
    check_choice(mode, "mode", MODES)
    check_count(episodes, "episodes", "the number of episodes")
    check_seed(seed)
    player = make_player(agent, env, eta, default_policy, gamma=gamma, trust=trust)
    copies = copies_of(player)
    if isinstance(player, OtherPlayer):
        player.critic = fit_critic(player, gamma=0.99 if gamma is None else gamma, seed=seed, max_steps=LONGEST)
    return _curves(player, copies, mode, ALL_SHARES, episodes, seed, progress)


def player_trust(
    player: Player, copies: Factory, *, episodes: int = EPISODES, seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """Returns the areas with mode "replace", for an agent that is in its environment already, as reports show them.

    Args:
        player: The agent in its environment.
        copies: Makes copies of the environment; see `lazymdp.explain.env_copies`.
        episodes: Episodes for each measure and share of the steps.
        seed: Random seed.
        progress: Called with the number of measures done and their total number.

    Returns:
        For each measure: `measure`, `replace_area` (mean loss of return over the shares minus that of random steps),
        `low` and `high` (95% interval over episodes), and lists over the `shares` of the steps that are chosen:
        `handed` and `handed_random`, the shares that were in fact handed over by the measure and at random.
    """
    rows = []
    for name, curves in _curves(player, copies, "replace", SHARES, episodes, seed, progress).items():
        area = curves.area()
        found = {"replace_area": area.mean, "low": area.low, "high": area.high}
        shares = {"shares": curves.shares, "handed": curves.handed["top"], "handed_random": curves.handed["random"]}
        rows.append(
            {"measure": name, **{key: float(value) for key, value in found.items()},
             **{key: value.tolist() for key, value in shares.items()}}
        )  # fmt: skip
    return rows


def _curves(
    player: Player,
    copies: Factory,
    mode: str,
    shares: Sequence[float],
    episodes: int,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Fidelity]:
    """Hands steps over by each measure; an agent without values needs a critic."""
    if isinstance(player, OtherPlayer) and player.critic is None:
        raise ValueError("the agent has no values, so its steps cannot be ranked: fit a critic.")
    found = {}
    for place, (name, measure) in enumerate(_MEASURES.items()):

        def importance(observations: Any, measure: Any = measure) -> NDArray[np.float64]:
            return np.asarray(measure(*player.values(observations)))

        found[name] = fidelity(
            player, copies, importance, default_policy=player.env.default_policy, mode=mode, shares=shares,
            episodes=episodes, max_steps=LONGEST, seed=seed,
        )  # fmt: skip
        if progress is not None:
            progress(place + 1, len(_MEASURES))
    return found
