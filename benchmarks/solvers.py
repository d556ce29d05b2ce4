"""One small interface for every solver, and ours behind it (the peers: ``peers.py``).

Write ``d`` for the change of the last sweep. A sweep is a gamma-contraction in the sup norm, Jacobi
or Gauss-Seidel alike, so what it returns is within ``gamma / (1 - gamma) * max|d|`` of the optimum;
after a Jacobi sweep also within half of ``gamma / (1 - gamma) * span(d)`` once the middle of ``d``,
scaled likewise, is added (Puterman 2005, 6.3 and 6.6). Every peer gets the loosest tolerance with
which its own stopping rule implies an error of at most ``TOL``; ``proof`` says how.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from models import Explicit, Problem

TOL = 1e-6


class Solver(ABC):
    """One library. The worker calls build, then for each run prepare (untimed), solve, value.

    Attributes:
        name: what the table calls it.
        package: the distribution whose version is reported.
        proof: why its answer is within ``TOL``.
        variants: settings to try; the fastest one on the problem is the one measured.
        explicit: whether it needs the explicit A + 1-action model.
        compiles: whether a first process fills a compilation cache.
        largest: number of states above which it is not attempted, or None.
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
        """Turns the arrays into whatever the library solves."""

    def prepare(self, variant: str) -> None:  # noqa: B027, most have nothing to undo
        """Undoes what an earlier run left behind; untimed."""

    @abstractmethod
    def solve(self, variant: str) -> None:
        """The timed part."""

    @abstractmethod
    def value(self) -> np.ndarray:
        """The value ``[S]`` that the last solve found."""

    def algorithm(self, variant: str) -> str:
        """What was run, for the table."""
        return variant


class LazyMdp(Solver):
    """Ours, on the base model."""

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
            raise ValueError(f"error bound {self._solution.error_bound} above {TOL}")
        return self._solution.value

    def algorithm(self, variant: str) -> str:
        return f"auto: {self._solution.method}"
