"""Claims, table of speeds and figure of the experiment `dqn-dopamine`, all made from its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import CONTROL, FAINT, INK
from lazymdp.experiments.atari_runs import MILLION
from lazymdp.experiments.experiment import Claim, Table, Tables, stacked, table
from lazymdp.show import styled

AGENTS = ("dqn", "dial")
_PERCENTS = (100, 75, 50, 30, 10)
_SPEED = ("game", "agent", "seed", "runs_beside", "seconds", "frames_per_second", "of_all_runs")
PUBLISHED = {
    "Boxing": {5: (24.049, 3.046), 10: (56.627, 3.408)},
    "Breakout": {5: (23.738, 0.524), 10: (46.897, 1.963)},
    "Zaxxon": {5: (272.548, 65.387), 10: (1838.33, 469.107)},
    "Frostbite": {5: (460.326, 37.286), 10: (1029.758, 134.353)},
    "BankHeist": {5: (334.715, 22.707), 10: (620.961, 15.632)},
    "MsPacman": {5: (1680.706, 128.385), 10: (2074.121, 95.948)},
    "Gravitar": {5: (165.425, 11.114), 10: (238.264, 21.846)},
    "PrivateEye": {5: (350.376, 220.421), 10: (367.028, 272.94)},
    "Pong": {5: (-10.72, 6.451), 10: (6.338, 5.768)},
    "Bowling": {5: (24.368, 3.238), 10: (28.03, 6.763)},
}
"""Dopamine's training returns by game and million frames: mean and standard deviation over five seeds."""
CURRENT = {
    ("Gravitar", 1): (160.0, 6.0),
    ("Gravitar", 2): (86.0, 7.0),
    ("Frostbite", 1): (112.0, 5.0),
    ("Frostbite", 2): (294.0, 39.0),
    ("Frostbite", 5): (549.0, 108.0),
    ("Frostbite", 10): (1050.3, 151.2),
    ("Zaxxon", 1): (53.3, 20.1),
    ("Zaxxon", 2): (59.0, 18.1),
    ("Zaxxon", 5): (447.5, 179.6),
    ("Zaxxon", 10): (1955.2, 304.4),
    ("BankHeist", 1): (14.3, 0.6),
    ("BankHeist", 2): (27.8, 2.7),
}
"""The same from Dopamine's newer files (`<game>_CNN.json` at commit 9f616b92, agent "DQN"), for games that tell which
network should choose."""
PAPER = {"Gravitar": (1.0, 0.1), "Zaxxon": (0.8, 0.3), "PrivateEye": (1.0, 0.2), "Frostbite": (2.0, 1.0)}
"""The paper's words, after 200 million frames: a share of DQN's return, and the control rate at which it is reached."""


def _where(rows: Table, **wanted: Any) -> dict[str, NDArray[Any]]:
    here = np.ones(len(rows["game"]), dtype=bool)
    for name, value in wanted.items():
        here &= rows[name] == value
    return {name: column[here] for name, column in rows.items()}


def _current(rows: Table) -> dict[str, NDArray[Any]]:
    """Return the rows that count: for each game and agent those made with today's defaults, or all if there are none.

    By default the target network chooses in training, and the agent is an average, which is evaluated. In the first
    runs the newest network chose, and in some later ones it was the newest network that was evaluated.
    """
    kept = np.ones(len(rows["game"]), dtype=bool)
    played = rows["phase"] == "evaluation"
    for game in np.unique(rows["game"]):
        for agent in AGENTS:
            here = (rows["game"] == game) & (rows["agent"] == agent)
            for where, today in ((here, rows["acts"] == "target"), (here & played, rows["average_share"] > 0.0)):
                if today[where].any():
                    kept &= ~where | today
    return {name: column[kept] for name, column in rows.items()}


def _games(rows: Table) -> list[str]:
    return [game for game in PUBLISHED if game in rows["game"]]


def _highs(rows: Table, **wanted: Any) -> list[float]:
    """Return the highest prices of the runs, the largest first."""
    return sorted(map(float, np.unique(_where(rows, **wanted)["high"])), reverse=True)


def comparison(rows: Table) -> Table:
    """Compare training returns at price 0 with the published ones, one row per game, agent and number of frames."""
    parts = []
    kinds = [
        (game, agent, high)
        for game in _games(rows)
        for agent in AGENTS
        for high in _highs(rows, game=game, agent=agent)
    ]
    for game, agent, high in kinds:
        cheap = _where(rows, phase="training", game=game, agent=agent, high=high, eta=0.0)
        acts = str(cheap["acts"][0])
        for millions, (mean, deviation) in PUBLISHED[game].items():
            ours = _where(cheap, frames=millions * MILLION)["mean_return"]
            if ours.size:
                off = (ours.mean() - mean) / deviation
                parts.append(
                    table(game=game, agent=agent, high=high, acts=acts, frames=millions * MILLION, seeds=ours.size,
                          ours=round(float(ours.mean()), 2), published=mean, deviation=deviation,
                          deviations=round(float(off), 2), inside=int(abs(off) <= 2.0))
                )  # fmt: skip
    return stacked(parts)


def _base(rows: Table, game: str, frames: int) -> float:
    """Return the return of plain dqn after at least as many frames, or Dopamine's if we have no such run.

    Of the greedy agent's return and the training return in the last million frames, the better one counts. Some greedy
    agents do far worse than in training (Gravitar, PrivateEye), which would flatter the dial.
    """
    plain = _where(rows, game=game, agent="dqn", eta=0.0)
    later = plain["frames"][(plain["phase"] == "evaluation") & (plain["frames"] >= frames)]
    plain = _where(plain, frames=later.min() if later.size else -1)
    means = [_where(plain, phase=phase)["mean_return"] for phase in ("evaluation", "training")]
    if not means[0].size:
        return PUBLISHED[game][10][0]
    return float(max(mean.mean() for mean in means if mean.size))


def _frontiers(rows: Table, game: str) -> dict[float, dict[str, NDArray[Any]]]:
    """Return the frontier of each kind of dial on a game, by its highest price."""
    return {high: _frontier(rows, game, high) for high in _highs(rows, phase="evaluation", game=game, agent="dial")}


def _frontier(rows: Table, game: str, high: float) -> dict[str, NDArray[Any]]:
    """Return a dial's evaluation, means over seeds: price, return, its error, share of plain dqn's, control rate."""
    dial = _where(rows, phase="evaluation", game=game, agent="dial", high=high)
    base = _base(rows, game, int(dial["frames"][0]))
    etas = np.unique(dial["eta"])
    cells = [_where(dial, eta=eta) for eta in etas]
    error = [np.sqrt((c["std_return"] ** 2 / c["episodes"]).mean() / c["game"].size) for c in cells]
    means = np.array([c["mean_return"].mean() for c in cells])
    return {
        "eta": etas,
        "mean_return": means,
        "error": 1.96 * np.array(error),
        "share": means / base,
        "control_rate": np.array([c["control_rate"].mean() for c in cells]),
    }


def _acting_claims(rows: Table, variants: Table) -> list[Claim]:
    """Compare plain DQN with Dopamine's newer curves, by the network that chooses: the newest or the target network."""
    found = []
    for (game, million), (mean, deviation) in CURRENT.items():
        here = (variants["game"] == game) & (variants["variant"] == "n128-target-chooses")
        here &= (variants["frames_to"] > (million - 1) * MILLION) & (variants["frames_to"] <= million * MILLION)
        long = _where(rows, phase="training", game=game, agent="dqn", eta=0.0, frames=million * MILLION)
        returns = {f"the {acts} network": _where(long, acts=acts)["mean_return"] for acts in ("newest", "target")}
        if here.any():
            short = np.average(variants["mean_return"][here], weights=variants["episodes"][here])
            returns["the target network (short run)"] = np.array([short])
        for network, all_ours in returns.items():
            if all_ours.size:
                ours = float(all_ours.mean())
                text = f"{game}: with {network} choosing, plain dqn equals Dopamine's newer curve in million {million}"
                inside = abs(ours - mean) <= 2.0 * deviation
                found.append(Claim(text, f"{mean:g} +- {2 * deviation:g}", f"{ours:.4g}", inside))
    return found


def claims(data: Tables) -> list[Claim]:
    """Check our returns against the published ones, and the paper's words about less control."""
    found = _acting_claims(data["runs"], data["variants"]) if "variants" in data else []
    rows = _current(data["runs"])
    compared = comparison(rows)
    for place in range(len(compared["game"])):
        game, agent, high, acts, frames, ours, mean, deviation, inside = (
            compared[name][place]
            for name in ("game", "agent", "high", "acts", "frames", "ours", "published", "deviation", "inside")
        )
        who = "plain dqn" if agent == "dqn" else f"the dial (prices up to {high:g}) at price 0"
        who += " (newest network choosing)" if acts == "newest" else ""
        text = f"{game}: {who} equals Dopamine's DQN after {frames // MILLION} million frames"
        found.append(Claim(text, f"{mean:g} +- {2 * deviation:.3g}", f"{ours:g}", bool(inside)))
    for game, (share, rate) in PAPER.items():
        for points in _frontiers(rows, game).values():
            below = points["control_rate"] <= rate
            best = float(points["share"][below].max()) if below.any() else 0.0
            text = (
                f"{game}: the paper's share of DQN's return with little control (ours: 10, paper: 200 million frames)"
            )
            found.append(Claim(text, f">= {share:.0%} at up to {rate:.0%} control", f"{best:.0%}", best >= share))
    return found


def speeds(rows: Table) -> Table:
    """Return the frames per second of every run whose times are known, and of all runs together.

    Runs that were trained side by side are measured in the same time: after all have ended their first million frames,
    since a run begins with compilation, and before one has ended its last whole million.
    """
    timed = _where(rows, phase="training", eta=0.0)
    timed = {name: column[np.isfinite(timed["time"])] for name, column in timed.items()}
    timed["average_share"] = np.nan_to_num(timed["average_share"])  # runs from before there was the setting
    names = ("game", "agent", "seed", "average_share")
    runs = list(dict.fromkeys(zip(*(timed[name].tolist() for name in names), strict=True)))
    clocks = {run: _where(timed, **dict(zip(names, run, strict=True))) for run in runs}
    parts = []
    for (game, agent, seed, _), own in clocks.items():
        first, last = own["time"].min(), own["time"].max()
        beside = [one for one in clocks.values() if one["time"].min() < last and one["time"].max() > first]
        span = [max(one["time"].min() for one in beside), min(one["time"].max() for one in beside)]
        if span[0] < span[1]:
            made, *all_made = (np.ptp(np.interp(span, one["time"], one["frames"])) for one in [own, *beside])
            seconds = span[1] - span[0]
            parts.append(
                table(game=game, agent=agent, seed=seed, runs_beside=len(beside) - 1, seconds=round(seconds, 1),
                      frames_per_second=round(made / seconds), of_all_runs=round(sum(all_made) / seconds))
            )  # fmt: skip
    return stacked(parts) if parts else {name: np.array([]) for name in _SPEED}


def shares(rows: Table) -> Table:
    """Return how much of plain DQN's return the dial keeps with little control: one row per game and kind of dial.

    A share is the largest one at the prices at which the control rate is at most so many percent. Where plain DQN's
    return is negative, there are no shares.
    """
    rows = _current(rows)
    parts = []
    for game in _games(rows):
        for high, points in _frontiers(rows, game).items():
            base = _base(rows, game, int(_where(rows, phase="evaluation", game=game, agent="dial")["frames"][0]))
            best = {
                f"up_to_{percent}%": np.round(points["share"][points["control_rate"] <= percent / 100].max(), 2)
                if base > 0.0
                else np.nan
                for percent in _PERCENTS
            }
            alone = points["mean_return"][np.isinf(points["eta"])]
            parts.append(
                table(game=game, highest_price=high, plain_dqn=round(base, 1),
                      default_alone=round(float(alone[0]), 1) if alone.size else np.nan, **best)
            )  # fmt: skip
    return stacked(parts)


def plot(data: Tables) -> Figure:
    """Draw the return of the dial against its control rate, one panel per game."""
    rows = _current(data["runs"])
    drawn = [(game, frontiers) for game in _games(rows) if (frontiers := _frontiers(rows, game))]
    with styled():
        columns = min(3, len(drawn))
        n_rows = -(-len(drawn) // columns)
        figure, axes = plt.subplots(n_rows, columns, figsize=(3.3 * columns + 0.4, 2.7 * n_rows), squeeze=False)
        for ax in axes.flat[len(drawn) :]:
            ax.axis("off")
        for ax, (game, frontiers) in zip(axes.flat, drawn, strict=False):
            base = _base(rows, game, int(_where(rows, phase="evaluation", game=game, agent="dial")["frames"][0]))
            ax.axhline(PUBLISHED[game][10][0], color=FAINT, linestyle=":", linewidth=1.0)
            for high, points in frontiers.items():
                style = "-" if high > 0.1 else "--"
                newest = "newest" in _where(rows, game=game, agent="dial", high=high)["acts"]
                look = dict(color=CONTROL, marker="o", markersize=4, elinewidth=0.8, linestyle=style)
                look |= {"markerfacecolor": "white"} if newest else {}
                ax.errorbar(100 * points["control_rate"], points["mean_return"], points["error"], **look)
            if base != PUBLISHED[game][10][0]:
                ax.plot([100.0], [base], marker="x", color=INK, linestyle="none")
            ax.set_title(game)
            ax.set_ylim(bottom=min(0.0, ax.get_ylim()[0]))
        figure.supxlabel("control rate (% of the steps)")
        figure.supylabel("return")
    return figure
