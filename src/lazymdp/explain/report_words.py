"""The numbers of a recording that its report states, and the sentences that state them.

A *moment* is a peak of the lazy-gap among the steps in control, together with the steps around it. The *gain* of an
episode is the sum of its positive lazy-gaps over the steps in control: how much better, by the agent's own values, its
choices were than leaving those steps to the default policy. It leaves out the price.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.explain.moments import Moment, by_gap, peaks

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_MOST = 0.5
"""A share of the gain above which moments account for "most" of it."""
_LOW_CORRELATION = 0.5
"""Correlation of a critic's values with Monte Carlo returns below which the page warns."""
_FEW = 3
"""Largest number of moments that the summary lists."""


@dataclass(frozen=True)
class Facts:
    """The numbers of a recording, over all its episodes.

    Attributes:
        lengths: Number of steps of each episode.
        returns: Return of each episode; the price is not in it.
        prices: Price paid in each episode.
        truncated: Number of episodes that were truncated.
        control_rate: Share of all steps in control.
        moments: The moments of all episodes, by decreasing lazy-gap.
        start: The episode that the page opens: the one with the largest moment.
        start_moments: The largest moments of that episode, by decreasing lazy-gap.
    """

    lengths: list[int]
    returns: list[float]
    prices: list[float]
    truncated: int
    control_rate: float
    moments: list[Moment]
    start: int
    start_moments: list[Moment]


def facts_of(
    steps: Sequence[Mapping[str, NDArray[Any]]],
    summaries: Sequence[Mapping[str, Any]],
    frames_per_second: float,
) -> Facts:
    """Returns the numbers that the report states.

    Args:
        steps: Columns of each episode: `control`, `lazy_gap` and `price`, `[T]` each.
        summaries: Summary of each episode: `return` and `truncated`.
        frames_per_second: Speed of the recording; a moment lasts about one second.
    """
    by_episode = peaks(steps, frames_per_second)
    moments = by_gap(by_episode)
    start = moments[0].episode if moments else 0
    lengths = [len(columns["control"]) for columns in steps]
    controls = sum(int(np.sum(columns["control"])) for columns in steps)
    return Facts(
        lengths=lengths,
        returns=[float(summary["return"]) for summary in summaries],
        prices=[float(np.sum(columns["price"])) for columns in steps],
        truncated=sum(bool(summary["truncated"]) for summary in summaries),
        control_rate=controls / max(sum(lengths), 1),
        moments=moments,
        start=start,
        start_moments=by_episode[start],
    )


# -- numbers as text ---------------------------------------------------------------------------------------------------


def number(x: float, digits: int = 3) -> str:
    """Returns a number as a reader would write it: few digits, no exponent unless it is very large or small.

    >>> [number(x) for x in (0.0, 0.12345, -2.0, 1234.5, 1e-7, float("nan"))]
    ['0', '0.123', '-2', '1234', '1e-07', 'unknown']
    """
    if not math.isfinite(x):
        return "unknown" if math.isnan(x) else str(x)
    if x == 0 or 1e-4 <= abs(x) < 10**digits:
        return f"{x:.{digits}g}"
    return f"{x:.0f}" if 10**digits <= abs(x) < 1e7 else f"{x:.{digits}g}"


def percent(share: float) -> str:
    """Returns a share as a percentage that is neither 0% nor 100% unless it is exactly that.

    >>> [percent(x) for x in (0.0, 0.0002, 0.0042, 0.1234, 0.999, 1.0)]
    ['0%', '0.02%', '0.4%', '12%', '99.9%', '100%']
    """
    if 0 < share < 0.01 or 0.99 < share < 1:
        for digits in range(1, 6):
            text = f"{100 * share:.{digits}f}"
            if float(text) not in (0.0, 100.0):
                return f"{text}%"
    return f"{100 * share:.0f}%"


def counted(count: int, noun: str) -> str:
    """Returns a count with its noun: `one moment`, `three moments`, `12 moments`."""
    return f"{_word(count)} {noun}{'' if count == 1 else 's'}"


def _word(count: int) -> str:
    return _WORDS[count] if count < len(_WORDS) else f"{count:,}"


def step_words(columns: Mapping[str, NDArray[Any]], step: int, names: Sequence[str]) -> str:
    """Returns what was done at a step: the name of the action, or that the agent was lazy."""
    action = names[int(columns["action"][step])]
    return action if columns["control"][step] else f"lazy, {action}"


# -- sentences ---------------------------------------------------------------------------------------------------------


def summary(
    about: Mapping[str, Any], facts: Facts, steps: Sequence[Mapping[str, NDArray[Any]]]
) -> tuple[list[str], list[str]]:
    """Returns the summary of a recording as plain text: sentences on when it acts, and on what it earns and pays."""
    acts = [_acts(about, facts), *_gain(about, facts, steps), *_replays(about)]
    earns = [_earns(facts)]
    if about["eta"] is not None and facts.control_rate > 0:
        mean = float(np.mean(facts.prices))
        paid = "in this episode" if len(facts.lengths) == 1 else "per episode on average"
        earns.append(f"Each step in control costs {number(about['eta'])}, which adds up to {number(mean)} {paid}.")
    earns += [
        f"The default policy alone earns a return of {number(row['return'])}."
        for row in about.get("frontier") or ()
        if row["eta"] is None
    ]
    if about.get("critic"):
        earns.append(_estimated(about["critic"].get("correlation")))
    return acts, earns


def hardly_follows(correlation: float | None) -> bool:
    """Returns whether the values of a critic hardly follow the returns: their correlation is low or undefined."""
    return correlation is None or correlation < _LOW_CORRELATION


def _estimated(correlation: float | None) -> str:
    known = "" if correlation is None else f" (correlation {number(correlation)})"
    if hardly_follows(correlation):
        return f"The lazy-gaps come from a critic whose values hardly follow the returns{known}: do not rely on them."
    return f"The lazy-gaps come from a fitted critic, whose values follow the returns{known}."


def is_clear(row: Mapping[str, Any]) -> bool:
    """Returns whether a replay lost return with the default policy: the interval of the difference is above 0."""
    return row.get("low") is not None and row["low"] > 0


def _replays(about: Mapping[str, Any]) -> list[str]:
    """Returns the sentence on what replays of moments have shown."""
    rows = [row for row in about.get("counterfactuals") or () if row["return_agent"] is not None]
    lost = [row["return_agent"] - row["return_default"] for row in rows if is_clear(row)]
    if not rows:
        return []
    mean = number(float(np.mean(lost))) if lost else ""
    if not lost:
        found = "this makes no clear difference"
    elif len(lost) == 1:
        found = f"{'this' if len(rows) == 1 else 'one of them'} loses a return of {mean}"
    else:
        every = "both" if len(rows) == 2 else "all of them"
        some = every if len(lost) == len(rows) else f"{_word(len(lost))} of them"
        found = f"{some} lose return, by {mean} on average"
    were = f"{counted(len(rows), 'moment').capitalize()} {'was' if len(rows) == 1 else 'were'}"
    return [f"{were} replayed with only that step left to the default policy: {found}."]


def ranking_words(about: Mapping[str, Any]) -> str:
    """Returns the sentence on the fidelity of the ranking by lazy-gap, or an empty text if it was not measured."""
    for row in about.get("fidelity") or ():
        if row["measure"] == "lazy_gap":
            more = f"{number(row['replace_area'])} (95% interval {number(row['low'])} to {number(row['high'])})"
            if row["low"] == row["high"] == 0:
                return (
                    "Ranked by lazy-gap. It makes no difference to the return whether the steps with the largest "
                    "lazy-gaps or random ones are handed to the default policy, so this says nothing about the ranking."
                )
            doubt = "" if row["low"] > 0 else ": the ranking may be no better than chance"
            return (
                "Ranked by lazy-gap. Handing the steps with the largest lazy-gaps to the default policy costs more "
                f"return than handing over random steps, by {more}{doubt}."
                if row["replace_area"] > 0
                else "Ranked by lazy-gap. Handing the steps with the largest lazy-gaps to the default policy costs no "
                f"more return than handing over random steps: the difference is {more}. Do not rely on the ranking."
            )
    return ""


def rate_words(control_rate: float) -> str:
    """Returns how often an agent acts, as the end of a sentence that begins with its name."""
    if control_rate in (0, 1):
        return "never acts" if control_rate == 0 else "acts in every step"
    return f"acts in {percent(control_rate)} of the steps"


def _acts(about: Mapping[str, Any], facts: Facts) -> str:
    default_policy = f"the default policy ({about['default_policy']})"
    if facts.control_rate == 0:
        return f"It never takes control: {default_policy} acts in every step."
    if facts.control_rate == 1:
        return f"It takes control in every step and leaves none to {default_policy}."
    return f"It {rate_words(facts.control_rate)} and leaves the others to {default_policy}."


def _earns(facts: Facts) -> str:
    returns, count, cut = facts.returns, len(facts.returns), ""
    if facts.truncated:
        every = {1: "it", 2: "both"}.get(count, "all of them")
        cut = f"; {every if facts.truncated == count else counted(facts.truncated, 'episode')} reached the time limit"
    length = f"{sum(facts.lengths):,} step{'' if sum(facts.lengths) == 1 else 's'}"
    if count == 1:
        return f"The episode has {length}{cut}. Its return is {number(returns[0])}."
    low, high = number(min(returns)), number(max(returns))
    earned = f"is {low} in each" if low == high else f"is {number(float(np.mean(returns)))} on average, {low} to {high}"
    return f"The {counted(count, 'episode')} have {length} in all{cut}. The return {earned}."


def _gain(about: Mapping[str, Any], facts: Facts, steps: Sequence[Mapping[str, NDArray[Any]]]) -> list[str]:
    """Returns the sentence on the moments that account for the gain of the episode that the page opens."""
    moments = facts.start_moments
    shares = np.cumsum([moment.share for moment in moments])
    if not moments or facts.control_rate == 0 or shares[-1] == 0:
        return []
    place = "" if len(facts.lengths) == 1 else f" of episode {facts.start}"
    count = int(np.searchsorted(shares, _MOST)) + 1
    if count > _FEW or count > len(moments):
        most = counted(len(moments), "largest moment")
        return [f"The gain{place} is spread out: the {most} account for {percent(float(shares[-1]))} of it."]
    share, columns = float(shares[count - 1]), steps[facts.start]
    listed = [
        f"step {moment.step} ({step_words(columns, moment.step, about['action_names'])}, lazy-gap {number(moment.gap)})"
        for moment in moments[:count]
    ]
    joined = listed[0] if count == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}"
    some = f"{counted(count, 'moment').capitalize()} account{'s' if count == 1 else ''}"
    part = "all" if share > 1 - 1e-9 else "most"
    ratio = "" if part == "all" else f" ({percent(share)})"
    return [f"{some} for {part} of the gain{place}{ratio}: {joined}."]
