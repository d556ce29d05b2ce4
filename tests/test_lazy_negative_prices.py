"""The rule for negative prices in docs/design.md, at every entry point that needs no network."""

import gymnasium as gym
import numpy as np
import pytest
from brute_force import augment, optimum
from hypothesis import given
from hypothesis import strategies as st
from random_models import models, random_model

import lazymdp as lz
from lazymdp.cli.main import main

MODEL = random_model(0, n_states=4, n_actions=3)


def lake():
    return gym.make("FrozenLake-v1", is_slippery=False)


def lake_vector(eta):
    return lz.LazyVectorAction(gym.make_vec("FrozenLake-v1", num_envs=2), default_policy=0, eta=eta)


@given(models(), st.sampled_from([-1e-6, -0.3, -5.0]))
def test_a_bonus_for_acting_is_solved_and_control_is_taken_everywhere(model, eta):
    lazy = lz.LazyMDP(model.mdp, model.default, 0.0).with_eta(eta)
    solution = lz.solve(lazy, tol=1e-9 / (1.0 - model.gamma), method="policy_iteration")
    plus = augment(model.transitions, model.rewards, model.absorbing, model.default, eta)
    value, _ = optimum(*plus, model.gamma, model.absorbing)
    np.testing.assert_allclose(solution.value, value, atol=1e-8 / (1.0 - model.gamma))
    np.testing.assert_array_equal(solution.control, ~model.absorbing)
    found = lz.evaluate(lazy, solution.action)
    np.testing.assert_allclose(found.value, value, atol=1e-8 / (1.0 - model.gamma))
    assert (found.control_cost >= 0.0).all()
    np.testing.assert_array_equal(lz.solve(lazy, horizon=3).control, np.tile(~model.absorbing, (3, 1)))
    if model.start[~model.absorbing].any():
        assert lz.lazy_frequency(lazy, solution.action).states == 0.0


def test_a_wrapper_pays_the_bonus():
    env = lz.LazyAction(lake(), default_policy=0, eta=-0.5)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(1)
    assert (reward, info["control_cost"], info["base_reward"]) == (0.5, 0.5, 0.0)
    _, reward, _, _, info = env.step(env.action_space.n - 1)
    assert (reward, info["control_cost"]) == (0.0, 0.0)
    env.set_eta(-2.0)
    venv = lake_vector([-0.5, 0.25])
    venv.reset(seed=0)
    _, rewards, _, _, _ = venv.step(np.array([1, 1]))
    np.testing.assert_array_equal(rewards, [0.5, -0.25])
    venv.close()


@pytest.mark.learning
@pytest.mark.parametrize("learner", [lz.learn.q_learning, lz.learn.sarsa])
def test_tabular_learning_takes_the_bonus(learner, seed):
    """One action that ends the episode at once: acting is worth 2, being lazy 0."""
    mdp = lz.MDP([[[0.0, 1.0]], [[0.0, 1.0]]], [[0.0], [0.0]], 0.9, start=0, absorbing=[False, True])
    found = learner(mdp, eta=[-2.0, 0.5], episodes=200, epsilon=0.5, points=1, seed=seed)
    np.testing.assert_array_equal(found.action[:, 0, 0], [0, 1])
    assert found.q[0, 0, 0, 0] == pytest.approx(2.0)


def test_a_path_covers_prices_from_0_up():
    path = lz.eta_path(MODEL.mdp, MODEL.default)
    for question in (path.action_at, path.value_at, path.control_count_at):
        with pytest.raises(ValueError, match=r"eta is -0\.1, but the path covers prices from 0 up. Use `solve`"):
            question(-0.1)
    assert path.critical_eta.min() >= 0.0
    assert min(lz.eta_min(MODEL.mdp, MODEL.default), lz.eta_max(MODEL.mdp, MODEL.default)) >= 0.0


def test_the_command_line_takes_a_negative_price(capsys):
    assert main(["solve", "FrozenLake-v1", "--eta", "-0.5", "--json"]) == 0
    assert '"control_states": 11' in capsys.readouterr().out


@pytest.mark.parametrize("eta", [np.nan, np.inf, -np.inf, -1e101])
def test_a_single_price_is_finite_everywhere(eta):
    path = lz.eta_path(MODEL.mdp, MODEL.default)
    lazy = lz.LazyMDP(MODEL.mdp, MODEL.default, 0.1)
    single = lz.LazyAction(lake(), default_policy=0)
    several = lake_vector(0.0)
    for question in (
        lambda: lz.LazyMDP(MODEL.mdp, MODEL.default, eta),
        lambda: lazy.with_eta(eta),
        lambda: lz.LazyAction(lake(), default_policy=0, eta=eta),
        lambda: single.set_eta(eta),
        lambda: lake_vector([0.0, eta]),
        lambda: several.set_eta(eta),
        lambda: lz.learn.q_learning(MODEL.mdp, eta=eta, episodes=1),
        lambda: lz.learn.sarsa(MODEL.mdp, eta=[0.0, eta], episodes=1),
        lambda: path.value_at(eta),
    ):
        with pytest.raises(ValueError, match="eta is (nan|inf|-inf|-1e[+]101)"):
            question()
    several.close()
