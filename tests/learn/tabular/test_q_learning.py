"""Tabular learners: they learn the exact answer, Fig. 7 of the paper comes out, and bad input is refused."""

import csv
import inspect

import numpy as np
import pytest
from tabular_models import DECAYING, small, uniform_start

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure, RiversAndBridges
from lazymdp.learn import q_learning, sarsa


@pytest.mark.learning
@pytest.mark.parametrize("form", ["augmented", "structured"])
@pytest.mark.parametrize("eta", [0.0, 0.1, 0.4])
def test_q_learning_finds_the_exact_values(form, eta, seed):
    mdp, default_policy = small()
    exact = lz.solve(lz.LazyMDP(mdp, default_policy, eta))
    found = q_learning(mdp, default_policy, eta, seed=seed, episodes=400_000, form=form, **DECAYING)
    alive = ~mdp.absorbing
    q = found.q[0, 0]
    np.testing.assert_allclose(q[alive, : mdp.n_actions], exact.q[alive], atol=0.04)
    if form == "augmented":
        lazy_value = (default_policy * exact.q).sum(axis=1) + eta
        np.testing.assert_allclose(q[alive, -1], lazy_value[alive], atol=0.04)
    clear = alive & (np.abs(exact.lazy_gap - eta) > 0.1)
    np.testing.assert_array_equal(found.action[0, 0][clear] < mdp.n_actions, exact.control[clear])


@pytest.mark.learning
@pytest.mark.parametrize("form", ["augmented", "structured"])
@pytest.mark.parametrize(("world", "eta", "scale"), [(KeyDoorTreasure, 0.03, 1.0), (RiversAndBridges, 5.0, 100.0)])
def test_both_forms_converge_on_both_worlds(world, eta, scale, form, seed):
    mdp = uniform_start(lz.MDP.from_gymnasium(world(), 0.99))
    default_policy = lz.policies.uniform(mdp)
    exact = lz.solve(lz.LazyMDP(mdp, default_policy, eta))
    found = q_learning(
        mdp, default_policy, eta, alpha=1.0, alpha_power=0.5, epsilon=0.7, final_epsilon=0.7, episodes=400_000,
        form=form, seed=seed,
    )  # fmt: skip
    alive = ~mdp.absorbing
    error = np.abs(found.q[0, 0, alive, :4] - exact.q[alive]).max() / scale
    assert error < 0.01


@pytest.mark.learning
def test_structured_learns_more_from_the_same_steps(seed):
    """With the paper's step size and 10,000 episodes, the error of the structured form is at most a tenth."""
    mdp = uniform_start(lz.MDP.from_gymnasium(KeyDoorTreasure(), 0.99))
    exact = lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.03))
    alive, error, steps = ~mdp.absorbing, {}, {}
    for form in ("augmented", "structured"):
        found = q_learning(
            mdp, None, 0.03, alpha=0.5, epsilon=0.5, final_epsilon=0.5, episodes=10_000, form=form,
            seed=range(10 * seed, 10 * seed + 10),
        )  # fmt: skip
        error[form] = np.abs(found.q[0][:, alive, :4] - exact.q[alive]).mean()
        steps[form] = found.steps
    assert error["structured"] < 0.1 * error["augmented"]
    assert steps["structured"] < 1.2 * steps["augmented"]


@pytest.mark.learning
def test_plain_q_learning_is_the_base_optimum(seed):
    mdp, default_policy = small()
    exact = lz.solve(lz.LazyMDP(mdp, default_policy, 0.0))
    found = q_learning(mdp, lazy=False, seed=seed, episodes=400_000, **DECAYING)
    alive = ~mdp.absorbing
    np.testing.assert_allclose(found.q[0, 0][alive], exact.q[alive], atol=0.04)
    assert found.q.shape[-1] == mdp.n_actions
    np.testing.assert_array_equal(found.control_rate, 1.0)


@pytest.mark.learning
@pytest.mark.parametrize("form", ["augmented", "structured"])
def test_a_negative_price_is_a_bonus_for_acting(form, seed):
    """The agent then takes control in every state."""
    mdp, default_policy = small()
    exact = lz.solve(lz.LazyMDP(mdp, default_policy, -0.2))
    found = q_learning(mdp, default_policy, -0.2, seed=seed, episodes=400_000, form=form, **DECAYING)
    alive = ~mdp.absorbing
    np.testing.assert_allclose(found.q[0, 0][alive, : mdp.n_actions], exact.q[alive], atol=0.04)
    assert (found.action[0, 0][alive] < mdp.n_actions).all()


@pytest.mark.learning
@pytest.mark.parametrize("form", ["augmented", "structured"])
def test_sarsa_values_its_own_exploration(form, seed):
    """With full exploration the policy is fixed (uniform over A + 1 choices), and SARSA's values are its values."""
    mdp, default_policy = small()
    eta, plus = 0.2, np.full((5, 4), 0.25)
    lazy = lz.LazyMDP(mdp, default_policy, eta)
    value = lz.evaluate(lazy, plus).value
    q = mdp.rewards - eta + mdp.gamma * (mdp.transitions @ value).reshape(5, 3)
    found = sarsa(
        mdp, default_policy, eta, episodes=100_000, epsilon=1.0, final_epsilon=1.0, alpha=1.0, alpha_power=0.7,
        form=form, seed=seed,
    )  # fmt: skip
    alive = ~mdp.absorbing
    np.testing.assert_allclose(found.q[0, 0][alive, :3], q[alive], atol=0.05)


def test_an_episode_that_starts_in_an_absorbing_state_has_no_steps():
    mdp, default_policy = small()
    start = np.full(5, 0.1)
    start[mdp.absorbing] = 0.6
    ending = lz.MDP(mdp.transitions, mdp.rewards, mdp.gamma, start, mdp.absorbing)
    found = q_learning(ending, default_policy, 0.1, seed=range(4), episodes=20_000, workers=1)
    whole = q_learning(uniform_start(mdp), default_policy, 0.1, seed=range(4), episodes=20_000, workers=1)
    assert found.episode_length.mean() == pytest.approx(0.4 * whole.episode_length.mean(), rel=0.05)
    assert found.visits[:, :, mdp.absorbing].sum() == 0


# -- the paper's experiment ----------------------------------------------------------------------------------------


@pytest.mark.learning
def test_fig_7_the_apple_distracts_unless_acting_costs(seed):
    world = KeyDoorTreasure(apple=True)
    mdp = lz.MDP.from_gymnasium(world, 0.99)
    paper = dict(alpha=0.5, epsilon=0.1, episodes=100_000, max_steps=1_000, form="augmented")
    seeds = range(100 * seed, 100 * seed + 100)
    plain = q_learning(mdp, lazy=False, seed=seeds, **paper)
    assert plain.mean_return[0, :, -1].mean() <= 0.12
    lazy = q_learning(mdp, None, [0.03, 0.05], seed=seeds, **paper)
    assert lazy.mean_return[0, :, -1].mean() >= 0.95
    assert lazy.control_rate[1, :, -1].mean() < 0.10

    def room_share(result):
        """The share of the steps without the key that a run at the first price spends in the room of the apple."""
        room = np.array([row < 6 and column < 6 for row, column in world.cells])
        without_key = result.occupancy[0][:, ~world.has_key]
        return (without_key[:, room[~world.has_key]].sum(axis=1) / without_key.sum(axis=1)).mean()

    # Before the key, the plain learner stays near the apple. At eta = 0.03 the agent walks to the key.
    assert room_share(plain) > 0.95
    assert room_share(lazy) < 0.7


# -- results -------------------------------------------------------------------------------------------------------


def test_results_print_in_a_line_and_curves_are_written_as_csv(tmp_path):
    mdp, default_policy = small()
    result = q_learning(mdp, default_policy, [0.1, 0.2], seed=[4, 7], episodes=30, points=3)
    assert "TabularResult(2 seeds" in repr(result) and repr(result).count("\n") == 0
    result.to_csv(tmp_path / "curves.csv")
    with open(tmp_path / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["eta", "seed", "episode", "mean_return", "control_rate", "episode_length"]
    assert len(rows) == 2 * 2 * 3
    assert [(float(row["eta"]), int(row["seed"]), int(row["episode"])) for row in rows[2:5]] == [
        (0.1, 4, 30),
        (0.1, 7, 10),
        (0.1, 7, 20),
    ]
    for name in ("mean_return", "control_rate", "episode_length"):
        np.testing.assert_array_equal([float(row[name]) for row in rows], getattr(result, name).ravel())


def test_both_learners_have_the_same_signature():
    assert inspect.signature(sarsa) == inspect.signature(q_learning)
    assert list(inspect.signature(sarsa).parameters)[:3] == ["source", "default_policy", "eta"]
    assert not any(name.startswith("_") for name in inspect.signature(sarsa).parameters)


# -- bad input -----------------------------------------------------------------------------------------------------

BAD = {
    "gamma": (dict(gamma=1.5), "gamma is 1.5"),
    "alpha 0": (dict(alpha=0.0), "alpha is 0.0"),
    "alpha nan": (dict(alpha=np.nan), "alpha is nan"),
    "alpha_power": (dict(alpha_power=2.0), "alpha_power is 2.0"),
    "epsilon": (dict(epsilon=-0.1), "epsilon is -0.1"),
    "growing epsilon": (dict(epsilon=0.1, final_epsilon=0.5), "final_epsilon is 0.5, above"),
    "episodes": (dict(episodes=0), "episodes is 0"),
    "max_steps": (dict(max_steps=0), "max_steps is 0"),
    "points": (dict(points=0), "points is 0"),
    "form": (dict(form="both"), "form is 'both', expected one of 'structured', 'augmented'"),
    "eta": (dict(eta=np.nan), "eta is nan"),
    "default": (dict(default_policy=np.ones((5, 3))), "default_policy in state 0 sums to 3"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("learner", [q_learning, sarsa])
def test_bad_settings(case, learner):
    wrong, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        learner(small()[0], **wrong)
