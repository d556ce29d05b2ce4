"""Episodes in compiled environments: they follow from their seed, and chosen steps are handed over."""

import numpy as np
import pytest

pytest.importorskip("jax")

from lazymdp import MDP
from lazymdp.experiments.compiled_play import CompiledPlayer
from lazymdp.learn.deep.jax_env import from_mdp
from lazymdp.measure.fidelity_score import changes_of_return
from lazymdp.measure.handover import DEFAULT


@pytest.fixture(scope="module")
def player():
    """A corridor of 6 states; action 1 moves on and earns 1, action 0 stays."""
    moves = np.zeros((6, 2, 6))
    for state in range(5):
        moves[state, 0, state] = moves[state, 1, state + 1] = 1.0
    moves[5, :, 5] = 1.0
    rewards = np.zeros((6, 2))
    rewards[:5, 1] = 1.0
    mdp = MDP(moves, rewards, 0.9, start=0)
    return CompiledPlayer(from_mdp(mdp), lambda seen: np.ones(len(seen), dtype=int), 20)


def test_the_agent_alone(player):
    episodes = player.play([3, 4], None, lambda seen: np.arange(float(len(seen))))
    assert [one.total for one in episodes] == [5.0, 5.0] and [len(one.actions) for one in episodes] == [5, 5]
    np.testing.assert_array_equal(episodes[1].importance, 1.0)
    assert not episodes[0].handed.any()


def test_steps_that_are_handed_over(player):
    def rule(step, episodes, scores):
        return np.where(episodes == 1, DEFAULT, 0)

    alone, handed = player.play([3, 4], rule)
    again = player.play([3, 4], rule)[1]
    assert alone.total == 5.0 and handed.handed.all() and set(handed.actions) == {0, 1}
    np.testing.assert_array_equal(handed.actions, again.actions)


def test_recorded_actions_are_repeated(player):
    recorded = player.play([1, 2, 3])
    chosen = [np.arange(len(one.actions)) == 4 for one in recorded]
    changes = changes_of_return(player, recorded, chosen)
    assert (changes <= 0.0).all()
