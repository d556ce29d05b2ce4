"""Models and settings that the tests of tabular learning share."""

from random_models import random_model

import lazymdp as lz

DECAYING = dict(alpha=1.0, alpha_power=0.85, epsilon=0.5, final_epsilon=0.5)
"""Settings with which the learned values converge."""

KINDS = {"structured": {}, "augmented": dict(form="augmented"), "no lazy action": dict(lazy=False)}
"""The three kinds of tables."""


def small():
    """A random model with five states, three actions and one absorbing state, and its default policy."""
    model = random_model(3, n_states=5, n_actions=3, gamma=0.8, n_absorbing=1)
    return model.mdp, model.default


def uniform_start(mdp):
    """The model with a start in every state that is not absorbing, so that every entry is visited often."""
    return lz.MDP(mdp.transitions, mdp.rewards, mdp.gamma)
