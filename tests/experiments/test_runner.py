"""Experiments: data in, claims and figures out; results on disk, picked up again; the committed results."""

import json
from dataclasses import fields
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import (
    EXPERIMENTS,
    STUDIES,
    fig7,
    fig11,
    kdt_path,
    paper_worlds,
    results_io,
    runner,
    samples,
    theorem4,
)
from lazymdp.experiments.runner import outcomes, reproduce, write_index
from lazymdp.measure.statistics import mean_interval

matplotlib.use("Agg")
RESULTS = Path(__file__).parents[2] / "results"
QUICK = {
    "fig2": {"prices": 5},
    "fig3": {},
    "fig7": {"seeds": 3, "episodes": 400},
    "fig10": {},
    "fig11": {},
    "theorem4": {"models": 12},
    "kdt-path": {"checks": 4},
    "samples": {"seeds": 2, "doublings": 2, "alphas": (0.5, 1.0)},
}
SPOILED = {
    "fig2": ("states", "lazy_gap", 1.0),
    "fig3": ("policies", "control", 0),
    "fig7": ("final", "score", 0.5),
    "fig10": ("curves", "states", 0.5),
    "fig11": ("states", "importance_advice", np.arange(206.0)),
    "theorem4": ("models", "formula", 7.0),
    "kdt-path": ("checks", "error", 0.1),
    "samples": ("errors", "steps", 100.0),
}
"""A column and what to put there so that a claim must fail."""


@pytest.fixture(scope="module")
def quick():
    return {name: EXPERIMENTS[name].run(EXPERIMENTS[name].config(**QUICK[name]), None) for name in EXPERIMENTS}


def same(data, other):
    assert data.keys() == other.keys()
    for name, columns in data.items():
        assert list(columns) == list(other[name])
        for key, column in columns.items():
            np.testing.assert_array_equal(column, other[name][key], err_msg=f"{name}.{key}")


# -- every experiment ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_data_claims_and_figure_survive_the_way_to_the_disk_and_back(quick, name, tmp_path):
    experiment, data = EXPERIMENTS[name], quick[name]
    results_io.save(tmp_path, data, results_io.Record(name, {}, "", 0.0, {}, ""))
    read = results_io.load(tmp_path)
    same(data, read)
    assert experiment.claims(read) == experiment.claims(data)
    figure = experiment.plot(read)
    figure.canvas.draw()
    assert np.asarray(figure.canvas.buffer_rgba())[..., :3].std() > 10
    plt.close(figure)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_claims_fail_where_the_data_say_so(quick, name):
    where, column, value = SPOILED[name]
    data = {key: dict(columns) for key, columns in quick[name].items()}
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


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_progress_reaches_its_end(name):
    told = []
    EXPERIMENTS[name].run(EXPERIMENTS[name].config(**QUICK[name]), lambda done, total: told.append((done, total)))
    assert told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1


# -- single experiments --------------------------------------------------------------------------------------------


def test_moves_to_a_key_action():
    world, mdp = paper_worlds.key_door_treasure()
    moves = paper_worlds.moves_to_key_action(world, mdp)
    name = {text: state for state, text in enumerate(world.state_names)}
    at = {(int(row), int(column), bool(key)): state for state, ((row, column), key) in
          enumerate(zip(world.cells, world.has_key, strict=True))}  # fmt: skip
    assert len(name) == mdp.n_states
    assert moves[at[5, 6, False]] == 0  # in the gap
    assert moves[at[5, 4, False]] == 1  # above the gap below
    assert moves[at[10, 4, False]] == 1  # beside the key
    assert moves[at[1, 1, True]] == 8  # to the gap in (6, 4): 5 down and 3 right
    assert moves.max() == 9


def test_reachable_states_are_those_an_episode_can_visit():
    _, mdp = paper_worlds.key_door_treasure()
    reached = paper_worlds.reachable(mdp)
    generator, state, seen = np.random.default_rng(0), int(mdp.start.argmax()), set()
    for _ in range(40_000):
        seen.add(state)
        state = int(mdp.transitions.indices[state * 4 + generator.integers(4)])
        state = int(mdp.start.argmax()) if mdp.absorbing[state] else state
    assert seen <= set(np.flatnonzero(reached))
    assert len(seen) > 0.95 * reached.sum()


def test_moves_to_the_treasure_are_a_walk(quick):
    states = quick["fig11"]["states"]
    _, mdp = paper_worlds.key_door_treasure()
    successors = mdp.transitions.indices.reshape(-1, 4)
    moves = states["moves_to_treasure"]
    alive = ~mdp.absorbing
    np.testing.assert_array_equal(moves[alive], 1 + moves[successors[alive]].min(axis=1))
    assert fig11._share_near(states, "critical_eta") < 1.0


def test_steps_needed_takes_the_best_step_size():
    errors = results_io.table(
        backup=["augmented"] * 4,
        alpha=[0.1, 0.1, 1.0, 1.0],
        steps=[10.0, 40.0, 10.0, 20.0],
        error=[0.5, 0.01, 0.2, 0.02],
    )
    assert samples.steps_needed({"errors": errors}, "augmented", 0.02) == (20.0, 1.0)
    assert samples.steps_needed({"errors": errors}, "augmented", 0.01) == (40.0, 0.1)
    assert samples.steps_needed({"errors": errors}, "augmented", 0.001)[0] == np.inf


# -- on disk -------------------------------------------------------------------------------------------------------


def test_a_result_that_is_there_is_taken_and_one_with_other_settings_made_again(tmp_path):
    config = kdt_path.Config(checks=3)
    assert not reproduce("kdt-path", config, tmp_path).reused
    assert sorted(path.name for path in (tmp_path / "kdt-path").iterdir()) == [
        "checks.csv", "claims.csv", "facts.csv", "figure.png", "figure.svg", "policies.csv", "run.json",
    ]  # fmt: skip
    (tmp_path / "kdt-path" / "figure.svg").unlink()
    assert reproduce("kdt-path", config, tmp_path).reused
    assert (tmp_path / "kdt-path" / "figure.svg").exists()  # drawn again from the data
    assert not reproduce("kdt-path", kdt_path.Config(checks=4), tmp_path).reused
    assert not reproduce("kdt-path", kdt_path.Config(checks=4), tmp_path, fresh=True).reused
    record = json.loads((tmp_path / "kdt-path" / "run.json").read_text())
    assert record["settings"] == {"checks": 4}
    assert {"python", "lazymdp", "numpy"} <= set(record["versions"])


def test_an_interrupted_result_is_made_again_and_harms_nothing(tmp_path, monkeypatch):
    config = kdt_path.Config(checks=3)
    reproduce("fig3", EXPERIMENTS["fig3"].config(), tmp_path)
    before = (tmp_path / "fig3" / "policies.csv").read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(results_io, "write_csv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce("kdt-path", config, tmp_path)
    monkeypatch.undo()
    assert not (tmp_path / "kdt-path" / "run.json").exists()
    assert not reproduce("kdt-path", config, tmp_path).reused
    assert reproduce("fig3", EXPERIMENTS["fig3"].config(), tmp_path).reused
    assert (tmp_path / "fig3" / "policies.csv").read_bytes() == before
    assert not list(tmp_path.rglob("*.part*"))


def test_settings_of_which_the_paper_says_nothing_are_made_without_claims(tmp_path):
    config = fig7.Config(etas=(0.1,), seeds=2, episodes=50)
    outcome = reproduce("fig7", config, tmp_path)
    assert outcome.claims == [] and outcome.holds
    assert reproduce("fig7", config, tmp_path).reused
    assert "0 of 0 claims hold" in write_index(tmp_path).read_text()


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "fig3").mkdir()
    (tmp_path / "fig3" / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json is damaged .* remove it"):
        reproduce("fig3", EXPERIMENTS["fig3"].config(), tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": 0}, "seeds is 0, expected at least 1"),
        ({"episodes": -5}, "episodes is -5"),
        ({"etas": ()}, "etas is empty"),
        ({"alpha": float("nan")}, "alpha is nan"),
        ({"etas": (0.1, float("inf"))}, "etas is inf"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        reproduce("fig7", fig7.Config(**settings), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_page_shows_what_is_there(tmp_path, monkeypatch):
    reproduce("fig3", EXPERIMENTS["fig3"].config(), tmp_path)
    text = write_index(tmp_path).read_text()
    assert 'src="fig3/figure.svg"' in text and "5 of 5 claims hold" in text and "explorer" not in text
    (tmp_path / runner.EXPLORER).write_text("x")
    assert 'href="explorer.html"' in write_index(tmp_path).read_text()
    assert "http" not in text.replace("https://www.w3.org", "")


# -- the committed results -----------------------------------------------------------------------------------------

ALL = {**EXPERIMENTS, **STUDIES}


def test_every_committed_result_is_complete_and_every_claim_holds():
    found = {outcome.experiment.name: outcome for outcome in outcomes(RESULTS)}
    assert list(found) == list(ALL)
    for name, outcome in found.items():
        settings = json.loads(json.dumps(ALL[name].config().__dict__))
        assert outcome.record.settings == settings, name
        for claim in outcome.claims:
            assert claim.holds, f"{name}: {claim}"


@pytest.mark.parametrize("name", ALL)
def test_every_committed_figure_is_drawn_again_from_its_data(name, tmp_path):
    """The same picture, up to what another version of matplotlib or of its fonts may move."""
    data = results_io.load(RESULTS / name)
    stated = data.pop("claims")
    found = ALL[name].claims(data)
    assert stated["claim"].tolist() == [claim.text for claim in found]
    assert stated["found"].astype(str).tolist() == [claim.found for claim in found]
    runner.draw(ALL[name], data, tmp_path)
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
