"""One call from an agent to a page: records it, replays its largest moments, measures the ranking, and reports.

On Atari, playing at other prices and measuring the ranking are left out, because they take long without a GPU. The
ranking is measured in copies of the environment; if none can be made, the page says why.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gymnasium as gym

from lazymdp._arguments import check_count
from lazymdp._env_outcomes import env_name
from lazymdp._files import replacing
from lazymdp.explain.env_copies import CannotCopy, Factory, copies_of
from lazymdp.explain.extra import extra
from lazymdp.explain.frontier import frontier
from lazymdp.explain.moments import moments_of
from lazymdp.explain.players import OtherPlayer, Player
from lazymdp.explain.ranking_trust import player_trust
from lazymdp.explain.record import make_player, record_player
from lazymdp.explain.recording import Recording, check_free, load
from lazymdp.explain.replays import what_followed
from lazymdp.explain.report import check_whole, report


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
    critic: str | None = None,
    moments: int = 8,
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
        folder: Folder that keeps the recording with what was measured; by default it is deleted.
        episodes: Number of episodes to record.
        eta: Price of taking control; required for a dial and for a model.
        seed: Random seed.
        max_steps: Number of steps after which an episode is truncated.
        default_policy: Default policy of an agent that has none, by default uniform.
        gamma: Discount of a model and of the critic, by default 0.99.
        critic: `fit`, or None: agents without values get a critic in both cases, and others must not have one.
        moments: Number of moments that are replayed with the default policy.
        against: Another recording, or its folder, to show side by side; one that `explain` kept has replays, too.
        trust: Allow code to run that the agent names.
        progress: Called with what is being done, the amount of work done and the total amount.
    """
    check_count(moments, "moments", "the number of moments")
    extra("imageio_ffmpeg")  # for the video, which is made last
    other = against if against is None or isinstance(against, Recording) else load(against)
    if other is not None:
        check_whole(other, "against")
    tell = progress or (lambda *_: None)
    with ExitStack() as cleanup:
        page = cleanup.enter_context(replacing(path))  # raises an error now, not after everything else
        where = Path(cleanup.enter_context(tempfile.TemporaryDirectory())) / "recording" if folder is None else folder
        check_free(Path(where))
        player = make_player(agent, env, eta, default_policy, gamma=gamma, trust=trust)
        copies, no_fidelity = _copies(player)  # before the recording: a drawn environment cannot always be copied
        made = record_player(
            player, where, episodes=episodes, seed=seed, max_steps=max_steps, gamma=gamma,
            critic="fit" if isinstance(player, OtherPlayer) and critic is None else critic,
            progress=tell,
        )  # fmt: skip
        control = [made.steps(episode)["control"] for episode in range(made.episodes)]
        shown = [(same[0].episode, same[0].step) for same in moments_of(made, moments)]
        chosen = [(episode, step) for episode, step in shown if control[episode][step]]
        discount = player.gamma or (0.99 if gamma is None else gamma)
        followed = what_followed(
            player, made, chosen, gamma=discount, seed=seed, progress=lambda *did: tell("replaying moments", *did)
        )
        made.annotate(counterfactuals=followed)
        made.annotate(frontier=frontier(player, seed=seed, progress=lambda *did: tell("playing at other prices", *did)))
        if copies is None:
            made.annotate(no_fidelity=no_fidelity)
        else:
            found = player_trust(player, copies, seed=seed, progress=lambda *did: tell("measuring the ranking", *did))
            made.annotate(fidelity=found)
        tell("writing the page", 0, 1)
        report(made, page, against=other)
        tell("writing the page", 1, 1)


def _copies(player: Player) -> tuple[Factory | None, str]:
    """Returns a function that makes copies of the environment, or None and why it cannot be copied."""
    if env_name(player.env).startswith("ALE/"):
        return None, "It is left out for Atari games, because it takes long without a GPU."
    try:
        return copies_of(player), ""
    except CannotCopy as error:
        return None, f"It is measured in copies of the environment, but {error}"
