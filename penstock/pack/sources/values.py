"""Values of samples: which kind of field each could be, and how kinds of several samples are united.

::

    tensor, array scalar, memoryview ──plain──> array, number, text, bytes, picture, path, list, dict, None
    plain value ──guess──> Guess("int64[5]") ──unite──> Guess("int64[*]")

Frameworks are not imported: a tensor is what has ``detach``, a picture of Pillow is known by its class. Called by
:mod:`.inference`; what is stored is made by :mod:`.conversion`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import DecodeError, PackError
from penstock.fields.names import CLASS_NAMES, IMAGE_NAMES, is_mask_name
from penstock.paths import IMAGE_SUFFIXES, UNREAD_SUFFIXES
from penstock.sample import Array, Field, Value
from penstock.stores.fields.exact_casts import is_rounded
from penstock.stores.fields.small_fields import dump_json
from penstock.transforms.decoding import fallback
from penstock.transforms.inputs import is_pil

__all__ = [
    "Guess",
    "describe",
    "guess",
    "is_image",
    "names_image",
    "plain",
    "suggest_kind",
    "to_json",
    "unite",
]

_IMAGE_NAMES: Final = frozenset({*IMAGE_NAMES, "pixel_values"})
_NAMED_SUFFIXES: Final = IMAGE_SUFFIXES | UNREAD_SUFFIXES
_CHANNELS: Final = (1, 3, 4)
_DTYPES: Final = frozenset(
    {"bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64"}
)
_MAX_PIXELS: Final = 1 << 27
_NOTHING: Final = "none"
_EMPTY: Final = "empty"


@dataclass(frozen=True, slots=True)
class Guess:
    """The kind that a value could have."""

    kind: str  # a kind of field; ``"none"`` for None, and ``"empty"`` for an empty list
    is_list: bool = False  # whether the value is a list, which JSON could hold too

    @property
    def is_known(self) -> bool:
        """Whether a field could be made of it."""
        return self.kind not in {_NOTHING, _EMPTY}


def plain(value: object) -> Value:  # noqa: PLR0911  # a return for each type
    """The value without its framework: tensors are arrays on the CPU, array scalars are numbers."""
    if value is None or type(value) in {str, bytes, int, float, bool, dict} or is_pil(value):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, os.PathLike):
        return Path(os.fsdecode(value))
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        if not value.ndim:
            return None
        raise PackError(
            f"a masked array of shape {value.shape} has masked values, for which a record has no place; give "
            "array.filled(number)"
        )
    if not isinstance(value, list | tuple | str | Mapping) and (
        hasattr(value, "__array__") or hasattr(value, "__dlpack__")
    ):
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise PackError(f"a {type(value).__name__} cannot be made an array: {error}") from error
        if array.dtype.kind == "M" and array.ndim == 0:  # of nanoseconds, its item is an int
            return None if np.isnat(array) else str(array)
        return array.item() if array.ndim == 0 and array.dtype.kind != "m" else array
    if isinstance(value, list | tuple) and any(
        hasattr(each, "detach") or isinstance(each, np.ndarray) for each in value
    ):
        return [plain(each) for each in value]
    return value


def guess(name: str, value: object, images: str) -> Guess:  # noqa: PLR0911  # a return for each type
    """The kind of a plain value of the field ``name``; ``images`` is how pictures are stored.

    Raises PackError if no kind of field can hold it.
    """
    if value is None:
        return Guess(_NOTHING)
    if is_pil(value):
        if images == "pixels" and not is_mask_name(name):
            return guess_array(name, np.asarray(value), is_image=True)
        return Guess("mask" if is_mask_name(name) else "image")
    if isinstance(value, Path):
        return Guess(_encoded_kind(name) if value.suffix.lower() in IMAGE_SUFFIXES else "bytes")
    if isinstance(value, bytes):
        return Guess(_encoded_kind(name) if is_image(value) else "bytes")
    if isinstance(value, bool | int):
        return Guess("label" if name.lower() in CLASS_NAMES else "int")
    if isinstance(value, float):
        return Guess("float")
    if isinstance(value, str):
        is_path = name.lower() in _IMAGE_NAMES or is_mask_name(name)
        return Guess(_encoded_kind(name) if is_path and names_image(value) and "://" not in value else "text")
    if isinstance(value, np.ndarray):
        return guess_array(name, value)
    if isinstance(value, list | tuple):
        return _guess_list(name, value)
    if isinstance(value, Mapping):
        to_json(value)
        return Guess("json")
    raise PackError(f"field {name!r} must be a number, text, bytes, array, image, list or dict, got {describe(value)}")


def guess_array(name: str, array: Array, *, is_image: bool = False) -> Guess:
    """The kind of an array; ``is_image`` where it is the pixels of a picture."""
    dtype, shape = array.dtype.name, array.shape
    if dtype not in _DTYPES:
        raise PackError(f"field {name!r} must be of bool, integers or floats, got an array of {array.dtype}")
    named = is_image or name.lower() in _IMAGE_NAMES
    if is_mask_name(name) and array.ndim == 2 and dtype in {"bool", "uint8", "uint16"}:
        return Guess("mask")
    if array.ndim == 2 and named and dtype in {"uint8", "uint16", "float32"}:
        shape = (*shape, 1)
    has_pixels = dtype == "uint8" or (named and dtype in {"uint16", "float32"})
    if has_pixels and len(shape) == 3 and shape[2] in _CHANNELS and 0 not in shape:
        return Guess(f"pixels:{dtype}[{shape[0]},{shape[1]},{shape[2]}]")
    return Guess(f"{dtype}[{','.join(map(str, array.shape))}]")


def _guess_list(name: str, values: Sequence[Value]) -> Guess:
    if not len(values):
        return Guess(_EMPTY, is_list=True)
    if any(is_pil(each) or isinstance(each, bytes | bytearray) for each in values):
        raise PackError(
            f"field {name!r} must be one image or one value of bytes, got a list of {len(values)}; give each a field "
            "of its own, or make a record of each"
        )
    try:
        array = np.array(values)
    except ValueError:  # rows of unequal length
        array = np.empty(0, np.object_)
    if array.dtype.kind not in "biuf" or array.dtype.name not in _DTYPES:
        to_json(values)
        return Guess("json")
    if array.size == 0:
        return Guess(_EMPTY, is_list=True)
    if is_rounded(values, array):
        return Guess("json", is_list=True)
    return Guess(f"{array.dtype.name}[{','.join(map(str, array.shape))}]", is_list=True)


def unite(one: Guess, other: Guess) -> Guess | None:  # noqa: PLR0911  # a return for each pair
    """The kind of a field that has values of both kinds; None if there is none."""
    if one.kind == other.kind:
        return Guess(one.kind, one.is_list and other.is_list)
    for a, b in ((one, other), (other, one)):
        if a.kind == _NOTHING:
            return b
        if a.kind == _EMPTY:
            return _unite_with_empty(b)
        if a.kind == "json" and b.is_list:
            return a
        if a.kind in {"int", "label"} and b.kind == "float":
            return b
        if a.kind in {"image", "mask"} and b.kind == "bytes":
            return b
    return _unite_shapes(one, other)


def _unite_with_empty(other: Guess) -> Guess | None:
    array = Field(other.kind).array
    if other.kind == "json":
        return other
    if array is None:
        return None
    axes = ["*" if lengths is None else str(lengths[0]) for lengths in array.axes]
    return Guess(f"{array.dtype.name}[{','.join(['*', *axes[1:]])}]", other.is_list)


def _unite_shapes(one: Guess, other: Guess) -> Guess | None:
    first, second = Field(one.kind), Field(other.kind)
    both_lists = one.is_list and other.is_list
    a, b = first.pixels, second.pixels
    prefix = "pixels:"
    if a is None or b is None:
        a, b, prefix = first.array, second.array, ""
    if a is None or b is None or (prefix and a.dtype != b.dtype):
        return None
    dtype = np.promote_types(a.dtype, b.dtype).name
    if len(a.axes) != len(b.axes) or dtype not in _DTYPES:
        return Guess("json") if both_lists else None
    axes = ("*" if x != y or x is None else str(x[0]) for x, y in zip(a.axes, b.axes, strict=True))
    return Guess(f"{prefix}{dtype}[{','.join(axes)}]", both_lists)


def suggest_kind(name: str, kind: str, value: object) -> str:
    """The kind of a field of ``kind`` that holds a value too; empty if there is none."""
    try:
        united = unite(Guess(kind, is_list=isinstance(value, list | tuple)), guess(name, value, "png"))
    except PackError:
        return ""
    return "" if united is None or united.kind == kind or not united.is_known else united.kind


def is_image(content: bytes) -> bool:
    """Whether bytes are an encoded image: by their header, which is read."""
    try:
        fallback.sniff(content[:32])
        fallback.image_size(content, _MAX_PIXELS)
    except DecodeError:
        return False
    return True


def names_image(text: str) -> bool:
    """Whether a text ends as the path of an image."""
    return os.path.splitext(text.rstrip())[1].lower() in _NAMED_SUFFIXES  # noqa: PTH122  # a text


def to_json(value: object) -> Value:
    """A value that JSON holds, with arrays as lists and array scalars as numbers.

    Raises
    ------
    PackError
        If it contains something that JSON cannot hold.
    """
    try:
        text = dump_json(value, _to_builtin)
    except (TypeError, ValueError, RecursionError) as error:
        raise PackError(f"a list or dict must hold what JSON can hold: {error}") from error
    return json.loads(text)


def _to_builtin(value: object) -> Value:
    found = plain(value)
    if isinstance(found, np.ndarray):
        return found.tolist()
    if isinstance(found, str | int | float | list):
        return found
    raise TypeError(f"{type(value).__name__} is not JSON")


def describe(value: object) -> str:
    """A value in an error: its type, with dtype and shape or its beginning."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str | int | float | bool | list | tuple | dict | Path) or value is None:
        return f"{type(value).__name__} {value!r:.80}"
    return f"an object of class {type(value).__module__}.{type(value).__qualname__}"


def _encoded_kind(name: str) -> str:
    return "mask" if is_mask_name(name) else "image"
