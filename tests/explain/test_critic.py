"""The critic: exact values are recovered in a small world, and its report about itself is honest."""

import gymnasium as gym
import numpy as np
import pytest

import lazymdp as lz
from lazymdp.explain import critic
from lazymdp.explain.critic import fit_critic
from lazymdp.explain.players import OtherPlayer

GAMMA = 0.9


@pytest.fixture(scope="module")
def lake():
    env = gym.make("FrozenLake-v1", is_slippery=False)
    mdp = lz.MDP.from_gymnasium(env, GAMMA)
    policy = lz.policies.optimal(mdp).argmax(axis=1)
    return env, mdp, policy


def player(lake, agent=None, eta=None, lazy=False):
    env, _, policy = lake
    base = lz.LazyAction(env, "uniform", eta) if lazy else env
    return OtherPlayer(agent or (lambda state: int(policy[state])), base, eta, None, "walker")


def test_values_of_an_agent_in_a_small_world(lake):
    _, mdp, policy = lake
    fitted = fit_critic(player(lake), gamma=GAMMA, steps=4000, updates=3000)
    exact = lz.solve(lz.LazyMDP(mdp, np.eye(4)[policy], 0.0)).q  # the value of the agent, which is optimal
    alive = np.flatnonzero(~mdp.absorbing)
    found = fitted.q(alive)
    assert found.shape == (alive.size, 4)
    assert np.abs(found - exact[alive]).max() < 0.15
    assert np.corrcoef(found.ravel(), exact[alive].ravel())[0, 1] > 0.97
    about = fitted.about
    assert about["correlation"] > 0.95 and about["td_error"] < 0.1 < about["value_spread"] and about["returns"] > 100


def test_the_same_seed_gives_the_same_critic(lake):
    one, again, other = (fit_critic(player(lake), gamma=GAMMA, steps=300, updates=20, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.q(np.arange(16)), again.q(np.arange(16)))
    assert one.about == again.about != other.about


def test_the_price_is_part_of_the_values(lake):
    """An agent that always takes control pays the price on every step; one that is always lazy never does."""
    _, mdp, policy = lake
    paying = fit_critic(player(lake, eta=0.1), gamma=GAMMA, steps=3000, updates=2500).q(np.array([0]))
    steps = 6
    wanted = GAMMA ** (steps - 1) - 0.1 * (1 - GAMMA**steps) / (1 - GAMMA)
    assert paying[0, policy[0]] == pytest.approx(wanted, abs=0.1)
    lazy = fit_critic(player(lake, lambda state: 4, eta=0.1, lazy=True), gamma=GAMMA, steps=3000, updates=2500)
    evaluated = lz.evaluate(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.1), np.full(16, 4)).value
    assert lazy.q(np.array([0])).mean() + 0.1 == pytest.approx(evaluated[0], abs=0.1)


def test_n_step_returns_end_before_the_next_random_action():
    episode = critic._Episode(
        seen=np.arange(6.0)[:, None], action=np.array([0, 1, 0, 1, 0]), own=np.array([0, 0, 0, 0, 0, 1]),
        random=np.array([True, False, False, True, False]), reward=np.array([1.0, 2.0, 4.0, 8.0, 16.0]),
        default=np.full((6, 2), 0.5), terminated=True,
    )  # fmt: skip
    data = critic._sample([episode], 0.5, 20)
    np.testing.assert_allclose(data.gain, [1 + 1 + 1, 2 + 2, 4, 8 + 8, 16])
    np.testing.assert_allclose(data.weight, [0.125, 0.25, 0.5, 0.0, 0.0])
    np.testing.assert_array_equal(data.after[:3, 0], 3.0)
    short = critic._sample([episode._replace(terminated=False)], 0.5, 1)
    np.testing.assert_allclose(short.gain, episode.reward)
    np.testing.assert_allclose(short.weight, 0.5)


def test_values_of_choices():
    q = np.array([[1.0, 3.0], [1.0, 3.0]])
    found = critic._values(q, np.array([0, 2]), np.array([[np.nan, np.nan], [0.25, 0.75]]), 0.5)
    np.testing.assert_allclose(found, [1.0, 0.25 + 2.25 + 0.5])


def test_a_recording_with_a_critic(tmp_path, lake, monkeypatch):
    pytest.importorskip("pyarrow")
    fit = critic.fit_critic
    monkeypatch.setattr(critic, "fit_critic", lambda *given, **options: fit(*given, **options, steps=600, updates=200))
    env, _, policy = lake
    with pytest.warns(UserWarning, match="without frames"):
        recording = lz.explain.record(
            lambda state: int(policy[state]), env, folder=tmp_path / "r", critic="fit", gamma=GAMMA
        )
    assert recording.about["critic"]["gamma"] == GAMMA and "td_error" in recording.about["critic"]
    assert recording.about["action_names"] == ["left", "down", "right", "up"]  # also of an environment that is given
    steps = recording.steps(0)
    own = steps["q"][np.arange(len(steps["q"])), steps["action"]]
    np.testing.assert_allclose(steps["value"], own)
    np.testing.assert_allclose(steps["lazy_gap"], own - steps["q"].mean(axis=1))
    assert lz.explain.rank(recording, "highlights").score[0].min() >= 0


def test_observations_that_do_not_fit():
    env = gym.make("CartPole-v1")
    env.observation_space = gym.spaces.Box(0, 1, (100, 100))
    with pytest.raises(ValueError, match="observations are 10000 numbers, expected at most 5000"):
        fit_critic(OtherPlayer(lambda observation: 0, env, None, None, None))
