"""Dials on top of expert rules: the rules themselves, and claims about made-up runs."""

import gymnasium as gym
import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt

from lazymdp.experiments import expert_rules
from lazymdp.experiments.experiment import stacked, table
from lazymdp.experiments.expert_rules import CASES, Config

matplotlib.use("Agg")
RETURNS = {"lander": 200.0, "car": -111.0, "pole": 500.0, "lean": 43.0}


def made_up(gain=20.0, rate=0.05, wasted=0.0, last=0.0):
    parts = []
    for name, alone in RETURNS.items():
        better = alone if name == "pole" else alone + gain
        control = wasted if name == "pole" else rate
        for seed in range(5):
            returns = np.array([better, better, alone, alone]) + 0.1 * seed
            parts.append(table(game=name, seed=seed, eta=[0.0, 0.1, 1.0, np.inf], mean_return=returns,
                               control_rate=[0.9, control, last, 0.0]))  # fmt: skip
    return {"runs": stacked(parts)}


def test_the_rule_for_the_lander_is_that_of_gymnasium():
    pytest.importorskip("Box2D")
    from gymnasium.envs.box2d.lunar_lander import heuristic

    env, rng = gym.make("LunarLander-v3"), np.random.default_rng(0)
    seen = (rng.normal(size=(2_000, 8)) * [0.5, 0.5, 0.5, 0.5, 0.3, 0.3, 1.0, 1.0]).astype(np.float32)
    seen[:, 6:] = seen[:, 6:] > 1.0
    np.testing.assert_array_equal(expert_rules.lander(seen), [heuristic(env, one) for one in seen])


def test_the_other_rules_are_what_the_documentation_says():
    seen = np.array([[-0.5, 0.01], [-0.5, -0.01], [-0.45, 0.0], [-0.3, 0.002]])
    assert expert_rules.car(seen, slope=0.02, turn=-0.45).tolist() == [2, 0, 0, 0]
    poles = np.array([[0.0, 0.0, 0.1, -0.5], [0.0, 0.0, 0.1, -2.0], [0.0, 0.0, -0.1, 0.0]])
    assert expert_rules.pole(poles, weight=0.1).tolist() == [1, 0, 0]
    assert expert_rules.lean(poles).tolist() == [1, 1, 0]


def test_a_rule_is_tuned_in_episodes_of_its_own():
    found = expert_rules.tuning("pole", 2)
    assert found["setting"].tolist() == ["0", "0.1", "0.25", "0.5", "1", "2"]
    assert found["mean_return"][0] < 100.0 < found["mean_return"][2]


def test_every_run_is_a_job():
    assert expert_rules.jobs(Config(seeds=2, games=("car", "pole"))) == ["car_0", "car_1", "pole_0", "pole_1"]
    with pytest.raises(ValueError, match="games has 'CartPole-v1', expected one or more of lander, car, pole, lean"):
        expert_rules.jobs(Config(games=("CartPole-v1",)))


def test_claims_are_about_little_control_and_none_where_the_rule_is_perfect():
    found = expert_rules.claims(made_up())
    assert len(found) == 3 * len(CASES) and all(claim.holds for claim in found)
    assert "5.0% at eta = 0.1" in found[0].found
    assert [claim.holds for claim in expert_rules.claims(made_up(rate=0.2))[::3]] == [False, False, True, False]
    assert expert_rules.claims(made_up(gain=-1.0))[0].found == "never"
    assert not expert_rules.claims(made_up(wasted=0.3))[6].holds
    assert not any(claim.holds for claim in expert_rules.claims(made_up(last=0.3))[2::3])


def test_the_figure_has_a_panel_for_every_rule():
    figure = expert_rules.plot(made_up())
    assert [ax.get_title("left") for ax in figure.axes] == ["lander (LunarLander)", "car (MountainCar)",
                                                            "pole (CartPole)", "lean (CartPole)"]  # fmt: skip
    plt.close(figure)
