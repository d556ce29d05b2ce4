"""Random models of every difficult kind: transitions, rewards, gamma, absorbing states and a default policy."""

from fractions import Fraction

import numpy as np
from rational import Rational

import lazymdp as lz


def coarse(rng, size, parts=16):
    """A distribution of multiples of 1 / parts, which doubles represent exactly: sums and ties are exact."""
    cuts = np.sort(rng.integers(0, parts + 1, size - 1))
    return np.diff([0, *cuts, parts]) / parts


def base(rng, gamma, *, ends=True, exactly=None):
    """Transitions, rewards, gamma, absorbing, default; with `exactly`, all numbers are short."""
    n, a = int(rng.integers(1, 4)) + ends, int(rng.integers(1, 4))
    short = bool(rng.integers(2)) if exactly is None else exactly
    transitions = np.zeros((n, a, n))
    for s in range(n):
        for b in range(a):
            row = coarse(rng, n) if short else rng.dirichlet(np.ones(n))
            if ends:  # some chance to end, so that every policy is absorbed
                row = 0.75 * row + 0.25 * np.eye(n)[-1]
            transitions[s, b] = row
    rewards = rng.integers(-8, 9, (n, a)) / 8.0 if short else rng.normal(size=(n, a))
    default = np.array([coarse(rng, a) if short else rng.dirichlet(np.ones(a)) for _ in range(n)])
    absorbing = np.zeros(n, dtype=bool)
    if ends:
        transitions[-1], rewards[-1], absorbing[-1] = np.eye(n)[-1], 0.0, True
    return close([transitions, rewards, gamma, absorbing, default])


def close(model):
    """States that loop with reward 0 under every action are absorbing."""
    transitions, rewards = model[0], model[1]
    loops = (np.einsum("sas->sa", transitions) == 1.0) & (rewards == 0.0)
    model[3] = (loops & (np.count_nonzero(transitions, axis=2) == 1)).all(axis=1)
    return model


def discounted(rng):
    return base(rng, float(rng.choice([0.0, 0.5, 0.9, 0.99, 0.999])), ends=bool(rng.integers(2)))


def undiscounted(rng):
    return base(rng, 1.0)


def near_one(rng):
    return base(rng, 1.0 - 10.0 ** -float(rng.uniform(4, 15)), ends=bool(rng.integers(2)))


def small_gamma(rng):
    """Gaps that are prices up to rounding: proven control has to allow for it."""
    return base(rng, float(rng.choice([0.0, 1e-300, 1e-16, 1e-9, 1e-3])), ends=bool(rng.integers(2)))


def long_lived(rng):
    """Absorption with a probability of 10**-p per step, p up to 20, and rows that differ as much or little more."""
    model = base(rng, 1.0)
    transitions, p = model[0], 10.0 ** -float(rng.uniform(2, 20))
    n = len(transitions)
    for s in range(n - 1):
        for a in range(transitions.shape[1]):
            inside = rng.dirichlet(np.ones(max(1, n - 1)))
            transitions[s, a, : n - 1] = inside * (1.0 - p)
            transitions[s, a, n - 1] = p
    return model


def near_ties(rng):
    """Two actions that differ by little, in a model that lives long: the issue's refusals."""
    p, d = 10.0 ** -float(rng.uniform(1, 7)), 10.0 ** -float(rng.uniform(1, 8))
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0], transitions[0, 1] = [1 - p, p], [1 - p * (1 - d), p * (1 - d)]
    transitions[1, :, 1] = 1.0
    rewards = np.array([[1.0, 1.0 + float(rng.choice([0.0, d, -d]))], [0.0, 0.0]])
    default = np.array([rng.dirichlet(np.ones(2)), [0.5, 0.5]])
    return [transitions, rewards, 1.0, np.array([False, True]), default]


def near_ties_of_control(rng):
    """The same two actions, in either order, where the default policy takes a third one, which ends soon."""
    p, d = 10.0 ** -float(rng.uniform(1, 7)), 10.0 ** -float(rng.uniform(1, 10))
    transitions = np.zeros((2, 3, 2))
    transitions[0, :3] = [1 - p, p], [1 - p * (1 - d), p * (1 - d)], [0.5, 0.5]
    transitions[1, :, 1] = 1.0
    rewards, order = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]), rng.permutation(3)
    default = np.tile([0.0, 0.0, 1.0], (2, 1))
    return [transitions[:, order], rewards[:, order], 1.0, np.array([False, True]), default[:, order]]


def integers(rng):
    """Deterministic steps, small integers as rewards, and long lives: prices of very different sizes, and many ties."""
    n, a = int(rng.choice([3, 4, 5, 5, 5])), int(rng.choice([2, 3, 3]))
    transitions = np.eye(n)[rng.integers(n, size=(n, a))]
    rewards = rng.integers(-3, 4, (n, a)).astype(float)
    transitions[-1], rewards[-1] = np.eye(n)[-1], 0.0
    default = np.eye(a)[rng.integers(a, size=n)] if rng.integers(4) else rng.dirichlet(np.ones(a), n)
    return close([transitions, rewards, 1.0 - 10.0 ** -float(rng.uniform(3, 6)), np.zeros(n, dtype=bool), default])


def twins(rng):
    """All actions are the same, whatever the default policy: eta_max is 0."""
    model = base(rng, float(rng.choice([0.5, 0.9, 0.999, 1.0])))
    model[0][:], model[1][:] = model[0][:, :1], model[1][:, :1]
    return close(model)


def best_default(rng):
    """The default policy is optimal: again eta_max is 0."""
    model = base(rng, float(rng.choice([0.5, 0.9, 0.999, 1.0])))
    transitions, rewards, gamma, _, _ = model
    model[4] = lz.policies.optimal(lz.MDP(transitions, rewards, gamma))
    best = Rational(*model).optimum(Fraction(0), lazy=False)
    exact = Rational(*model)
    for i, s in enumerate(exact.alive):  # one action, so that rounding cannot make it a little less than optimal
        model[4][s] = np.eye(rewards.shape[1])[best[2][i]]
    return model


def scaled(rng):
    """Rewards of any size."""
    model = base(rng, float(rng.choice([0.5, 0.9, 0.99, 1.0])))
    model[1] *= 10.0 ** float(rng.uniform(-12, 12))
    return model


def uneven(rng):
    """Rewards of very different sizes in one model."""
    model = base(rng, float(rng.choice([0.5, 0.9, 0.99])))
    model[1] *= 10.0 ** rng.uniform(-12, 0, model[1].shape)
    return model


def off_sums(rng):
    """Rows that sum to 1 only up to 1e-8, above or below, at discounts where that matters and where it does not."""
    model = base(rng, float(rng.choice([0.9, 1.0 - 1e-7, 1.0 - 1e-9, 1.0])))
    transitions, _, _, absorbing, default = model
    if rng.integers(2):  # rarely absorbed
        p = 10.0 ** -float(rng.uniform(6, 10))
        transitions[~absorbing, :, -1] *= p
        transitions[~absorbing] /= transitions[~absorbing].sum(axis=2, keepdims=True)
    transitions[~absorbing] *= 1.0 + rng.uniform(-9e-9, 9e-9, transitions[~absorbing].shape[:2])[..., None]
    default *= 1.0 + rng.uniform(-9e-9, 9e-9, (len(default), 1))
    return model


KINDS = {
    kind.__name__: kind
    for kind in (
        discounted,
        undiscounted,
        near_one,
        small_gamma,
        long_lived,
        near_ties,
        near_ties_of_control,
        integers,
        twins,
        best_default,
        scaled,
        uneven,
        off_sums,
    )
}
