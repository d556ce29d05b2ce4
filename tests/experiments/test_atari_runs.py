"""Runs that keep their agent and reports: complete ones are evaluated again, stopped ones begin anew."""

import numpy as np
import pytest

from lazymdp.experiments import atari_runs
from lazymdp.experiments.atari_runs import AGENT, MILLION, NEWEST, NEWEST_ETAS, evaluated, run_rows, train_in

STEPS = 512
SETTINGS = {"n_envs": 8, "rollout": 32, "learning_starts": 64, "update_interval": 64, "hidden": (8,),
            "zero_fraction": 0.8, "eta": (0.01, 1.0), "reward_scale": 1.0, "average_share": 0.2}  # fmt: skip


def test_the_returns_of_a_million_frames_are_means_over_episodes_of_one_price():
    ended = [(400_000, 0.0, 3, 10.0, 1.0), (1_000_000, 0.0, 1, 50.0, 0.5), (1_000_001, 0.0, 2, 7.0, 1.0),
             (900_000, 0.1, 5, 99.0, 0.2)]  # fmt: skip
    plays = [("evaluation", 10 * MILLION, np.inf, 2, [1.0, 3.0], 0.0)]
    clock = [(0, 100.0), (MILLION, 150.0), (1_500_000, 180.0)]
    rows = run_rows(ended, clock, plays, acts="target", zero_fraction=0.8, average_share=0.0)
    training = rows["phase"] == "training"
    assert list(zip(rows["frames"][training], rows["eta"][training], rows["episodes"][training], strict=True)) == [
        (MILLION, 0.0, 4), (MILLION, 0.1, 5), (2 * MILLION, 0.0, 2)]  # fmt: skip
    np.testing.assert_allclose(rows["mean_return"], [20.0, 99.0, 7.0, 2.0])
    np.testing.assert_allclose(rows["control_rate"], [0.875, 0.2, 1.0, 0.0])
    np.testing.assert_allclose(rows["time"], [150.0, 150.0, np.nan, np.nan])  # the second million did not end
    assert rows["std_return"][-1] == np.float64(1.4142)
    assert set(rows["acts"].tolist()) == {"target"} and set(rows["zero_fraction"].tolist()) == {0.8}


def test_a_complete_run_is_evaluated_in_half_precision_and_not_trained_again(tmp_path, monkeypatch):
    pytest.importorskip("jax")
    monkeypatch.setattr(atari_runs, "_SAVE_SECONDS", 0.0)
    folder = tmp_path / "run"
    train_in(folder, "CartPole-v1", 3, 4 * STEPS, SETTINGS)
    written = (folder / AGENT / "last.safetensors").stat().st_mtime_ns
    train_in(folder, "CartPole-v1", 3, 4 * STEPS, SETTINGS)
    assert (folder / AGENT / "last.safetensors").stat().st_mtime_ns == written
    assert sorted(path.name for path in folder.iterdir()) == [AGENT, "clock.csv", NEWEST, "reports.csv"]
    rows = evaluated(folder, 2, 20)
    played = rows["phase"] == "evaluation"
    assert set(rows["frames"][played].tolist()) == {4 * STEPS} and rows["eta"][played][[0, -1]].tolist() == [
        0.0,
        np.inf,
    ]
    newest = rows["phase"] == NEWEST
    assert rows["eta"][newest].tolist() == list(NEWEST_ETAS) and set(rows["average_share"].tolist()) == {0.2}
    assert set(rows["acts"].tolist()) == {"newest"} and set(rows["zero_fraction"].tolist()) == {0.8}
    assert rows["episodes"][~played & ~newest].sum() > 0


def test_a_run_that_was_stopped_begins_anew(tmp_path):
    pytest.importorskip("jax")
    from lazymdp.learn.deep.run_folder import RunFolder

    folder = tmp_path / "run"

    class Stopped(Exception):
        pass

    def stop(*_):
        raise Stopped

    with pytest.MonkeyPatch.context() as patched, pytest.raises(Stopped):
        patched.setattr("lazymdp.learn.deep.export.write_agent", stop)
        train_in(folder, "CartPole-v1", 0, 4 * STEPS, SETTINGS)
    train_in(folder, "CartPole-v1", 0, 4 * STEPS, SETTINGS)
    assert RunFolder(folder / AGENT).step() == STEPS
