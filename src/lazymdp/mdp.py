"""A finite Markov decision process, stored sparsely and checked on construction.

An MDP is `M = (S, A, gamma, r, P, delta_0)` (Sec. 3 of the paper). Transitions are accepted in several forms and stored
as one sparse matrix `[S*A, S]`, whose row `s*A + a` is `P(. | s, a)`. Every algorithm of the library reads this form.
Input is never repaired: a row that does not sum to 1 is an error.

An absorbing state returns to itself with reward 0 under every action. The agent never takes control there and never
pays there, and absorbing states are excluded from every minimum, maximum and average over states.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from lazymdp._arguments import (
    LARGEST,
    SMALLEST,
    check_gamma,
    check_integer,
    check_names,
    check_path,
    plain_array,
    real_array,
    shown,
)
from lazymdp._arrays import SUM_TOLERANCE, transition_rows
from lazymdp._files import checksum, replacing
from lazymdp.envs.toy_text import read_table

if TYPE_CHECKING:
    import gymnasium as gym

_FORMAT = 2  # version of the npz files, incremented when a field changes its meaning
_NEEDED = {"format", "checksum", "indptr", "indices", "data", "rewards", "gamma", "start", "absorbing"}


class MDP:
    """A finite Markov decision process.

    Args:
        transitions: `[S, A, S]` array, or a list of A sparse `[S, S]` matrices (one per action), or one sparse
            `[S*A, S]` matrix whose row `s*A + a` belongs to state `s` and action `a`.
        rewards: `[S, A]` expected reward of each action in each state, at most 1e100 in size. Unless all are 0, the
            largest must be at least 1e-100 in size. A large array that needs no conversion is
            shared and not copied: do not change it afterwards.
        gamma: Discount in `[0, 1]`. With 1, infinite-horizon methods require that every policy reaches an absorbing
            state with probability 1, and raise an error otherwise. Finite-horizon methods accept any discount.
        start: `[S]` distribution of the initial state, or one state; by default uniform over the states that are not
            absorbing.
        absorbing: `[S]` bool; by default the states that return to themselves with reward 0 under every action.
        state_names: One name per state, for messages and tables.
        action_names: One name per action.

    Attributes:
        n_states: Number of states S.
        n_actions: Number of actions A, the same in every state.
        gamma: Discount.
        transitions: Sparse `[S*A, S]`; row `s*A + a` holds the distribution of the next state.
        rewards: `[S, A]` expected rewards.
        start: `[S]` distribution of the initial state.
        absorbing: `[S]` bool.
        state_names: One name per state, or None.
        action_names: One name per action, or None.
        max_successors: Largest number of next states of a state and action.
        max_reward: Largest absolute reward.
        row_defect: Largest difference from 1 of the sum of a transition row (rounding).

    Example:
        >>> mdp = MDP([[[0.5, 0.5], [0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]], [[0.0, 1.0], [0.0, 0.0]], gamma=0.9)
        >>> mdp
        MDP(2 states, 2 actions, gamma=0.9, 5 transitions, 1 absorbing, start: state 0)
    """

    def __init__(
        self,
        transitions: ArrayLike | sp.sparray | sp.spmatrix | Sequence[sp.sparray | sp.spmatrix],
        rewards: ArrayLike,
        gamma: float,
        start: ArrayLike | int | None = None,
        absorbing: ArrayLike | None = None,
        *,
        state_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
    ) -> None:
        matrix = transition_rows(transitions)
        self.n_states: int = matrix.shape[1]
        self.n_actions: int = matrix.shape[0] // self.n_states
        self.state_names = check_names(state_names, self.n_states, "state_names")
        self.action_names = check_names(action_names, self.n_actions, "action_names")
        self.gamma: float = check_gamma(gamma)
        self._check_transitions(matrix)
        self.transitions: sp.csr_array = matrix
        self.rewards: NDArray[np.float64] = self._check_rewards(rewards)
        self.absorbing: NDArray[np.bool_] = self._check_absorbing(absorbing)
        self.start: NDArray[np.float64] = self._check_start(start)
        self.max_successors = int(np.diff(matrix.indptr).max())
        self.max_reward = max(float(self.rewards.max()), -float(self.rewards.min()))
        for array in (matrix.data, matrix.indices, matrix.indptr, self.rewards, self.absorbing, self.start):
            array.flags.writeable = False

    # -- reading and writing -------------------------------------------------------------------------------------

    @classmethod
    def from_gymnasium(cls, env: gym.Env[Any, Any], gamma: float) -> MDP:
        """Reads the model of an environment with a transition table `P`, such as FrozenLake, Taxi or CliffWalking.

        `P[s][a]` is a list of `(probability, next state, reward, terminated)`. The probabilities of equal next states
        are added. A `terminated` transition ends the episode, so it must lead to an absorbing state. The table need not
        have one: in CliffWalking, the goal has transitions of its own. A state that is entered only by terminated
        transitions becomes absorbing. Where that is not possible (Taxi), one state named "terminal" is appended.

        Args:
            env: The environment, possibly wrapped.
            gamma: Discount.
        """
        if not hasattr(env, "unwrapped"):
            raise TypeError(f"env is {shown(env)}, expected a Gymnasium environment: make one with `gymnasium.make`.")
        table = read_table(env.unwrapped)
        return cls(
            table.transitions,
            table.rewards,
            gamma,
            table.start,
            state_names=table.state_names,
            action_names=table.action_names,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model to `path` as npz (plain arrays, no pickle) with a checksum.

        A crash leaves the old file unchanged.
        """
        arrays: dict[str, Any] = {
            "format": _FORMAT,
            "indptr": self.transitions.indptr,
            "indices": self.transitions.indices,
            "data": self.transitions.data,
            "rewards": self.rewards,
            "gamma": self.gamma,
            "start": self.start,
            "absorbing": self.absorbing,
        }
        for key, names in (("state_names", self.state_names), ("action_names", self.action_names)):
            if names is not None:  # as JSON: an array of text would lose trailing NUL characters
                arrays[key] = np.frombuffer(json.dumps(names).encode("ascii"), dtype=np.uint8)
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, checksum=np.array(checksum(arrays)), **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> MDP:
        """Reads a model that `save` wrote. The checksum and the model are checked, and no pickle is read.

        Raises:
            ValueError: The file is damaged or is not a model; the message names it.
        """
        with open(check_path(path), "rb") as opened:
            try:
                loaded = np.load(opened, allow_pickle=False)
                if isinstance(loaded, np.ndarray):
                    raise ValueError("it holds a single array.")
                with loaded as file:
                    if len(set(file.files)) < len(file.files):
                        raise ValueError("an array occurs twice.")
                    arrays = {key: file[key] for key in file.files}
                return cls._from_arrays(arrays)
            except Exception as error:  # zipfile, zlib and NumPy raise errors of many kinds for a damaged file
                found = str(error) or type(error).__name__
                raise ValueError(f"{path} is not a model saved by MDP.save, or is damaged: {found}") from error

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> MDP:
        """Makes a model from the arrays of a file."""
        if "format" in arrays and arrays["format"].tolist() != _FORMAT:
            raise ValueError(f"it has format {arrays['format'].tolist()}; this version reads format {_FORMAT}.")
        if missing := sorted(_NEEDED - set(arrays)):
            raise ValueError(f"it lacks {', '.join(missing)}.")
        if unknown := sorted(set(arrays) - _NEEDED - {"state_names", "action_names"}):
            raise ValueError(f"it has unknown arrays: {', '.join(unknown)}.")
        if arrays.pop("checksum").tolist() != (computed := checksum(arrays)):
            raise ValueError(f"its checksum is not {computed}, which its content has.")
        data, indices, indptr, rewards = (arrays[key] for key in ("data", "indices", "indptr", "rewards"))
        if rewards.ndim != 2:
            raise ValueError(f"rewards have shape {rewards.shape}, expected [S, A].")
        whole = indptr.shape == (rewards.size + 1,) and indptr[-1] == data.size == indices.size
        if not whole or {indices.dtype.kind, indptr.dtype.kind} != {"i"}:
            raise ValueError("data, indices and indptr are not the parts of one sparse matrix.")
        matrix = sp.csr_array((data, indices, indptr), shape=(rewards.size, rewards.shape[0]))
        names = {key: json.loads(arrays[key].tobytes()) for key in ("state_names", "action_names") if key in arrays}
        return cls(matrix, rewards, arrays["gamma"].item(), arrays["start"], arrays["absorbing"], **names)

    # -- properties of the model ---------------------------------------------------------------------------------

    def start_average(self, values: ArrayLike) -> float:
        """Returns the mean of `values` `[S]` over the initial distribution."""
        return float(self.start @ self._per_state(values))

    def state_average(self, values: ArrayLike) -> float:
        """Returns the mean of `values` `[S]` over the states that are not absorbing; 0 if all are."""
        alive = self._per_state(values)[~self.absorbing]
        return float(alive.mean()) if alive.size else 0.0

    def describe_state(self, state: int) -> str:
        """Returns the index of a state, followed by its name if it has one."""
        check_integer(state, "state", 0, self.n_states - 1, f"the index of a state: 0 to {self.n_states - 1}")
        return f"state {state}" if self.state_names is None else f"state {state} {self.state_names[state]}"

    def describe_action(self, action: int) -> str:
        """Returns the index of an action, followed by its name if it has one."""
        check_integer(action, "action", 0, self.n_actions - 1, f"the index of an action: 0 to {self.n_actions - 1}")
        return f"action {action}" if self.action_names is None else f"action {action} {self.action_names[action]}"

    def can_live_forever(self) -> NDArray[np.int64]:
        """Returns the states from which some policy can avoid absorption forever.

        If there are any, values with gamma = 1 are not defined. They form the largest set of states in which every
        state has an action that stays inside the set. The set is found by elimination: a state is removed once each of
        its actions can leave the set, and every transition is visited once.
        """
        alive = ~self.absorbing
        into = self.transitions.tocsc()
        leaky = np.zeros(self.n_states * self.n_actions, dtype=bool)
        leaks = np.zeros(self.n_states, dtype=np.int64)
        gone = np.flatnonzero(self.absorbing)
        while gone.size:
            rows = np.unique(into[:, gone].indices)
            rows = rows[~leaky[rows]]
            leaky[rows] = True
            np.add.at(leaks, rows // self.n_actions, 1)
            touched = np.unique(rows // self.n_actions)
            gone = touched[alive[touched] & (leaks[touched] == self.n_actions)]
            alive[gone] = False
        return np.flatnonzero(alive)

    def check_infinite_horizon(self) -> None:
        """Raises an error if gamma is 1 and some policy can avoid absorption forever: its value might be infinite."""
        if self.gamma < 1.0:
            return
        stuck = self.can_live_forever()
        if stuck.size:
            listed = ", ".join(self.describe_state(int(s)) for s in stuck[:5]) + (" ..." if stuck.size > 5 else "")
            raise ValueError(
                f"gamma = 1 requires that every policy reaches an absorbing state, but from {stuck.size} of "
                f"{self.n_states} states some policy never does: {listed}. Use gamma < 1, or a finite horizon "
                "(`solve(..., horizon=H)`)."
            )

    def __repr__(self) -> str:
        first = np.flatnonzero(self.start)
        start = self.describe_state(int(first[0])) if first.size == 1 else f"spread over {first.size} states"
        return (
            f"MDP({self.n_states} states, {self.n_actions} actions, gamma={self.gamma:g}, "
            f"{self.transitions.nnz} transitions, {int(self.absorbing.sum())} absorbing, start: {start})"
        )

    # -- checks of the arguments ---------------------------------------------------------------------------------

    def _per_state(self, values: ArrayLike) -> NDArray[np.float64]:
        array = real_array(values, "values")
        if array.shape != (self.n_states,):
            raise ValueError(f"values have shape {array.shape}, expected one number per state, [{self.n_states}].")
        return array

    def _place(self, row: int) -> str:
        """Names the state and the action of a transition row in error messages."""
        state, action = divmod(int(row), self.n_actions)
        return f"{self.describe_state(state)}, {self.describe_action(action)}"

    def _check_transitions(self, matrix: sp.csr_array) -> None:
        for bad, what in ((~np.isfinite(matrix.data), "is not finite"), (matrix.data < 0.0, "is negative")):
            if bad.any():
                entry = int(np.argmax(bad))
                row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
                raise ValueError(
                    f"transitions of {self._place(row)} to state {matrix.indices[entry]}: "
                    f"probability {matrix.data[entry]} {what}."
                )
        sums = matrix @ np.ones(self.n_states)
        sums -= 1.0
        np.abs(sums, out=sums)
        self.row_defect = float(sums.max())
        if self.row_defect > SUM_TOLERANCE:
            row = int(np.argmax(sums > SUM_TOLERANCE))
            found = float(matrix.data[matrix.indptr[row] : matrix.indptr[row + 1]].sum())
            raise ValueError(
                f"transitions of {self._place(row)} sum to {found!r}, not 1. "
                "Rows are not normalized automatically: correct the row, or divide it by its sum."
            )

    def _check_rewards(self, rewards: ArrayLike) -> NDArray[np.float64]:
        array = real_array(rewards, "rewards")
        if array.shape != (self.n_states, self.n_actions):
            raise ValueError(
                f"rewards have shape {array.shape}, expected [S, A] = ({self.n_states}, {self.n_actions}): "
                "the expected reward of each action in each state."
            )
        if not (np.abs(array) <= LARGEST).all():  # also catches nan
            row = int(np.argmax(~(np.abs(array) <= LARGEST)))
            raise ValueError(
                f"reward of {self._place(row)} is {array.flat[row]}, expected a number between -{LARGEST:g} and "
                f"{LARGEST:g}."
            )
        if 0.0 < (largest := float(np.abs(array).max())) < SMALLEST:
            raise ValueError(
                f"rewards are at most {largest} in size, expected a reward of at least {SMALLEST:g}, or only 0: give "
                "them in a smaller unit."
            )
        return array

    def _check_absorbing(self, absorbing: ArrayLike | None) -> NDArray[np.bool_]:
        loops = np.ones(self.n_states, dtype=bool)
        states = np.arange(self.n_states)
        for action in range(self.n_actions):  # one action at a time, to keep the temporary arrays small
            begin = self.transitions.indptr[action : -1 : self.n_actions]
            end = self.transitions.indptr[action + 1 :: self.n_actions]
            loops &= (end - begin == 1) & (self.transitions.indices[begin] == states)
            loops &= self.rewards[:, action] == 0.0
        if absorbing is None:
            return loops
        mask = plain_array(absorbing, "absorbing is")
        if mask.shape != (self.n_states,) or mask.dtype != np.bool_:
            raise ValueError(
                f"absorbing has shape {mask.shape} and type {mask.dtype}, expected one bool for each of the "
                f"{self.n_states} states."
            )
        if (mask & ~loops).any():
            state = int(np.argmax(mask & ~loops))
            action = self._first_leaving_action(state)
            raise ValueError(
                f"{self.describe_state(state)} is declared absorbing, but {self.describe_action(action)} leaves it or "
                f"has reward {self.rewards[state, action]:g}: an absorbing state returns to itself with reward 0."
            )
        return mask.copy()

    def _first_leaving_action(self, state: int) -> int:
        for action in range(self.n_actions):
            row = state * self.n_actions + action
            begin, end = self.transitions.indptr[row], self.transitions.indptr[row + 1]
            if list(self.transitions.indices[begin:end]) != [state] or self.rewards[state, action] != 0.0:
                return action
        raise AssertionError(f"state {state} returns to itself under every action")

    def _check_start(self, start: ArrayLike | int | None) -> NDArray[np.float64]:
        if start is None:
            alive = ~self.absorbing if not self.absorbing.all() else self.absorbing
            return alive / alive.sum()
        if isinstance(start, int | np.integer) and not isinstance(start, bool):
            if not 0 <= start < self.n_states:
                raise ValueError(f"start is state {start}, expected 0 to {self.n_states - 1}.")
            return np.eye(1, self.n_states, int(start)).ravel()
        if isinstance(start, str):
            raise ValueError(f"start is {start!r}, expected the index of a state or a distribution [{self.n_states}].")
        array = real_array(start, "start probabilities")
        if array.shape != (self.n_states,):
            raise ValueError(f"start has shape {array.shape}, expected a distribution over states, [{self.n_states}].")
        bad = ~np.isfinite(array) | (array < 0.0)
        if bad.any():
            state = int(np.argmax(bad))
            raise ValueError(f"start gives {self.describe_state(state)} probability {array[state]}.")
        if abs(array.sum() - 1.0) > SUM_TOLERANCE:
            raise ValueError(f"start sums to {float(array.sum())!r}, not 1.")
        return array
