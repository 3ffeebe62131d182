"""Converts values of documents to those of a record's fields, and checks their types.

::

    {"img": {"data": b"..."}, "cls": 3, "at": datetime} ──DocumentReader──> {"image": b"...", "label": 3, "at": "..."}

A type that the schema does not allow is a :class:`ValueError` that names the field. Called for each record.
"""

from __future__ import annotations

import base64
import datetime as dt
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import numpy as np
import xxhash

from penstock.sample import ArrayKind, DType, Field
from penstock.stores.mongo.fields import Document, DocumentLayout, get_value

__all__ = [
    "PIXELS",
    "SHAPE",
    "VALUES",
    "DocumentReader",
    "count_bytes",
    "hash_blob",
    "make_projection",
    "to_text",
]

SHAPE: Final = "shape"
VALUES: Final = "values"
PIXELS: Final = "pixels"
"""Names in the documents that hold an array of several axes (shape and values), or pixels (shape and bytes)."""

_MAX_LISTED: Final = 5
_MAX_DEPTH: Final = 64
Convert = Callable[[object], object]


class DocumentReader:
    """Makes the fields of records of one layout. It holds constants only."""

    def __init__(self, layout: DocumentLayout) -> None:
        self._converts = {
            name: (path.split("."), _make_converter(name, layout.schema[name], name in layout.text_labels))
            for name, path in layout.paths.items()
        }

    def read(self, document: Document, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Some fields, by default all; ValueError or TypeError if a value is not of the kind of its field."""
        chosen = ((name, *self._converts[name]) for name in self._converts if names is None or name in names)
        return {name: convert(get_value(document, path)) for name, path, convert in chosen}


def to_text(value: object) -> str:
    """A value as the text of a key or of a text field: a time in ISO format, an ObjectId as its hexadecimal digits."""
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def make_projection(paths: Sequence[str]) -> dict[str, int]:
    """What a query asks for to get some paths: no path lies inside another, and none goes into a list."""
    whole = []
    for path in dict.fromkeys(paths):
        parts = path.split(".")
        stop = next((number for number, part in enumerate(parts) if number and part.isdecimal()), len(parts))
        whole.append(parts[:stop])
    kept = [parts for parts in whole if not any(parts[: len(other)] == other and parts != other for other in whole)]
    return {".".join(parts): 1 for parts in kept} | {"_id": 1}


def count_bytes(value: object) -> int:
    """The bytes of the encoded values in a document, at any depth."""
    if isinstance(value, dict):
        return sum(map(count_bytes, value.values()))
    if isinstance(value, list):
        return sum(map(count_bytes, value))
    return len(value) if isinstance(value, bytes) else 0


def hash_blob(blob: object) -> int:
    """The hash of an encoded field, as a signed number, which is what BSON has; 0 where there is no value."""
    if blob is None:
        return 0
    if isinstance(blob, np.ndarray):  # as it is stored: little-endian, in order of rows
        blob = np.ascontiguousarray(blob, blob.dtype.newbyteorder("<"))
    number = xxhash.xxh3_64_intdigest(cast("bytes", blob))  # any buffer, or a TypeError
    return number - (1 << 64) if number >> 63 else number


def _make_converter(name: str, field: Field, is_text_label: bool) -> Convert:
    if field.pixels is not None:
        return _make_pixels_converter(name, field.pixels)
    if field.is_blob:
        return _make_bytes_converter(name, is_needed=field.kind == "image")
    if field.array is not None:
        return _make_array_converter(name, field)
    if is_text_label:
        return _make_class_converter(name, field.classes)
    return _make_scalar_converter(name, field.kind)


def _make_bytes_converter(name: str, *, is_needed: bool) -> Convert:
    def convert(value: object) -> object:
        if type(value) is bytes:
            return value
        if isinstance(value, bytes):  # a Binary of another subtype
            return bytes(value)
        if value is None and not is_needed:
            return None
        if isinstance(value, ValueError):  # why a GridFS file has no content
            raise ValueError(*value.args)  # noqa: TRY004  # the error of a file
        raise ValueError(f"its field {name!r} must be bytes, got {_describe(value)}")

    return convert


def _make_pixels_converter(name: str, kind: ArrayKind) -> Convert:
    def convert(value: object) -> object:
        if isinstance(value, dict) and isinstance(value.get(PIXELS), ValueError):  # why a GridFS file has no content
            raise ValueError(*value[PIXELS].args)  # noqa: TRY004  # the error of a file
        if not isinstance(value, dict) or not isinstance(value.get(PIXELS), bytes):
            raise ValueError(f"its field {name!r} must be shape and pixels, got {_describe(value)}")  # noqa: TRY004  # damage
        shape = _check_shape(name, kind, value.get(SHAPE))
        if len(value[PIXELS]) != math.prod(shape) * kind.dtype.itemsize:
            raise ValueError(f"its field {name!r} must have the bytes of shape {shape}, got {len(value[PIXELS])}")
        return np.frombuffer(value[PIXELS], kind.dtype.newbyteorder("<")).reshape(shape)

    return convert


def _make_class_converter(name: str, classes: Sequence[str]) -> Convert:
    numbers = {text: number for number, text in enumerate(classes)}

    def convert(value: object) -> object:
        if value is None:
            return None
        number = numbers.get(value) if type(value) is str else None
        if number is None:
            shown = ", ".join(map(repr, classes[:_MAX_LISTED]))
            raise ValueError(
                f"its field {name!r} must be one of the {len(classes)} classes ({shown} ...), got {value!r:.200}"
            )
        return number

    return convert


def _make_array_converter(name: str, field: Field) -> Convert:
    kind = field.array
    assert kind is not None, "an array"

    def convert(value: object) -> object:
        if value is None:
            return None
        shape = None
        if isinstance(value, dict):
            shape, value = _check_shape(name, kind, value.get(SHAPE)), value.get(VALUES)
        if not isinstance(value, list):
            raise ValueError(f"its field {name!r} must be a list of numbers, got {_describe(value)}")  # noqa: TRY004  # damage
        try:
            array = np.array(value)
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
        array = array.astype(kind.dtype, copy=False)
        array.flags.writeable = False
        return array

    return convert


def _is_number_kind(found: DType, wanted: DType) -> bool:
    """Whether numbers of one dtype may stand for those of another: no text, no float for an integer."""
    if wanted.kind == "f":
        return found.kind in "iufb"
    return found.kind == wanted.kind or (found.kind in "iu" and wanted.kind in "iu")


def _check_shape(name: str, kind: ArrayKind, shape: object) -> list[int]:
    if isinstance(shape, list) and all(isinstance(length, int) and length >= 0 for length in shape):
        numbers = [int(length) for length in shape]
        if kind.allows(numbers):
            return numbers
    raise ValueError(f"its field {name!r} must be {kind}, got shape {shape!r:.200}")


def _make_scalar_converter(name: str, kind: str) -> Convert:
    if kind == "json":
        return _to_json
    if kind == "text":
        return lambda value: value if value is None or type(value) is str else _to_scalar_text(name, value)
    return _make_number_converter(name, kind)


def _make_number_converter(name: str, kind: str) -> Convert:
    def convert(value: object) -> object:
        if value is None:
            return None
        if kind == "float" and isinstance(value, int | float):
            return float(value)
        if kind != "float" and isinstance(value, int):
            return int(value)
        raise ValueError(f"its field {name!r} must be {kind}, got {_describe(value)}")

    return convert


def _to_scalar_text(name: str, value: object) -> str:
    if isinstance(value, dict | list | bytes):
        raise ValueError(f"its field {name!r} must be text, got {_describe(value)}")  # noqa: TRY004  # damage, not a mistake
    return to_text(value)


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


def _describe(value: object) -> str:
    return "nothing" if value is None else f"{type(value).__name__} {value!r:.80}"
