"""One call from an agent to a page: records it, replays its largest moments, and writes the report."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym

from lazymdp._arguments import check_count
from lazymdp.explain.frontier import frontier
from lazymdp.explain.players import OtherPlayer
from lazymdp.explain.rank import rank
from lazymdp.explain.record import make_player, record
from lazymdp.explain.recording import Recording, load
from lazymdp.explain.replays import moments_in_control, what_followed
from lazymdp.explain.report import report


def explain(
    agent: Any,
    env: str | gym.Env[Any, Any] | None = None,
    *,
    path: str | os.PathLike[str],
    folder: str | os.PathLike[str] | None = None,
    episodes: int = 3,
    eta: float | None = None,
    seed: int = 0,
    max_steps: int | None = None,
    default_policy: Any = None,
    gamma: float | None = None,
    moments: int = 6,
    against: str | os.PathLike[str] | Recording | None = None,
    trust: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> None:
    """Writes a page that shows when an agent acts, which moments matter, and how far to trust the ranking.

    Args:
        agent: The agent, in any form that `lz.explain.record` accepts. If it has no values of its own, a critic is
            fitted to its play.
        env: The environment; by default that of the agent.
        path: Path of the page, which is overwritten.
        folder: Folder that keeps the recording; by default it is deleted.
        episodes: Number of episodes to record.
        eta: Price of taking control; required for a dial and for a model.
        seed: Random seed.
        max_steps: Number of steps after which an episode is truncated.
        default_policy: Default policy of an agent that has none, by default uniform.
        gamma: Discount of a model and of the critic, by default 0.99.
        moments: Number of moments that are replayed with the default policy.
        against: Another recording, or its folder, to show side by side.
        trust: Allow code to run that the agent names.
        progress: Called with what is being done, the amount of work done and the total amount.
    """
    check_count(moments, "moments", "the number of moments")
    other = against if against is None or isinstance(against, Recording) else load(against)
    tell = progress or (lambda *_: None)
    with ExitStack() as cleanup:
        where = Path(cleanup.enter_context(tempfile.TemporaryDirectory())) / "recording" if folder is None else folder
        player = make_player(agent, env, eta, default_policy, gamma=gamma, trust=trust)
        critic = "fit" if isinstance(player, OtherPlayer) else None
        made = record(
            agent, env, folder=where, episodes=episodes, eta=eta, seed=seed, max_steps=max_steps,
            default_policy=default_policy, gamma=gamma, critic=critic, trust=trust,
            progress=lambda done, steps: tell(f"recording, {steps:,} steps", done, episodes),
        )  # fmt: skip
        ranking = rank(made, "lazy_gap")
        chosen = moments_in_control(made, ranking, moments)
        followed = what_followed(
            player, made, chosen, seed=seed, progress=lambda *work: tell("replaying moments", *work)
        )
        points = frontier(player, seed=seed, progress=lambda *work: tell("playing at other prices", *work))
        made.annotate(counterfactuals=followed, frontier=points)
        tell("writing the page", 0, 1)
        report(made, path, against=other)
        tell("writing the page", 1, 1)
