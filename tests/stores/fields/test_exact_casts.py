"""Casts of numbers: each is the same number afterwards, or an error."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.sample import Array, DType
from penstock.stores.fields.exact_casts import as_numbers, cast_exactly, to_float, to_whole

NAMES = (
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    "float16",
    "float32",
    "float64",
)
DTYPES = st.sampled_from([np.dtype(name) for name in NAMES] + [np.dtype(">i2"), np.dtype(">u8"), np.dtype(">f4")])
EDGES = [0, 1, -1, 255, 256, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 70000, 0.1, 1e300]
NUMBERS = st.one_of(st.sampled_from(EDGES), st.integers(-(2**65), 2**65), st.floats(), st.booleans())


def holds(dtype: DType, number: float) -> bool:
    """Whether a number has a value in a dtype, by Python's exact comparison of integers and floats."""
    if dtype.kind == "b":
        return number in (0, 1)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return math.isfinite(number) and number == int(number) and int(limits.min) <= number <= int(limits.max)
    if math.isnan(number):
        return True
    with np.errstate(over="ignore"):
        return bool(float(dtype.type(float(number))) == number)


def same(one: float, other: float) -> bool:
    """Whether two Python numbers are equal; NaN is."""
    return one == other or (one != one and other != other)  # noqa: PLR0124  # NaN


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Arrays of any dtype, with the numbers at which casts go wrong where they have them."""
    dtype = draw(DTYPES)
    edges = [number for number in EDGES if holds(dtype, number)]
    elements = st.one_of(st.sampled_from(edges), hnp.from_dtype(dtype))
    return draw(hnp.arrays(dtype, draw(st.integers(0, 4)), elements=elements))


@given(values=arrays(), dtype=DTYPES)
def test_a_cast_keeps_each_number_or_is_refused(values: Array, dtype: DType) -> None:
    """All pairs of dtypes: what fits is equal in Python, what does not is an error, and NumPy warns of nothing."""
    check_cast(values, dtype)


@pytest.mark.parametrize("given_name", NAMES)
def test_numbers_at_the_limits_of_dtypes_are_kept_or_refused(given_name: str) -> None:
    """The numbers that wrap, saturate or are rounded, alone, to each dtype."""
    for number in [
        *EDGES,
        math.inf,
        -math.inf,
        math.nan,
        -0.0,
        *(2.0**bits for bits in (7, 8, 15, 16, 31, 32, 63, 64)),
    ]:
        if holds(np.dtype(given_name), number):
            for name in NAMES:
                check_cast(np.array([number], given_name), np.dtype(name))


def check_cast(values: Array, dtype: DType) -> None:
    """Compare a cast with Python's own numbers."""
    numbers = values.tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if not all(holds(dtype, number) for number in numbers):
            with pytest.raises(ValueError, match="does not hold"):
                cast_exactly(values, dtype)
            return
        found = cast_exactly(values, dtype)

    assert found.dtype == dtype.newbyteorder("=")
    assert all(map(same, found.tolist(), numbers))


@given(values=hnp.arrays(np.float64, 3, elements=st.floats()), dtype=st.sampled_from([np.float16, np.float32]))
def test_floats_that_may_be_rounded_do_not_become_infinite(values: Array, dtype: type[np.floating]) -> None:
    """Rounding is NumPy's; a finite number that becomes infinite is an error."""
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype)
    if (np.isinf(rounded) & np.isfinite(values)).any():
        with pytest.raises(ValueError, match="does not hold"):
            cast_exactly(values, np.dtype(dtype), may_round=True)
    else:
        np.testing.assert_array_equal(cast_exactly(values, np.dtype(dtype), may_round=True), rounded)


def test_an_array_that_has_the_dtype_is_not_copied() -> None:
    """The usual case costs nothing."""
    values = np.arange(3.0)

    assert cast_exactly(values, values.dtype) is values


@pytest.mark.parametrize(
    "values", [np.array([1j]), np.array(["1"]), np.array(["2020-01-01"], "M8[ns]"), np.array([b"1"])]
)
def test_what_is_no_number_is_refused(values: Array) -> None:
    """Complex numbers, times and texts have no value as one number, though NumPy would give one."""
    with pytest.raises(ValueError, match="numbers must be of int64"):
        cast_exactly(values, np.dtype(np.int64))


@given(values=st.lists(NUMBERS, max_size=4), dtype=DTYPES)
@example([2**53 + 1, 0.5], np.dtype(np.float64))
@example([2**64 - 1, 1], np.dtype(np.uint64))
def test_a_list_keeps_each_integer_or_is_refused(values: list[float], dtype: DType) -> None:
    """NumPy makes floats of integers beside floats, and of large ones: never silently."""
    try:
        found = as_numbers(values, dtype)
    except ValueError:
        assert any(abs(number) >= 2**53 for number in values)
    else:
        assert all(map(same, found.tolist(), values))


@given(value=NUMBERS)
def test_scalars_keep_their_number_or_are_refused(value: float) -> None:
    """Numbers of Python, of NumPy and arrays without axes."""
    forms: list[Any] = [value]
    if abs(value) < 2**63:
        forms += [np.array(value), np.array(value)[()]]
    for read, dtype in ((to_whole, np.dtype(np.int64)), (to_float, np.dtype(np.float64))):
        for form in forms:
            if holds(dtype, value):
                assert same(read(form), value)
                assert type(read(form)) is (int if read is to_whole else float)
            else:
                with pytest.raises(ValueError, match=r"must be a whole number|does not hold"):
                    read(form)


@pytest.mark.parametrize(
    "value", ["1", b"1", 1j, None, np.array([1]), np.datetime64("2020-01-01", "ns"), np.array("1")]
)
def test_scalars_that_are_no_numbers_are_refused(value: object) -> None:
    """No text is parsed, and no time is counted in nanoseconds."""
    for read in (to_whole, to_float):
        with pytest.raises(ValueError, match="a number must be a whole number or a float"):
            read(value)
