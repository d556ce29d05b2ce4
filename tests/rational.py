"""Exact answers by rational arithmetic: `fractions.Fraction`, one linear system per policy, no rounding at all.

The numbers of a model are taken as the doubles they are, also where rows do not quite sum to 1. Only for small models.
"""

from fractions import Fraction
from functools import cached_property

import numpy as np


class Rational:
    """A lazy-MDP in rational numbers, on the states that are not absorbing.

    Choice `A` is lazy. `rows[s][c]` is the row of a choice times gamma, `gains[s][c]` its reward without the price.
    """

    def __init__(self, transitions, rewards, gamma, absorbing, default):
        self.n_actions = np.shape(rewards)[1]
        self.alive = [int(s) for s in np.flatnonzero(~np.asarray(absorbing))]
        g = Fraction(float(gamma))
        self.rows, self.gains = [], []
        for s in self.alive:
            rows = [[Fraction(float(transitions[s, a, t])) for t in self.alive] for a in range(self.n_actions)]
            gains = [Fraction(float(rewards[s, a])) for a in range(self.n_actions)]
            weights = [Fraction(float(d)) for d in default[s]]
            rows.append([sum(w * row[t] for w, row in zip(weights, rows, strict=True)) for t in range(len(self.alive))])
            gains.append(sum(w * gain for w, gain in zip(weights, gains, strict=True)))
            self.rows.append([[g * p for p in row] for row in rows])
            self.gains.append(gains)

    def lines(self, action):
        """Base value `V`, control count `K` and steps `Z` of a policy, or None if they are not all finite."""
        n = len(self.alive)
        matrix = []
        for i in range(n):
            row = [-p for p in self.rows[i][action[i]]]
            row[i] += 1
            matrix.append([*row, self.gains[i][action[i]], Fraction(action[i] < self.n_actions), Fraction(1)])
        solved = eliminate(matrix, n)
        if solved is None or any(x[2] < 1 for x in solved):
            return None
        return [[x[k] for x in solved] for k in range(3)]

    def backed_up(self, value, eta):
        """`[n][A + 1]` values of every choice, price included, if `value` follows."""
        return [
            [
                gain - (eta if c < self.n_actions else 0) + dot(row, value)
                for c, (gain, row) in enumerate(zip(self.gains[i], self.rows[i], strict=True))
            ]
            for i in range(len(self.alive))
        ]

    def optimum(self, eta, action=None, lazy=True):
        """Optimal values, action values and policy at a price; ties keep the earlier choice, at first lazy.

        Args:
            eta: The price, a Fraction.
            action: Policy to start from.
            lazy: Whether the lazy action exists.

        Returns:
            `(value, q, action)`, or None if some policy met has no finite value.
        """
        n, choices = len(self.alive), self.n_actions + lazy
        action = [choices - 1] * n if action is None else list(action)
        while True:
            lines = self.lines(action)
            if lines is None:
                return None
            value = [v - eta * k for v, k in zip(lines[0], lines[1], strict=True)]
            q = self.backed_up(value, eta)
            best = [max(range(choices), key=lambda c, row=row: row[c]) for row in q]
            better = [i for i in range(n) if q[i][best[i]] > value[i]]
            if not better:
                return value, q, action
            for i in better:
                action[i] = best[i]

    @cached_property
    def longest(self):
        """Expected steps `[n]` under the policy that lives longest; None if some policy's are not finite."""
        action = [0] * len(self.alive)
        while True:
            lines = self.lines(action)
            if lines is None:
                return None
            steps = lines[2]
            longer = [
                max(range(self.n_actions + 1), key=lambda c, rows=rows: dot(rows[c], steps)) for rows in self.rows
            ]
            better = [i for i, c in enumerate(longer) if 1 + dot(self.rows[i][c], steps) > steps[i]]
            if not better:
                return steps
            for i in better:
                action[i] = longer[i]

    @cached_property
    def eta_max(self):
        """Largest gain of control over the default policy (Theorem 3); None as above."""
        lines = self.lines([self.n_actions] * len(self.alive))
        if lines is None:
            return None
        q = self.backed_up(lines[0], Fraction(0))
        gaps = [max(row[:-1]) - v for row, v in zip(q, lines[0], strict=True)]
        return max([Fraction(0), *gaps])

    @cached_property
    def eta_min(self):
        """The price from which on being lazy is better in some state, by following never-lazy optima from price 0."""
        n, A = len(self.alive), self.n_actions
        if not n:
            return Fraction(0)
        found = self.optimum(Fraction(0), lazy=False)
        if found is None:
            return None
        action, eta = found[2], Fraction(0)
        while True:
            action = self._shortest_at(eta, action)
            if action is None:
                return None
            value, steps = (self.lines(action)[k] for k in (0, 2))
            gain, slope = self._advantages(value, steps)
            lazy = [gain[i][A] / slope[i][A] for i in range(n) if slope[i][A] < 0]
            other = [gain[i][a] / slope[i][a] for i in range(n) for a in range(A) if slope[i][a] < 0]
            lazy_at = max(eta, min(lazy)) if lazy else None
            other_at = max(eta, min(other)) if other else None
            if lazy_at is not None and (other_at is None or lazy_at <= other_at):
                return lazy_at
            if other_at is None:
                return None
            eta = other_at

    def _advantages(self, value, steps):
        """Of every choice over a never-lazy policy: in rewards, and in steps that are paid for."""
        gains, slopes = self.backed_up(value, Fraction(0)), []
        gain = [[x - v for x in row] for row, v in zip(gains, value, strict=True)]
        for i, z in enumerate(steps):
            later = [dot(row, steps) for row in self.rows[i]]
            slopes.append([(c < self.n_actions) + x - z for c, x in enumerate(later)])
        return gain, slopes

    def _shortest_at(self, eta, action):
        """The never-lazy policy that is best at prices just above `eta`: best at `eta`, then with the fewest steps."""
        action = list(action)
        while True:
            lines = self.lines(action)
            if lines is None:
                return None
            gain, slope = self._advantages(lines[0], lines[2])
            changed = False
            for i in range(len(self.alive)):
                ranks = [(gain[i][a] - eta * slope[i][a], -slope[i][a]) for a in range(self.n_actions)]
                best = max(range(self.n_actions), key=ranks.__getitem__)
                if ranks[best] > (0, 0):
                    action[i], changed = best, True
            if not changed:
                return action


def eliminate(matrix, n):
    """Solves a linear system given as `[n][n + k]` with `k` right-hand sides; None if it is singular."""
    for i in range(n):
        pivot = next((j for j in range(i, n) if matrix[j][i] != 0), None)
        if pivot is None:
            return None
        matrix[i], matrix[pivot] = matrix[pivot], matrix[i]
        head = matrix[i][i]
        matrix[i] = [x / head for x in matrix[i]]
        for j in range(n):
            if j != i and matrix[j][i] != 0:
                factor = matrix[j][i]
                matrix[j] = [x - factor * y for x, y in zip(matrix[j], matrix[i], strict=True)]
    return [row[n:] for row in matrix]


def dot(row, values):
    return sum(p * v for p, v in zip(row, values, strict=True))
