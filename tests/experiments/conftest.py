"""The MinAtar study without training: numbers that are made up."""

import numpy as np
import pytest

from lazymdp.experiments import minatar
from lazymdp.experiments.experiment import table


class Made(list):
    """The parts that were run, as (game, method); running the part `stop` is interrupted."""

    stop = None


@pytest.fixture
def parts(monkeypatch):
    made = Made()

    def part(config, game, method, tell):
        tell(0.5)
        if (game, method) == made.stop:
            raise KeyboardInterrupt
        made.append((game, method))
        etas, seeds = (grid.ravel() for grid in np.meshgrid(config.etas, np.arange(config.seeds), indexing="ij"))
        worth = 2.0 if method == "dial" else 1.0
        return table(
            game=game, method=method, eta=etas, seed=seeds, mean_return=worth - etas, mean_length=10.0,
            control_rate=0.5 - 0.1 * etas, truncated=0.0, epochs=1, learning_rate=1e-3,
        )  # fmt: skip

    monkeypatch.setattr(minatar, "part", part)
    return made
