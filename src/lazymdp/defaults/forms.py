"""The forms a default policy may come in, each with the two methods of `lazymdp.defaults.protocol.DefaultPolicy`.

`lazymdp.defaults.protocol.make_default` chooses among them. What a default answers is checked here and never repaired:
probabilities are not renormalised, a float is never rounded to an action.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp._arrays import sample_rows

Actions = NDArray[np.int64]
"""`[B]`, numbered as the environment numbers them, from `action_space.start`."""

Probabilities = NDArray[np.float64]
"""`[B, A]`; column `a` is action `start + a`."""

ROW_TOLERANCE = 1e-5
"""How far from 1 probabilities may sum: what a float32 network rounds stays far below it."""


# -- what can be wrong with an answer ------------------------------------------------------------------------------


class BadAnswer(ValueError):
    """An answer that is no action; `row` says which row of the batch, None where it is the batch as a whole."""

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


def check_actions(answer: Any, count: int, action_space: spaces.Discrete) -> Actions:
    """`count` integer actions, each within the space."""
    actions = np.asarray(answer)
    if actions.shape != (count,) or not np.issubdtype(actions.dtype, np.integer):
        raise BadAnswer(
            f"it returned {reprlib.repr(answer)} ({actions.dtype}, shape {actions.shape}), expected integers of shape "
            f"({count},), one action per observation."
        )
    first, last = bounds(action_space)
    outside = (actions < first) | (actions > last)
    if outside.any():
        row = int(np.argmax(outside))
        raise BadAnswer(f"it chose action {actions[row]}, expected {first} to {last}.", row)
    return actions.astype(np.int64, copy=False)


def check_rows(rows: Probabilities, action_space: spaces.Discrete) -> Probabilities:
    """`[B, A]` probabilities, each row of them a distribution."""
    bad = ~np.isfinite(rows) | (rows < 0.0)
    if bad.any():
        row, column = divmod(int(np.argmax(bad)), rows.shape[1])
        raise BadAnswer(
            f"it gives action {bounds(action_space)[0] + column} probability {rows[row, column]}, expected a number "
            "between 0 and 1.",
            row,
        )
    sums = rows.sum(axis=1)
    wrong = np.abs(sums - 1.0) > ROW_TOLERANCE
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadAnswer(
            f"its probabilities {reprlib.repr(rows[row].tolist())} sum to {float(sums[row])!r}, not 1.", row
        )
    return rows


def bounds(action_space: spaces.Discrete) -> tuple[int, int]:
    """The first and the last action."""
    return int(action_space.start), int(action_space.start + action_space.n - 1)


def draw(rows: Probabilities, rng: np.random.Generator, action_space: spaces.Discrete) -> Actions:
    """Samples one action per row of probabilities, with one random number each."""
    return sample_rows(rows, rng.random(len(rows))) + int(action_space.start)


def one_hot(actions: Actions, action_space: spaces.Discrete) -> Probabilities:
    """`[B, A]`: probability 1 for each given action."""
    return np.eye(int(action_space.n))[actions - int(action_space.start)]


# -- forms that need no model --------------------------------------------------------------------------------------


class Uniform:
    """Every action equally likely."""

    def __init__(self, action_space: spaces.Discrete) -> None:
        self.n, self.start = int(action_space.n), int(action_space.start)

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """`[B]` actions."""
        return rng.integers(self.start, self.start + self.n, size=last_actions.size)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """`[B, A]`."""
        return np.full((last_actions.size, self.n), 1.0 / self.n)


class Constant:
    """Always the same action."""

    def __init__(self, action: int, action_space: spaces.Discrete) -> None:
        first, last = bounds(action_space)
        if not first <= action <= last:
            raise ValueError(f"default_policy is action {action}, expected {first} to {last}: {action_space}.")
        self.action, self.action_space = action, action_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """`[B]` actions."""
        return np.full(last_actions.size, self.action)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """`[B, A]`."""
        return one_hot(np.full(last_actions.size, self.action), self.action_space)


class Repeat:
    """The action executed last; whoever asks says what that is before the first step of an episode."""

    def __init__(self, action_space: spaces.Discrete) -> None:
        self.action_space = action_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """`[B]` actions."""
        return last_actions

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """`[B, A]`."""
        return one_hot(last_actions, self.action_space)


class Table:
    """`[S, A]` probabilities, for `Discrete` observations."""

    def __init__(self, table: Any, action_space: spaces.Discrete, observation_space: gym.Space[Any]) -> None:
        if not isinstance(observation_space, spaces.Discrete):
            raise TypeError(f"default_policy is a table, which needs Discrete observations, not {observation_space}.")
        rows = np.array(table, dtype=np.float64)
        expected = (int(observation_space.n), int(action_space.n))
        if rows.shape != expected:
            # A model read from an environment may have one state more than the environment has observations (Taxi).
            hint = " (not one for the added state 'terminal')" if rows.shape[:1] == (expected[0] + 1,) else ""
            raise ValueError(
                f"default_policy has shape {rows.shape}, expected {expected}: one row per observation{hint}."
            )
        self.first, self.action_space = int(observation_space.start), action_space
        try:
            self.table = check_rows(rows, action_space)
        except BadAnswer as error:
            raise ValueError(f"default_policy at observation {self.first + (error.row or 0)}: {error}") from None

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """`[B]` actions."""
        return draw(self.probabilities(observations, last_actions), rng, self.action_space)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """`[B, A]`."""
        return self.table[np.asarray(observations) - self.first]


class FromFunction:
    """A callable, from an observation to an action or to probabilities; its answer says which.

    One environment: an integer (a Python or numpy integer, a 0-d integer array) is an action, a vector of A floats are
    probabilities. Vector environments: the callable is given the batch `[B, ...]` in one call, and answers `[B]`
    integers or `[B, A]` floats. Anything else is an error: a float is never rounded to an action, a vector of integers
    is never taken for probabilities, True is not action 1. Randomness inside the callable is its own affair: no seed
    of the wrapper reaches it. Probabilities are drawn with the wrapper's generator.

    Args:
        function: The callable.
        action_space: Of one environment, without the lazy action.
        observation_space: Of the environment if the callable takes one observation, None if it takes batches.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        action_space: spaces.Discrete,
        observation_space: gym.Space[Any] | None,
    ) -> None:
        self.function, self.action_space, self.observation_space = function, action_space, observation_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """`[B]` actions: the callable's own, or drawn from its probabilities."""
        answer = self._answer(observations, last_actions.size)
        return answer if answer.ndim == 1 else draw(answer, rng, self.action_space)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities | None:
        """The callable's probabilities `[B, A]`; None if it answers actions, as nobody knows how it chose them."""
        answer = self._answer(observations, last_actions.size)
        return answer if answer.ndim == 2 else None

    def _answer(self, observations: Any, count: int) -> NDArray[Any]:
        """`[B]` actions or `[B, A]` probabilities."""
        n, batch = int(self.action_space.n), (count,) if self.observation_space is None else ()
        if self.observation_space is None:
            answer = np.asarray(self.function(observations))
            expected = f"integers of shape ({count},) or floats of shape ({count}, {n}) for this batch of observations"
        else:
            answer = np.asarray(self.function(_unbatched(self.observation_space, observations)))
            expected = f"an integer or a vector of {n} floats"
        if np.issubdtype(answer.dtype, np.integer) and answer.shape == batch:
            return answer.reshape(count)
        if np.issubdtype(answer.dtype, np.floating) and answer.shape == (*batch, n):
            return check_rows(answer.reshape(count, n).astype(np.float64), self.action_space)
        raise BadAnswer(
            f"it returned {reprlib.repr(answer.tolist())} ({answer.dtype}, shape {answer.shape}), expected {expected}."
        )


def _unbatched(space: gym.Space[Any], observations: Any) -> Any:
    """The one observation of a batch of one."""
    if isinstance(space, spaces.Dict):
        return {key: _unbatched(part, observations[key]) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_unbatched(part, given) for part, given in zip(space, observations, strict=True))
    return observations[0]


# -- models --------------------------------------------------------------------------------------------------------


class FromPredict:
    """An object with `predict(observations, deterministic=True) -> (actions, state)`, Stable-Baselines3's convention.

    It is always asked for its deterministic action: what it draws otherwise comes from a generator of its own
    (SB3's DQN: the global one of numpy), which no seed of ours reaches.
    """

    def __init__(self, model: Any, action_space: spaces.Discrete) -> None:
        self.model, self.action_space = model, action_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """`[B]` actions."""
        actions, state = self.model.predict(observations, deterministic=True)
        if state is not None:
            raise BadAnswer("it keeps a recurrent state; a default may depend on the observation and last action only.")
        return check_actions(actions, last_actions.size, self.action_space)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """`[B, A]`: all on the deterministic action."""
        return one_hot(self.sample(observations, np.random.default_rng(0), last_actions), self.action_space)
