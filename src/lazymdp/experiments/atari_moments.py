"""Figs. 4 to 6 in numbers: at which moments of an Atari game does an agent take control?

The paper shows film strips: control just before the ball has to be hit in Breakout, and near ghosts in Ms Pacman. Here
the dials of the study `dqn-dopamine` play whole games, and the emulator's memory says where the ball and the ghosts are
at each step. The control rate by situation then tests the story on all steps instead of a few chosen frames. Pong,
which the paper does not show, is played for comparison with Breakout.

Share of the steps in which the agent takes control, by situation; 95% bootstrap intervals over episodes. The dotted
line is the control rate over all steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT, LAZY
from lazymdp.experiments.experiment import Claim, Progress, Table, Tables, stacked, table
from lazymdp.experiments.study import COMMITTED, Parts, joined
from lazymdp.show import styled

TITLE = "Atari: the agent takes control just before the ball must be hit, and near ghosts"
NEEDS_GPU = True
ETAS = {"Breakout": 0.02, "MsPacman": 0.1, "Pong": 0.02}
"""Games and the price at which each is played: much less control than at price 0, for almost the same return."""
FAR = {
    "Breakout": "height of the ball above the paddle",
    "MsPacman": "distance to the nearest ghost",
    "Pong": "distance of the ball from the paddle",
}
"""What the distances in a game are; all are in pixels."""
EDGES = {"Breakout": (0, 20, 40, 60, 80, 110), "MsPacman": (0, 15, 30, 45, 60, 200), "Pong": (0, 30, 60, 90, 120, 160)}
"""Bounds between which distances are counted together."""
TURNS = {"Breakout": ("falling", "rising"), "MsPacman": ("",), "Pong": ("approaching", "receding")}
"""What the ball does, where there is one."""


@dataclass(frozen=True)
class Config:
    """Settings of the study."""

    games: tuple[str, ...] = tuple(ETAS)
    """Atari games; each can be run separately into the same folder."""
    episodes: int = 20
    """Number of episodes per game."""
    max_steps: int = 6750
    """Number of steps after which an episode is stopped."""


def run(config: Config, progress: Progress | None = None, parts: Parts | None = None) -> Tables:
    """Play every game; finished games are saved in `parts`."""
    unknown = [game for game in config.games if game not in ETAS]
    if unknown:
        raise ValueError(f"games has {unknown[0]!r}, expected one or more of {', '.join(ETAS)}.")
    rows: Table | None = None
    for place, game in enumerate(config.games):

        def tell(share: float, place: int = place) -> None:
            if progress is not None:
                progress(round(100 * (place + share)), 100 * len(config.games))

        def make(game: str = game) -> Table:
            return _played(config, game, tell)

        new = make() if parts is None else parts.get(game, make)
        rows = dict(new) if rows is None else joined(rows, new)
        tell(1.0)
    return {"moments": rows or {}}


def _played(config: Config, game: str, tell: Callable[[float], None]) -> Table:
    """Play a game in all episodes at once. This is the only function here that uses `lazymdp.learn.deep`."""
    folder = COMMITTED / "dqn-dopamine" / "agents" / f"{game}-dial-0"
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} does not exist: this study needs the agents kept in the repository.")
    try:
        import ale_py  # noqa: F401

        from lazymdp.learn.deep.factory import load
    except ImportError as error:
        raise ImportError(f"playing Atari games needs JAX ({error}): pip install 'lazymdp[deep,atari]'") from error

    agent = load(folder)
    envs = [agent.make_env(ETAS[game]) for _ in range(config.episodes)]
    player, tallies = agent.at(ETAS[game]), [Tally(game) for _ in envs]
    seen = np.stack([env.reset(seed=episode)[0] for episode, env in enumerate(envs)])
    for step in range(config.max_steps):
        playing = [episode for episode, tally in enumerate(tallies) if not tally.ended]
        if not playing:
            break
        choices = np.asarray(player.predict(seen)[0])
        for episode in playing:
            env: Any = envs[episode]
            tallies[episode].count(env.unwrapped.ale.getRAM(), bool(choices[episode] != agent.lazy_action))
            seen[episode], _, terminated, truncated, info = env.step(choices[episode])
            tallies[episode].total += info["base_reward"]
            tallies[episode].ended = terminated or truncated
        tell(step / config.max_steps)
    for env in envs:
        env.close()
    return stacked([tally.rows(episode) for episode, tally in enumerate(tallies)])


class Tally:
    """Counts of steps and of controls in one episode, by situation.

    Attributes:
        total: Return so far.
        ended: Whether the episode has ended.
    """

    def __init__(self, game: str) -> None:
        self._game, self._last = game, -1
        self._counts: dict[tuple[str, float], list[int]] = {}
        self.total, self.ended = 0.0, False

    def count(self, memory: NDArray[np.uint8], control: bool) -> None:
        """Count a step, given the 128 bytes of the console's memory."""
        turn, distance, self._last = situation(self._game, memory.astype(int), self._last)
        place = int(np.searchsorted(EDGES[self._game], distance, side="right")) - 1
        known = turn in TURNS[self._game] and 0 <= place < len(EDGES[self._game]) - 1
        key = (turn, float(EDGES[self._game][place])) if known else ("other", np.nan)
        steps = self._counts.setdefault(key, [0, 0])
        steps[0] += 1
        steps[1] += control

    def rows(self, episode: int) -> dict[str, NDArray[Any]]:
        """Return the counts of the episode, one row per situation."""
        turns, distances = zip(*sorted(self._counts, key=str), strict=True)
        counts = np.array([self._counts[key] for key in zip(turns, distances, strict=True)])
        return table(
            game=self._game, episode=episode, turn=np.array(turns), distance=np.array(distances), steps=counts[:, 0],
            controls=counts[:, 1], episode_return=self.total,
        )  # fmt: skip


def situation(game: str, memory: NDArray[np.int64], last: int) -> tuple[str, float, int]:
    """Return what the ball does, a distance, and the position of the ball to compare the next one with.

    The addresses are those of the Atari Annotated RAM Interface (Anand et al., 2019).

    Args:
        game: Name of the game.
        memory: The 128 bytes of the console's memory.
        last: Position of the ball one step ago; -1 at first.
    """
    if game == "MsPacman":
        player, ghosts = memory[[10, 16]], np.stack([memory[[6, 7, 8, 9]], memory[[12, 13, 14, 15]]], -1)
        return "", float(np.abs(ghosts - player).sum(-1).min()), -1
    if game == "Breakout":
        ball, paddle, there = int(memory[101]), 180, memory[101] > 0  # lines from the top; 0 if no ball is in play
    else:
        ball, paddle, there = int(memory[49]), 188, memory[54] > 0  # columns; the agent's paddle is on the right
    if not there:
        return "other", np.nan, -1
    comes, goes = TURNS[game]
    moves = "other" if last < 0 or ball == last else comes if ball > last else goes
    return moves, float(paddle - ball), ball


def rates(rows: Table, game: str, seed: int = 0) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Return the control rate by distance with its interval, for each direction of the ball.

    Episodes are resampled as a whole, because the steps of an episode depend on each other.
    """
    here = rows["game"] == game
    episodes = np.unique(rows["episode"][here])
    drawn = np.random.default_rng(seed).integers(episodes.size, size=(2000, episodes.size))
    found = {}
    for turn in TURNS[game]:
        columns: dict[str, list[float]] = {name: [] for name in ("distance", "steps", "rate", "low", "high")}
        for edge in EDGES[game][:-1]:
            cell = here & (rows["turn"] == turn) & (rows["distance"] == edge)
            counts = np.zeros((episodes.size, 2))
            counts[np.searchsorted(episodes, rows["episode"][cell])] = np.stack(
                [rows["steps"][cell], rows["controls"][cell]], -1
            )
            if not counts[:, 0].sum():
                continue
            steps, controls = counts[drawn].sum(1).T
            low, high = np.nanquantile(controls / np.where(steps > 0, steps, np.nan), (0.025, 0.975))
            total = counts.sum(0)
            for name, value in zip(columns, (edge, total[0], total[1] / total[0], low, high), strict=True):
                columns[name].append(float(value))
        found[turn] = {name: np.array(column) for name, column in columns.items()}
    return found


def claims(data: Tables) -> list[Claim]:
    """Check the stories of the paper's film strips."""
    rows, found = data["moments"], []
    for game, text in {
        "Breakout": "control is more frequent when the ball falls and is near the paddle than when it rises",
        "Pong": "control is more frequent when the ball approaches and is near the paddle than when it recedes",
        "MsPacman": "control is more frequent near a ghost than far from all of them",
    }.items():
        if game not in rows["game"]:
            continue
        measured = rates(rows, game)
        near = measured[TURNS[game][0]]
        if game == "MsPacman":
            other, who = {name: column[-1:] for name, column in near.items()}, "far"
        else:
            other, who = measured[TURNS[game][1]], TURNS[game][1]
        steps = other["steps"]
        rate, high = float((other["rate"] * steps).sum() / steps.sum()), float(other["high"].max())
        first = f"{100 * near['rate'][0]:.0f}% [{100 * near['low'][0]:.0f}, {100 * near['high'][0]:.0f}] near"
        holds = bool(near["low"][0] > high)
        found.append(Claim(f"{game}: {text}", "intervals do not overlap", f"{first}, {100 * rate:.0f}% {who}", holds))
    return found


def plot(data: Tables) -> Figure:
    """Draw the control rate by distance, one panel per game."""
    rows = data["moments"]
    games = [game for game in ETAS if game in rows["game"]]
    with styled():
        figure, axes = plt.subplots(1, len(games), figsize=(3.6 * len(games), 3.0), squeeze=False)
        for ax, game in zip(axes.flat, games, strict=True):
            here = rows["game"] == game
            overall = rows["controls"][here].sum() / rows["steps"][here].sum()
            ax.axhline(100 * overall, color=FAINT, linestyle=":", linewidth=1.0)
            measured = rates(rows, game)
            for color, (turn, points) in zip((CONTROL, LAZY), measured.items(), strict=False):
                rate, low, high = (100 * points[name] for name in ("rate", "low", "high"))
                ax.errorbar(points["distance"], rate, [rate - low, high - rate], color=color, marker="o", markersize=4,
                            elinewidth=0.8, label=turn or None)  # fmt: skip
            first = np.unique(rows["episode"][here], return_index=True)[1]
            mean = rows["episode_return"][here][first].mean()
            ax.set_title(f"{game}, eta = {ETAS[game]:g}\nreturn {mean:.4g}, control {overall:.0%}")
            ax.set_xlabel(f"{FAR[game]} (pixels, from)")
            ax.set_ylim(bottom=0.0)
            if len(measured) > 1:
                ax.legend(frameon=False)
        axes[0, 0].set_ylabel("control rate (%)")
    return figure
