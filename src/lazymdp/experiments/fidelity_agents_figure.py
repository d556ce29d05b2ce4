"""Claims, table and figure of the experiment `fidelity`, all made from its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import BLUE, CONTROL, FAINT, INK, LAZY, LEAF, WATER
from lazymdp.experiments.experiment import Claim, Table, Tables, table
from lazymdp.measure.fidelity import mean_over
from lazymdp.measure.statistics import Interval, mean_interval
from lazymdp.show import styled

MEASURES = {
    "lazy_gap": ("lazy-gap", CONTROL),
    "critical_eta": ("critical eta", BLUE),
    "action_gap": ("action-gap", INK),
    "importance_advice": ("importance advice, HIGHLIGHTS", FAINT),
    "entropy": ("policy entropy, negative", WATER),
    "mask": ("learned mask (StateMask)", LEAF),
    "random": ("random", LAZY),
}
"""Labels and colors. Importance advice and HIGHLIGHTS are the same number, max - min of q."""
_PROTOCOLS = ("statemask-code", "rice-spec", "scattered")


def games_of(rows: Table) -> list[str]:
    """Return the environments in the data, in the order in which they come."""
    return list(dict.fromkeys(rows["game"].tolist()))


def _chosen(rows: Table, **wanted: Any) -> Table:
    chosen = np.ones(len(rows["game"]), dtype=bool)
    for name, value in wanted.items():
        chosen &= rows[name] == value
    return {name: column[chosen] for name, column in rows.items()}


def gain(rows: Table, game: str) -> float:
    """Return the mean return of the agents minus that of random actions."""
    here = _chosen(rows, game=game)
    return float((here["agent_return"] - here["default_return"]).mean())


def areas(rows: Table, game: str, mode: str, measure: str) -> NDArray[np.float64]:
    """Return `[seeds]` areas between the curves of a measure and of random steps, as shares of the agents' mean gain.

    Positive is better than random: Replace loses more, Keep loses less.
    """
    found = []
    for seed in np.unique(_chosen(rows, game=game)["seed"]):
        top = _chosen(rows, game=game, seed=seed, mode=mode, measure=measure, kind="top")
        other = _chosen(rows, game=game, seed=seed, mode=mode, measure="none", kind="random")
        between = (top["loss"] - other["loss"]) * (1.0 if mode == "replace" else -1.0)
        found.append(float(mean_over(top["share"], between[None])[0]))
    return np.array(found) / gain(rows, game)


def losses(rows: Table, game: str, mode: str, measure: str, kind: str = "top") -> NDArray[np.float64]:
    """Return `[seeds]` losses of return by a protocol, or by Replace or Keep with 10 %."""
    here = _chosen(rows, game=game, mode=mode, measure=measure, kind=kind, share=0.1)
    return here["loss"]


def leads(rows: Table, game: str, mode: str, other: str) -> NDArray[np.float64]:
    """Return `[seeds]` leads of the lazy-gap over another measure, as shares of the agents' mean gain."""
    return areas(rows, game, mode, "lazy_gap") - areas(rows, game, mode, other)


def summary(data: Tables) -> dict[str, dict[str, NDArray[Any]]]:
    """Return two tables for people, as text: every measure, and the lazy-gap against each of the others."""
    return {"measures": _measures(data["runs"]), "duels": _duels(data["runs"])}


def _duels(rows: Table) -> dict[str, NDArray[Any]]:
    """Return where the lazy-gap is ahead of the other measures, and where it is behind."""
    columns: dict[str, list[str]] = {}
    for game in games_of(rows):
        for name, (label, _) in MEASURES.items():
            if name == "lazy_gap":
                continue
            columns.setdefault("game", []).append(game)
            columns.setdefault("lazy-gap against", []).append(label)
            for mode in ("replace", "keep"):
                found = mean_interval(100.0 * leads(rows, game, mode, name))
                verdict = "ahead" if found.low > 0.0 else "behind" if found.high < 0.0 else "tie"
                verdict = "same order" if _alike(rows, game, name) else verdict
                columns.setdefault(f"{mode}: lead, % of the gain", []).append(_cell(found))
                columns.setdefault(f"{mode}: verdict", []).append(verdict)
    return table(**columns)


def _measures(rows: Table) -> dict[str, NDArray[Any]]:
    """Return areas and changes of return of every measure."""
    columns: dict[str, list[str]] = {}

    def add(name: str, text: str) -> None:
        columns.setdefault(name, []).append(text)

    for game in games_of(rows):
        here = _chosen(rows, game=game)
        for name, (label, _) in MEASURES.items():
            add("game", game)
            add("return, agent / random", f"{here['agent_return'].mean():.1f} / {here['default_return'].mean():.1f}")
            add("measure", label)
            for mode in ("replace", "keep"):
                add(f"{mode}: area, % of the gain", _cell(mean_interval(100.0 * areas(rows, game, mode, name))))
            add("replace 10 %: change of return", _cell(mean_interval(-losses(rows, game, "replace", name))))
            for protocol in _PROTOCOLS:
                found = mean_interval(-losses(rows, game, protocol, name))
                at_random = float(-losses(rows, game, protocol, name, "random").mean())
                add(f"{protocol}: change (random)", f"{_cell(found)} ({at_random:.1f})")
    return table(**columns)


def _cell(found: Interval) -> str:
    text = f"{float(found.mean):.1f} [{float(found.low):.1f}, {float(found.high):.1f}]"
    return text.replace("-0.0 ", "0.0 ").replace("-0.0,", "0.0,").replace("-0.0]", "0.0]")


# -- claims, written before the runs ----------------------------------------------------------------------------------


def claims(data: Tables) -> list[Claim]:
    """Compare the lazy-gap with the other measures. The claims are predictions.

    All but the last two were written before the first run. The last two were added when CartPole and MinAtar Breakout
    had been run, and before any other environment was.
    """
    rows = data["runs"]
    games = games_of(rows)
    lazy = {game: mean_interval(areas(rows, game, "replace", "lazy_gap")) for game in games}
    above = [game for game in games if lazy[game].low > 0.0]
    chance = {game: mean_interval(areas(rows, game, "replace", "random")) for game in games}
    fair = [game for game in games if chance[game].low <= 0.0 <= chance[game].high]
    return [
        Claim(
            "Replace: by the lazy-gap, more return is lost than by random steps (95 % interval above 0)",
            "in every environment",
            f"in {len(above)} of {len(games)}; not in {_listed(games, above)}",
            len(above) == len(games),
        ),
        *_duel(rows, games, "action_gap", "Replace: the lazy-gap has a larger area than the action-gap"),
        *_duel(rows, games, "importance_advice", "Replace: the lazy-gap has a larger area than importance advice"),
        *_duel(rows, games, "critical_eta", "Replace: the lazy-gap has a larger area than critical eta"),
        *_duel(rows, games, "mask", "Replace: the lazy-gap has a larger area than a mask trained with this budget"),
        _published(rows, games),
        Claim(
            "Replace: random importance has an area of 0 (95 % interval), so the comparison is fair",
            "in all environments but one at most, since an interval misses 0 by chance",
            f"in {len(fair)} of {len(games)}; not in {_listed(games, fair)}",
            len(fair) >= len(games) - 1,
        ),
        _kept(rows, games),
        _windows(rows, games),
    ]


def _kept(rows: Table, games: list[str]) -> Claim:
    kept = {game: mean_interval(areas(rows, game, "keep", "lazy_gap")) for game in games}
    above = [game for game in games if kept[game].low > 0.0]
    return Claim(
        "Keep: acting only at the steps with the largest lazy-gap loses less return than acting at random steps (95 % "
        "interval above 0)",
        "in every environment",
        f"in {len(above)} of {len(games)}; not in {_listed(games, above)}",
        len(above) == len(games),
    )


def _windows(rows: Table, games: list[str]) -> Claim:
    """Compare the window of the lazy-gap with a random one of the same length."""
    found = {
        game: [float(-losses(rows, game, "rice-spec", "lazy_gap", kind).mean()) for kind in ("top", "random")]
        for game in games
    }
    ahead = [game for game, (top, random) in found.items() if top < random]
    told = ", ".join(f"{_short(game)} {top:.1f} and {random:.1f}" for game, (top, random) in found.items())
    needed = len(games) // 2 + 1
    return Claim(
        "`rice-spec`: the window with the largest lazy-gaps costs more return than a random window",
        f"in {needed} or more of {len(games)}",
        f"in {len(ahead)}; change of return by lazy-gap and at random: {told}",
        len(ahead) >= needed,
    )


def _duel(rows: Table, games: list[str], other: str, text: str) -> list[Claim]:
    """Compare two measures where they do not order all states alike, as they may with two actions."""
    differ = [game for game in games if not _alike(rows, game, other)]
    if not differ:
        return []
    means = {game: float(leads(rows, game, "replace", other).mean()) for game in differ}
    ahead = [game for game in differ if means[game] > 0.0]
    told = ", ".join(f"{_short(game)} {100.0 * lead:+.1f} %" for game, lead in means.items())
    needed = len(differ) // 2 + 1
    return [Claim(text, f"in {needed} or more of {len(differ)}", f"in {len(ahead)}: {told}", len(ahead) >= needed)]


def _alike(rows: Table, game: str, other: str) -> bool:
    same = (areas(rows, game, mode, "lazy_gap") == areas(rows, game, mode, other) for mode in ("replace", "keep"))
    return all(bool(one.all()) for one in same)


def _published(rows: Table, games: list[str]) -> Claim:
    """Compare lazy-gap and mask by StateMask's protocol, as its authors did."""
    found = {
        game: [float(-losses(rows, game, "statemask-code", name).mean()) for name in ("lazy_gap", "mask")]
        for game in games
    }
    ahead = [game for game, (lazy, mask) in found.items() if mask < lazy]
    told = ", ".join(f"{_short(game)} {lazy:.1f} and {mask:.1f}" for game, (lazy, mask) in found.items())
    needed = len(games) // 2 + 1
    return Claim(
        "`statemask-code`: the mask finds a run of steps that costs more return than that of the lazy-gap, as "
        "StateMask's authors report",
        f"in {needed} or more of {len(games)}",
        f"in {len(ahead)}; change of return by lazy-gap and mask: {told}",
        len(ahead) >= needed,
    )


def _short(game: str) -> str:
    return game.removeprefix("minatar/").removeprefix("ALE/")


def _listed(games: list[str], without: list[str]) -> str:
    return ", ".join(game for game in games if game not in without) or "none"


def plot(data: Tables) -> Figure:
    """Draw the areas of every measure, by environment."""
    rows = data["runs"]
    games = games_of(rows)
    with styled():
        figure, axes = plt.subplots(1, 2, figsize=(11.0, 1.2 + 0.9 * len(games)), sharey=True)
        for ax, mode in zip(axes, ("replace", "keep"), strict=True):
            for place, (name, (label, color)) in enumerate(MEASURES.items()):
                found = [mean_interval(100.0 * areas(rows, game, mode, name)) for game in games]
                mean = np.array([float(one.mean) for one in found])
                ends = np.array([(one.mean - one.low, one.high - one.mean) for one in found], dtype=float).T
                height = np.arange(len(games)) + (place - 3) * 0.11
                look = dict(color=color, marker="o", markersize=4, linestyle="none", elinewidth=1.2)
                ax.errorbar(mean, height, xerr=np.maximum(ends, 0.0), label=label, **look)
            ax.axvline(0.0, color=FAINT, linewidth=0.8)
            ax.set_title(f"{mode.capitalize()}: area over random steps (larger is better)")
            ax.set_xlabel("% of the agent's gain over random actions")
        axes[0].set_yticks(range(len(games)), games)
        axes[0].invert_yaxis()
        axes[1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5))
    return figure
