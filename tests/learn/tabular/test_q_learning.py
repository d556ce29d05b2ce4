"""Tabular learners: they run, they learn the exact answer, they are deterministic, and the paper's Fig. 7 comes out."""

import inspect

import gymnasium as gym
import numpy as np
import pytest
from random_models import random_model

import lazymdp as lz
from lazymdp.envs import KeyDoorTreasure, RiversAndBridges
from lazymdp.learn import estimate_eta_max, estimate_eta_min, q_learning, sarsa


def small():
    model = random_model(3, n_states=5, n_actions=3, gamma=0.8, n_absorbing=1)
    return model.mdp, model.default


DECAYING = dict(alpha=1.0, alpha_power=0.85, epsilon=0.5, final_epsilon=0.5)


@pytest.mark.parametrize("backup", ["augmented", "structured"])
@pytest.mark.parametrize("eta", [0.0, 0.1, 0.4])
def test_q_learning_finds_the_exact_values(backup, eta):
    mdp, default = small()
    exact = lz.solve(lz.LazyMDP(mdp, default, eta))
    found = q_learning(mdp, default, eta, episodes=400_000, backup=backup, **DECAYING)
    alive = ~mdp.absorbing
    q = found.q[0, 0]
    np.testing.assert_allclose(q[alive, : mdp.n_actions], exact.q[alive], atol=0.04)
    if backup == "augmented":
        lazy_value = (default * exact.q).sum(axis=1) + eta
        np.testing.assert_allclose(q[alive, -1], lazy_value[alive], atol=0.04)
    clear = alive & (np.abs(exact.lazy_gap - eta) > 0.1)
    np.testing.assert_array_equal(found.action[0, 0][clear] < mdp.n_actions, exact.control[clear])


def exact_start(mdp):
    """Every state that is not absorbing equally likely at the start: every entry is visited often."""
    return lz.MDP(mdp.transitions, mdp.rewards, mdp.gamma)


@pytest.mark.parametrize("backup", ["augmented", "structured"])
@pytest.mark.parametrize(("world", "eta", "scale"), [(KeyDoorTreasure, 0.03, 1.0), (RiversAndBridges, 5.0, 100.0)])
def test_both_backups_converge_on_both_worlds(world, eta, scale, backup):
    mdp = exact_start(lz.MDP.from_gymnasium(world(), 0.99))
    default = lz.policies.uniform(mdp)
    exact = lz.solve(lz.LazyMDP(mdp, default, eta))
    found = q_learning(
        mdp, default, eta, alpha=1.0, alpha_power=0.5, epsilon=0.7, final_epsilon=0.7, episodes=400_000, backup=backup
    )
    alive = ~mdp.absorbing
    error = np.abs(found.q[0, 0, alive, :4] - exact.q[alive]).max() / scale
    assert error < 0.01


def test_structured_learns_more_from_the_same_steps():
    """The paper's step size, 10,000 episodes, ten seeds: the structured backup's error is a tenth or less."""
    mdp = exact_start(lz.MDP.from_gymnasium(KeyDoorTreasure(), 0.99))
    exact = lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.03))
    alive, error, steps = ~mdp.absorbing, {}, {}
    for backup in ("augmented", "structured"):
        found = q_learning(
            mdp, None, 0.03, alpha=0.5, epsilon=0.5, final_epsilon=0.5, episodes=10_000, seed=range(10), backup=backup
        )
        error[backup] = np.abs(found.q[0][:, alive, :4] - exact.q[alive]).mean()
        steps[backup] = found.steps
    assert error["structured"] < 0.1 * error["augmented"]
    assert steps["structured"] < 1.2 * steps["augmented"]


def test_plain_q_learning_is_the_base_optimum():
    mdp, default = small()
    exact = lz.solve(lz.LazyMDP(mdp, default, 0.0))
    found = q_learning(mdp, lazy=False, episodes=400_000, **DECAYING)
    alive = ~mdp.absorbing
    np.testing.assert_allclose(found.q[0, 0][alive], exact.q[alive], atol=0.04)
    assert found.q.shape[-1] == mdp.n_actions
    np.testing.assert_array_equal(found.control_frequency, 1.0)


@pytest.mark.parametrize("backup", ["augmented", "structured"])
def test_sarsa_values_its_own_exploration(backup):
    """With full exploration the policy is fixed (uniform over A + 1 choices), and SARSA's values are its values."""
    mdp, default = small()
    eta, plus = 0.2, np.full((5, 4), 0.25)
    lazy = lz.LazyMDP(mdp, default, eta)
    value = lz.evaluate(lazy, plus).value
    q = mdp.rewards - eta + mdp.gamma * (mdp.transitions @ value).reshape(5, 3)
    found = sarsa(
        mdp, default, eta, episodes=100_000, epsilon=1.0, final_epsilon=1.0, alpha=1.0, alpha_power=0.7, backup=backup
    )
    alive = ~mdp.absorbing
    np.testing.assert_allclose(found.q[0, 0][alive, :3], q[alive], atol=0.05)


def test_any_environment_with_discrete_spaces_learns_the_same():
    """An environment without `P` takes the slow path; the same updates, the same answer."""

    class Hidden(gym.Env):
        observation_space = gym.spaces.Discrete(3)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.state = 0
            return 0, {}

        def step(self, action):
            self.state += 1 if action == 1 or self.np_random.random() < 0.3 else 0
            return self.state, float(self.state == 2), self.state == 2, False, {}

    transitions = np.zeros((3, 2, 3))
    for s in range(2):
        transitions[s, 0, s], transitions[s, 0, s + 1], transitions[s, 1, s + 1] = 0.7, 0.3, 1.0
    transitions[2, :, 2] = 1.0
    mdp = lz.MDP(transitions, [[0, 0], [0.3, 1.0], [0, 0]], 0.9, start=0)
    options = dict(eta=0.05, gamma=0.9, episodes=3_000, max_steps=50, event=np.array([False, True, False]), **DECAYING)
    slow, fast = q_learning(Hidden(), **options), q_learning(mdp, **options)
    np.testing.assert_allclose(slow.q, fast.q, atol=0.1)
    assert slow.score.shape == fast.score.shape
    np.testing.assert_allclose(slow.occupancy, fast.occupancy, atol=0.1)
    np.testing.assert_allclose(slow.occupancy_before[0, 0], [1.0, 0.0, 0.0])
    again = q_learning(Hidden(), **options)
    np.testing.assert_array_equal(slow.q, again.q)


def test_environments_with_a_table_take_the_fast_path():
    env = gym.make("FrozenLake-v1")
    mdp = lz.MDP.from_gymnasium(env, 0.99)
    options = dict(eta=0.01, episodes=200)
    np.testing.assert_array_equal(q_learning(env, **options).q, q_learning(mdp, **options).q)


# -- seeds ---------------------------------------------------------------------------------------------------------


def test_a_run_depends_on_its_seed_and_on_nothing_else():
    mdp, default = small()
    options = dict(episodes=500, max_steps=100)
    one = q_learning(mdp, default, [0.1, 0.3], seed=[7, 8, 9], workers=1, **options)
    many = q_learning(mdp, default, [0.1, 0.3], seed=[7, 8, 9], workers=4, **options)
    for name in ("q", "score", "control_frequency", "episode_length", "occupancy", "visits"):
        np.testing.assert_array_equal(getattr(one, name), getattr(many, name))
    alone = q_learning(mdp, default, 0.3, seed=8, **options)
    np.testing.assert_array_equal(alone.q[0, 0], one.q[1, 1])
    assert not np.array_equal(one.q[0, 0], one.q[0, 1])
    coarse = q_learning(mdp, default, 0.3, seed=8, points=7, **options)
    np.testing.assert_array_equal(alone.q, coarse.q)  # how often the curves are read changes nothing


GRID_RUNS = {"structured": {}, "augmented": dict(backup="augmented"), "no lazy action": dict(lazy=False)}


@pytest.mark.parametrize("kind", GRID_RUNS)
def test_the_loops_compiled_for_speed_give_what_the_general_one_gives(kind):
    """An event is counted by the general loop; with one point of the curves, in the whole run. It changes nothing."""
    world = KeyDoorTreasure(apple=True)
    mdp = lz.MDP.from_gymnasium(world, 0.99)
    options = dict(eta=[0.03, 0.05], seed=range(3), episodes=3_000, max_steps=200, workers=1, **GRID_RUNS[kind])
    general = q_learning(mdp, points=1, event=world.has_key, **options)
    fast = q_learning(mdp, points=1, **options)
    for name in ("q", "visits", "action", "score", "control_frequency", "episode_length", "occupancy"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(general, name))
    assert fast.visits.sum() == fast.steps
    alone = q_learning(mdp, points=7, **options | dict(eta=0.05, seed=1))  # not beside another run, read more often
    np.testing.assert_array_equal(alone.q[0, 0], fast.q[1, 1])


@pytest.mark.parametrize("kind", GRID_RUNS)
@pytest.mark.parametrize("world", ["grid", "random"])
def test_what_is_greedy_is_what_the_values_say(kind, world):
    """What is greedy is kept beside the values and seldom looked for anew; here it is, at many times."""
    mdp = lz.MDP.from_gymnasium(KeyDoorTreasure(apple=True), 0.99) if world == "grid" else small()[0]
    eta = 0.03 if kind != "no lazy action" else 0.0
    for episodes in (1, 2, 5, 10, 30, 100, 300, 1_000, 3_000):
        options = dict(
            epsilon=0.3, final_epsilon=0.3, seed=range(8), episodes=episodes, max_steps=200, **GRID_RUNS[kind]
        )
        found = q_learning(mdp, eta=eta, **options)
        q, alive = found.q[0], ~mdp.absorbing
        control, first = q[..., : mdp.n_actions].max(axis=-1), q[..., : mdp.n_actions].argmax(axis=-1)
        lazy_value = {"augmented": q[..., -1], "no lazy action": np.full(first.shape, -np.inf)}.get(
            kind, q.mean(axis=-1) + eta
        )
        clear = (np.abs(lazy_value - control) > 1e-12) | (kind == "augmented")  # the mean is rounded in another order
        right = np.where(lazy_value >= control, mdp.n_actions, first)
        np.testing.assert_array_equal(found.action[0][clear & alive], right[clear & alive])


def test_where_an_episode_ends_at_its_start_it_has_no_steps():
    mdp, default = small()
    start = np.full(5, 0.1)
    start[mdp.absorbing] = 0.6
    ending = lz.MDP(mdp.transitions, mdp.rewards, mdp.gamma, start, mdp.absorbing)
    found = q_learning(ending, default, 0.1, seed=range(4), episodes=20_000, workers=1)
    whole = q_learning(exact_start(mdp), default, 0.1, seed=range(4), episodes=20_000, workers=1)
    assert found.episode_length.mean() == pytest.approx(0.4 * whole.episode_length.mean(), rel=0.05)
    assert found.visits[:, :, mdp.absorbing].sum() == 0


def test_global_random_numbers_are_left_alone():
    mdp, default = small()
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    q_learning(mdp, default, 0.1, episodes=50)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


# -- the paper's experiment ----------------------------------------------------------------------------------------


def test_fig_7_the_apple_distracts_unless_acting_costs():
    world = KeyDoorTreasure(apple=True)
    mdp = lz.MDP.from_gymnasium(world, 0.99)
    paper = dict(alpha=0.5, epsilon=0.1, episodes=100_000, max_steps=1_000, backup="augmented", event=world.has_key)
    seeds = range(100)
    plain = q_learning(mdp, lazy=False, seed=seeds, **paper)
    assert plain.score[0, :, -1].mean() <= 0.12
    lazy = q_learning(mdp, None, [0.03, 0.05], seed=seeds, **paper)
    assert lazy.score[0, :, -1].mean() >= 0.95
    assert lazy.control_frequency[1, :, -1].mean() < 0.10
    # Before the key: plain stays around the apple, in its room; at 0.03 the way to the key is walked.
    room = np.array([row < 6 and column < 6 for row, column in world.cells])
    assert plain.occupancy_before[0, :, room].sum(axis=0).mean() > 0.95
    assert lazy.occupancy_before[0, :, ~room].sum(axis=0).mean() > 0.3
    assert (plain.occupancy_before[..., world.has_key] == 0).all()


# -- estimates -----------------------------------------------------------------------------------------------------


def test_estimates_of_the_bounds_approach_the_exact_ones():
    mdp, default = small()
    found = estimate_eta_max(mdp, default, episodes=60_000)
    assert found.value == pytest.approx(lz.eta_max(mdp, default), rel=0.05)
    assert found.visits > 100
    assert found.gaps[found.state] == found.value
    assert np.isnan(found.gaps[mdp.absorbing]).all()
    bottom = estimate_eta_min(mdp, default, episodes=60_000)
    assert bottom.value == pytest.approx(lz.eta_min_theorem(mdp, default).value, rel=0.1, abs=0.02)
    assert bottom.visits > 100


def test_estimates_on_key_door_treasure():
    mdp = exact_start(lz.MDP.from_gymnasium(KeyDoorTreasure(), 0.99))
    found = estimate_eta_max(mdp, episodes=50_000)
    assert found.value == pytest.approx(0.3112, rel=0.1)


def test_estimates_need_every_action_tried():
    mdp, default = small()
    with pytest.raises(ValueError, match="no state had all its actions tried"):
        estimate_eta_max(mdp, default, episodes=1, max_steps=1)


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
    "backup": (dict(backup="both"), "backup is 'both', expected one of 'structured', 'augmented'"),
    "eta": (dict(eta=np.nan), "eta is nan"),
    "default": (dict(default_policy=np.ones((5, 3))), "default_policy in state 0 sums to 3"),
    "event": (dict(event=[True]), "event has shape"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("learner", [q_learning, sarsa])
def test_bad_settings(case, learner):
    wrong, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        learner(small()[0], **wrong)


def test_unsuitable_environments_are_refused():
    with pytest.raises(ValueError, match="Discrete observations that start at 0"):
        q_learning(gym.make("CartPole-v1"))
    with pytest.raises(TypeError, match="expected an MDP or a Gymnasium environment, got int"):
        q_learning(3)


def test_an_error_in_the_environment_comes_out():
    class Broken(gym.Env):
        observation_space = action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return 0, {}

        def step(self, action):
            raise RuntimeError("the robot fell over")

    with pytest.raises(RuntimeError, match="the robot fell over"):
        q_learning(Broken(), seed=range(5), episodes=3)


def test_progress_and_signature():
    mdp, default = small()
    seen = []
    q_learning(mdp, default, [0.1, 0.2], seed=[0, 1], episodes=40, points=4, progress=lambda *at: seen.append(at))
    assert seen[-1] == (160, 160)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert list(inspect.signature(sarsa).parameters)[:3] == ["source", "default_policy", "eta"]
    assert "TabularResult(2 seeds" in repr(q_learning(mdp, default, 0.1, seed=[0, 1], episodes=10))
