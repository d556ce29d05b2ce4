"""Models read from the transition table `P` of a Gymnasium environment."""

import gymnasium as gym
import numpy as np
import pytest

import lazymdp as lz


def test_frozen_lake_keeps_its_states():
    env = gym.make("FrozenLake-v1")
    mdp = lz.MDP.from_gymnasium(env, 0.99)
    assert (mdp.n_states, mdp.n_actions) == (16, 4)
    np.testing.assert_array_equal(np.flatnonzero(mdp.absorbing), [5, 7, 11, 12, 15])
    assert mdp.start[0] == 1.0
    # Slipping against the wall: the same next state comes twice in the table and adds up.
    entries = env.unwrapped.P[0][0]
    assert [t[1] for t in entries].count(0) == 2
    assert mdp.transitions[[0]].toarray()[0, 0] == pytest.approx(2 / 3)


def test_cliff_walking_ends_at_the_goal_though_its_table_goes_on():
    env = gym.make("CliffWalking-v1")
    assert not env.unwrapped.P[47][0][0][3]  # the table leaves the goal
    mdp = lz.MDP.from_gymnasium(env, 0.99)
    assert mdp.n_states == 48
    np.testing.assert_array_equal(np.flatnonzero(mdp.absorbing), [47])
    solution = lz.solve(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.0))
    assert solution.value[36] == pytest.approx(-(1 - 0.99**13) / (1 - 0.99))  # the 13 steps of the cliff's edge


def test_taxi_gets_one_terminal_state():
    mdp = lz.MDP.from_gymnasium(gym.make("Taxi-v4"), 0.99)
    assert mdp.n_states == 501
    np.testing.assert_array_equal(np.flatnonzero(mdp.absorbing), [500])


def test_names_come_along_and_an_env_without_table_is_refused():
    mdp = lz.MDP.from_gymnasium(gym.make("lazymdp/KeyDoorTreasure-v0"), 0.99)
    assert mdp.describe_state(21) == "state 21 (row 3, column 2), without key"
    assert mdp.action_names == ("up", "right", "down", "left")
    with pytest.raises(ValueError, match="CartPoleEnv carries no transition table"):
        lz.MDP.from_gymnasium(gym.make("CartPole-v1"), 0.99)


class Table(gym.Env):
    action_space = gym.spaces.Discrete(1)

    def __init__(self, table):
        self.P = table


def test_a_broken_table_names_the_entry():
    with pytest.raises(ValueError, match="state 0, action 0 holds .*: it leads to state 7, expected 0 to 0"):
        lz.MDP.from_gymnasium(Table({0: {0: [(1.0, 7, 0.0, False)]}}), 0.9)
    with pytest.raises(ValueError, match="state 1, action 0 has no entry"):
        lz.MDP.from_gymnasium(Table({0: {0: [(1.0, 0, 0.0, False)]}, 1: {}}), 0.9)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, "a table `P` of 0 states"),
        ({1: {0: [(1.0, 1, 0.0, False)]}}, "state 0, action 0 has no entry"),
        ({0: {0: [(1.0, 0, 0.0)]}}, r"holds \(1.0, 0, 0.0\), expected \(probability"),
        ({0: {0: [(1.0, None, 0.0, False)]}}, "holds"),
        ({0: {0: [(1.0, 0.7, 0.0, False)]}}, r"leads to state 0\.7"),
        ({0: {0: [(1.0, 0, 0.0, "no")]}}, r"state 0, action 0 holds \(1.0, 0, 0.0, 'no'\), .* and True or False"),
        ({0: {0: [(1.0, 0, 0.0, None)]}}, "True or False"),
        ({0: {0: [("1", 0, 0.0, False)]}}, r"holds \('1', 0, 0.0, False\), .* three finite numbers"),
        ({0: {0: [(1.0, "0", 0.0, False)]}}, "three finite numbers"),
        ({0: {0: [(1.0, 0, "2.5", False)]}}, "three finite numbers"),
        ({0: {0: [(1.0, 0, 1j, False)]}}, "three finite numbers"),
        ({0: {0: [(1.0, 0, float("nan"), False)]}}, "three finite numbers"),
        ({0: {0: [(float("nan"), 0, 0.0, False)]}}, "three finite numbers"),
        (
            {0: {0: [(-0.5, 0, 0.0, False), (1.5, 0, 0.0, False)]}},
            r"the probability is -0\.5, expected a number from",
        ),
        ({0: {0: [(1.0, float("inf"), 0.0, False)]}}, "three finite numbers"),
        ({0: {0: []}}, "has no transitions"),
    ],
)
def test_odd_tables_are_refused_with_their_place(table, message):
    with pytest.raises(ValueError, match=message):
        lz.MDP.from_gymnasium(Table(table), 0.9)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, int, bool, np.array])
def test_tables_of_other_types_are_read(kind):
    table = {0: {0: [(kind(1), kind(1), kind(1), np.True_)]}, 1: {0: [(1.0, 1, 0.0, 1)]}}
    mdp = lz.MDP.from_gymnasium(Table(table), 0.5)
    np.testing.assert_array_equal(mdp.transitions.toarray(), [[0, 1], [0, 1]])
    np.testing.assert_array_equal(mdp.rewards, [[1.0], [0.0]])


@pytest.mark.parametrize(("start", "message"), [(["1"], "are of type"), ([0.5, 0.5], r"shape \(2,\), expected \[1\]")])
def test_an_odd_initial_distribution_is_refused(start, message):
    env = Table({0: {0: [(1.0, 0, 0.0, False)]}})
    env.initial_state_distrib = start
    with pytest.raises(ValueError, match=f"initial_state_distrib.*{message}"):
        lz.MDP.from_gymnasium(env, 0.9)


def test_an_impossible_end_adds_no_terminal_state():
    table = {0: {0: [(1.0, 1, 0.0, False), (0.0, 0, 0.0, True)]}, 1: {0: [(1.0, 0, 1.0, False)]}}
    assert lz.MDP.from_gymnasium(Table(table), 0.9).n_states == 2


def test_a_state_that_is_entered_both_ways_gets_a_terminal_one():
    table = {
        0: {0: [(0.5, 1, 1.0, True), (0.5, 1, 0.0, False)]},
        1: {0: [(1.0, 0, 2.0, False)]},
    }
    mdp = lz.MDP.from_gymnasium(Table(table), 0.5)
    np.testing.assert_allclose(mdp.transitions.toarray(), [[0, 0.5, 0.5], [1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(mdp.rewards, [[0.5], [2.0], [0.0]])
