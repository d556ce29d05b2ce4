"""The results that are committed in the repository: complete, and drawn again from their data."""

import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import EXPERIMENTS, results_io, runner
from lazymdp.experiments.runner import saved_outcomes
from lazymdp.measure.statistics import mean_interval

matplotlib.use("Agg")
RESULTS = Path(__file__).parents[2] / "results"


DISAGREES = {"generality", "minatar-pretrained", "atari-moments", "dqn-dopamine", "fidelity", "expert-rules"}
"""Results that report where we do not reach published numbers, or predictions written before the run."""


NOT_RUN = ("lunarlander-cost",)
"""Studies that are ready but have not been run yet."""
RUN = [name for name in EXPERIMENTS if name not in NOT_RUN]


def test_every_committed_result_is_complete_and_every_claim_holds():
    found = {outcome.experiment.name: outcome for outcome in saved_outcomes(RESULTS)}
    assert list(found) == RUN
    for name, outcome in found.items():
        settings = json.loads(json.dumps(EXPERIMENTS[name].config().__dict__))
        assert outcome.record.settings == settings, name
        assert outcome.claims
        for claim in outcome.claims:
            assert claim.holds or name in DISAGREES, f"{name}: {claim}"


@pytest.mark.parametrize("name", NOT_RUN)
def test_a_study_that_has_not_been_run_says_so(name, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=f"{name} has not been run yet, so there are no data: run it with --fresh"
    ):
        runner.reproduce(name, EXPERIMENTS[name].config(), tmp_path)


@pytest.mark.parametrize("name", RUN)
def test_every_committed_figure_is_drawn_again_from_its_data(name, tmp_path):
    """The same picture, up to what another version of matplotlib or of its fonts may move."""
    data = results_io.load(RESULTS / name)
    assert results_io.load_claims(RESULTS / name) == EXPERIMENTS[name].claims(data)
    runner.draw(EXPERIMENTS[name], data, tmp_path)
    drawn, committed = (plt.imread(folder / "figure.png")[..., :3] for folder in (tmp_path, RESULTS / name))
    assert drawn.shape == committed.shape
    assert np.abs(drawn - committed).mean() < 0.02
    assert (tmp_path / "figure.svg").stat().st_size > 1000


def test_the_committed_runs_with_a_budget_keep_it_within_two_points():
    data = results_io.load(RESULTS / "budget")
    told = data.pop("evaluation")
    assert {f"{form}-{seed}" for form, seed in zip(told["form"], told["seed"], strict=True)} == set(data)
    assert len(data) == 6 and (np.abs(told["control_rate"] - 0.1) < 0.02).all()
    for form, seed, eta in zip(told["form"], told["seed"], told["eta"], strict=True):
        metrics = data[f"{form}-{seed}"]
        assert metrics["step"][-1] == 999_424 and abs(metrics["eta"][-1] - eta) < 1e-3
        late = metrics["step"] > 500_000
        steps = (metrics["episodes"] * metrics["length"])[late]
        assert abs(np.average(metrics["control_rate"][late], weights=steps) - 0.1) < 0.02


def test_the_committed_atari_run_is_told_as_its_episodes_were():
    data = results_io.load(RESULTS / "breakout")
    episodes, told = data["episodes"], data["evaluation"]
    assert (np.diff(told["control_rate"]) < 0.0).all()
    for row, eta in enumerate(told["eta"]):
        here = {name: column[episodes["eta"] == eta] for name, column in episodes.items()}
        score = mean_interval(here["return"])
        assert [told[name][row] for name in ("mean_return", "low", "high")] == pytest.approx(score, abs=0.051)
        assert here["steps"].mean() == pytest.approx(told["length"][row], abs=0.51)
        assert here["controls"].sum() / here["steps"].sum() == pytest.approx(told["control_rate"][row], abs=5e-4)
