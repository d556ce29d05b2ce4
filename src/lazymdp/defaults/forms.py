"""One class per form of default policy, each with the two methods of `lazymdp.defaults.protocol.DefaultPolicy`.

`lazymdp.defaults.protocol.make_default` selects the class. Actions and probabilities that a default policy returns are
checked and never repaired: probabilities are not normalized, and a float is not rounded to an action.
"""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from lazymdp._arguments import real_array, safe_repr
from lazymdp._arrays import sample_rows

Actions = NDArray[np.int64]
"""`[B]` actions in the numbering of the environment, which begins at `action_space.start`."""

Probabilities = NDArray[np.float64]
"""`[B, A]` probabilities; column `a` belongs to action `start + a`."""

ROW_TOLERANCE = 1e-5
"""Largest difference from 1 of a sum of probabilities, far above the rounding errors of a float32 network."""


# -- checks --------------------------------------------------------------------------------------------------------


class BadAnswer(ValueError):
    """A default policy returned something invalid.

    Attributes:
        row: The row of the batch that is invalid; None if the batch as a whole is.
    """

    def __init__(self, message: str, row: int | None = None) -> None:
        super().__init__(message)
        self.row = row


def check_actions(answer: Any, count: int, action_space: spaces.Discrete) -> Actions:
    """Returns `[count]` actions, and raises an error if they are not integers or booleans, or outside the space."""
    actions = np.asarray(answer)
    if actions.shape != (count,) or actions.dtype.kind not in "iub":
        raise BadAnswer(
            f"it returned {reprlib.repr(answer)} ({actions.dtype}, shape {actions.shape}), expected integers of shape "
            f"({count},), one action per observation."
        )
    actions = actions.astype(np.int64, copy=False)
    first, last = bounds(action_space)
    outside = (actions < first) | (actions > last)
    if outside.any():
        row = int(np.argmax(outside))
        raise BadAnswer(f"it chose action {actions[row]}, expected {first} to {last}.", row)
    return actions


def check_rows(rows: Probabilities, action_space: spaces.Discrete) -> Probabilities:
    """Returns the probabilities `[B, A]`, and raises an error if a row is not a distribution."""
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
    """Returns the first and the last action."""
    return int(action_space.start), int(action_space.start + action_space.n - 1)


def draw(rows: Probabilities, rng: np.random.Generator, action_space: spaces.Discrete) -> Actions:
    """Samples one action per row of probabilities, with one random number each."""
    return sample_rows(rows, rng.random(len(rows))) + int(action_space.start)


def one_hot(actions: Actions, action_space: spaces.Discrete) -> Probabilities:
    """Returns `[B, A]` probabilities: 1 for the given actions, 0 for all others."""
    return np.eye(int(action_space.n))[actions - int(action_space.start)]


# -- policies given by a word, an action, a table or a function ------------------------------------------------------


class Uniform:
    """Takes every action with the same probability."""

    def __init__(self, action_space: spaces.Discrete) -> None:
        self.n, self.start = int(action_space.n), int(action_space.start)

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """Returns `[B]` actions."""
        return rng.integers(self.start, self.start + self.n, size=last_actions.size)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """Returns `[B, A]` probabilities."""
        return np.full((last_actions.size, self.n), 1.0 / self.n)


class Constant:
    """Always takes the same action."""

    def __init__(self, action: int, action_space: spaces.Discrete) -> None:
        first, last = bounds(action_space)
        if not first <= action <= last:
            raise ValueError(f"default_policy is action {action}, expected {first} to {last}: {action_space}.")
        self.action, self.action_space = action, action_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """Returns `[B]` actions."""
        return np.full(last_actions.size, self.action)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """Returns `[B, A]` probabilities."""
        return one_hot(np.full(last_actions.size, self.action), self.action_space)


class Repeat:
    """Repeats the last executed action; on the first step of an episode, the caller passes the no-op as that action."""

    def __init__(self, action_space: spaces.Discrete) -> None:
        self.action_space = action_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """Returns `[B]` actions."""
        return last_actions

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """Returns `[B, A]` probabilities."""
        return one_hot(last_actions, self.action_space)


class Table:
    """Samples from a table of probabilities `[S, A]`, for `Discrete` observations."""

    def __init__(self, table: Any, action_space: spaces.Discrete, observation_space: gym.Space[Any]) -> None:
        if not isinstance(observation_space, spaces.Discrete):
            raise TypeError(f"default_policy is a table, which needs Discrete observations, not {observation_space}.")
        rows = real_array(table, "probabilities of default_policy")
        expected = (int(observation_space.n), int(action_space.n))
        if rows.shape != expected:
            # A model read from an environment can have one more state than the environment has observations (Taxi).
            hint = " (and not one for the added state 'terminal')" if rows.shape[:1] == (expected[0] + 1,) else ""
            raise ValueError(
                f"default_policy has shape {rows.shape}, expected {expected}: one row per observation{hint}."
            )
        self.first, self.action_space = int(observation_space.start), action_space
        try:
            self.table = check_rows(rows, action_space)
        except BadAnswer as error:
            raise ValueError(f"default_policy at observation {self.first + (error.row or 0)}: {error}") from None

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """Returns `[B]` actions."""
        return draw(self.probabilities(observations, last_actions), rng, self.action_space)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """Returns `[B, A]` probabilities."""
        rows = np.asarray(observations) - self.first
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self.table):  # -1 would be the last row
            row = int(np.argmax((rows < 0) | (rows >= len(self.table))))
            last = self.first + len(self.table) - 1
            raise BadAnswer(
                f"it is a table for the observations {self.first} to {last}, but observation {rows[row] + self.first} "
                "was given.",
                row,
            )
        return self.table[rows]


class FromFunction:
    """Calls a function of the observation, which returns either an action or probabilities.

    An integer (a Python or NumPy integer, or a 0-d integer array) or a boolean (False is 0, True is 1) is an action,
    and a vector of A floats are probabilities. A function that takes batches receives `[B, ...]` observations in one
    call and returns `[B]` integers or booleans, or `[B, A]` floats. Anything else is an error: a float is not rounded
    to an action, and a vector of integers is not read as probabilities.

    Probabilities are sampled with the generator of the wrapper. The seed of the wrapper does not reach random numbers
    that the function itself draws.

    Args:
        function: The function.
        action_space: The action space of one environment, without the lazy action.
        observation_space: The observation space of the environment; None if the function takes batches.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        action_space: spaces.Discrete,
        observation_space: gym.Space[Any] | None,
    ) -> None:
        self.function, self.action_space, self.observation_space = function, action_space, observation_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """Returns `[B]` actions: those of the function, or samples from its probabilities."""
        answer = self._answer(observations, last_actions.size)
        return answer if answer.ndim == 1 else draw(answer, rng, self.action_space)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """Returns `[B, A]` probabilities. If the function returns an action, that action has probability 1."""
        answer = self._answer(observations, last_actions.size)
        return answer if answer.ndim == 2 else one_hot(answer, self.action_space)

    def _answer(self, observations: Any, count: int) -> NDArray[Any]:
        """Returns `[B]` actions or `[B, A]` probabilities."""
        n, space = int(self.action_space.n), self.observation_space
        if space is None:
            expected = f"integers of shape ({count},) or floats of shape ({count}, {n}) for this batch of observations"
            return self._checked(self.function(observations), count, (count,), expected)
        answers = []
        for row in range(count):
            answer = self.function(row_of(space, observations, row))
            try:
                answers.append(self._checked(answer, 1, (), f"an integer or a vector of {n} floats"))
            except BadAnswer as error:
                raise BadAnswer(str(error), row) from None
        if all(answer.ndim == 1 for answer in answers):
            return np.concatenate(answers)
        return np.concatenate([one_hot(x, self.action_space) if x.ndim == 1 else x for x in answers])

    def _checked(self, returned: Any, count: int, batch: tuple[int, ...], expected: str) -> NDArray[Any]:
        """Returns what the function returned as `[count]` actions or `[count, A]` probabilities."""
        answer = np.asarray(returned)
        if answer.dtype.kind in "iub" and answer.shape == batch:
            return check_actions(answer.reshape(count), count, self.action_space)
        if np.issubdtype(answer.dtype, np.floating) and answer.shape == (*batch, self.action_space.n):
            return check_rows(answer.reshape(count, -1).astype(np.float64), self.action_space)
        raise BadAnswer(
            f"it returned {reprlib.repr(answer.tolist())} ({answer.dtype}, shape {answer.shape}), expected {expected}."
        )


def row_of(space: gym.Space[Any], observations: Any, row: int) -> Any:
    """Returns one observation of a batch in the layout of a vector environment."""
    if isinstance(space, spaces.Dict):
        return {key: row_of(part, observations[key], row) for key, part in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(row_of(part, given, row) for part, given in zip(space, observations, strict=True))
    return observations[row]


def takes_batches(
    function: Callable[[Any], Any],
    action_space: spaces.Discrete,
    observation_space: gym.Space[Any],
    examples: Any,
    count: int,
) -> bool:
    """Finds out whether a function takes batches of observations or single observations, by calling it both ways.

    If it takes both and answers alike, batches are preferred, because they need fewer calls. If the answers differ, it
    takes single observations, as in `LazyAction`.

    Args:
        function: The function.
        action_space: The action space of one environment, without the lazy action.
        observation_space: The observation space of one environment.
        examples: `[B, ...]` observations.
        count: Their number, B, which must differ from the number of actions and from every size of an observation;
            otherwise, an answer to something else could look like one answer per observation.
    """
    found: list[Probabilities | BaseException] = []
    for space in (None, observation_space):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a call that may not be meant
                form = FromFunction(function, action_space, space)
                found.append(form.probabilities(examples, np.full(count, bounds(action_space)[0])))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the function may raise anything if it is called the wrong way
            found.append(error)
    batch, single = found
    if isinstance(batch, BaseException) and isinstance(single, BaseException):
        said = [str(error) if isinstance(error, BadAnswer) else f"{safe_repr(error)}." for error in (single, batch)]
        raise BadAnswer(f"given one observation: {said[0]} Given a batch of {count} observations: {said[1]}")
    if isinstance(batch, BaseException) or isinstance(single, BaseException):
        return isinstance(single, BaseException)
    return np.allclose(batch, single, atol=ROW_TOLERANCE)


# -- trained models --------------------------------------------------------------------------------------------------


class FromPredict:
    """Calls `predict(observations, deterministic=True) -> (actions, state)`, the convention of Stable-Baselines3.

    The action is always the deterministic one: otherwise the object would draw from a generator of its own (SB3's DQN
    uses the global one of NumPy), which the seed of the wrapper does not reach.
    """

    def __init__(self, model: Any, action_space: spaces.Discrete) -> None:
        self.model, self.action_space = model, action_space

    def sample(self, observations: Any, rng: np.random.Generator, last_actions: Actions) -> Actions:
        """Returns `[B]` actions."""
        actions, state = self.model.predict(observations, deterministic=True)
        if state is not None:
            raise BadAnswer(
                "it keeps a recurrent state; a default policy may depend only on the observation and the last action."
            )
        return check_actions(actions, last_actions.size, self.action_space)

    def probabilities(self, observations: Any, last_actions: Actions) -> Probabilities:
        """Returns `[B, A]` probabilities: 1 for the deterministic action."""
        return one_hot(self.sample(observations, np.random.default_rng(0), last_actions), self.action_space)
