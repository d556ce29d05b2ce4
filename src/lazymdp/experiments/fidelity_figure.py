"""Claims, tables and figure of the experiment `fidelity`, all made from its data."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from lazymdp.experiments.experiment import Claim, Table, Tables, table
from lazymdp.experiments.fidelity_worlds import MEASURES, RANDOM_MODELS, WORLDS


def summary(data: Tables) -> dict[str, dict[str, NDArray[Any]]]:
    return {}


def claims(data: Tables) -> list[Claim]:
    return []


def plot(data: Tables) -> Figure:
    raise NotImplementedError
