"""Pictures: functions that take data and an Axes, draw, and return the Axes. Nothing is solved here."""

from lazymdp.show.colors import CONTROL, LAZY
from lazymdp.show.curves import path_curves
from lazymdp.show.grid import GridWorld, heat_map, policy_map

__all__ = ["CONTROL", "LAZY", "GridWorld", "heat_map", "path_curves", "policy_map"]
