"""Every experiment of the registry: data in, claims and figure out; settings are explained and can be varied."""

from dataclasses import fields
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import EXPERIMENTS, fig7, results_io, theorem4
from lazymdp.experiments.registry import on_cpu

matplotlib.use("Agg")
QUICK = {
    "fig2": {"prices": 5},
    "fig3": {},
    "fig7": {"seeds": 3, "episodes": 400},
    "fig10": {},
    "fig11": {},
    "theorem4": {"models": 12},
    "kdt-path": {"checks": 4},
    "samples": {"seeds": 2, "doublings": 2, "alphas": (0.5, 1.0)},
    "fidelity-truth": {
        "models": 3,
        "n_states": 12,
        "draws": 2,
        "seeds": 2,
        "episodes": 3,
        "masks": 2,
        "mask_steps": 300,
    },
}
SPOILED = {
    "fig2": ("states", "lazy_gap", 1.0),
    "fig3": ("policies", "control", 0),
    "fig7": ("final", "mean_return", 0.5),
    "fig10": ("curves", "lazy_states", 0.5),
    "fig11": ("states", "importance_advice", np.arange(206.0)),
    "theorem4": ("models", "formula", 7.0),
    "kdt-path": ("checks", "error", 0.1),
    "samples": ("errors", "steps", 100.0),
    "fidelity-truth": ("agreement", "correlation", 0.5),
}
"""A column and the values that make a claim fail."""


@pytest.fixture(scope="module", params=QUICK)
def quick(request):
    """Runs an experiment with small settings. Returns its name, its data and the progress that it reported.

    As a fixture of the module, it has pytest run the tests of one experiment after each other, on one worker.
    """
    name, told = request.param, []
    config = EXPERIMENTS[name].config(**QUICK[name])
    return name, EXPERIMENTS[name].run(config, lambda done, total: told.append((done, total))), told


def same(data, other):
    assert data.keys() == other.keys()
    for name, columns in data.items():
        assert list(columns) == list(other[name])
        for key, column in columns.items():
            np.testing.assert_array_equal(column, other[name][key], err_msg=f"{name}.{key}")


def test_all_but_the_studies_run_on_a_cpu():
    assert list(on_cpu()) == [
        "fig2",
        "fig3",
        "fig7",
        "fig10",
        "fig11",
        "theorem4",
        "kdt-path",
        "samples",
        "fidelity-truth",
    ]
    studies = {
        "fidelity",
        "minatar",
        "generality",
        "dqn-dopamine",
        "atari-moments",
        "minatar-pretrained",
        "lunarlander-cost",
    }
    assert set(EXPERIMENTS) - set(on_cpu()) == studies | {"expert-rules", "atari-ready"}
    assert all(experiment.name == name for name, experiment in EXPERIMENTS.items())


def test_data_claims_and_figure_survive_the_way_to_the_disk_and_back(quick, tmp_path):
    name, data, _ = quick
    experiment = EXPERIMENTS[name]
    claims = experiment.claims(data)
    results_io.save(tmp_path, data, results_io.Record(name, {}, "", 0.0, {}, ""), claims)
    read = results_io.load(tmp_path)
    same(data, read)
    assert experiment.claims(read) == claims == results_io.load_claims(tmp_path)
    figure = experiment.plot(read)
    figure.canvas.draw()
    assert np.asarray(figure.canvas.buffer_rgba())[..., :3].std() > 10
    plt.close(figure)


def test_claims_fail_where_the_data_say_so(quick):
    name, found, _ = quick
    where, column, value = SPOILED[name]
    data = {key: dict(columns) for key, columns in found.items()}
    data[where][column] = np.broadcast_to(value, data[where][column].shape)
    assert not all(claim.holds for claim in EXPERIMENTS[name].claims(data))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_settings_are_frozen_and_explained(name):
    experiment = EXPERIMENTS[name]
    config = experiment.config()
    assert experiment.title and len(experiment.caption) > 60
    source = Path(__import__(experiment.run.__module__, fromlist=["x"]).__file__).read_text()
    for field in fields(config):
        assert '    """' in source.split(f"    {field.name}: ")[1].splitlines()[1], f"{field.name} has no help"
        with pytest.raises(AttributeError):
            setattr(config, field.name, None)


def test_the_same_seed_gives_the_same_data_and_another_seed_other_data():
    first, again, other = (theorem4.run(theorem4.Config(models=5, seed=seed)) for seed in (1, 1, 2))
    same(first, again)
    assert not np.array_equal(first["models"]["truth"], other["models"]["truth"])
    config = fig7.Config(seeds=2, episodes=200)
    same(fig7.run(config), fig7.run(config))


def test_progress_reaches_its_end(quick):
    _, _, told = quick
    assert told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1
