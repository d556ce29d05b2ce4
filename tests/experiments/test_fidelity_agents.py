"""The experiment `fidelity`: measures of an agent by hand, steps handed over, and claims from made-up data."""

from types import SimpleNamespace

import numpy as np
import pytest

from lazymdp.experiments import fidelity_agents, results_io
from lazymdp.experiments.experiment import stacked, table
from lazymdp.experiments.fidelity_agents import Config, Judge
from lazymdp.experiments.study import COMMITTED
from lazymdp.measure.handover import Player


class MadeUp:
    """An agent for CartPole whose first value is the angle; it was never trained."""

    def __init__(self, n_actions=2):
        self.algorithm = SimpleNamespace(env=SimpleNamespace(n_actions=n_actions, first_action=0))
        self.sizes = set()

    def q(self, observations, eta):
        self.sizes.add(len(observations))
        rest = np.zeros((len(observations), self.algorithm.env.n_actions - 1))
        return np.concatenate([-10.0 * observations[:, 2:3] - observations[:, 3:4], rest], axis=1)

    def critical_eta(self, observations, points):
        return np.abs(observations[:, 2])


def test_measures_by_hand():
    judge = Judge(MadeUp(3), rows=4)
    seen = np.array([[0.0, 0.0, -0.1, 0.0], [0.0, 0.0, 0.2, 0.0]])
    np.testing.assert_allclose(judge.q(seen), [[1.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    np.testing.assert_array_equal(judge(seen), [0, 1])
    found = {
        name: judge.measures[name](seen) for name in ("lazy_gap", "critical_eta", "action_gap", "importance_advice")
    }
    np.testing.assert_allclose(found["lazy_gap"], [2.0 / 3.0, 2.0 / 3.0])
    np.testing.assert_allclose(found["critical_eta"], [0.1, 0.2])
    np.testing.assert_allclose(found["action_gap"], [1.0, 0.0])
    np.testing.assert_allclose(found["importance_advice"], [1.0, 2.0])
    chances = np.exp([1.0, 0.0, 0.0]) / (np.e + 2.0)
    assert judge.measures["entropy"](seen)[0] == pytest.approx((chances * np.log(chances)).sum())
    assert judge.agent.sizes == {4}  # batches are padded to one size
    with pytest.raises(ValueError, match="has not been trained"):
        judge.measures["mask"](seen)


def test_with_two_actions_the_measures_of_values_are_played_once():
    assert fidelity_agents._distinct(Judge(MadeUp(2), 1)) == ["lazy_gap", "critical_eta", "mask", "random"]
    assert len(fidelity_agents._distinct(Judge(MadeUp(3), 1))) == 7


def test_a_part_has_every_measure_and_protocol():
    config = Config(episodes=2, max_steps=20, mask_steps=100, shares=(0.1, 0.4))
    judge = Judge(MadeUp(), config.episodes)
    player = Player(judge, "CartPole-v1", "uniform", 1.0, config.max_steps)
    judge.mask = fidelity_agents._mask(judge, player, config, 0)
    rows = fidelity_agents._measured(config, "CartPole-v1", 0, judge, player)
    player.close()
    for measure in judge.measures:
        here = rows["measure"] == measure
        assert set(rows["mode"][here]) == {"replace", "keep", "statemask-code", "rice-spec", "scattered"}
        assert here.sum() == 2 * 2 * 2 + 3 * 2
    assert (rows["measure"] == "none").sum() == 4
    assert np.isfinite(rows["loss"]).all() and (rows["agent_return"] >= rows["default_return"]).all()
    same = {name: rows["loss"][rows["measure"] == name] for name in ("lazy_gap", "action_gap")}
    np.testing.assert_array_equal(same["lazy_gap"], same["action_gap"])


def test_measures_can_be_played_in_parts():
    config = Config(episodes=2, max_steps=20, shares=(0.1, 0.4))

    def played(*measures):
        judge = Judge(MadeUp(3), config.episodes)
        player = Player(lambda seen: judge(seen) % 2, "CartPole-v1", "uniform", 1.0, config.max_steps)
        found = fidelity_agents._measured(config, "CartPole-v1", 0, judge, player, measures)
        player.close()
        return found

    whole = played("none", "lazy_gap", "entropy")
    pieces = stacked([dict(played(measure)) for measure in ("none", "lazy_gap", "entropy")])
    for name, column in whole.items():
        np.testing.assert_array_equal(column, pieces[name], err_msg=name)


def made_up(game, lead):
    """Rows of an environment in which the lazy-gap loses more than random steps, by `lead`, and all others less."""
    rng, parts = np.random.default_rng(0), []
    for seed in range(5):
        rows = []
        for name in fidelity_agents.Judge(MadeUp(), 1).measures:
            better = lead if name == "lazy_gap" else 0.0 if name == "random" else lead / 2.0
            for share in (0.1, 0.4):
                noise = rng.normal() * 0.01
                rows.append(("replace", name, "top", share, share, 1.0 + better + noise, np.nan))
                rows.append(("keep", name, "top", share, 1.0 - share, 1.0 - better + noise, np.nan))
            for mode in ("statemask-code", "rice-spec", "scattered"):
                for kind in ("top", "random"):
                    loss = 3.0 if (name, mode, kind) == ("mask", "statemask-code", "top") else 1.0
                    loss += lead / 10.0 if (name, mode, kind) == ("lazy_gap", "rice-spec", "top") else 0.0
                    rows.append((mode, name, kind, 0.1, 0.1, loss, 0.0))
        rows += [
            (mode, "none", "random", share, share, 1.0, np.nan) for mode in ("replace", "keep") for share in (0.1, 0.4)
        ]
        names = ("mode", "measure", "kind", "share", "handed", "loss", "score")
        columns = dict(zip(names, zip(*rows, strict=True), strict=True))
        parts.append(table(game=game, seed=seed, **columns, agent_return=12.0, default_return=2.0))
    return stacked(parts)


def test_claims_and_table_from_made_up_data():
    rows = made_up("minatar/breakout", 1.0)
    data = {"runs": rows, **fidelity_agents.summary({"runs": rows})}
    assert [claim.holds for claim in fidelity_agents.claims(data)] == [True] * 9
    first = {name: column[0] for name, column in data["measures"].items()}
    assert first["measure"] == "lazy-gap" and first["return, agent / random"] == "12.0 / 2.0"
    assert first["replace: area, % of the gain"].startswith("10.") and first["keep: area, % of the gain"].startswith(
        "10."
    )
    duels = {name: column.tolist() for name, column in data["duels"].items()}
    assert duels["lazy-gap against"][0] == "critical eta" and len(duels["game"]) == 6
    assert set(duels["replace: verdict"]) == {"ahead"} and duels["keep: lead, % of the gain"][-1].startswith("9.9")
    worse = made_up("minatar/breakout", -1.0)
    assert set(fidelity_agents.summary({"runs": worse})["duels"]["replace: verdict"]) == {"behind"}
    assert [claim.holds for claim in fidelity_agents.claims({"runs": worse})] == [False] * 5 + [True] * 2 + [False] * 2
    assert len(fidelity_agents.plot(data).axes) == 2


def test_the_committed_tables_follow_from_the_committed_runs():
    data = results_io.load(COMMITTED / "fidelity")
    for name, columns in fidelity_agents.summary(data).items():
        for column, cells in columns.items():
            assert data[name][column].tolist() == cells.tolist(), f"{name}, {column}"


def test_a_mask_sees_atari_images_in_squares_of_pixels():
    seen = np.zeros((2, 84, 84, 4), np.uint8)
    seen[1, 4:8, 8:12, 3] = 160
    seen[1, 0, 0, 0] = 160
    found = fidelity_agents._features(seen).reshape(2, 21, 21, 4)
    assert found[1, 1, 2, 3] == 160.0 and found[1, 0, 0, 0] == 10.0 and found.sum() == 170.0
    assert fidelity_agents._features(np.ones((3, 10, 10, 4), bool)).shape == (3, 400)


def test_each_agent_is_a_job_and_on_atari_each_measure(monkeypatch):
    config = Config(games=("CartPole-v1", "minatar/asterix"), seeds=2)
    assert fidelity_agents.jobs(config) == ["CartPole-v1_0", "CartPole-v1_1", "minatar-asterix_0", "minatar-asterix_1"]
    pong = fidelity_agents.jobs(Config(games=("ALE/Pong-v5",), seeds=1))
    assert pong == [f"ALE-Pong-v5_0_{measure}" for measure in fidelity_agents.MEASURES]
    monkeypatch.setattr(fidelity_agents, "part", lambda *arguments: arguments[1:])
    assert fidelity_agents.make_job(config, "minatar-asterix_1") == ("minatar/asterix", 1)


def test_an_unknown_environment_is_refused():
    with pytest.raises(ValueError, match="games has 'Pong', expected one or more of CartPole-v1"):
        fidelity_agents.run(Config(games=("Pong",)))
