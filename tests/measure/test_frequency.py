"""How often the agent is lazy, calculated by hand and counted in play."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_models import models, random_model

import lazymdp as lz


def play(model, start, plus, walkers, steps, seed):
    """Plays many copies of a model for ever; a new episode starts when one is absorbed.

    Returns:
        `[walkers]` The share of lazy actions in the second half of each copy's steps.
    """
    rng = np.random.default_rng(seed)
    n_actions = model.rewards.shape[1]
    tables = (plus, model.default, model.transitions, np.tile(start, (walkers, 1)))
    policy, default, transitions, starts = (np.cumsum(table, axis=-1)[..., :-1] for table in tables)

    def draw(bounds):
        return (rng.random((len(bounds), 1)) >= bounds).sum(axis=1)

    lazy, state = np.zeros(walkers), draw(starts)
    for step in range(steps):
        choice = draw(policy[state])
        lazy += (choice == n_actions) & (step >= steps // 2)
        state = draw(transitions[state, np.where(choice == n_actions, draw(default[state]), choice)])
        state = np.where(model.absorbing[state], draw(starts), state)
    return lazy / (steps - steps // 2)


@settings(max_examples=8)
@given(models(max_states=5, gammas=(0.9,)), st.integers(0, 100))
def test_long_run_frequency_is_what_a_counter_shows(model, seed):
    """Copies that are caught in different parts of a model differ for ever, so their spread sets the tolerance."""
    plus = np.random.default_rng(seed).dirichlet(np.ones(model.rewards.shape[1] + 1), len(model.start))
    start = np.where(model.absorbing, 0.0, model.start)  # an episode that starts in an absorbing state has no steps
    assume(start.any())
    start /= start.sum()
    lazy = lz.LazyMDP(model.mdp, model.default, 0.1)
    step = np.einsum("sa,sat->st", lazy.effective_policy(plus), model.transitions)
    step = np.where(model.absorbing, 0.0, step) + np.outer(step[:, model.absorbing].sum(axis=1), start)
    early, late = (start @ np.linalg.matrix_power(step, count) for count in (500, 2000))
    assume(np.abs(early - late).max() < 1e-3)  # play forgets its start before the steps that count
    found = lz.lazy_frequency(lazy, plus).long_run
    shown = play(model, start, plus, 400, 2000, seed)
    assert found == pytest.approx(shown.mean(), abs=0.005 + 5.0 * shown.std() / np.sqrt(shown.size))


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


@pytest.mark.parametrize("leak", [1e-15, 1e-17, 1e-300])
def test_a_transition_is_never_taken_for_impossible(leak):
    """Endless play ends in state 1, however unlikely the way there is: the share of state 0 would be a wrong answer."""
    transitions = np.array([[[1.0 - leak, leak]], [[0.0, 1.0]]])
    mdp = lz.MDP(transitions, np.ones((2, 1)), 0.1, start=0)
    with pytest.raises(ValueError, match="the long-run frequency cannot be computed in double precision"):
        lz.lazy_frequency(lz.LazyMDP(mdp, lz.policies.uniform(mdp), 0.1), [1, 0])
