"""How often the agent is lazy, by hand and by playing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import models, random_model

import lazymdp as lz


def play(model, plus, steps, seed):
    """Share of lazy actions in endless play, an episode starting anew when one is absorbed."""
    rng = np.random.default_rng(seed)
    n_actions = model.rewards.shape[1]
    lazy, state = 0, rng.choice(len(model.start), p=model.start)
    for _ in range(steps):
        action = rng.choice(n_actions + 1, p=plus[state])
        lazy += action == n_actions
        done = action if action < n_actions else rng.choice(n_actions, p=model.default[state])
        state = rng.choice(len(model.start), p=model.transitions[state, done])
        if model.absorbing[state]:
            state = rng.choice(len(model.start), p=model.start)
    return lazy / steps


@settings(max_examples=8)
@given(models(max_states=5, gammas=(0.9,)), st.integers(0, 100))
def test_long_run_frequency_is_what_a_counter_shows(model, seed):
    plus = np.random.default_rng(seed).dirichlet(np.ones(model.rewards.shape[1] + 1), len(model.start))
    found = lz.lazy_frequency(lz.LazyMDP(model.mdp, model.default, 0.1), plus).long_run
    shown = np.mean([play(model, plus, 4000, s) for s in range(4)])
    assert found == pytest.approx(shown, abs=0.06)


def test_frequencies_by_hand():
    """State 0 leads to 1 with probability 1/2, else ends; state 1 goes back to 0. Lazy in 0 only."""
    transitions = np.array([[[0.0, 0.5, 0.5]], [[1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0]]])
    mdp = lz.MDP(transitions, np.zeros((3, 1)), 0.9, start=0)
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.1)
    found = lz.lazy_frequency(lazy, [1, 0, 1])
    assert found.states == 0.5
    assert found.long_run == pytest.approx(2 / 3)  # two visits of 0 for one of 1
    assert found.discounted == pytest.approx(1 / 1.45)  # 1 against 0.9 * 0.5 controls, per return


def test_an_episode_that_is_caught_for_ever_decides_the_long_run():
    """From 0 one is absorbed or caught in 1 (always control) or 2 (always lazy), 1 three times as likely as 2."""
    transitions = np.array(
        [[[0.2, 0.3, 0.1, 0.4]], [[0.0, 1.0, 0.0, 0.0]], [[0.0, 0.0, 1.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]]]
    )
    mdp = lz.MDP(transitions, [[0.0], [1.0], [1.0], [0.0]], 0.9, start=0)
    lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.1)
    assert lz.lazy_frequency(lazy, [0, 0, 1, 1]).long_run == pytest.approx(0.25)


def test_a_chain_without_end_has_its_stationary_frequency():
    model = random_model(4, n_states=6, n_absorbing=0)
    lazy = lz.LazyMDP(model.mdp, model.default, 0.1)
    plus = np.eye(4)[[3, 0, 1, 3, 2, 3]]
    step = np.einsum("sa,sat->st", lazy.effective_policy(plus), model.transitions)
    stationary = np.linalg.matrix_power(step, 4096)[0]
    assert lz.lazy_frequency(lazy, plus).long_run == pytest.approx(stationary @ plus[:, -1])


def test_no_step_no_frequency():
    mdp = lz.MDP([[[0.5, 0.5]], [[0.0, 1.0]]], [[1.0], [0.0]], 0.9, start=1)
    with pytest.raises(ValueError, match="every start state is absorbing"):
        lz.lazy_frequency(lz.LazyMDP(mdp, [[1.0], [1.0]], 0.1), [1, 1])
