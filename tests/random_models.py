"""Random small models: with and without absorbing states, sparse and full, defaults of every kind."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

import lazymdp as lz


class Model(NamedTuple):
    """A model as plain arrays (for the brute force) and as the library's."""

    transitions: np.ndarray  # [S, A, S]
    rewards: np.ndarray  # [S, A]
    gamma: float
    absorbing: np.ndarray  # [S]
    start: np.ndarray  # [S]
    default: np.ndarray  # [S, A]

    @property
    def mdp(self):
        return lz.MDP(self.transitions, self.rewards, self.gamma, self.start)

    @property
    def base(self):
        """What the brute force takes."""
        return self.transitions, self.rewards, self.gamma, self.absorbing


def random_model(
    seed, n_states=6, n_actions=3, gamma=0.9, n_absorbing=1, default="random", successors=None, whole=False
):
    """A random model; `default` is "uniform", "deterministic" or "random"; `whole` rewards make for many ties."""
    rng = np.random.default_rng(seed)
    successors = min(n_states, successors or n_states)
    transitions = np.zeros((n_states, n_actions, n_states))
    for s in range(n_states):
        for a in range(n_actions):
            reached = rng.choice(n_states, successors, replace=False)
            transitions[s, a, reached] = rng.dirichlet(np.ones(successors))
    rewards = (
        rng.integers(-1, 2, (n_states, n_actions)).astype(float) if whole else rng.normal(size=(n_states, n_actions))
    )
    absorbing = np.zeros(n_states, dtype=bool)
    absorbing[n_states - n_absorbing :] = True
    transitions[absorbing] = np.eye(n_states)[absorbing][:, None]
    rewards[absorbing] = 0.0
    loops = np.einsum("sas->sa", transitions) > 1.0 - 1e-9
    absorbing |= (loops & (rewards == 0.0)).all(axis=1)  # whole rewards make some states absorbing by chance
    start = rng.random(n_states)
    start[n_states - n_absorbing :] = 0.0
    tables = {
        "uniform": np.full((n_states, n_actions), 1.0 / n_actions),
        "deterministic": np.eye(n_actions)[rng.integers(n_actions, size=n_states)],
        "random": rng.dirichlet(np.ones(n_actions), n_states),
    }
    return Model(transitions, rewards, gamma, absorbing, start / start.sum(), tables[default])


@st.composite
def models(draw, max_states=8, gammas=(0.0, 0.5, 0.9, 0.99, 0.999)):
    """Any of them, for hypothesis."""
    n_states = draw(st.integers(2, max_states))
    return random_model(
        draw(st.integers(0, 2**32 - 1)),
        n_states,
        draw(st.integers(1, 4)),
        draw(st.sampled_from(gammas)),
        draw(st.integers(0, min(2, n_states - 1))),
        draw(st.sampled_from(["uniform", "deterministic", "random"])),
        draw(st.sampled_from([1, 2, None])),
        draw(st.booleans()),
    )


NOT_INDEXABLE = Model(
    transitions=np.array(
        [
            [[0.4, 0.0, 0.6, 0.0], [0.6, 0.4, 0.0, 0.0]],
            [[0.0, 0.5, 0.0, 0.5], [0.0, 0.8, 0.2, 0.0]],
            [[0.0, 0.1, 0.9, 0.0], [0.0, 0.4, 0.0, 0.6]],
            [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]],
        ]
    ),
    rewards=np.array([[0.4, 0.0], [-0.4, -1.2], [1.2, -2.2], [0.0, 0.0]]),
    gamma=0.95,
    absorbing=np.array([False, False, False, True]),
    start=np.array([1.0, 0.0, 0.0, 0.0]),
    default=np.array([[0.0, 1.0], [0.4, 0.6], [0.4, 0.6], [0.5, 0.5]]),
)
"""State 1 takes control up to 0.17, is lazy up to 1.09, and takes control again up to 1.35."""
