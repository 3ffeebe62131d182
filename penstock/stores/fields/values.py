"""Values inside the samples of MDS and LitData shards: numbers, texts, arrays, images; how each is read from its bytes.

A reader takes the bytes of one value and returns it, or raises ValueError. Nothing is trusted: sizes are compared with
the bytes that are there before anything is allocated. No value is unpickled.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from penstock.sample import Array, DType, Field
from penstock.stores.fields.image_signatures import are_images

__all__ = [
    "ValueReader",
    "find_kind",
    "find_pixels_kind",
    "make_array",
    "make_scalar",
    "read_boolean",
    "read_bytes",
    "read_json",
    "read_pil",
    "read_text",
    "view_array",
]

_PIL_HEAD: Final = struct.Struct("<III")  # width, height, length of the mode
_PIL_MODES: Final[Mapping[str, tuple[str, int]]] = {
    "L": ("uint8", 1),
    "RGB": ("uint8", 3),
    "RGBA": ("uint8", 4),
    "LA": ("uint8", 2),
    "I;16": ("uint16", 1),
    "F": ("float32", 1),
}
_MAX_PIXELS: Final = 1 << 30
_SCALARS: Final[Mapping[str, str]] = {
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


@dataclass(frozen=True, slots=True)
class ValueReader:
    """How the values of a column are read."""

    read: Callable[[memoryview], object]
    """Returns the value of some bytes (a read-only memoryview); raises ValueError if they are wrong."""
    kind: str = ""  # their kind as a field; empty: it follows from the first values (:func:`find_kind`)
    nbytes: int | None = None  # bytes of each value, where all have the same number


def make_scalar(dtype: str) -> ValueReader:
    """Return the reader of a number of some dtype, little-endian."""
    number = struct.Struct("<" + _SCALARS[dtype])

    def read(content: memoryview) -> object:
        if len(content) != number.size:
            raise ValueError(f"a number of type {dtype} has {number.size} bytes, got {len(content)}")
        return number.unpack(content)[0]

    return ValueReader(read, "float" if dtype.startswith("float") else "int", number.size)


def read_boolean(content: memoryview) -> int:
    """Read 0 or 1."""
    if len(content) != 1:
        raise ValueError(f"a boolean has 1 byte, got {len(content)}")
    return int(content[0] != 0)


def read_bytes(content: memoryview) -> memoryview:
    """Return the bytes as they are: a view."""
    return content


def read_text(content: memoryview) -> str:
    """Read text in UTF-8."""
    return str(content, "utf-8")


def read_json(content: memoryview) -> object:
    """Return what a JSON text holds."""
    try:
        return json.loads(str(content, "utf-8"))
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error


def make_array(dtype: DType, shape: tuple[int, ...] | None = None) -> ValueReader:
    """Return the reader of an array whose dtype, and perhaps shape, are known; without shape, it has one axis."""

    def read(content: memoryview) -> object:
        return view_array(content, dtype, shape)

    axes = "*" if shape is None else ",".join(map(str, shape))
    nbytes = None if shape is None else math.prod(shape) * dtype.itemsize
    return ValueReader(read, f"{dtype.name}[{axes}]" if axes else "", nbytes)


def view_array(content: memoryview, dtype: DType, shape: tuple[int, ...] | None) -> Array:
    """A read-only array over some bytes; a copy where it would not be aligned.

    Raises ValueError if the bytes do not fill the shape.
    """
    if shape is not None and math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"an array of {dtype} of shape {shape} does not have {len(content)} bytes")
    if not content:
        return _freeze(np.empty(0 if shape is None else shape, dtype))
    array = np.frombuffer(content, dtype.newbyteorder("<")).astype(dtype, copy=False)
    if not array.flags.aligned:
        array = array.copy()
    return _freeze(array if shape is None else array.reshape(shape))


def read_pil(content: memoryview) -> Array:
    """Return the pixels of an image as Pillow's ``tobytes`` writes them, behind width, height and mode: an HWC array.

    Gray images have one channel, all others become RGB; transparency is left out.
    """
    if len(content) < _PIL_HEAD.size:
        raise ValueError(f"its {len(content)} bytes are shorter than the header of an image")
    width, height, mode_nbytes = _PIL_HEAD.unpack_from(content)
    begin = _PIL_HEAD.size + min(mode_nbytes, 16)
    mode = bytes(content[_PIL_HEAD.size : begin]).decode("ascii", "replace")
    if mode not in _PIL_MODES:
        raise ValueError(f"images of Pillow's mode {mode!r} are not read; modes that are: {', '.join(_PIL_MODES)}")
    dtype, channels = _PIL_MODES[mode]
    if not 0 < width * height <= _MAX_PIXELS:
        raise ValueError(f"an image must have 1 to {_MAX_PIXELS} pixels, got {width} x {height}")
    pixels = view_array(content[begin:], np.dtype(dtype), (height, width, channels))
    kept = {2: 1, 4: 3}.get(channels, channels)
    return pixels if kept == channels else _freeze(np.ascontiguousarray(pixels[:, :, :kept]))


def find_kind(values: Iterable[object]) -> str:
    """Return the kind of the first values of a column whose kind is not stated.

    Bytes that mostly begin as images do are images. Pixels have :func:`find_pixels_kind`.

    Raises ValueError if a value is an array of a dtype that is no field.
    """
    listed = list(values)
    first = listed[0] if listed else b""
    if isinstance(first, np.ndarray):
        if first.ndim == 0:
            return "float" if first.dtype.kind == "f" else "int"
        kind = f"{first.dtype.name}[{','.join('*' * first.ndim)}]"
        Field(kind)
        return kind
    return "image" if are_images(each for each in listed if isinstance(each, bytes | memoryview)) else "bytes"


def find_pixels_kind(values: Iterable[Array]) -> str:
    """Return the kind of pixels: gray if all of the first ones are, else RGB; sizes vary."""
    arrays = list(values)
    dtype = arrays[0].dtype.name if arrays else "uint8"
    channels = 1 if arrays and all(array.shape[2] == 1 for array in arrays) else 3
    return f"pixels:{dtype}[*,*,{channels}]"


def _freeze(array: Array) -> Array:
    array.flags.writeable = False
    return array
