"""What differs between two records with one key, field by field, in words. Called by :mod:`.routes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.errors import PenstockError
from penstock.sample import Array, Field, Record, Value
from penstock.sheets.shown_pixels import PixelForm, to_rgb
from penstock.viewer.compare.two_stores import FieldPair
from penstock.wording import counted, format_bytes

__all__ = ["describe_differences"]

_MOST_TEXT: Final = 2000
_MOST_VALUES: Final = 200
_MOST_NBYTES: Final = 32 << 20
"""Bytes of an image up to which its pixels are compared."""


def describe_differences(before: Record, after: Record, fields: Sequence[FieldPair]) -> list[dict[str, object]]:
    """Describe fields of two records, those that differ first: name, both values as text, what differs in words."""
    rows: list[dict[str, object]] = []
    for field in sorted(fields, key=lambda each: each.is_equal(before.fields[each.name], after.fields[each.name])):
        one, other = before.fields[field.name], after.fields[field.name]
        words = "" if field.is_equal(one, other) else _say(one, other, field)
        shown = {"before": _show(one, field.before), "after": _show(other, field.after)}
        rows.append({"name": field.name, **shown, "same": not words, "words": words})
    return rows


def _show(value: Value, field: Field) -> str:
    """Return a value as text, cut to a limit; of bytes and pixels their size."""
    if value is None:
        return "no value"
    if isinstance(value, bytes | bytearray | memoryview):
        return format_bytes(memoryview(value).nbytes)
    if isinstance(value, np.ndarray) and (field.is_blob or value.ndim > 2):
        return f"{value.dtype} {' x '.join(map(str, value.shape))}"
    if field.classes:
        names = dict(enumerate(field.classes))
        text = ", ".join(names.get(each, f"class {each}") for each in np.ravel(value)[:_MOST_VALUES].tolist())
    elif isinstance(value, np.ndarray):
        text = np.array2string(value, precision=3, suppress_small=True, threshold=_MOST_VALUES)
    else:
        text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}... ({counted(len(text), 'character')})"


def _say(before: Value, after: Value, field: FieldPair) -> str:
    if before is None or after is None:
        return "added" if before is None else "removed"
    if field.before.is_image and field.after.is_image:
        return _say_pixels(before, after)
    if isinstance(before, np.ndarray) and isinstance(after, np.ndarray):
        return _say_rows(before, after, field)
    return "bytes differ" if field.before.is_blob or field.after.is_blob else "differs"


def _say_rows(before: Array, after: Array, field: FieldPair) -> str:
    if before.shape[1:] != after.shape[1:]:
        return f"shape {before.shape} before, {after.shape} after"
    noun = "box" if field.before.kind == "boxes" else "row"
    if len(before) != len(after):
        return f"{counted(len(before), noun)} before, {len(after):,} after"
    one, other = before.astype(np.float64), field.renumber(after).astype(np.float64)
    is_other = (one != other) & ~(np.isnan(one) & np.isnan(other))
    rows = int(np.count_nonzero(is_other.reshape(len(one), -1).any(axis=1)))
    most = "" if field.before.classes else f", by at most {np.nanmax(np.abs(one - other), initial=0):.4g}"
    return f"{rows:,} of {counted(len(before), noun)} differ{most}{' pixels' if noun == 'box' else ''}"


def _say_pixels(before: Value, after: Value) -> str:
    if max(memoryview(each).nbytes for each in (before, after)) > _MOST_NBYTES:
        return "bytes differ; the image is too large to compare its pixels here"
    try:
        one, other = (to_rgb(each, PixelForm())[0].astype(np.int16) for each in (before, after))
    except PenstockError as error:
        return f"bytes differ; {str(error)[:300]}"
    if one.shape != other.shape:
        return "{1} x {0} pixels before, {3} x {2} after".format(*one.shape[:2], *other.shape[:2])
    distance = np.abs(one - other)
    if not distance.any():
        return "bytes differ; the pixels are equal"
    return f"pixels differ by at most {distance.max()} of 255, by {distance.mean():.2g} on average"
