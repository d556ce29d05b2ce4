"""The quality of a run: the mean return after the price, by which the best checkpoint is chosen.

Episodes are collected in windows. A window ends after a fixed number of iterations, and not at a time of the clock, so
that the best checkpoint of a run depends on its config only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazymdp.learn.deep.named_arrays import Arrays

ENOUGH_EPISODES = 20
"""Smallest number of episodes from which a quality is computed."""
WINDOWS = 50
"""Number of windows in a run, before its extensions."""
_NAMES = ("quality.sum", "quality.episodes", "quality.mean")


class Quality:
    """Mean returns after the price, for each of P reported prices.

    Args:
        count: Number of reported prices, P.
    """

    def __init__(self, count: int) -> None:
        self._sum, self._count = np.zeros(count), np.zeros(count, dtype=np.int64)  # of the current window
        self._mean = np.full(count, np.nan)  # of the last window with episodes at this price

    def add(self, price: NDArray[np.intp], net_return: NDArray[np.float64]) -> None:
        """Adds episodes to the window.

        Args:
            price: `[K]` indices of their reported prices.
            net_return: `[K]` returns after the price.
        """
        for one in np.unique(price):
            # One after the other, so that the sum does not depend on how the episodes are divided among calls.
            self._sum[one] = np.cumsum(np.append(self._sum[one], net_return[price == one]))[-1]
            self._count[one] += (price == one).sum()

    def close(self) -> float | None:
        """Ends the window and returns its quality. With too few episodes, returns None and continues the window.

        The quality is the mean over prices of the mean at each price, so it does not depend on how many episodes
        happened to end at each price. A price without episodes keeps its last mean. The result is None until every
        price has a mean.
        """
        if self._count.sum() < ENOUGH_EPISODES:
            return None
        seen = self._count > 0
        self._mean[seen] = self._sum[seen] / self._count[seen]
        self._sum[:], self._count[:] = 0.0, 0
        return None if np.isnan(self._mean).any() else float(self._mean.mean())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Returns the state by name."""
        return dict(zip(_NAMES, (self._sum.copy(), self._count.copy(), self._mean.copy()), strict=True))

    def restore(self, arrays: Arrays) -> None:
        """Continues from the `arrays` of another instance."""
        if not all(name in arrays and arrays[name].shape == self._sum.shape for name in _NAMES):
            raise ValueError(f"the checkpoint lacks {', '.join(_NAMES)} of this run: it belongs to another version.")
        self._sum, self._count, self._mean = (arrays[name].copy() for name in _NAMES)
