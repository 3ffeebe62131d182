"""The header and the fields of FFCV's ``.beton`` files: their types, their metadata, and how a value is read.

::

    type   field              metadata of a record                            value
    0, 1   float, int         the number                                      the number
    2      RGB image          mode (0 JPEG, 1 raw), width, height, place      JPEG bytes, or pixels
    3, 5   bytes, JSON        place, number of bytes                          bytes; JSON ends at a zero byte
    4, 6   array, tensor      place                                           an array of the field's dtype and shape

Called by :mod:`penstock.stores.shards.beton`. Places and sizes come from the file: each is compared with its bounds.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, StoreFormatError
from penstock.sample import Array, DType
from penstock.stores.common.mirrors import ByteRanges
from penstock.stores.fields.values import read_json, view_array

__all__ = [
    "VERSION",
    "BetonField",
    "BetonHead",
    "OpenedBeton",
    "ReadValue",
    "locate_value",
    "make_reader",
    "parse_head",
]

VERSION: Final = 2
"""The version of the format that is read."""

FIELD_NBYTES: Final = 1041
_HEADER: Final = struct.Struct("<HHIQQ")
_NAME_NBYTES: Final = 16
_MAX_FIELDS: Final = 1000
_MAX_AXES: Final = 31
_MAX_TYPE_NBYTES: Final = 200
_DTYPE: Final = re.compile(r"[<|=]?(b1|[ui][1248]|f[248])")
_FLOAT: Final = np.dtype([("number", "<f8")], align=True)  # FFCV aligns these three, and not the next two
_INT: Final = np.dtype([("number", "<i8")], align=True)
_PLACE: Final = np.dtype([("place", "<u8")], align=True)
_IMAGE: Final = np.dtype([("mode", "<u1"), ("width", "<u2"), ("height", "<u2"), ("place", "<u8")])
_BYTES: Final = np.dtype([("place", "<u8"), ("nbytes", "<u8")])
_TITLES: Final = ("float", "int", "RGB image", "bytes", "array", "JSON", "tensor")
_METADATA: Final = (_FLOAT, _INT, _IMAGE, _BYTES, _PLACE, _BYTES, _PLACE)
_CUSTOM: Final = 255


@dataclass(frozen=True, slots=True)
class BetonField:
    """A field: its name, the number of its type, and for arrays dtype and shape."""

    name: str
    type: int
    dtype: DType | None = None
    shape: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The type in words."""
        return _TITLES[self.type]


@dataclass(frozen=True, slots=True)
class BetonHead:
    """What the header says, and what follows from it.

    ``metadata``: dtype of the entry of a record, whose fields are ``f0``, ``f1``, ...; ``begin``: offset of the
    entries; ``data_begin`` and ``table``: where the pages begin and end.
    """

    fields: tuple[BetonField, ...]
    count: int
    metadata: DType
    begin: int
    data_begin: int
    table: int


@dataclass(frozen=True, slots=True)
class OpenedBeton:
    """A mapped file: its bytes, the metadata of all records, and the sizes of JPEGs, by the name of their field."""

    view: ByteRanges
    metadata: Array
    jpeg_nbytes: dict[str, NDArray[np.int64]]


ReadValue = Callable[[OpenedBeton, tuple[int, ...], int], object]
"""Reads a value of an opened file from the metadata of a field and the index of the record."""


def parse_head(view: ByteRanges) -> BetonHead:
    """The header of a file.

    Raises StoreFormatError if it is not the header of such a file, or does not agree with the size of the file. Raises
    ArgumentError if a field has a custom type.
    """
    if len(view) < _HEADER.size:
        raise StoreFormatError(f"its {len(view)} bytes are shorter than the header of a .beton file")
    version, field_count, _, count, table = _HEADER.unpack(view[: _HEADER.size])
    if version != VERSION:
        raise StoreFormatError(f"the version of a .beton file must be {VERSION}, got {version}")
    begin = _HEADER.size + field_count * FIELD_NBYTES
    if not 0 < field_count <= _MAX_FIELDS or not begin <= table <= len(view):
        raise StoreFormatError(
            f"it is truncated, or no .beton file: {field_count} fields, a table at byte {table} of {len(view)}"
        )
    try:
        heads = view[_HEADER.size : begin]
        fields = tuple(_parse_field(heads, number * FIELD_NBYTES) for number in range(field_count))
    except (ValueError, TypeError, RecursionError) as error:
        if isinstance(error, ArgumentError):
            raise
        raise StoreFormatError(f"its fields are damaged: {error}") from error
    if len({field.name for field in fields}) < len(fields):
        raise StoreFormatError(f"two of its fields have the same name: {', '.join(f.name for f in fields):.200}")
    metadata = np.dtype([(f"f{i}", _METADATA[field.type]) for i, field in enumerate(fields)], align=True)
    data_begin = begin + count * metadata.itemsize
    if data_begin > table:
        raise StoreFormatError(f"it is truncated: {count} records do not fit before byte {table}")
    return BetonHead(fields, count, metadata, begin, data_begin, table)


def locate_value(field: BetonField, opened: OpenedBeton, stored: tuple[int, ...], index: int) -> tuple[int, int] | None:
    """Offset and number of bytes of a value that is in the pages of a file; None for another."""
    if field.type == 2:
        mode, width, height, offset = stored
        return offset, width * height * 3 if mode else max(int(opened.jpeg_nbytes[field.name][index]), 0)
    if field.dtype is not None:
        return stored[0], math.prod(field.shape) * field.dtype.itemsize
    return (stored[0], stored[1]) if field.type in {3, 5} else None


def make_reader(field: BetonField, head: BetonHead, *, encodes_raw: bool = False) -> ReadValue:
    """What reads the values of a field. ``encodes_raw``: raw images become the bytes of a PPM file."""
    if field.type in {0, 1}:
        return lambda opened, stored, index: stored[0]  # noqa: ARG005  # the signature of ReadValue
    if field.type == 2:
        return _make_image_reader(field, head, encodes_raw=encodes_raw)
    if field.type in {3, 5}:
        is_json = field.type == 5

        def read_bytes(opened: OpenedBeton, stored: tuple[int, ...], index: int) -> object:
            del index
            content = _slice(opened.view, head, *stored)
            return read_json(memoryview(bytes(content).split(b"\0", 1)[0])) if is_json else content

        return read_bytes
    dtype, shape = field.dtype, field.shape
    assert dtype is not None, "an array has a dtype"
    nbytes = math.prod(shape) * dtype.itemsize

    def read_array(opened: OpenedBeton, stored: tuple[int, ...], index: int) -> object:
        del index
        return view_array(_slice(opened.view, head, stored[0], nbytes), dtype, shape)

    return read_array


def _make_image_reader(field: BetonField, head: BetonHead, *, encodes_raw: bool) -> ReadValue:
    name = field.name

    def read(opened: OpenedBeton, stored: tuple[int, ...], index: int) -> object:
        mode, width, height, offset = stored
        if mode == 0:
            nbytes = int(opened.jpeg_nbytes[name][index])
            if nbytes <= 0:
                raise ValueError(f"no allocation begins at its place, byte {offset}")
            return _slice(opened.view, head, offset, nbytes)
        if mode != 1:
            raise ValueError(f"the mode of an image must be 0 (JPEG) or 1 (raw), got {mode}")
        raw = _slice(opened.view, head, offset, width * height * 3)
        if encodes_raw:
            return b"".join((b"P6 %d %d 255\n" % (width, height), raw))
        return view_array(raw, np.dtype(np.uint8), (height, width, 3))

    return read


def _slice(view: ByteRanges, head: BetonHead, offset: int, nbytes: int) -> memoryview:
    if nbytes and not head.data_begin <= offset <= offset + nbytes <= head.table:
        raise ValueError(f"its bytes {offset} to {offset + nbytes} are not inside the pages of the file")
    return view[offset : offset + nbytes]


def _parse_field(view: memoryview, at: int) -> BetonField:
    number = view[at]
    name = bytes(view[at + 1 : at + 1 + _NAME_NBYTES]).rstrip(b"\0").decode("utf-8", "strict")
    if not name:
        raise ValueError("a field has no name")
    if number == _CUSTOM:
        raise ArgumentError(
            f"field {name!r} is of a custom type, whose size is not in the file; write the file again without it"
        )
    if number >= len(_TITLES):
        raise ValueError(f"field {name!r} has the unknown type {number}")
    if number not in {4, 6}:
        return BetonField(name, number)
    arguments = view[at + 1 + _NAME_NBYTES : at + FIELD_NBYTES]
    *lengths, type_nbytes = struct.unpack_from("<33Q", arguments)
    while lengths and not lengths[-1]:
        lengths.pop()
    if type_nbytes > _MAX_TYPE_NBYTES or len(lengths) > _MAX_AXES:
        raise ValueError(f"field {name!r} has {len(lengths)} axes, and a dtype of {type_nbytes} bytes")
    described = json.loads(bytes(arguments[264 : 264 + type_nbytes]))
    text = described[0][1] if isinstance(described, list) and len(described) == 1 and len(described[0]) == 2 else ""
    if not isinstance(text, str) or not _DTYPE.fullmatch(text) or math.prod(lengths) > 1 << 40:
        raise ValueError(f"field {name!r} has the dtype {described!r:.100} and the shape {lengths!r:.100}")
    return BetonField(name, number, np.dtype(text), tuple(lengths) or (1,))
