"""The common interface of all solvers, and its implementation for lazymdp (``peers.py`` has the others).

Let ``d`` be the change of the values in the last sweep. A sweep, Jacobi or Gauss-Seidel, is a
gamma-contraction in the sup norm, so its result is within ``gamma / (1 - gamma) * max|d|`` of the
optimum. After a Jacobi sweep there is a second bound: once ``gamma / (1 - gamma)`` times the middle
of ``d`` is added, the result is within half of ``gamma / (1 - gamma) * span(d)`` (Puterman 2005, 6.3
and 6.6). Every peer gets the loosest tolerance for which its own stopping rule implies an error of at
most ``TOL``; ``proof`` explains why.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from models import Explicit, Problem

TOL = 1e-6


class Solver(ABC):
    """One library. The worker calls build once, then prepare (untimed) and solve for each run, and value.

    Attributes:
        name: name in the table.
        package: the distribution whose version is reported.
        proof: why its answer is within ``TOL``.
        variants: settings to try; the fastest one on the problem is reported.
        explicit: whether it needs the explicit model with A + 1 actions.
        compiles: whether it has a compilation cache, which a first process must fill.
        largest: largest number of states to attempt, or None for no limit.
    """

    name: str
    package: str
    proof: str
    variants: tuple[str, ...]
    explicit = True
    compiles = False
    largest: int | None = None

    @abstractmethod
    def build(self, model: Explicit | Problem) -> None:
        """Converts the arrays to the library's own model."""

    def prepare(self, variant: str) -> None:  # noqa: B027, most solvers have nothing to reset
        """Resets the state that an earlier run left behind. This is not timed."""

    @abstractmethod
    def solve(self, variant: str) -> None:
        """Solves the model. This is the timed part."""

    @abstractmethod
    def value(self) -> np.ndarray:
        """Returns the values ``[S]`` that the last solve found."""

    def algorithm(self, variant: str) -> str:
        """Returns the name of the algorithm and its settings, for the table."""
        return variant


class LazyMdp(Solver):
    """lazymdp, on the base model."""

    name = "lazymdp"
    package = "lazymdp"
    proof = "Solution.error_bound, checked to be at most the tolerance"
    variants = ("auto",)
    explicit = False
    compiles = True

    def build(self, model: Problem) -> None:
        import lazymdp as lz

        self._solve = lz.solve
        mdp = lz.MDP(model.transitions, model.rewards, model.gamma)
        self._lazy = lz.LazyMDP(mdp, lz.policies.uniform(mdp), model.eta)

    def solve(self, variant: str) -> None:
        self._solution = self._solve(self._lazy, tol=TOL)

    def value(self) -> np.ndarray:
        if not self._solution.error_bound <= TOL:
            raise ValueError(f"the error bound {self._solution.error_bound} is above {TOL}")
        return self._solution.value

    def algorithm(self, variant: str) -> str:
        return f"auto: {self._solution.method}"
