"""What differs between two records with one key, field by field, in words. Called by :mod:`.routes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from penstock.errors import PenstockError
from penstock.pack.conversion.comparison import is_equal
from penstock.sample import Array, Field, Record, Value
from penstock.view.shown_pixels import PixelForm, to_rgb
from penstock.viewer.compare.two_stores import FieldPair
from penstock.wording import counted, format_bytes

__all__ = ["describe_differences"]

_MOST_TEXT: Final = 2000
_MOST_ROWS: Final = 50
_MOST_NBYTES: Final = 32 << 20
"""Bytes of an image up to which its pixels are compared."""


def describe_differences(before: Record, after: Record, fields: Sequence[FieldPair]) -> list[dict[str, Any]]:
    """Each field of two records, those that differ first: name, both values as text, and what differs in words."""
    rows = []
    for field in fields:
        one, other = before.fields[field.name], after.fields[field.name]
        same = field.is_equal(one, other)
        shown = {"before": _show(one, field.before), "after": _show(other, field.after)}
        rows.append({"name": field.name, **shown, "same": same, "words": "" if same else _say(one, other, field)})
    return sorted(rows, key=lambda row: row["same"])


def _show(value: Value, field: Field) -> str:
    """A value as text, cut to a limit; of bytes and pixels their size."""
    if value is None:
        return "no value"
    if isinstance(value, bytes | bytearray | memoryview):
        return format_bytes(memoryview(value).nbytes)
    if field.classes and isinstance(value, int | np.integer):
        return _name(int(value), field.classes)
    if not isinstance(value, np.ndarray):
        return _cut(value if isinstance(value, str) else repr(value))
    if value.ndim > 2:
        return f"{value.dtype} {' x '.join(map(str, value.shape))}"
    if field.classes and value.dtype.kind in "iu":
        shown = ", ".join(_name(int(each), field.classes) for each in value.ravel()[:_MOST_ROWS])
    else:
        rows = np.round(value[:_MOST_ROWS].astype(np.float64), 3).tolist()
        shown = "\n".join(str(row) for row in rows) if value.ndim == 2 else str(rows)
    return _cut(shown + ("\n..." if len(value) > _MOST_ROWS else ""))


def _name(number: int, classes: Sequence[str]) -> str:
    return classes[number] if 0 <= number < len(classes) else f"class {number}"


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}... ({counted(len(text), 'character')})"


def _say(before: Value, after: Value, field: FieldPair) -> str:
    if before is None or after is None:
        return "added" if before is None else "removed"
    if field.before.is_image and field.after.is_image:
        return _say_pixels(before, after)
    if field.before.is_blob or field.after.is_blob:
        return "bytes differ"
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        return _say_rows(before, after, field)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        names = sorted(name for name in {*before, *after} if not is_equal(before.get(name), after.get(name)))
        return f"differs in {', '.join(map(str, names[:10]))}"
    return "differs"


def _say_rows(before: Array, after: Array, field: FieldPair) -> str:
    noun = "box" if field.before.kind == "boxes" else "value" if before.ndim == 1 else "row"
    if before.shape[1:] != after.shape[1:]:
        return f"shape {before.shape} before, {after.shape} after"
    if len(before) != len(after):
        return f"{counted(len(before), noun)} before, {len(after):,} after"
    one, other = before.astype(np.float64), field.renumber(after).astype(np.float64)
    is_other = (one != other) & ~(np.isnan(one) & np.isnan(other))
    rows = int(np.count_nonzero(is_other.reshape(len(one), -1).any(axis=1)))
    text = f"{rows:,} of {counted(len(before), noun)} differ"
    if field.before.classes:
        return text
    most = float(np.nanmax(np.abs(one - other), initial=0.0, where=is_other))
    return f"{text}, by at most {most:.4g}{' pixels' if noun == 'box' else ''}"


def _say_pixels(before: Value, after: Value) -> str:
    if max(memoryview(each).nbytes for each in (before, after)) > _MOST_NBYTES:
        return "bytes differ; the image is too large to compare its pixels here"
    try:
        one, other = (to_rgb(each, PixelForm())[0].astype(np.int16) for each in (before, after))
    except PenstockError as error:
        return f"bytes differ; {str(error)[:300]}"
    if one.shape != other.shape:
        sizes = (f"{each.shape[1]} x {each.shape[0]}" for each in (one, other))
        return f"{next(sizes)} pixels before, {next(sizes)} after"
    distance = np.abs(one - other)
    most = int(distance.max(initial=0))
    if not most:
        return "bytes differ; the pixels are equal"
    return f"pixels differ by at most {most} of 255, by {distance.mean():.2g} on average"
