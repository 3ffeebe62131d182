"""Columns of coordinates of points, as landmarks are written in tables, become one field of keypoints.

::

    x1,y1,...,x68,y68      landmark_0_x,landmark_0_y,...      left_eye_x,left_eye_y,nose_x,nose_y,...
                      keypoints: keypoints, of shape (68, 2); with v1, ... or left_eye_visible, ... (68, 3)

Points with numbers are in their order, others in that of the columns. A point without coordinates is NaN.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.errors import PackError
from penstock.pack.sources.inference import INFERRED_FROM, GivenSchema
from penstock.sample import Field, Value
from penstock.stores.common.table_files import MISSING_WORDS

__all__ = ["PointColumns", "find_points"]

_FLAGS: Final = "v|vis|visible|visibility"
_FIRST: Final = re.compile(rf"(?i)(?:(?P<stem>.*)[_ .-])?(?P<axis>x|y|{_FLAGS})[_ .-]?(?P<number>[0-9]{{1,6}})")
"""Such as x1, landmark_x_1."""
_LAST: Final = re.compile(rf"(?i)(?P<stem>.+?)(?P<number>[0-9]{{1,6}})?[_ .-](?P<axis>x|y|{_FLAGS})")
"""Such as landmark_0_x, left_eye_y."""
_POINT_WORDS: Final = re.compile(r"(?i)landmark|keypoint|kpt?s?(?![a-z])|point|joint|pts?(?![a-z])")
_LEAST: Final = 3
"""Points that there must be; x1, y1, x2, y2 are the corners of a box."""
_LEAST_NAMED: Final = 2
"""The same, where columns are called landmarks or points."""


@dataclass(frozen=True, slots=True)
class PointColumns:
    """A field of keypoints, and the columns of each point: x, y and, where there are, the flag."""

    columns: tuple[tuple[str, ...], ...]
    field: Field

    def parse(self, row: Mapping[str, Value]) -> Value:
        """Return the points of a row, float64 (k, 2|3).

        Raises PackError if a coordinate is no number.
        """
        found = np.array([[_parse_number(column, row.get(column)) for column in point] for point in self.columns])
        unknown = np.isnan(found[:, :2]).any(1)
        found[unknown, :2], found[unknown, 2:] = np.nan, 0
        return found

    def notes(self, rows: Iterable[Mapping[str, Value]]) -> Iterator[str]:
        """Yield what is likely to be wrong with the points of the first rows."""
        with suppress(PackError):  # said where the row is packed
            found = np.concatenate([self.parse(row)[:, :2] for row in itertools.islice(rows, INFERRED_FROM)])
            known = found[~np.isnan(found)]
            if len(known) and known.min() >= 0 and known.max() <= 1 and (known % 1).any():
                yield (
                    f"the columns of points, such as {self.columns[0][0]!r}, have numbers from 0 to 1, and keypoints "
                    "are pixels: multiply fractions by width and height before they are packed"
                )


def find_points(numbers: Mapping[str, bool], taken: Collection[str], given: GivenSchema) -> dict[str, PointColumns]:
    """Return the field of the points of a table, by its name; empty if there are none.

    ``numbers``: by column that may be one of a point, whether it has numbers; most must have. ``taken``: names of other
    fields. ``given``: columns that it names are fields of their own.
    """
    points: dict[tuple[str, int], dict[str, str]] = {}
    for column in numbers:
        match = _FIRST.fullmatch(column) or _LAST.fullmatch(column)
        if match is not None and column not in given.fields and column not in given.dropped:
            axis = match["axis"].lower()
            key = (match["stem"] or "").rstrip("_ .-").lower(), int(match["number"] or -1)
            points.setdefault(key, {}).setdefault(axis if axis in "xy" else "v", column)
    whole = {key: axes for key, axes in points.items() if {"x", "y"} <= axes.keys()}
    least = _LEAST_NAMED if all(_POINT_WORDS.search(stem) for stem, _ in whole) else _LEAST
    used = [column for axes in whole.values() for column in axes.values()]
    name = next((name for name in ("keypoints", "landmarks", "column_points") if name not in taken), None)
    if name is None or len(whole) < least or 2 * sum(numbers[column] for column in used) <= len(used):
        return {}
    stems = {stem: place for place, stem in enumerate(dict.fromkeys(stem for stem, _ in whole))}
    ordered = sorted(whole, key=lambda key: (stems[key[0]], key[1]))
    axes = "xyv" if all("v" in each for each in whole.values()) else "xy"
    columns = tuple(tuple(whole[key][axis] for axis in axes) for key in ordered)
    return {name: PointColumns(columns, given.fields.get(name, Field("keypoints")))}


def _parse_number(column: str, value: object) -> float:
    if value is None or (isinstance(value, str) and value.strip() in MISSING_WORDS):
        return math.nan
    try:
        if isinstance(value, str | int | float):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise PackError(f"column {column!r} is a coordinate of a point and must be a number, got {value!r:.80}")
