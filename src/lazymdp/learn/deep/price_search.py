"""The price at which a dial meets a control rate, found by bisection on the same episodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.deep.evaluation_episodes import AgentEvaluation, joined, selected
from lazymdp.measure.statistics import skewed_mean_interval

BISECTIONS = 6
"""Number of times that the interval between the two prices which enclose the answer is halved."""


@dataclass(frozen=True)
class ControlRatePrice:
    """The price at which a dial meets a control rate, estimated from evaluation episodes.

    Attributes:
        eta: The price.
        eta_low: Lower end of its 95% confidence interval, within the range of prices trained for.
        eta_high: Upper end of the interval.
        control_rate: Share of steps in control at this price, in the same episodes.
        mean_return: Mean return at this price, price excluded.
    """

    eta: float
    eta_low: float
    eta_high: float
    control_rate: float
    mean_return: float


def price_of_rate(
    share: float, evaluation: AgentEvaluation, play: Callable[[NDArray[np.float64]], AgentEvaluation]
) -> ControlRatePrice:
    """Finds the smallest price at and above which the control rate is at most `share`.

    Args:
        share: Largest control rate allowed.
        evaluation: Episodes at prices that span the range.
        play: Plays the same episodes at other prices.
    """
    played = selected(evaluation, np.argsort(evaluation.etas))
    for _ in range(BISECTIONS):
        first = _first_within(played.control_rate, share)
        if first == 0 or played.control_rate[first] > share:  # no prices enclose the answer
            break
        between = played.etas[first - 1 : first + 1].mean(keepdims=True)
        played = joined([selected(played, slice(first)), play(between), selected(played, slice(first, None))])
    etas, rate = played.etas, played.control_rate
    place = _first_within(rate, share)
    excess = skewed_mean_interval((played.controls - share * played.steps).T)  # 0 where the rate equals `share`
    low, high = _crossing(etas, excess.low), _crossing(etas, excess.high)
    eta = float(etas[place])
    return ControlRatePrice(eta, min(eta, low), max(eta, high), float(rate[place]), float(played.mean_return[place]))


def _first_within(rate: NDArray[np.float64], share: float) -> int:
    """Returns the first index from which all rates are at most `share`, or the last index if there is none.

    Args:
        rate: `[E]` control rates at increasing prices.
        share: Largest rate allowed.
    """
    above = np.flatnonzero(rate > share)
    return min(int(above[-1]) + 1, len(rate) - 1) if above.size else 0


def _crossing(etas: NDArray[np.float64], excess: NDArray[np.float64]) -> float:
    """Returns the price at which the excess `[E]` falls to 0, by linear interpolation between two prices."""
    place = _first_within(excess, 0.0)
    if place == 0 or excess[place] > 0.0:
        return float(etas[place])
    before, after = excess[place - 1 : place + 1]
    return float(etas[place] + after / (before - after) * (etas[place] - etas[place - 1]))
