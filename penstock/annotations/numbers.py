"""Numbers in the texts of annotations, and the values of a field of all objects as one array."""

from __future__ import annotations

import math

import numpy as np

from penstock.sample import Value

__all__ = ["find_kind", "join_kinds", "join_values", "parse_int", "parse_number"]


def parse_number(value: object, what: str) -> float:
    """Return a number, or a text of one; ValueError with ``what`` if it is none. It may be infinite."""
    try:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise TypeError  # noqa: TRY301  # one handler
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"its {what} must be a number, got {value!r:.100}") from None


def parse_int(value: object, what: str) -> int:
    """Return a whole number, or a text of one; ValueError with ``what`` if it is none."""
    number = parse_number(value, what)
    if not number.is_integer() or abs(number) > 2**53:
        raise ValueError(f"its {what} must be a whole number, got {value!r:.100}")
    return int(number)


def find_kind(value: object) -> type:
    """Return the type of a value; object for whole numbers that no int64 holds."""
    return object if isinstance(value, int) and not -(2**63) <= value < 2**63 else type(value)


def join_kinds(one: type | None, other: type) -> type:
    """Return the kind of a field that has values of both: int, float, str, or object for anything."""
    numbers = (bool, int, float)
    if other not in (*numbers, str):
        return object
    if one is None or one is other:
        return other
    if one in numbers and other in numbers:
        return numbers[max(numbers.index(one), numbers.index(other))]
    return object


def join_values(values: list[Value], kind: type) -> Value:
    """Return one value for each object: an array of numbers (0 or NaN where there is none), or a list."""
    try:
        if kind in (bool, int):
            return np.array([0 if value is None else value for value in values], np.int64)
        if kind is float:
            return np.array([math.nan if value is None else value for value in values], np.float64)
    except OverflowError:  # whole numbers of more bits
        return values
    return [("" if kind is str else None) if value is None else value for value in values]
