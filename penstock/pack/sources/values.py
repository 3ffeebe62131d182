"""Values of samples, and which kind of field each could be; :mod:`penstock.fields.kinds` unites those of several.

::

    tensor, array scalar, memoryview ──plain──> array, number, text, bytes, picture, path, list, dict, None
    plain value ──guess──> ValueKind("int64[5]") ──unite_kinds──> ValueKind("int64[*]")

Frameworks are not imported: a tensor is what has ``detach``, a picture of Pillow is known by its class. Called by
:mod:`.inference`; what is stored is made by :mod:`.conversion`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from penstock.errors import DecodeError, PackError
from penstock.fields.kinds import EMPTY, NOTHING, NUMBER_DTYPES, ValueKind, name_array_kind, unite_kinds
from penstock.fields.names import CLASS_NAMES, IMAGE_NAMES, is_mask_name
from penstock.paths import IMAGE_SUFFIXES, UNREAD_SUFFIXES
from penstock.sample import Array, Value
from penstock.stores.fields.exact_casts import is_rounded
from penstock.stores.fields.small_fields import dump_json
from penstock.transforms.decoding import fallback
from penstock.transforms.inputs import is_pil

__all__ = [
    "describe",
    "guess",
    "is_image",
    "names_image",
    "plain",
    "suggest_kind",
    "to_json",
]

_IMAGE_NAMES: Final = frozenset({*IMAGE_NAMES, "pixel_values"})
_NAMED_SUFFIXES: Final = IMAGE_SUFFIXES | UNREAD_SUFFIXES
_CHANNELS: Final = (1, 3, 4)
_MAX_PIXELS: Final = 1 << 27


def plain(value: object) -> Value:  # noqa: PLR0911  # a return for each type
    """Return the value without its framework: tensors are arrays on the CPU, array scalars are numbers."""
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


def guess(name: str, value: object, images: str) -> ValueKind:  # noqa: PLR0911  # a return for each type
    """The kind of a plain value of the field ``name``; ``images`` is how pictures are stored.

    Raises PackError if no kind of field can hold it.
    """
    if value is None:
        return ValueKind(NOTHING)
    if is_pil(value):
        if images == "pixels" and not is_mask_name(name):
            return guess_array(name, np.asarray(value), is_image=True)
        return _encoded_kind(name)
    if isinstance(value, Path):
        return _encoded_kind(name) if value.suffix.lower() in IMAGE_SUFFIXES else ValueKind("bytes")
    if isinstance(value, bytes):
        return _encoded_kind(name) if is_image(value) else ValueKind("bytes", images=-1 if value else 0)
    if isinstance(value, bool | int):
        return ValueKind("label" if name.lower() in CLASS_NAMES else "int")
    if isinstance(value, float):
        return ValueKind("float")
    if isinstance(value, str):
        is_path = name.lower() in _IMAGE_NAMES or is_mask_name(name)
        return _encoded_kind(name) if is_path and names_image(value) and "://" not in value else ValueKind("text")
    if isinstance(value, np.ndarray):
        return guess_array(name, value)
    if isinstance(value, list | tuple):
        return _guess_list(name, value)
    if isinstance(value, Mapping):
        to_json(value)
        return ValueKind("json")
    raise PackError(f"field {name!r} must be a number, text, bytes, array, image, list or dict, got {describe(value)}")


def guess_array(name: str, array: Array, *, is_image: bool = False) -> ValueKind:
    """The kind of an array; ``is_image`` where it is the pixels of a picture."""
    dtype, shape = array.dtype.name, array.shape
    if dtype not in NUMBER_DTYPES:
        raise PackError(f"field {name!r} must be of bool, integers or floats, got an array of {array.dtype}")
    named = is_image or name.lower() in _IMAGE_NAMES
    if is_mask_name(name) and array.ndim == 2 and dtype in {"bool", "uint8", "uint16"}:
        return _encoded_kind(name)
    if array.ndim == 2 and named and dtype in {"uint8", "uint16", "float32"}:
        shape = (*shape, 1)
    has_pixels = dtype == "uint8" or (named and dtype in {"uint16", "float32"})
    if has_pixels and len(shape) == 3 and shape[2] in _CHANNELS and 0 not in shape:
        return ValueKind(f"pixels:{dtype}[{shape[0]},{shape[1]},{shape[2]}]")
    return ValueKind(name_array_kind(array.dtype, array.shape))


def _guess_list(name: str, values: Sequence[Value]) -> ValueKind:
    if not len(values):
        return ValueKind(EMPTY, is_list=True)
    if any(is_pil(each) or isinstance(each, bytes | bytearray) for each in values):
        raise PackError(
            f"field {name!r} must be one image or one value of bytes, got a list of {len(values)}; give each a field "
            "of its own, or make a record of each"
        )
    try:
        array = np.array(values)
    except ValueError:  # rows of unequal length
        array = np.empty(0, np.object_)
    if array.dtype.kind not in "biuf" or array.dtype.name not in NUMBER_DTYPES:
        to_json(values)
        return ValueKind("json")
    if array.size == 0:
        return ValueKind(EMPTY, is_list=True)
    if is_rounded(values, array):
        return ValueKind("json", is_list=True)
    return ValueKind(name_array_kind(array.dtype, array.shape), is_list=True)


def suggest_kind(name: str, kind: str, value: object) -> str:
    """Return the kind of a field of ``kind`` that holds a value too; empty if there is none."""
    try:
        united = unite_kinds(ValueKind(kind, is_list=isinstance(value, list | tuple)), guess(name, value, "png"))
    except PackError:
        return ""
    return "" if united is None or united.kind == kind or not united.is_known else united.kind


def is_image(content: bytes) -> bool:
    """Return whether bytes are an encoded image: by their header, which is read."""
    try:
        fallback.sniff(content[:32])
        fallback.image_size(content, _MAX_PIXELS)
    except DecodeError:
        return False
    return True


def names_image(text: str) -> bool:
    """Return whether a text ends as the path of an image."""
    return os.path.splitext(text.rstrip())[1].lower() in _NAMED_SUFFIXES  # noqa: PTH122  # a text


def to_json(value: object) -> Value:
    """Return a value that JSON holds, with arrays as lists and array scalars as numbers.

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
    """Return a value in an error: its type, with dtype and shape or its beginning."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str | int | float | bool | list | tuple | dict | Path) or value is None:
        return f"{type(value).__name__} {value!r:.80}"
    return f"an object of class {type(value).__module__}.{type(value).__qualname__}"


def _encoded_kind(name: str) -> ValueKind:
    return ValueKind("mask" if is_mask_name(name) else "image", images=1)
