"""The list of all experiments."""

from __future__ import annotations

from lazymdp.experiments import (
    atari_moments,
    atari_ready,
    dqn_dopamine,
    expert_rules,
    fidelity_agents,
    fidelity_truth,
    fig2,
    fig3,
    fig7,
    fig10,
    fig11,
    generality,
    kdt_path,
    lunarlander_cost,
    minatar,
    minatar_pretrained,
    samples,
    theorem4,
)
from lazymdp.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in map(
        Experiment.of,
        (
            fig2,
            fig3,
            fig7,
            fig10,
            fig11,
            theorem4,
            kdt_path,
            samples,
            fidelity_truth,
            fidelity_agents,
            minatar,
            generality,
            dqn_dopamine,
            atari_moments,
            minatar_pretrained,
            lunarlander_cost,
            expert_rules,
            atari_ready,
        ),
    )
}
"""Every experiment by name: those of the paper in its order, then our own."""


def on_cpu() -> dict[str, Experiment]:
    """Return the experiments that run on a CPU; together they take about a minute and a half."""
    return {name: experiment for name, experiment in EXPERIMENTS.items() if not experiment.needs_gpu}
