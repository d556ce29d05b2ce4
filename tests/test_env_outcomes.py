"""What environments return is refused if a conversion would turn it into something else."""

import math

import hypothesis
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import strategies as st

from lazymdp._arguments import safe_repr, safe_str, shown
from lazymdp._env_outcomes import BadOutcome, checked_observation, exact_array, flag_of, reward_of

BYTES, FLOATS = spaces.Box(0, 255, (2,), np.uint8), spaces.Box(-1.0, 1.0, (2,), np.float32)
NESTED = spaces.Dict(a=BYTES, b=spaces.Tuple([spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3])]))
REFUSED = {
    "nan as a byte": (BYTES, [math.nan, 0], r"observation\[0\] is nan, expected a whole number from 0 to 255"),
    "wrapped bytes": (BYTES, np.array([300, -5]), r"observation\[0\] is 300, expected a whole number from 0 to 255"),
    "half a byte": (BYTES, [0.0, 0.5], r"observation\[1\] is 0\.5, expected a whole number"),
    "infinite byte": (BYTES, [0.0, -math.inf], r"observation\[1\] is -inf, expected a whole number"),
    "nan": (FLOATS, np.array([0, math.nan], np.float32), r"observation\[1\] is nan, expected a finite number"),
    "too large": (FLOATS, np.array([0, 1e300]), r"observation\[1\] is 1e\+300, expected a finite number of at most"),
    "rounded integer": (FLOATS, np.array([0, 2**24 + 1]), r"is 16777217, expected an integer from -16777216 to"),
    "complex": (FLOATS, np.array([0, 1j]), r"observation is .*, expected numbers"),
    "text": (FLOATS, ["0", "1"], r"observation is \['0', '1'\], expected numbers"),
    "None": (FLOATS, [0.0, None], r"observation is \[0.0, None\], expected numbers"),
    "masked": (FLOATS, np.ma.masked_array([0.0, 1.0], [True, False]), "is a masked array"),
    "long": (FLOATS, [0.0, 1.0, 2.0], r"observation has shape \(3,\), expected \(2,\)"),
    "last integer": (spaces.Box(0, 1, (1,), np.int64), [2.0**63], "expected a whole number from -9223372036854775808"),
    "signed": (spaces.Box(0, 1, (1,), np.uint64), np.array([-1]), r"observation\[0\] is -1, expected a whole number"),
    "state -1": (spaces.Discrete(4), -1, r"observation is -1, expected an integer from 0 to 3: Discrete\(4\)"),
    "state 4": (spaces.Discrete(4), np.int64(4), "observation is 4, expected an integer from 0 to 3"),
    "state 1.5": (spaces.Discrete(4), 1.5, r"observation is 1\.5, expected an integer"),
    "state 0": (spaces.Discrete(4, start=1), 0, "observation is 0, expected an integer from 1 to 4"),
    "state text": (spaces.Discrete(4), "1", "observation is '1', expected an integer"),
    "next factor": (spaces.MultiDiscrete([2, 3]), [2, 0], r"observation\[0\] is 2, expected an entry of MultiDiscrete"),
    "factor before": (spaces.MultiDiscrete([2, 3]), [0, -1], r"observation\[1\] is -1, expected an entry of"),
    "half a bit": (spaces.MultiBinary(2), [0, 0.5], r"observation\[1\] is 0\.5, expected a whole number"),
    "two bits": (spaces.MultiBinary(2), [0, 2], r"observation\[1\] is 2, expected an entry of MultiBinary"),
    "byte in a dict": (NESTED, {"a": [0, 256], "b": (0, [0, 0])}, r"observation\['a'\]\[1\] is 256"),
    "state in a tuple": (NESTED, {"a": [0, 255], "b": (2, [0, 0])}, r"observation\['b'\]\[0\] is 2, expected .* to 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_observation_that_a_conversion_would_change_is_refused(case):
    space, given, message = REFUSED[case]
    with pytest.raises(BadOutcome, match=message):
        checked_observation(space, given)


def test_what_loses_nothing_is_accepted():
    for given in ([1, 2], [1.0, 2.0], np.array([1, 2], np.int64), np.array([True, False]), np.array([1, 2], np.uint8)):
        array = checked_observation(BYTES, given)
        assert array.dtype == np.uint8 and array.tolist() == np.asarray(given).tolist()
    assert checked_observation(FLOATS, np.array([0.1, 9.0])).tolist() == [float(np.float32(0.1)), 9.0]
    assert checked_observation(spaces.Box(0, 1, (1,), np.int64), [2**63 - 1]).tolist() == [2**63 - 1]
    assert checked_observation(spaces.Text(3), "anything") == "anything"
    for state in (3, np.int8(3), np.array(3), np.array([3])):
        assert checked_observation(spaces.Discrete(4), state) == 3


NUMBERS = st.one_of(st.floats(width=64), st.integers(-(2**63), 2**64 - 1), st.integers(-300, 300), st.booleans())
TYPES = st.sampled_from(["b", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]).map(np.dtype)


@hypothesis.given(st.lists(NUMBERS, min_size=1, max_size=3), TYPES, TYPES)
def test_a_conversion_is_exact_or_refused(numbers, source, target):
    with np.errstate(all="ignore"):
        try:
            array = np.array(numbers).astype(source)
        except (OverflowError, RuntimeWarning):
            return
    exact = [value.item() for value in array]
    try:
        converted = exact_array(array, target)
    except BadOutcome:
        if target.kind == "f":
            assert source.kind in "iu" and max(map(abs, exact)) > 2 ** (np.finfo(target).nmant + 1)
        else:
            low, high = (0, 1) if target.kind == "b" else (np.iinfo(target).min, np.iinfo(target).max)
            assert any(not math.isfinite(x) or x != math.floor(x) or not low <= x <= int(high) for x in exact)
        return
    assert converted.dtype == target
    if source.kind == "f" and target.kind == "f":
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(converted, array.astype(target))
    else:
        assert [x.item() for x in converted] == exact


@pytest.mark.parametrize("given", ["1.5", b"1", None, 1j, np.array(1 + 2j), [1.0, 2.0], np.ma.masked, math.nan, 1e200])
def test_what_is_no_reward_is_refused(given):
    with pytest.raises(BadOutcome, match="it returned the reward .*, expected a"):
        reward_of(given)


@pytest.mark.parametrize("given", [2, 2.0, np.float32(2), np.int8(2), np.array(2), np.array([2.0])])
def test_numbers_of_any_type_are_rewards(given):
    assert reward_of(given) == 2.0 and isinstance(reward_of(given), float)
    assert reward_of(np.True_) == reward_of(True) == 1.0 and math.isinf(reward_of(math.inf, None))


def test_flags_are_true_or_false():
    assert flag_of(np.True_, "terminated") and not flag_of(0, "truncated")
    for given in ("no", None, 2, math.nan):
        with pytest.raises(BadOutcome, match="it returned terminated = .*, expected True or False"):
            flag_of(given, "terminated")


class Mute(Exception):
    """An error that cannot be printed."""

    def __repr__(self):
        raise KeyError("repr")

    def __str__(self):
        raise SystemExit("str")


def test_a_value_or_an_error_that_cannot_be_printed_does_not_break_a_message():
    assert safe_repr(Mute()) == shown(Mute()) == "Mute (its repr() raised KeyError)"
    assert safe_str(Mute()) == "Mute (its str() raised SystemExit)"
    assert safe_str(KeyError()) == "KeyError" and safe_str(ValueError("x")) == "x"
