"""An independent, slow and plain way to every answer: dense arrays, one linear system per policy.

Nothing here comes from the library, so that agreement means something.
"""

import numpy as np
from scipy.optimize import linprog


def augment(transitions, rewards, absorbing, default, eta):
    """The explicit A+1-action model from the definition in Sec. 3: dense `[S, A+1, S]` and `[S, A+1]`."""
    lazy_row = np.einsum("sa,sat->st", default, transitions)[:, None]
    lazy_reward = (default * rewards).sum(axis=1)[:, None]
    plus_transitions = np.concatenate([transitions, lazy_row], axis=1)
    plus_rewards = np.concatenate([rewards - eta, lazy_reward], axis=1)
    plus_rewards[absorbing] = 0.0
    return plus_transitions, plus_rewards


def policy_value(transitions, rewards, gamma, absorbing, policy):
    """Value `[S]` of a stochastic policy `[S, A]` by one dense solve on the states that are not absorbing."""
    step = np.einsum("sa,sat->st", policy, transitions)
    gain = (policy * rewards).sum(axis=1)
    alive = np.flatnonzero(~absorbing)
    value = np.zeros(len(gain))
    value[alive] = np.linalg.solve(np.eye(alive.size) - gamma * step[np.ix_(alive, alive)], gain[alive])
    return value


def optimum(transitions, rewards, gamma, absorbing):
    """Optimal value `[S]` and action values `[S, A]`, by policy iteration with a strict improvement rule."""
    n_states, n_actions = rewards.shape
    action = np.zeros(n_states, dtype=int)
    while True:
        value = policy_value(transitions, rewards, gamma, absorbing, np.eye(n_actions)[action])
        q = rewards + gamma * transitions @ value
        better = q.max(axis=1) > value + 1e-11 * (1.0 + np.abs(value).max())
        better &= ~absorbing
        if not better.any():
            return value, q
        action = np.where(better, q.argmax(axis=1), action)


def limited_optimum(transitions, rewards, gamma, absorbing, start, default, count=0.0, share=0.0):
    """Largest return from `start` with at most `count + share * steps` discounted controls.

    A linear program over the occupancies of the states that are not absorbing; their sum is the number of steps lived.
    """
    plus, gains = augment(transitions, rewards, absorbing, default, 0.0)
    alive = np.flatnonzero(~absorbing)
    if not alive.size:
        return 0.0  # a linear program needs a variable
    n, m = alive.size, plus.shape[1]
    flow = np.zeros((n, n * m))
    for i, s in enumerate(alive):
        flow[i, i * m : (i + 1) * m] += 1.0
        for a in range(m):
            flow[:, i * m + a] -= gamma * plus[s, a, alive]
    control = np.ones((n, m))
    control[:, -1] = 0.0
    solved = linprog(-gains[alive].ravel(), (control - share).reshape(1, -1), [count], flow, start[alive])
    assert solved.status == 0, solved.message
    return -solved.fun
