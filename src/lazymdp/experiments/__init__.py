"""Every tabular result of the paper, and ours: settings in, data out, claims and a figure from the data.

One module per result, each with `Config`, `run(config) -> data`, `claims(data)` and `plot(data) -> figure`. They are
the only place in the library that knows the paper's numbers.
"""

from lazymdp.experiments import fig2, fig3, fig7, fig10, fig11, kdt_path, minatar, samples, theorem4
from lazymdp.experiments.registry import Claim, Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in map(Experiment.of, (fig2, fig3, fig7, fig10, fig11, theorem4, kdt_path, samples))
}
"""By name, in the order of the paper, then ours."""
STUDIES: dict[str, Experiment] = {"minatar": Experiment.of(minatar)}
"""By name, those that need a GPU: made by commands of their own, shown with the others."""

__all__ = ["EXPERIMENTS", "STUDIES", "Claim", "Experiment"]
