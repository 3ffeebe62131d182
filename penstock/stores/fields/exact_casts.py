"""The one place where a value becomes one of another type: only where no number changes.

Called by readers for values that were not among those from which a kind was inferred, by :func:`penstock.pack`, and by
writers of stores. What a caller sees beside this is its own error: these raise ValueError, with the number.
"""

from __future__ import annotations

import numbers
from typing import Any, Final

import numpy as np

from penstock.sample import Array, DType

__all__ = ["MAX_EXACT", "UnfitValueError", "as_numbers", "cast_exactly", "is_rounded", "to_float", "to_whole"]

MAX_EXACT: Final = 2**53
"""Up to this integer, float64 holds each one."""
_LEAST: Final = -(2**63)
_BEYOND: Final = 2**63


class UnfitValueError(ValueError):
    """A value that is as it was written, and that what it shall become does not hold: nothing is damaged."""


def cast_exactly(values: Array, dtype: DType, *, may_round: bool = False) -> Array:
    """Cast numbers to another dtype without a change, in native byte order: the array itself where it has it.

    Parameters
    ----------
    values : ndarray
        Booleans, integers or floats. NaN is a number of any float type.
    dtype : dtype
        The dtype that is wanted.
    may_round : bool
        Whether floats may be rounded to a smaller float type, as boxes are. They may not become infinite.

    Raises
    ------
    ValueError
        If a value would be another one, such as 300 in uint8, 0.1 in float32 or 2**53 + 1 in float64; it names the
        first. Also if either dtype is not of booleans, integers or floats.
    """
    given, wanted = values.dtype.newbyteorder("="), dtype.newbyteorder("=")
    if given == wanted:
        return values.astype(wanted, copy=False)
    if given.kind not in "biuf" or wanted.kind not in "biuf":
        raise UnfitValueError(f"numbers must be of {wanted}, got {given}")
    if values.size and given.kind in "iu" and wanted.kind in "iu":  # as below, with fewer passes
        limits = np.iinfo(wanted)
        if int(values.min()) >= limits.min and int(values.max()) <= limits.max:
            return values.astype(wanted)
    with np.errstate(all="ignore"):
        cast = values.astype(wanted)
        is_wide = given.kind in "iu" and wanted.kind == "f" and given.itemsize == wanted.itemsize == 8
        if np.can_cast(given, wanted) and not is_wide:  # 64-bit integers are "safe" in float64 for NumPy
            return cast
        if may_round and given.kind == wanted.kind == "f":
            is_same = np.isfinite(cast) | ~np.isfinite(values)
        else:
            is_same = (cast.astype(given) == values) & ((cast < 0) == (values < 0))
            if given.kind == "f" and wanted.kind == "f":
                is_same |= np.isnan(values)
            elif "f" in {given.kind, wanted.kind}:  # what a float beyond 64 bits becomes is undefined
                floats, whole = (cast, given) if wanted.kind == "f" else (values, wanted)
                limit = 2.0 ** (8 * whole.itemsize - (whole.kind == "i"))
                is_same &= (floats.astype(np.float64) < limit) & (floats.astype(np.float64) >= -limit)
    if not is_same.all():
        raise UnfitValueError(f"{wanted} does not hold {values[~is_same].flat[0]!s} ({given}) as it is")
    return cast


def as_numbers(values: Any, dtype: DType) -> Array:
    """An array, or a list of numbers as one: no integer is rounded because there are floats beside it, or larger ones.

    ``dtype``: of integers that are too large for int64. Raises ValueError if there is no such array.
    """
    array = np.asarray(values)
    if array is values or not is_rounded(values, array):
        return array
    exact = np.array(values, np.object_)
    if dtype.kind in "iu" and all(isinstance(each, int) for each in exact.flat):
        try:
            return exact.astype(dtype)
        except OverflowError as error:
            raise UnfitValueError(f"{dtype} does not hold one of its integers: {error}") from error
    raise UnfitValueError("an integer beyond 2**53 would be rounded among floats")


def is_rounded(values: Any, array: Array) -> bool:
    """Return whether a list has an integer that ``array``, which NumPy made of it, does not hold."""
    if array.dtype.kind != "f" or not (np.abs(array) >= MAX_EXACT).any():
        return array.dtype.kind == "O"
    changed = np.array(values, np.object_) != array
    return bool((changed & (array == array)).any())  # noqa: PLR0124  # not NaN


def to_whole(value: object) -> int:
    """Return an integer of 64 bits with sign: of an int, a bool, or a number of NumPy or of its own that is whole.

    Raises ValueError if the value is another one, or no number.
    """
    if type(value) is int and _LEAST <= value < _BEYOND:  # the usual ones first: this is called for each record
        return value
    number = _plain_number(value)
    if isinstance(number, int) or number.is_integer():
        whole = int(number)
        if _LEAST <= whole < _BEYOND:
            return whole
    raise UnfitValueError(f"a number must be a whole number of 64 bits (-2**63 to 2**63 - 1), got {number!r:.80}")


def to_float(value: object) -> float:
    """Return a float of 64 bits: of a float, or of an integer that it holds.

    Raises ValueError if the value is another one, or no number.
    """
    if type(value) is float:
        return value
    number = _plain_number(value)
    try:
        if float(number) == number or number != number:  # noqa: PLR0124  # NaN
            return float(number)
    except OverflowError:
        pass
    raise UnfitValueError(f"float64 does not hold {number!r:.80} as it is")


def _plain_number(value: object) -> int | float:
    if isinstance(value, np.ndarray | np.generic) and value.ndim == 0 and value.dtype.kind in "biuf":
        value = value.item()
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, float):
        return float(value)
    raise ValueError(f"a number must be a whole number or a float, got {type(value).__name__}")
