"""The values of one name for all records, and how a filter compares them.

::

    FilterNumbers  width, nbytes, label (numbers of classes), area (a number for each box of a record)
    FilterFlags    problem: each record has any of some names
    FilterTexts    key, captions, paths in JSON: iterated at each comparison

A comparison gives a mask, (n,), bool. Where a record has several values, one that fits is enough. ``!=`` is the
negation of ``=``, and a missing value is equal to nothing.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.viewer.find.language import Operand, Operator, QueryError

__all__ = [
    "FilterColumn",
    "FilterFlags",
    "FilterNumbers",
    "FilterTexts",
    "Mask",
    "find_near",
    "match_text",
    "read_number",
]

Mask = NDArray[np.bool_]
"""Whether each record fits, (n,)."""

_NUMBER: Final = re.compile(
    r"([+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?)([A-Za-z%]{0,3})", re.ASCII
)
_UNITS: Final = {
    "": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30,
    "px": 1.0, "%": 0.01,
}  # fmt: skip
_WORDS: Final = {"true": 1.0, "false": 0.0}
_MOST_STARS: Final = 10
_ORDERINGS: Final = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


class FilterColumn(Protocol):
    """The values of a name."""

    def test(self, sign: Operator, operand: Operand) -> Mask:
        """The records with a value that fits.

        Raises
        ------
        QueryError
            If the values cannot be compared so.
        """

    def present(self) -> Mask:
        """The records that a name alone means: a number that is not 0, a class, a text or a list that is not empty."""

    def missing(self) -> Mask:
        """The records without a value."""

    def sort_keys(self) -> Array | list[str]:
        """What records are sorted by, (n,): floats, NaN where there is no value, or texts."""


@dataclass(frozen=True, slots=True)
class FilterNumbers:
    """One number for each record, or any number of them.

    Parameters
    ----------
    values : ndarray, shape (n,) or (total,)
        Of the records, or of all objects of all records.
    offsets : ndarray, shape (n + 1,), optional
        Those of record ``i`` are ``values[offsets[i]:offsets[i + 1]]``.
    classes : tuple of str
        Names of the numbers.
    valid : ndarray, shape (n,), bool, optional
        Which records have a value; by default all whose value is neither NaN nor -1 in a column of integers.
    is_class : bool
        Whether 0 is a value like others, so that a name alone means that there is one.
    """

    values: Array
    offsets: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    valid: Mask | None = None
    is_class: bool = False

    def test(self, sign: Operator, operand: Operand) -> Mask:
        """See :class:`FilterColumn`."""
        if sign in {"!=", "!~"}:
            return ~self.test("=" if sign == "!=" else "~", operand)
        found = self._reduce(self._compare(sign, operand))
        return found if self.valid is None else found & self.valid

    def _compare(self, sign: Operator, operand: Operand) -> Mask:
        if self.classes and sign in {"=", "~"}:
            fits = match_text(operand) if sign == "~" else operand.text.__eq__
            numbers = [number for number, name in enumerate(self.classes) if fits(name)]
            if len(numbers) == 1:
                return np.asarray(self.values == numbers[0])
            if numbers or sign == "~":
                return np.isin(self.values, numbers)
        if sign == "~":
            raise QueryError("~ compares text, and this is a number: use =, <, <=, > or >=", operand.at)
        number = read_number(operand.text)
        if number is None:
            what = (
                f"no class is named {operand.text!r:.100}" if self.classes else f"not a number: {operand.text!r:.100}"
            )
            raise QueryError(f"{what}{find_near(operand.text, self.classes)}", operand.at)
        whole = number.is_integer() and abs(number) < 2**53
        return np.asarray(_ORDERINGS[sign](self.values, int(number) if whole else number))

    def _reduce(self, mask: Mask) -> Mask:
        """Whether any value of each record fits."""
        if self.offsets is None:
            return mask
        counts = np.zeros(len(mask) + 1, np.int64)
        np.cumsum(mask, out=counts[1:])
        found: Mask = counts[self.offsets[1:]] > counts[self.offsets[:-1]]
        return found

    def present(self) -> Mask:
        """See :class:`FilterColumn`."""
        has_value = ~self.missing()
        if self.is_class or self.offsets is not None:
            return has_value
        return np.asarray(has_value & (self.values != 0))

    def missing(self) -> Mask:
        """See :class:`FilterColumn`."""
        if self.valid is not None:
            return ~self.valid
        if self.offsets is not None:
            return np.asarray(self.offsets[1:] == self.offsets[:-1])
        return np.isnan(self.values) if self.values.dtype.kind == "f" else np.asarray(self.values == -1)

    def sort_keys(self) -> Array:
        """See :class:`FilterColumn`; of several values the largest."""
        values = self.values.astype(np.float64)
        if self.offsets is not None:
            has_any = self.offsets[1:] > self.offsets[:-1]
            largest = np.full(len(has_any), np.nan)
            if has_any.any():
                largest[has_any] = np.maximum.reduceat(values, self.offsets[:-1][has_any])
            return largest
        return np.where(self.missing(), np.nan, values)


@dataclass(frozen=True, slots=True)
class FilterFlags:
    """Any of some names for each record.

    Parameters
    ----------
    bits : ndarray, shape (n,), uint16
        Bit ``i``: whether the record has ``names[i]``.
    names : sequence of str
        The names.
    """

    bits: NDArray[np.uint16]
    names: Sequence[str]

    def test(self, sign: Operator, operand: Operand) -> Mask:
        """See :class:`FilterColumn`."""
        if sign in {"!=", "!~"}:
            return ~self.test("=" if sign == "!=" else "~", operand)
        if sign not in {"=", "~"}:
            raise QueryError("this has names, not numbers: use =, != or ~", operand.at)
        fits = match_text(operand) if sign == "~" else operand.text.__eq__
        chosen = sum(1 << place for place, name in enumerate(self.names) if fits(name))
        if not chosen and sign == "=":
            raise QueryError(f"nothing is named {operand.text!r:.100}{find_near(operand.text, self.names)}", operand.at)
        return np.asarray((self.bits & np.uint16(chosen)) != 0)

    def present(self) -> Mask:
        """See :class:`FilterColumn`."""
        return np.asarray(self.bits != 0)

    def missing(self) -> Mask:
        """See :class:`FilterColumn`."""
        return np.asarray(self.bits == 0)

    def sort_keys(self) -> Array:
        """See :class:`FilterColumn`."""
        return np.where(self.bits == 0, np.nan, self.bits.astype(np.float64))


@dataclass(frozen=True, slots=True)
class FilterTexts:
    """Texts, or other values of JSON.

    Parameters
    ----------
    iterate : callable
        Gives the values of all records in order; None where there is none.
    count : int
        Number of records.
    """

    iterate: Callable[[], Iterable[object]]
    count: int

    def test(self, sign: Operator, operand: Operand) -> Mask:
        """See :class:`FilterColumn`."""
        if sign in {"!=", "!~"}:
            return ~self.test("=" if sign == "!=" else "~", operand)
        fits = match_text(operand) if sign == "~" else None
        number = read_number(operand.text)
        compare = _ORDERINGS.get(sign)

        def matches(value: object) -> bool:
            if isinstance(value, list | tuple | np.ndarray):
                return any(matches(each) for each in value)
            if value is None or isinstance(value, dict):
                return False
            if fits is not None:
                return fits(value if isinstance(value, str) else str(value))
            assert compare is not None, "of the language"
            if isinstance(value, str):
                return bool(compare(value, operand.text))
            return isinstance(value, int | float) and number is not None and bool(compare(value, number))

        return self._make_mask(matches)

    def _make_mask(self, fits: Callable[[object], bool]) -> Mask:
        return np.fromiter(map(fits, self.iterate()), np.bool_, self.count)

    def present(self) -> Mask:
        """See :class:`FilterColumn`."""
        return self._make_mask(lambda value: len(value) > 0 if isinstance(value, np.ndarray) else bool(value))

    def missing(self) -> Mask:
        """See :class:`FilterColumn`."""
        return self._make_mask(lambda value: value is None)

    def sort_keys(self) -> list[str]:
        """See :class:`FilterColumn`; numbers of JSON as texts."""
        return ["" if value is None else str(value) for value in self.iterate()]


def read_number(text: str) -> float | None:
    """The number that a text is, with a unit (``1.5MB``, ``20%``) or without; None if it is none."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    found = _NUMBER.fullmatch(text)
    unit = None if found is None else _UNITS.get(found[2].lower())
    if found is None or unit is None:
        return None
    number = float(found[1]) * unit
    return number if math.isfinite(number) else None


def match_text(operand: Operand) -> Callable[[str], bool]:
    """What tells whether a text contains the operand, or, if it has ``*``, ``?`` or ``[``, fits it as a whole.

    Lower and upper case are equal. The time is linear in the length of the text.

    Raises
    ------
    QueryError
        If the operand has too many stars.
    """
    if not set(operand.text) & set("*?["):
        part = operand.text.lower()
        return lambda text: part in text.lower()
    if operand.text.count("*") > _MOST_STARS:
        raise QueryError(f"a pattern must have at most {_MOST_STARS} stars", operand.at)
    pattern = re.compile(fnmatch.translate(operand.text), re.IGNORECASE)  # atomic groups: it does not backtrack
    return lambda text: pattern.match(text) is not None


def find_near(text: str, names: Sequence[str]) -> str:
    """The end of a message: the names that are spelled alike, or the first ones; empty if there are none."""
    if not names:
        return ""
    near = difflib.get_close_matches(text.lower(), [name[:100] for name in names[:5000]], 3, 0.6)
    if near:
        return f"; did you mean {' or '.join(map(quote_shortly, near))}?"
    more = ", ..." if len(names) > 8 else ""
    return f"; there are {', '.join(map(quote_shortly, names[:8]))}{more}"


def quote_shortly(text: str) -> str:
    """A name for a message."""
    return text if len(text) <= 60 else f"{text[:60]}..."
