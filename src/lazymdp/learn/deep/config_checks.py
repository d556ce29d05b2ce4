"""Checks of the settings of deep agents: types, ranges, and what single precision and memory can hold."""

from __future__ import annotations

import math
from dataclasses import fields
from numbers import Integral, Real
from typing import Any

from lazymdp._arguments import MOST_COUNTED, shown

POSITIVE = (1e-30, 1e38)
"""Smallest and largest positive number: others would become 0 or infinite in single precision."""

MOST_HELD = 1_000_000
"""Largest size of an array, such as a number of environments or the width of a layer."""
MOST_REPLAYED = 1_000_000_000
"""Largest size of the replay buffer."""

_KINDS: dict[type, tuple[type, str]] = {
    bool: (bool, "True or False"), int: (Integral, "an integer"), float: (Real, "a number"),
}  # fmt: skip
_OPTIONAL_NUMBERS = ("control_budget", "max_grad_norm", "final_learning_rate")


def check_types(config: Any) -> None:
    """Raises an error if a setting does not have the type of its default or is not among the choices."""
    for field in fields(config):
        kind = float if field.name in _OPTIONAL_NUMBERS else type(field.default)
        value = getattr(config, field.name)
        if kind in _KINDS and value is not field.default:
            if not is_a(value, kind):
                raise TypeError(f"{field.name} is {shown(value)}, expected {_KINDS[kind][1]}.")
            object.__setattr__(config, field.name, plain(value, kind))
    prices, n_prices = (config.eta, 2) if isinstance(config.eta, tuple) else ((config.eta,), 1)
    if not all(is_a(price, float) for price in prices) or len(prices) != n_prices:
        raise TypeError(f"eta is {shown(config.eta)}, expected a price or a range (low, high).")
    floats = tuple(plain(price, float) for price in prices)
    object.__setattr__(config, "eta", floats if n_prices == 2 else floats[0])
    if not isinstance(config.hidden, tuple) or not all(is_a(width, int) for width in config.hidden):
        raise TypeError(f"hidden is {shown(config.hidden)}, expected layer widths, a tuple of integers.")
    object.__setattr__(config, "hidden", tuple(map(int, config.hidden)))
    for name, choices in (("form", ("structured", "augmented")), ("network", (None, "nature", "minatar", "mlp"))):
        value = getattr(config, name)
        if not isinstance(value, str | None) or value not in choices:
            names = ", ".join(str(choice) for choice in choices)
            raise ValueError(f"{name} is {shown(value)}, expected one of {names}.")


def is_a(value: Any, kind: type) -> bool:
    """Whether a value is of a kind; True and False are not numbers."""
    return isinstance(value, _KINDS[kind][0]) and isinstance(value, bool) == (kind is bool)


def plain(value: Any, kind: type) -> Any:
    """Returns a number of any library as Python's own, which can be saved; inf if it is too large, and 0.0 for -0.0."""
    try:
        return kind(value) + 0.0 if kind is float else kind(value)
    except OverflowError:
        return math.inf


def check_name(env: Any) -> None:
    """Raises an error unless the name of an environment is text."""
    if not isinstance(env, str):
        raise TypeError(f"env is {shown(env)}, expected the id of an environment.")


def check_at_least_1(config: Any, *names: str, most: int = MOST_COUNTED) -> None:
    """Raises an error if a setting is below 1 or above `most`."""
    for name in names:
        if not 1 <= getattr(config, name) <= most:
            raise ValueError(f"{name} is {getattr(config, name)}, expected at least 1 and at most {most}.")


def check_shares(config: Any, *names: str) -> None:
    """Raises an error if a setting is not between 0 and 1."""
    for name in names:
        if not 0.0 <= getattr(config, name) <= 1.0:
            raise ValueError(f"{name} is {getattr(config, name)}, expected a number between 0 and 1.")


def check_positive(config: Any, *names: str) -> None:
    """Raises an error if a setting is not positive in single precision."""
    for name in names:
        if not POSITIVE[0] <= getattr(config, name) <= POSITIVE[1]:
            raise ValueError(
                f"{name} is {getattr(config, name)}, expected a number above 0, from {POSITIVE[0]:g} to "
                f"{POSITIVE[1]:g}."
            )
