"""A small world and small settings that several tests of the deep agents share."""

import numpy as np

import lazymdp as lz
from lazymdp.learn.deep.config import DialConfig, DQNConfig

SMALL = DialConfig(steps=20_000, n_envs=16, rollout=8, hidden=(16, 16))
DQN_SMALL = DQNConfig(
    steps=6000, eta=0.1, n_envs=4, rollout=32, capacity=800, min_replay=200, target_period=400, hidden=(16,),
    clip_rewards=False, learning_rate=1e-3, control_budget=0.3,
)  # fmt: skip
OPTIONS = ["--n-envs", "16", "--rollout", "8", "--hidden", "16", "16", "--episodes", "8"]
DQN_OPTIONS = ["--learner", "dqn", "--n-envs", "4", "--rollout", "32", "--capacity", "800", "--min-replay", "200",
               "--hidden", "16", "--episodes", "8", "--eta", "0.1"]  # fmt: skip


def same(arrays, other):
    assert arrays.keys() == other.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def chain(length=6):
    """Walk right to the goal; left leads back to the start. A random step costs much near the goal only."""
    transitions = np.zeros((length + 1, 2, length + 1))
    for state in range(length):
        transitions[state, 0, max(0, state - 2)] = 1.0
        transitions[state, 1, state + 1] = 1.0
    transitions[length, :, length] = 1.0
    rewards = np.zeros((length + 1, 2))
    rewards[length - 1, 1] = 1.0
    return lz.MDP(transitions, rewards, 0.95)
