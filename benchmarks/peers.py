"""The peers, each with its best algorithms and with settings that prove its answer.

``d`` is the change of the values in the last sweep; ``solvers.py`` explains how it bounds the error.
"""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from models import Explicit
from solvers import TOL, LazyMdp, Solver

UNLIMITED = 10**6  # sweeps; by default, some peers silently stop after a few hundred


class QuantEcon(Solver):
    """QuantEcon's DiscreteDP on state-action pairs.

    Its policy iteration is not used. It stops when the policy no longer changes; on the grids, where
    actions tie up to rounding, it alternates between equally good policies until max_iter.
    """

    name = "QuantEcon"
    package = "quantecon"
    proof = "epsilon = 2e-6: both methods return an epsilon/2-approximation; max_iter raised"
    variants = ("mpi, k=20", "mpi, k=50", "mpi, k=100", "mpi, k=5", "vi")
    compiles = True

    def build(self, model: Explicit) -> None:
        from quantecon.markov import DiscreteDP

        n_states, n_actions = model.rewards.shape
        states = np.repeat(np.arange(n_states), n_actions)
        actions = np.tile(np.arange(n_actions), n_states)
        rewards = model.rewards.ravel()
        self._ddp = DiscreteDP(rewards, model.transitions, model.gamma, states, actions)

    def solve(self, variant: str) -> None:
        method, _, sweeps = variant.partition(", k=")
        options = {"k": int(sweeps)} if sweeps else {}
        self._result = self._ddp.solve(method, epsilon=2 * TOL, max_iter=UNLIMITED, **options)

    def value(self) -> np.ndarray:
        if self._result.num_iter >= UNLIMITED:
            raise ValueError("stopped at max_iter")
        return self._result.v


class Storm(Solver):
    """Storm's discounted value iteration: Gauss-Seidel from the last state to the first."""

    name = "Storm"
    package = "stormpy"
    proof = "absolute precision 2e-6: stops at max|d| <= (1 - gamma) / (2 gamma) * precision"
    variants = ("discounted vi, Gauss-Seidel",)

    def build(self, model: Explicit) -> None:
        import stormpy
        from stormpy import datastructures, models

        n_states, n_actions = model.rewards.shape
        builder = datastructures.SparseMatrixBuilder[float](
            rows=n_states * n_actions,
            columns=n_states,
            entries=model.transitions.nnz,
            has_custom_row_grouping=True,
            row_groups=n_states,
        )
        add, matrix = builder.add_next_value, model.transitions
        for start in range(0, n_states * n_actions, 10_000 * n_actions):  # convert to lists one chunk at a time
            pointers = matrix.indptr[start : start + 10_000 * n_actions + 1].tolist()
            columns = matrix.indices[pointers[0] : pointers[-1]].tolist()
            chances = matrix.data[pointers[0] : pointers[-1]].tolist()
            for row in range(len(pointers) - 1):
                if row % n_actions == 0:
                    builder.new_row_group(start + row)
                for k in range(pointers[row] - pointers[0], pointers[row + 1] - pointers[0]):
                    add(start + row, columns[k], chances[k])
        labels = models.StateLabeling(n_states)
        labels.add_label("init")
        labels.add_label_to_state("init", 0)
        rewards = models.SparseRewardModel[float](optional_state_action_reward_vector=model.rewards.ravel().tolist())
        components = models.SparseModelComponents[float](
            transition_matrix=builder.build(), state_labeling=labels, reward_models={"r": rewards}
        )
        self._model = models.SparseMdp[float](components)
        self._formula = stormpy.parse_properties(f'R{{"r"}}max=? [Cdiscount={model.gamma}]')[0]
        self._environment = stormpy.Environment()
        settings = self._environment.solver().min_max()
        settings.method = stormpy.environments.MinMaxMethod.VALUE_ITERATION
        settings.relative_termination_criterion = False  # the relative criterion would be stricter
        settings.precision = stormpy.Rational(str(2 * TOL))
        self._check = stormpy.model_checking

    def solve(self, variant: str) -> None:
        self._result = self._check(self._model, self._formula, only_initial_states=False, environment=self._environment)

    def value(self) -> np.ndarray:
        return np.array(self._result.get_value_vector())


class MdpSolver(Solver):
    """mdpsolver. It starts from its last answer, so every run gets a new model."""

    name = "mdpsolver"
    package = "mdpsolver"
    proof = (
        "standard updates: tolerance 1e-6, stops at span(d) <= (1 - gamma) / gamma * tolerance and "
        "returns the lower bound; Gauss-Seidel: tolerance 2e-6, max|d| <= half of that"
    )
    variants = (
        "mpi, 20 sweeps, parallel",
        "mpi, 5 sweeps, parallel",
        "mpi, 5 sweeps",
        "mpi, 20 sweeps, Gauss-Seidel",
    )

    def build(self, model: Explicit) -> None:
        n_states, n_actions = model.rewards.shape
        pointers = model.transitions.indptr.tolist()

        def nested(flat: list) -> list[list[list]]:
            rows = [flat[a:b] for a, b in pairwise(pointers)]
            return [rows[s : s + n_actions] for s in range(0, n_states * n_actions, n_actions)]

        self._arguments = {
            "discount": model.gamma,
            "rewards": model.rewards.tolist(),
            "tranMatProbs": nested(model.transitions.data.tolist()),
            "tranMatColumns": nested(model.transitions.indices.tolist()),
        }

    def prepare(self, variant: str) -> None:
        import mdpsolver

        self._model = mdpsolver.model()
        self._model.mdp(**self._arguments)

    def solve(self, variant: str) -> None:
        in_place = "Gauss-Seidel" in variant
        self._model.solve(
            algorithm="mpi",
            tolerance=2 * TOL if in_place else TOL,
            update="gs" if in_place else "standard",
            parIterLim=int(variant.split()[1]),
            parallel="parallel" in variant,
            makeFinalCheck=False,
        )

    def value(self) -> np.ndarray:
        return np.array(self._model.getValueVector())


class PyMdpToolbox(Solver):
    """pymdptoolbox's value iteration, its only algorithm that keeps matrices sparse.

    Two changes are needed to get any result. First, its input check and its bound on the number of
    sweeps are skipped, because both are quadratic in the number of states. Second, its answer is off
    by a constant, which is added; this takes one more Bellman sweep, which is timed.
    """

    name = "pymdptoolbox"
    package = "pymdptoolbox"
    proof = "epsilon = 2e-6: stops at span(d) < (1 - gamma) / gamma * epsilon; middle of d added"
    variants = ("vi",)

    def build(self, model: Explicit) -> None:
        from mdptoolbox import mdp

        class ValueIteration(mdp.ValueIteration):
            def _boundIter(self, epsilon: float) -> None:
                self.max_iter = UNLIMITED

        mdp._util.check = lambda transitions, reward: None
        n_actions = model.rewards.shape[1]
        matrices = [model.transitions[action::n_actions] for action in range(n_actions)]
        self._new = lambda: ValueIteration(matrices, model.rewards, model.gamma, epsilon=2 * TOL)
        self._scale = model.gamma / (1 - model.gamma)

    def prepare(self, variant: str) -> None:
        self._iteration = self._new()

    def solve(self, variant: str) -> None:
        self._iteration.run()
        before = np.array(self._iteration.V)
        _, swept = self._iteration._bellmanOperator(before)
        change = swept - before
        self._value = swept + self._scale * (change.min() + change.max()) / 2

    def value(self) -> np.ndarray:
        if self._iteration.iter >= UNLIMITED:
            raise ValueError("stopped at max_iter")
        return self._value


class MdpLib(Solver):
    """mdplib's value iterations in C++. The model is passed as a file."""

    name = "mdplib"
    package = "mdplib"
    proof = "sup norm, tol = 1e-6 (1 - gamma) / gamma: stops at max|d| < tol; max_iter raised"
    variants = ("vi, Gauss-Seidel", "vi")

    def build(self, model: Explicit) -> None:
        from mdp import MDP

        n_states, n_actions = model.rewards.shape
        rows = np.repeat(np.arange(n_states * n_actions), np.diff(model.transitions.indptr))
        columns = (
            rows // n_actions,
            rows % n_actions,
            model.transitions.indices,
            model.transitions.data,
            model.rewards.ravel()[rows],
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "transitions.csv"
            with path.open("w") as file:
                file.write("sn,a,sn1,prob,reward\n")
                for start in range(0, len(rows), 1_000_000):
                    part = [column[start : start + 1_000_000].tolist() for column in columns]
                    file.writelines("{},{},{},{!r},{!r}\n".format(*row) for row in zip(*part, strict=True))
            states, actions = list(range(n_states)), list(range(n_actions))
            self._mdp = MDP(states, actions, None, None, build_transition_file=False, transition_file=str(path))
        self._gamma = model.gamma

    def solve(self, variant: str) -> None:
        method = self._mdp.VIGS if "Gauss-Seidel" in variant else self._mdp.VI
        tolerance = TOL * (1 - self._gamma) / self._gamma
        method(self._gamma, tolerance, max_iter=UNLIMITED, verbose=False, norm_type=1)

    def value(self) -> np.ndarray:
        if self._mdp.n_iterations >= UNLIMITED:
            raise ValueError("stopped at max_iter")
        return np.array(self._mdp.value)


class LinearProgram(Solver):
    """The model as a linear program, solved with HiGHS through SciPy."""

    name = "HiGHS (linear program)"
    package = "scipy"
    proof = "optimal vertex; feasibility 1e-10, hence 1e-10 / (1 - gamma) in value"
    variants = ("highs-ds", "highs-ipm")
    largest = 10_000

    def build(self, model: Explicit) -> None:
        import scipy.sparse as sp

        n_states, n_actions = model.rewards.shape
        rows = np.arange(n_states * n_actions)
        own = sp.csr_matrix((np.ones(len(rows)), (rows, rows // n_actions)))
        self._constraints = model.gamma * model.transitions - own
        self._bounds = -model.rewards.ravel()
        self._weights = np.ones(n_states)

    def solve(self, variant: str) -> None:
        from scipy.optimize import linprog

        self._result = linprog(
            self._weights,
            A_ub=self._constraints,
            b_ub=self._bounds,
            bounds=(None, None),
            method=variant,
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )

    def value(self) -> np.ndarray:
        if self._result.status != 0:
            raise ValueError(self._result.message)
        return self._result.x


SOLVERS: dict[str, type[Solver]] = {
    "lazymdp": LazyMdp,
    "quantecon": QuantEcon,
    "storm": Storm,
    "mdpsolver": MdpSolver,
    "mdplib": MdpLib,
    "pymdptoolbox": PyMdpToolbox,
    "highs": LinearProgram,
}
