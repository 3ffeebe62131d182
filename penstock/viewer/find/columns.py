"""The values of one name for all records, and how a filter compares them.

::

    FilterNumbers  width, nbytes, label (numbers of classes), area (a number for each box of a record)
    FilterTexts    key, captions, paths in JSON: iterated at each comparison

A comparison gives a mask, (n,), bool. Where a record has several values, one that fits is enough. A missing value is
equal to nothing.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.sample import Array
from penstock.viewer.find.language import Operator, QueryError, QueryToken

__all__ = ["FilterColumn", "FilterNumbers", "FilterTexts", "Mask", "find_near", "has_any", "match_text"]

Mask = NDArray[np.bool_]
"""Whether each record fits, (n,)."""

_MOST_STARS: Final = 10
_ORDERINGS: Final[dict[str, Callable[..., object]]] = {
    "=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FilterNumbers:
    """One number for each record, or any number of them: those of ``offsets[i]`` to ``offsets[i + 1]`` of record ``i``.

    ``classes``: names of the numbers. ``valid``: which records have a value; by default those whose value is neither
    NaN nor -1. ``is_class``: whether 0 is a value like others, so that a name alone means that there is one.
    """

    values: Array
    offsets: NDArray[np.int64] | None = None
    classes: tuple[str, ...] = ()
    valid: Mask | None = None
    is_class: bool = False

    def test(self, sign: Operator, operand: QueryToken) -> Mask:
        """The records with a value that fits; QueryError if the values cannot be compared so."""
        found = self._compare(sign, operand)
        found = found if self.offsets is None else has_any(found, self.offsets)
        return found if self.valid is None else found & self.valid

    def _compare(self, sign: Operator, operand: QueryToken) -> Mask:
        if self.classes and sign in {"=", "~"}:
            fits = match_text(operand) if sign == "~" else operand.text.__eq__
            numbers = [number for number, name in enumerate(self.classes) if fits(name)]
            if numbers or sign == "~":
                return np.isin(self.values, numbers)
        if sign == "~":
            raise QueryError("~ compares text, and this is a number: use =, <, <=, > or >=", operand.at)
        number = _read_number(operand.text)
        if number is None:
            what = "no class is named" if self.classes else "not a number:"
            raise QueryError(f"{what} {operand.text!r:.100}{find_near(operand.text, self.classes)}", operand.at)
        whole = number.is_integer() and abs(number) < 2**53
        return np.asarray(_ORDERINGS[sign](self.values, int(number) if whole else number))

    def present(self) -> Mask:
        """The records that the name alone means: with a number that is not 0, a class, or a list that is not empty."""
        has_value = ~self.missing()
        return has_value if self.is_class or self.offsets is not None else has_value & (self.values != 0)

    def missing(self) -> Mask:
        """The records without a value."""
        if self.valid is not None:
            return ~self.valid
        if self.offsets is not None:
            return np.asarray(self.offsets[1:] == self.offsets[:-1])
        return np.isnan(self.values) if self.values.dtype.kind == "f" else np.asarray(self.values == -1)

    def sort_keys(self) -> Array:
        """Return what records are sorted by, (n,): floats, of several values the largest; NaN where there is none."""
        values = self.values.astype(np.float64)
        if self.offsets is None:
            return np.where(self.missing(), np.nan, values)
        has_value = ~self.missing()
        largest = np.full(len(has_value), np.nan)
        if has_value.any():
            largest[has_value] = np.maximum.reduceat(values, self.offsets[:-1][has_value])
        return largest


@dataclass(frozen=True, slots=True)
class FilterTexts:
    """Texts, or other values of JSON, of ``count`` records; methods as those of :class:`FilterNumbers`.

    ``iterate`` gives the values of all records in order; None where there is none.
    """

    iterate: Callable[[], Iterable[object]]
    count: int

    def test(self, sign: Operator, operand: QueryToken) -> Mask:
        """The records with a value that fits."""
        fits = match_text(operand) if sign == "~" else None
        number = _read_number(operand.text)

        def matches(value: object) -> bool:
            if isinstance(value, list | tuple | np.ndarray):
                return any(matches(each) for each in value)
            if value is None or isinstance(value, dict):
                return False
            if fits is not None:
                return fits(str(value))
            if isinstance(value, str):
                return bool(_ORDERINGS[sign](value, operand.text))
            return isinstance(value, int | float) and number is not None and bool(_ORDERINGS[sign](value, number))

        return self._make_mask(matches)

    def _make_mask(self, fits: Callable[[object], bool]) -> Mask:
        return np.fromiter(map(fits, self.iterate()), np.bool_, self.count)

    def present(self) -> Mask:
        """The records whose text or value is not empty."""
        return self._make_mask(lambda value: len(value) > 0 if isinstance(value, np.ndarray) else bool(value))

    def missing(self) -> Mask:
        """The records without a value."""
        return self._make_mask(lambda value: value is None)

    def sort_keys(self) -> list[str]:
        """Return the values as texts, numbers of JSON too."""
        return ["" if value is None else str(value) for value in self.iterate()]


FilterColumn = FilterNumbers | FilterTexts


def has_any(mask: Mask, offsets: NDArray[np.int64]) -> Mask:
    """Return whether one of the objects ``offsets[i]`` to ``offsets[i + 1]`` of each record fits, (n,)."""
    counts = np.append(0, np.cumsum(mask))
    return np.asarray(counts[offsets[1:]] > counts[offsets[:-1]])


def _read_number(text: str) -> float | None:
    """Return the number that a text is; None if it is none."""
    try:
        number = float({"true": "1", "false": "0"}.get(text.lower(), text))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def match_text(operand: QueryToken) -> Callable[[str], bool]:
    """Return what tells whether a text contains the operand, or, if it has ``*``, ``?`` or ``[``, fits it as a whole.

    Lower and upper case are equal. The time is linear in the length of the text. QueryError if it has too many stars.
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
    shown = [name[:60] for name in names[:5000]]
    if near := difflib.get_close_matches(text.lower(), shown):
        return f"; did you mean {' or '.join(near)}?"
    return f"; there are {', '.join(shown[:8])}{', ...' if len(shown) > 8 else ''}" if shown else ""
