"""Pictures and pages. Each function takes data and returns what it drew; none of them solves anything."""

from lazymdp._colors import CONTROL, LAZY
from lazymdp.show.curves import (
    FidelityCurves,
    FrontierPoints,
    PathPoints,
    fidelity,
    frequency_curve,
    frontier,
    path_curves,
    return_curves,
)
from lazymdp.show.explorer import explorer
from lazymdp.show.grid_maps import GridWorld, heat_map, policy_map, world_map
from lazymdp.show.style import STYLE, styled

__all__ = [
    "CONTROL",
    "LAZY",
    "STYLE",
    "FidelityCurves",
    "FrontierPoints",
    "GridWorld",
    "PathPoints",
    "explorer",
    "fidelity",
    "frequency_curve",
    "frontier",
    "heat_map",
    "path_curves",
    "policy_map",
    "return_curves",
    "styled",
    "world_map",
]


def __dir__() -> list[str]:
    return __all__
