"""Claims, tables and figure of the experiment `fidelity-truth`, all made from its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp._colors import BLUE, CONTROL, FAINT, INK, LAZY, VALUE_STOPS
from lazymdp.experiments.experiment import Claim, Table, Tables, table
from lazymdp.experiments.fidelity_worlds import MEASURES, RANDOM_MODELS, WORLDS, measures_of
from lazymdp.measure.statistics import mean_interval
from lazymdp.show import styled

PLACES = (*WORLDS, RANDOM_MODELS)
_SHORT = ("Rivers &\nBridges", "Key-Door-\nTreasure", "Frozen\nLake 4x4", "Frozen\nLake 8x8", "Taxi", "random\nmodels")
STARTS = {"own": "Episodes start as in the world", "everywhere": "Episodes start in every state alike"}
_LINES = {
    "lazy_gap": (CONTROL, "lazy-gap"),
    "critical_eta": (BLUE, "critical eta"),
    "action_gap": (INK, "action-gap"),
    "importance_advice": (FAINT, "importance advice"),
    "random": (LAZY, "random"),
}
_PLAYED = (("Rivers & Bridges", "replace"), ("Rivers & Bridges", "keep"), ("FrozenLake 4x4", "replace"))
_OF_MASKS = (
    ("gain_kept", "gain kept", ".0%"),
    ("blinded", "steps blinded", ".0%"),
    ("correlation", "rank correlation", ".2f"),
    ("overlap", "overlap", ".2f"),
)


def summary(data: Tables) -> dict[str, dict[str, NDArray[Any]]]:
    """Return tables for people, as text: correlation and overlap in every world, and the scores."""
    found = {}
    for start in STARTS:
        columns: dict[str, Any] = {"measure": list(MEASURES.values())}
        for place in PLACES:
            known = measures_of(place)
            columns[place] = [
                _cell(_row(data["agreement"], place, start, name)) if name in known else "-" for name in MEASURES
            ]
        found[f"ground_truth_{start}"] = table(**columns)
    scores = data["scores"]
    columns = {"protocol": scores["protocol"], "steps handed over": [f"{share:.1%}" for share in scores["share"]]}
    for name, label in (("", "important steps"), ("random_", "random steps")):
        ends = (scores[f"{name}change{end}"] for end in ("", "_low", "_high"))
        columns[f"change of return, {label}"] = [f"{m:.1f} [{a:.1f}, {b:.1f}]" for m, a, b in zip(*ends, strict=True)]
        columns[f"score, {label}"] = ["-" if np.isnan(one) else f"{one:.2f}" for one in scores[f"{name}score"]]
    return found | {"scores_table": table(**columns), "masks_table": _masks_table(data["masks"])}


def _masks_table(masks: Table) -> dict[str, NDArray[Any]]:
    """Return the mean of every column of `masks` for each world and start, with its interval over masks."""
    cases = list(dict.fromkeys(zip(masks["world"].tolist(), masks["start"].tolist(), strict=True)))
    columns: dict[str, Any] = {"world": [world for world, _ in cases], "start": [start for _, start in cases]}
    for name, label, form in _OF_MASKS:
        rows = [masks[name][(masks["world"] == world) & (masks["start"] == start)] for world, start in cases]
        intervals = [mean_interval(row) for row in rows]
        columns[label] = [f"{mean:{form}} [{low:{form}}, {high:{form}}]" for mean, low, high in intervals]
    return table(**columns)


def _cell(row: dict[str, float]) -> str:
    def shown(name: str) -> str:
        low, high = row[f"{name}_low"], row[f"{name}_high"]
        return (f"{row[name]:.2f}" + (f" [{low:.2f}, {high:.2f}]" if high > low else "")).replace("-0.00", "0.00")

    return f"{shown('correlation')}; {shown('overlap')}"


def _row(agreement: Table, place: str, start: str, measure: str) -> dict[str, float]:
    chosen = (agreement["world"] == place) & (agreement["start"] == start) & (agreement["measure"] == measure)
    index = int(np.flatnonzero(chosen)[0])
    return {name: float(column[index]) for name, column in agreement.items() if column.dtype.kind in "if"}


def correlation(data: Tables, place: str, start: str, measure: str, column: str = "correlation") -> float:
    """Return one number of the table `agreement`."""
    return _row(data["agreement"], place, start, measure)[column]


def claims(data: Tables) -> list[Claim]:
    """Say where the lazy-gap is closer to the exact loss than the measures it is compared with, and where it is not."""
    both = [(place, start) for place in PLACES for start in STARTS]
    product = min(correlation(data, *case, "lazy_gap_visits") for case in both)
    ahead_of_advice, _ = _duel(data, both, "importance_advice", "correlation")
    ahead_of_action, behind_action = _duel(data, both, "action_gap", "correlation")
    own = [(place, "own") for place in PLACES]
    visited, behind_visited = _duel(data, own, "importance_advice", "correlation_visited")
    lead = {name: _row(data["agreement"], RANDOM_MODELS, "own", name) for name in ("action_gap", "importance_advice")}
    overlap = lead["action_gap"]
    return [
        Claim(
            "The lazy-gap times the visit frequency orders the states almost like the exact loss (rank correlation)",
            "at least 0.9 in every world, with both start distributions",
            f"{product:.2f} or more",
            product >= 0.9,
        ),
        Claim(
            "The lazy-gap is closer to the exact loss than importance advice: the paper's claim is confirmed over all "
            "states (rank correlation)",
            f"{len(both)} of {len(both)} cases",
            f"{len(ahead_of_advice)} of {len(both)}",
            len(ahead_of_advice) == len(both),
        ),
        Claim(
            "... but not over the states that the optimal agent visits: importance advice is closer in some worlds",
            "at least one world in which importance advice is closer",
            f"lazy-gap closer in {len(visited)} of {len(own)}; not in {_listed(behind_visited)}",
            bool(behind_visited),
        ),
        Claim(
            "The lazy-gap is not always closer than the action-gap: the paper's claim is not confirmed in general "
            "(rank correlation)",
            "at least one case in which the action-gap is closer",
            f"lazy-gap closer in {len(ahead_of_action)} of {len(both)}; not in {_listed(behind_action)}",
            bool(behind_action),
        ),
        Claim(
            "On random models, the lazy-gap leads both in rank correlation (paired, 95 % interval)",
            "both intervals above 0",
            "; ".join(f"{MEASURES[name].split(',')[0]}: {_lead(row, 'correlation')}" for name, row in lead.items()),
            all(row["correlation_lead_low"] > 0.0 for row in lead.values()),
        ),
        Claim(
            "... but in the overlap of the top 10 %, the lazy-gap and the action-gap are about equal",
            "95 % interval of the lead between -0.1 and 0.1",
            f"{_lead(overlap, 'overlap')}",
            max(-overlap["overlap_lead_low"], overlap["overlap_lead_high"]) < 0.1,
        ),
        *_played_claims(data),
    ]


def _played_claims(data: Tables) -> list[Claim]:
    areas, scores = data["areas"], data["scores"]
    here = (areas["world"] == "Rivers & Bridges") & (areas["mode"] == "replace")
    area = dict(zip(areas["measure"][here].tolist(), areas["area"][here].tolist(), strict=True))
    row = {name: index for index, name in enumerate(scores["protocol"].tolist())}
    change, at_random, share = scores["change"], scores["random_change"], scores["share"]
    code, replace, more = row["statemask-code"], row["replace 10%"], row["replace 30%"]
    return [
        Claim(
            "Replace, played in Rivers & Bridges: the area over random steps is largest for the lazy-gap",
            "largest area",
            ", ".join(f"{MEASURES[name].split(',')[0]} {value:.1f}" for name, value in area.items()),
            max(area, key=area.__getitem__) == "lazy_gap",
        ),
        Claim(
            "The protocol decides: by `statemask-code`, the lazy-gap of a CartPole agent finds nothing; by Replace "
            "with 10 %, which takes control away whenever the pole is in danger, most of the return of 500 is lost",
            "Replace loses 10 times as much as `statemask-code`, and twice as much as 30 % random steps",
            f"statemask-code: {change[code]:.1f} ({share[code]:.1%} of the steps), random window "
            f"{at_random[code]:.1f}; Replace: {change[replace]:.1f} ({share[replace]:.0%} of the steps), random "
            f"10 % {at_random[replace]:.1f}, random 30 % {at_random[more]:.1f}",
            change[replace] < 10.0 * change[code] and change[replace] < 2.0 * at_random[more],
        ),
    ]


def _duel(
    data: Tables, cases: list[tuple[str, str]], other: str, column: str
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the cases in which the lazy-gap has the larger number, and those in which it does not."""
    ahead = [case for case in cases if _row(data["agreement"], *case, other)[f"{column}_lead"] > 0.0]
    return ahead, [case for case in cases if case not in ahead]


def _listed(cases: list[tuple[str, str]]) -> str:
    return ", ".join(f"{place} ({start})" for place, start in cases) or "none"


def _lead(row: dict[str, float], name: str) -> str:
    return f"{row[f'{name}_lead']:+.3f} [{row[f'{name}_lead_low']:+.3f}, {row[f'{name}_lead_high']:+.3f}]"


# -- the figure ------------------------------------------------------------------------------------------------------


def plot(data: Tables) -> Figure:
    """Draw the rank correlations as two tables, and the losses of sets and of played steps as curves."""
    with styled():
        figure, axes = plt.subplots(2, 3, figsize=(14.0, 8.0), width_ratios=(1.1, 1.1, 1.0))
        for ax, start in zip(axes[0, :2], STARTS, strict=True):
            _draw_correlations(ax, data, start)
        axes[0, 1].set_yticklabels([])
        _draw_sets(axes[0, 2], data["sets"])
        for ax, (world, mode) in zip(axes[1], _PLAYED, strict=True):
            _draw_curves(ax, data["curves"], world, mode)
    return figure


def _draw_correlations(ax: Axes, data: Tables, start: str) -> None:
    numbers = np.full((len(MEASURES), len(PLACES)), np.nan)
    for column, place in enumerate(PLACES):
        for row, name in enumerate(MEASURES):
            if name in measures_of(place):
                numbers[row, column] = correlation(data, place, start, name)
    colors = LinearSegmentedColormap.from_list("value", VALUE_STOPS)
    ax.imshow(np.clip(numbers, 0.0, 1.0), cmap=colors, vmin=0.0, vmax=1.0, aspect="auto")
    for (row, column), number in np.ndenumerate(numbers):
        shade = "white" if number > 0.6 else INK
        shown = "-" if np.isnan(number) else f"{number:.2f}".replace("-0.00", "0.00")
        ax.text(column, row, shown, ha="center", va="center", color=shade, fontsize=8.5)
    ax.set_xticks(range(len(PLACES)), _SHORT, fontsize=7.5)
    ax.set_yticks(range(len(MEASURES)), list(MEASURES.values()))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    for below in (5.5, 7.5):  # masks; references that know the visits, and random
        ax.axhline(below, color="white", linewidth=3)
    ax.set_title(f"{STARTS[start]}:\nrank correlation with the exact loss (1 is best)")


def _draw_sets(ax: Axes, sets: Table) -> None:
    for name, (color, label) in _LINES.items():
        here = (sets["world"] == RANDOM_MODELS) & (sets["start"] == "own") & (sets["measure"] == name)
        shares = 100.0 * sets["share"][here]
        for side, dashes in (("top", "-"), ("bottom", "--")):
            if (name, side) == ("random", "bottom"):
                continue
            low, high = sets[f"{side}_low"][here], sets[f"{side}_high"][here]
            ax.fill_between(shares, low, high, color=color, alpha=0.15, linewidth=0)
            ax.plot(shares, sets[side][here], dashes, color=color, label=label if side == "top" else None, marker=".")
    ax.set_xlabel("states handed over to the default policy, %")
    ax.set_ylabel("loss, as a fraction of the whole gain")
    ax.set_title("Random models, exact. Top states (solid): higher\nis better; bottom (dashed): lower is better")
    ax.grid(True)
    ax.legend(loc="upper left")


def _draw_curves(ax: Axes, curves: Table, world: str, mode: str) -> None:
    here = (curves["world"] == world) & (curves["mode"] == mode)
    for name, (color, label) in _LINES.items():
        of = ("random", "lazy_gap") if name == "random" else ("top", name)
        rows = here & (curves["kind"] == of[0]) & (curves["measure"] == of[1])
        shares = 100.0 * curves["share"][rows]
        ax.fill_between(
            shares, curves["loss_low"][rows], curves["loss_high"][rows], color=color, alpha=0.15, linewidth=0
        )
        ax.plot(shares, curves["loss"][rows], color=color, label=label, marker=".")
    ax.set_xlabel("most important steps, % of the agent's own")
    ax.set_ylabel("loss of return")
    words = "these steps are handed over: higher is better"
    if mode == "keep":
        words = "all others are handed over: lower is better"
    ax.set_title(f"{world}, played, {mode.capitalize()}:\n{words}")
    ax.grid(True)
