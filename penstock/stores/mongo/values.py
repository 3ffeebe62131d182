"""Converts values of documents to those of a record's fields, and checks their types.

::

    {"img": {"data": b"..."}, "cls": 3, "at": datetime} ──DocumentReader──> {"image": b"...", "label": 3, "at": "..."}

A type that the schema does not allow is a :class:`ValueError` that names the field. Called for each record.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from penstock.sample import Array, ArrayKind, DType, Field
from penstock.stores.fields.box_corners import to_corners
from penstock.stores.fields.exact_casts import as_numbers, cast_exactly, to_float, to_whole
from penstock.stores.mongo.fields import Document, DocumentLayout, get_value

__all__ = [
    "PIXELS",
    "SHAPE",
    "VALUES",
    "DocumentReader",
    "count_bytes",
    "make_projection",
    "to_text",
]

SHAPE: Final = "shape"
VALUES: Final = "values"
PIXELS: Final = "pixels"
"""Names in the documents that hold an array of several axes (shape and values), or pixels (shape and bytes)."""

_MAX_LISTED: Final = 5
_MAX_DEPTH: Final = 64


class DocumentReader:
    """Makes the fields of records of one layout. It holds constants only."""

    def __init__(self, layout: DocumentLayout) -> None:
        self._fields = [(name, path.split("."), layout.schema[name]) for name, path in layout.paths.items()]
        names = layout.schema["label"].classes if layout.has_class_names else ()
        self._boxes = layout.boxes
        self._numbers = {name: number for number, name in enumerate(names)}

    def read(self, document: Document, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return some fields, by default all; ValueError or TypeError if a value is not of the kind of its field."""
        chosen = (each for each in self._fields if names is None or each[0] in names)
        return {name: self._convert(name, field, get_value(document, path)) for name, path, field in chosen}

    def _convert(self, name: str, field: Field, value: object) -> object:
        if isinstance(value, ValueError):  # why a GridFS file has no content
            raise ValueError(*value.args)  # noqa: TRY004  # the error of a file
        if field.kind == "json":
            return _to_json(value)
        if field.pixels is not None:
            return _to_pixels(name, field.pixels, value)
        if value is None and field.kind != "image":
            return None
        if field.is_blob and isinstance(value, bytes):
            return value if type(value) is bytes else bytes(value)  # a Binary of another subtype
        if field.array is not None:
            array = _to_array(name, field, field.array, value)
            return array if field.kind != "boxes" or self._boxes == "xyxy" else _to_corners(array, self._boxes)
        return self._to_scalar(name, field.kind, value)

    def _to_scalar(self, name: str, kind: str, value: object) -> object:
        if name == "label" and self._numbers:
            return _to_number(name, self._numbers, value)
        if kind == "text" and not isinstance(value, dict | list | bytes):
            return to_text(value)
        if kind == "float" and isinstance(value, int | float):
            return to_float(value)
        if kind in {"label", "int"} and isinstance(value, int):
            return to_whole(value)
        kind = "bytes" if kind in {"image", "mask"} else kind
        raise ValueError(f"its field {name!r} must be {kind}, got {_describe_value(value)}")


def to_text(value: object) -> str:
    """A value as the text of a key or of a text field: a time in ISO format, an ObjectId as its hexadecimal digits."""
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def make_projection(paths: Sequence[str]) -> dict[str, int]:
    """Return what a query asks for to get some paths: no path lies inside another, and none goes into a list."""
    whole = []
    for path in dict.fromkeys(paths):
        parts = path.split(".")
        stop = next((number for number, part in enumerate(parts) if number and part.isdecimal()), len(parts))
        whole.append(parts[:stop])
    kept = [parts for parts in whole if not any(parts[: len(other)] == other and parts != other for other in whole)]
    return {".".join(parts): 1 for parts in kept} | {"_id": 1}


def count_bytes(value: object) -> int:
    """Return the bytes of the encoded values in a document, at any depth."""
    if isinstance(value, dict):
        return sum(map(count_bytes, value.values()))
    if isinstance(value, list):
        return sum(map(count_bytes, value))
    return len(value) if isinstance(value, bytes) else 0


def _to_pixels(name: str, kind: ArrayKind, value: object) -> Array:
    if not isinstance(value, dict) or not isinstance(value.get(PIXELS), bytes):
        raise ValueError(f"its field {name!r} must be shape and pixels, got {_describe_value(value)}")  # noqa: TRY004  # damage
    shape = _check_shape(name, kind, value.get(SHAPE))
    if len(value[PIXELS]) != math.prod(shape) * kind.dtype.itemsize:
        raise ValueError(f"its field {name!r} must have the bytes of shape {shape}, got {len(value[PIXELS])}")
    return np.frombuffer(value[PIXELS], kind.dtype.newbyteorder("<")).reshape(shape)


def _to_number(name: str, numbers: Mapping[str, int], value: object) -> int:
    """Return the number of a class of which a document has the name."""
    if type(value) is not str or value not in numbers:
        shown = ", ".join(map(repr, [*numbers][:_MAX_LISTED]))
        raise ValueError(
            f"its field {name!r} must be one of the {len(numbers)} classes ({shown} ...), got {value!r:.200}"
        )
    return numbers[value]


def _to_corners(array: Array, form: str) -> Array:
    boxes = to_corners(array, form)
    boxes.flags.writeable = False
    return boxes


def _to_array(name: str, field: Field, kind: ArrayKind, value: object) -> Array:
    shape = None
    if isinstance(value, dict):
        shape, value = _check_shape(name, kind, value.get(SHAPE)), value.get(VALUES)
    if not isinstance(value, list):
        raise ValueError(f"its field {name!r} must be a list of numbers, got {_describe_value(value)}")  # noqa: TRY004  # damage
    try:
        array = as_numbers(value, kind.dtype)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"its field {name!r} must be {kind}: {error}") from error
    if shape is not None and math.prod(shape) != array.size:
        raise ValueError(f"its field {name!r} must have {math.prod(shape)} values, got {array.size}")
    if array.size == 0:
        array = np.empty(kind.empty_shape or (0,) if shape is None else shape, kind.dtype)
    elif shape is not None:
        array = array.reshape(shape)
    if not kind.allows(array.shape) or not _is_number_kind(array.dtype, kind.dtype):
        raise ValueError(f"its field {name!r} must be {kind}, got {array.dtype} of shape {array.shape}")
    is_named = field.kind in {"boxes", "keypoints"}  # float32 whatever the documents hold
    array = cast_exactly(array, kind.dtype, may_round=is_named)
    array.flags.writeable = False
    return array


def _is_number_kind(found: DType, wanted: DType) -> bool:
    """Return whether numbers of one dtype may stand for those of another: no text, no float for an integer."""
    if wanted.kind == "f":
        return found.kind in "iufb"
    return found.kind == wanted.kind or (found.kind in "iu" and wanted.kind in "iu")


def _check_shape(name: str, kind: ArrayKind, shape: object) -> list[int]:
    if isinstance(shape, list) and all(isinstance(length, int) and length >= 0 for length in shape):
        numbers = [int(length) for length in shape]
        if kind.allows(numbers):
            return numbers
    raise ValueError(f"its field {name!r} must be {kind}, got shape {shape!r:.200}")


def _to_json(value: object, depth: int = 0) -> object:
    """A value with the types that JSON has: a time, an ObjectId and a decimal number as text, bytes in base64."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if depth > _MAX_DEPTH:
        raise ValueError(f"it must be nested at most {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        return {name: _to_json(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_to_json(each, depth + 1) for each in value]
    return to_text(value)


def _describe_value(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r:.80}"
