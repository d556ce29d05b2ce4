"""The results of the paper that do not need Atari, and our own: settings in, data out, claims and figures from data.

There is one module per result, each with `Config`, `run(config) -> data`, `claims(data)` and `plot(data) -> figure`.
They are the only place in the library that knows the paper's numbers. `registry` lists them and `runner` reproduces
them.
"""

from lazymdp.experiments.experiment import Claim, Experiment
from lazymdp.experiments.registry import EXPERIMENTS

__all__ = ["EXPERIMENTS", "Claim", "Experiment"]
