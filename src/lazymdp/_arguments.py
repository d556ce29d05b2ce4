"""Checks of arguments: numbers, integers, seeds, names, objects and arrays.

Every check returns the argument in one form, or raises an error that names the argument, its value and what is expected
instead. Nothing is converted that a caller may have meant differently: text is not a number, a bool is not an integer,
and 2.5 is not a number of steps.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

LARGEST = 1e100
"""Largest absolute value of a reward or a price. Beyond it, values and their products could overflow."""

SMALLEST = 1e-100
"""Smallest size of the largest reward, unless all are 0. Below it, rounding errors could be larger than their bounds,
because products underflow."""

MOST_COUNTED = 2**53
"""Largest number of episodes or steps: beyond it, not every integer is a double."""

_SHARED_FROM = 16 * 2**20
"""Size in bytes from which an array that needs no conversion is shared with the caller instead of copied."""

_T = TypeVar("_T")


def check_number(
    value: Any, name: str, low: float, high: float, expected: str, *, above: bool = False, below: bool = False
) -> float:
    """Returns a real number between `low` and `high` as a float.

    Args:
        value: The argument.
        name: Its name in the error message.
        low: Smallest number allowed.
        high: Largest number allowed.
        expected: Describes in the error message what is expected.
        above: Whether the number has to be larger than `low`.
        below: Whether the number has to be smaller than `high`.
    """
    number = _real(value)
    inside = (low < number if above else low <= number) and (number < high if below else number <= high)
    if not inside:  # also catches nan
        raise ValueError(f"{name} is {shown(value, number)}, expected {expected}.")
    return number


def check_integer(value: Any, name: str, low: int, high: int, expected: str) -> int:
    """Returns an integer from `low` to `high`; the arguments are those of `check_number`. A float is an error."""
    integer = value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value
    if not isinstance(integer, int) or isinstance(integer, bool) or not low <= integer <= high:
        raise ValueError(f"{name} is {shown(value)}, expected {expected}.")
    return integer


def check_count(value: Any, name: str, what: str, high: int = MOST_COUNTED) -> int:
    """Returns a number of things, an integer of at least 1."""
    return check_integer(value, name, 1, high, f"{what}: an integer of at least 1, and at most {high}")


def check_gamma(gamma: Any) -> float:
    """Returns the discount as a float, and raises an error if it is not between 0 and 1."""
    return check_number(gamma, "gamma", 0.0, 1.0, "a number between 0 and 1")


def check_eta(eta: Any) -> float:
    """Returns a single price as a float; anything but a finite number is an error.

    A single price may be negative: a bonus for acting. Since a lazy-gap is never negative, the optimal agent then takes
    control in every state. Questions about a range of prices (the eta-path, agents trained for a range) cover prices
    from 0 up.
    """
    expected = f"the price of a step of control: a number between {-LARGEST:g} and {LARGEST:g}"
    return check_number(eta, "eta", -LARGEST, LARGEST, expected)


def check_etas(eta: Any) -> NDArray[np.float64]:
    """Returns one price or several as an array `[E]`."""
    return np.array([check_eta(price) for price in several(eta, "eta", "a price, or a list of prices")])


def price_array(eta: Any) -> NDArray[np.float64]:
    """Returns prices of any shape as an array of numbers, which flags are not."""
    given = plain_array(eta, "eta is")
    if given.dtype == np.bool_:
        raise ValueError(f"eta is {shown(eta)}, expected prices: numbers.")
    return real_array(given, "prices eta")


def check_tol(tol: Any, otherwise: str = "") -> float:
    """Returns a tolerance, a positive number; `otherwise` describes in the error message what else is allowed."""
    expected = f"a positive number: the largest error allowed in the values{otherwise}"
    return check_number(tol, "tol", 0.0, math.inf, expected, above=True)


def check_probability(value: Any, name: str) -> float:
    """Returns a probability as a float."""
    return check_number(value, name, 0.0, 1.0, "a probability between 0 and 1")


def check_seed(seed: Any, name: str = "seed") -> int:
    """Returns a random seed, an integer that fits in 63 bits."""
    return check_integer(seed, name, 0, 2**63 - 1, "an integer from 0 to 2**63 - 1")


def check_seeds(seed: Any) -> NDArray[np.int64]:
    """Returns one seed or several as an array `[N]`."""
    seeds = [check_seed(one) for one in several(seed, "seed", "an integer, or a list of integers")]
    return np.array(seeds, dtype=np.int64)


def check_choice(value: Any, name: str, options: Sequence[str]) -> str:
    """Returns a name that is one of the options."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} is {shown(value)}, expected one of {', '.join(map(repr, options))}.")
    return value


def check_flag(value: Any, name: str) -> bool:
    """Returns a flag as a bool."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} is {shown(value)}, expected True or False.")
    return bool(value)


def check_type(value: Any, name: str, kind: type[_T], expected: str) -> _T:
    """Returns an object of the type `kind`; `expected` describes it, and how to get one, in the error message."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {shown(value)}, expected {expected}.")
    return value


def check_callable(value: Any, name: str, expected: str) -> None:
    """Raises an error if a function was expected and something else was given."""
    if not callable(value):
        raise TypeError(f"{name} is {shown(value)}, expected {expected}.")


def check_progress(progress: Any) -> None:
    """Raises an error if `progress` is neither a function nor None, before any long work starts."""
    if progress is not None:
        check_callable(progress, "progress", "a function of two numbers, or None")


def check_path(path: Any, name: str = "path") -> Path:
    """Returns the path of a file or folder; a number, which `open` would take for an open file, is an error."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or "\0" in text:
        raise TypeError(f"{name} is {shown(path)}, expected a path: text without NUL characters, or a `pathlib.Path`.")
    return Path(text)


def plain_array(values: Any, subject: str) -> NDArray[Any]:
    """Converts values of any type to an array; masked entries and rows of unequal length are errors.

    Args:
        values: The array.
        subject: The name of the values and the verb, to begin an error message with.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{subject} a masked array: fill in the masked entries first.")
    try:
        return np.asarray(values)
    except (ValueError, TypeError):
        raise ValueError(f"{subject} {shown(values)}, expected an array: rows of the same length.") from None


def real_array(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Converts values to a contiguous array of doubles; masked and complex arrays raise an error.

    Large arrays that need no conversion are shared with the caller, all others are copied.

    Args:
        values: The array.
        what: The plural name of the values in error messages.
    """
    given = plain_array(values, f"{what} are")
    if given.dtype.kind not in "biuf":
        raise ValueError(f"{what} are of type {given.dtype}, expected real numbers.")
    array = np.asarray(given, dtype=np.float64, order="C")
    if isinstance(values, np.ndarray) and array.nbytes < _SHARED_FROM and np.may_share_memory(array, values):
        return array.copy()
    return array.view()


def check_names(names: Sequence[str] | None, count: int, what: str) -> tuple[str, ...] | None:
    """Returns the names as a tuple, and raises an error if there are not `count` of them. None stays None."""
    if names is None:
        return None
    if isinstance(names, str):
        raise ValueError(f"{what} is the text {names!r}, expected a list of {count} names.")
    if not isinstance(names, Sequence) and not (isinstance(names, np.ndarray) and names.ndim == 1):
        raise ValueError(f"{what} is {shown(names)}, expected a list of {count} names.")
    if len(names) != count:
        raise ValueError(f"{what} has {len(names)} names, expected {count}.")
    return tuple(str(name) for name in names)


def check_finite(values: ArrayLike, name: str) -> NDArray[np.float64]:
    """Returns an array `[..., A]` of finite numbers, at most `LARGEST` in size, with at least one column."""
    given = plain_array(values, f"{name} is")
    if given.dtype.kind not in "biuf":
        raise ValueError(f"{name} is of type {given.dtype}, expected real numbers.")
    array = given.astype(np.float64)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(f"{name} has shape {array.shape}, expected [..., A] with at least one action.")
    inside = np.abs(array) <= LARGEST
    if not inside.all():  # also catches nan
        place = tuple(int(i) for i in np.argwhere(~inside)[0])
        raise ValueError(
            f"{name} is {array[place]} at {place}, expected finite numbers between -{LARGEST:g} and {LARGEST:g}."
        )
    return array


def _real(value: Any) -> float:
    """Returns a real scalar as a float, and nan for anything else."""
    if isinstance(value, bool | np.bool_ | str | bytes) or value is None:
        return math.nan
    if isinstance(value, Real):
        try:
            return float(value)
        except OverflowError:
            return math.inf  # of either sign: no argument may be as large
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):
        return math.nan
    return float(array) if array.ndim == 0 and array.dtype.kind in "iuf" else math.nan


def several(value: Any, name: str, expected: str) -> list[Any]:
    """Returns a list of at least one entry, from one entry or a flat sequence of them."""
    try:
        n_dimensions = np.ndim(value)
    except ValueError:  # rows of unequal length
        n_dimensions = 2
    masked = isinstance(value, np.ma.MaskedArray)
    if masked or isinstance(value, str | bytes) or n_dimensions > 1 or (n_dimensions == 1 and not len(value)):
        raise ValueError(f"{name} is {shown(value)}, expected {expected}.")
    return [value] if n_dimensions == 0 else list(value)


def counted(number: int, what: str, several: str | None = None) -> str:
    """Returns a number of things in words, such as "1 state" and "2 states"."""
    return f"{number} {what if number == 1 else several or what + 's'}"


def shown(value: Any, number: float = math.nan) -> str:
    """Returns a value for an error message, short even for a large array."""
    if not math.isnan(number):
        return str(number)
    if isinstance(value, float | np.floating):
        return str(float(value))
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, np.ndarray) and value.size > 8:
        return f"an array of shape {value.shape}"
    text = " ".join(safe_repr(value).split())
    return text if len(text) <= 80 else f"{text[:80]}..."


def safe_repr(value: Any) -> str:
    """Returns `repr(value)`, or the name of the type if that raises an error: a message must not fail itself."""
    try:
        return repr(value)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"{type(value).__name__} (its repr() raised {type(error).__name__})"


def safe_str(error: BaseException) -> str:
    """Returns the message of an error, or the name of its type if it has none or if `str(error)` raises an error."""
    try:
        return str(error) or type(error).__name__
    except KeyboardInterrupt:
        raise
    except BaseException as other:
        return f"{type(error).__name__} (its str() raised {type(other).__name__})"
