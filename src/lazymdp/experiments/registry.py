"""The one list of experiments."""

from __future__ import annotations

from lazymdp.experiments import fig2, fig3, fig7, fig10, fig11, kdt_path, minatar, samples, theorem4
from lazymdp.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in map(Experiment.of, (fig2, fig3, fig7, fig10, fig11, theorem4, kdt_path, samples, minatar))
}
"""Every experiment by name: the paper's in the order of the paper, then ours."""


def on_cpu() -> dict[str, Experiment]:
    """Return the experiments that a CPU runs in about a minute altogether."""
    return {name: experiment for name, experiment in EXPERIMENTS.items() if not experiment.needs_gpu}
