"""A finite model as an environment: it samples what the model says, from seeds, and ends where the model does."""

import copy

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st
from random_models import random_model

import lazymdp as lz
from lazymdp.envs import ModelWorld


def played(env, seed, steps=400):
    """States, actions, rewards and ends of random play."""
    rng, rows = np.random.default_rng(seed), []
    state, _ = env.reset(seed=seed)
    for _ in range(steps):
        action = int(rng.integers(env.action_space.n))
        after, reward, terminated, truncated, info = env.step(action)
        rows.append((state, action, after, reward, terminated, truncated, info["prob"]))
        state = env.reset()[0] if terminated or truncated else after
    return rows


@given(st.integers(0, 999), st.integers(0, 2), st.integers(1, 6))
def test_what_happens_is_what_the_model_says(seed, n_absorbing, successors):
    mdp = random_model(seed, n_absorbing=n_absorbing, successors=successors).mdp
    env = ModelWorld(mdp, max_steps=9)
    dense = mdp.transitions.toarray().reshape(mdp.n_states, mdp.n_actions, mdp.n_states)
    rows, since = played(env, seed, 60), 0
    for state, action, after, reward, terminated, truncated, prob in rows:
        since += 1
        assert prob == dense[state, action, after] > 0.0 and reward == mdp.rewards[state, action]
        assert terminated == mdp.absorbing[after] and truncated == (since == 9 and not terminated)
        since = 0 if terminated or truncated else since
    assert played(ModelWorld(mdp, max_steps=9), seed, 60) == rows


def test_frequencies_are_probabilities():
    mdp = lz.MDP([[[0.2, 0.5, 0.3]], [[1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]]], np.ones((3, 1)), 0.9, start=[0.75, 0.25, 0])
    env = ModelWorld(mdp)
    firsts, nexts = [], []
    env.reset(seed=0)
    for _ in range(4000):
        firsts.append(env.reset()[0])
        env.s = 0
        nexts.append(env.step(0)[0])
    np.testing.assert_allclose(np.bincount(firsts) / 4000, [0.75, 0.25], atol=0.03)
    np.testing.assert_allclose(np.bincount(nexts) / 4000, [0.2, 0.5, 0.3], atol=0.03)


def test_it_is_an_environment_like_any_other():
    mdp = lz.MDP([[[0.5, 0.5], [0.0, 1.0]]] * 2, np.eye(2), 0.9, state_names=["a", "b"], action_names=["go", "stay"])
    env = ModelWorld(mdp)
    check_env(env, skip_render_check=True)
    assert env.state_names == mdp.state_names and env.action_names == mdp.action_names
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(1000)] == [False] * 999 + [True]  # the time limit
    with pytest.raises(ValueError, match="action is 2, expected 0 to 1"):
        env.step(2)
    with pytest.raises(ValueError, match="max_steps is 0"):
        ModelWorld(mdp, max_steps=0)


def test_a_copy_goes_on_alone_and_shares_the_model():
    mdp = random_model(3, n_absorbing=0).mdp
    env = ModelWorld(mdp)
    env.reset(seed=5)
    other = copy.deepcopy(env)
    assert other.mdp is mdp and other.np_random is not env.np_random
    ours = [env.step(0)[0] for _ in range(20)]
    assert [other.step(0)[0] for _ in range(20)] == ours
