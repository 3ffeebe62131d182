"""Which fields a container's pickled values have, and how each is read.

::

    (bytes, 3)   (array, None)   array   bytes   {"image": ..., "label": ...}     ──name_values──> values by path
    values of a few records ──infer──> kind of each field, and a function that converts one value and checks it

Called by the ``pickle-index`` layout. Names and kinds follow from the values; the order of channels does not, and is
stated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeGuard, cast

import numpy as np

from penstock.errors import ArgumentError
from penstock.fields.kinds import find_array_kind
from penstock.fields.names import IMAGE_NAMES, WEAK_IMAGE_NAMES, rank_name
from penstock.sample import Array, Field
from penstock.stores.fields.exact_casts import as_numbers, cast_exactly, to_float, to_whole
from penstock.stores.fields.image_signatures import are_images
from penstock.stores.fields.pixels import PIXEL_DTYPES, PixelLayout
from penstock.stores.fields.record_names import quote_names

__all__ = ["ValueReader", "describe_value", "find_images", "infer_field", "name_values"]

ValueReader = Callable[[object], object]
"""Converts a stored value to that of its field; ValueError or TypeError if it is of another kind."""

_MAX_ITEMS: Final = 64
_PLACES: Final = tuple(map(str, range(_MAX_ITEMS)))


def name_values(value: object, names: Sequence[str] | None, renamed: Mapping[str, str]) -> dict[str, object]:
    """The values of one record by the names of their fields.

    ``value``: what is pickled. ``names``: names of all items of a tuple or list. For a dict, which of its keys are
    fields. ``renamed``: the fields of items, by number, and of keys of dicts, where these have other names. Raises
    ArgumentError if a tuple has not as many items as there are names. Raises ValueError if the value has another form.
    """
    if isinstance(value, tuple | list):
        if len(value) > _MAX_ITEMS or (names is not None and len(value) != len(names)):
            raise ArgumentError(
                f"fields must name the {len(value)} items of each value, such as "
                f'fields=("image", "label", "boxes"), got {names!r}; the items are '
                f"{describe_value(value)}"
            )
        return {renamed.get(place, place): item for place, item in zip(_PLACES, value, strict=False)}
    if isinstance(value, dict):
        return _name_items(value, names, renamed)
    if isinstance(value, np.ndarray | bytes | memoryview):
        return {renamed.get("0", "0"): value}
    raise ValueError(f"its value must be a tuple, dict, array or bytes, got {describe_value(value)}")


def _name_items(
    value: Mapping[object, object], names: Sequence[str] | None, renamed: Mapping[str, str]
) -> dict[str, object]:
    texts = {key.decode("utf-8", "backslashreplace") if type(key) is bytes else str(key): key for key in value}
    if len(texts) < len(value):
        raise ValueError(
            f"its value is a dict in which two keys have the same text, got {quote_names([*map(repr, value)])}"
        )
    if names is None and len(texts) > _MAX_ITEMS:
        raise ValueError(f"its value is a dict of {len(texts)} items, more than {_MAX_ITEMS}")
    wanted = texts if names is None else [name for name in names if name in texts]
    return {renamed.get(name, name): value[texts[name]] for name in wanted}


def infer_field(
    name: str, values: Sequence[object], layout: PixelLayout, *, is_image: bool = False
) -> tuple[Field, ValueReader]:
    """The field of some values, and the function that reads each.

    Raises ArgumentError if the values are pixels, and the order of their channels is not stated. Raises ValueError if
    the values differ in kind, or have none.
    """
    known = [value for value in values if value is not None]
    kinds = set(map(_kind_of, known)) or {"int"}
    if kinds == {"int", "float"}:
        kinds = {"float"}
    if len(kinds) != 1:
        raise ValueError(f"field {name!r} must have values of one kind, got {', '.join(sorted(kinds))}")
    kind = kinds.pop()
    pixels = [value for value in known if _may_be_pixels(value)]
    if known and len(pixels) == len(known) and (is_image or len({array.ndim for array in pixels}) > 1):
        return _read_pixels(layout.make_kind(pixels), layout)
    if kind == "array":
        return _read_arrays([np.asarray(value) for value in known])
    reader = _READERS[kind]
    is_encoded = kind == "bytes" and (is_image or are_images(cast("list[bytes]", known)))
    return Field("image" if is_encoded else kind), reader


def find_images(
    fields: Mapping[str, Field], values: Mapping[str, Sequence[object]], stated: str | None, *, has_names: bool
) -> Collection[str]:
    """The paths of values that may be the image besides encoded ones: arrays that may be pixels by their name.

    Items of tuples have no names: arrays count where none is an encoded image, then the only item of bytes, whatever
    its format. ``stated``: the path of the image.
    """
    known = {path: [item for item in each if item is not None] for path, each in values.items()}
    pixels = {path for path, each in known.items() if each and all(map(_may_be_pixels, each))}
    if has_names:
        return {path for path in pixels if rank_name(path, IMAGE_NAMES + WEAK_IMAGE_NAMES) is not None}
    blobs = [path for path, field in fields.items() if field.kind == "bytes"]
    if stated is not None:
        return {stated} & pixels.union(blobs)
    if any(field.kind == "image" for field in fields.values()):
        return ()
    return pixels or blobs[:1] * (len(blobs) == 1)


def describe_value(value: object) -> str:
    """Return the form of a value, in words: ``tuples (bytes, int)``."""
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}s ({', '.join(map(_describe_item, value[:8]))})"
    if isinstance(value, dict):
        return f"dicts ({', '.join(f'{key!s:.40}: {_describe_item(each)}' for key, each in [*value.items()][:8])})"
    return _describe_item(value)


def _describe_item(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    return "bytes" if isinstance(value, memoryview) else type(value).__name__


def _kind_of(value: object) -> str:
    if isinstance(value, np.ndarray):
        return "array" if value.ndim else _kind_of(value.item())
    is_numeric = isinstance(value, list | tuple) and all(type(item) in {int, float, bool} for item in value)
    return _KINDS.get(type(value)) or ("array" if is_numeric else "json")


def _may_be_pixels(value: object) -> TypeGuard[Array]:
    return isinstance(value, np.ndarray) and value.ndim in {2, 3} and value.dtype.newbyteorder("=").name in PIXEL_DTYPES


def _read_pixels(kind: str, layout: PixelLayout) -> tuple[Field, ValueReader]:
    field = Field(kind)
    pixels = field.pixels
    assert pixels is not None, "its kind begins so"

    def read(value: object) -> Array:
        if not isinstance(value, np.ndarray) or value.ndim not in {2, 3}:
            raise ValueError(f"its pixels must be an array of 2 or 3 axes, got {describe_value(value)}")
        return layout.read(value, pixels)

    return field, read


def _read_arrays(samples: Sequence[Array]) -> tuple[Field, ValueReader]:
    kind = find_array_kind(samples)
    if kind is None:
        dtypes = ", ".join(sorted({str(sample.dtype) for sample in samples}))
        raise ValueError(f"arrays must have one number of axes and be numeric, got {dtypes}")
    field = Field(kind)
    array = field.array
    assert array is not None, "its kind is one of an array"

    def read(value: object) -> Array:
        stored = as_numbers(value, array.dtype)
        if not array.allows(stored.shape):
            raise ValueError(f"an array is {stored.dtype} of shape {stored.shape}; the store's are {array}")
        converted = np.ascontiguousarray(cast_exactly(stored, array.dtype))
        converted.flags.writeable = False
        return converted

    return field, read


def _read_text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"a text must be text, got {describe_value(value)}")


def _read_bytes(value: object) -> object:
    if type(value) in _BYTES_TYPES:
        return value
    raise ValueError(f"an encoded field must be bytes, got {describe_value(value)}")


def _read_json(value: object) -> object:
    try:
        json.dumps(value)
    except (TypeError, RecursionError) as error:
        raise ValueError(f"a value must be one that JSON can hold: {error}") from error
    return value


_BYTES_TYPES: Final = frozenset({bytes, memoryview})
_READERS: Final[Mapping[str, ValueReader]] = {
    "bytes": _read_bytes,
    "int": to_whole,
    "float": to_float,
    "text": _read_text,
    "json": _read_json,
}
_KINDS: Final[Mapping[type, str]] = {
    bytes: "bytes", memoryview: "bytes", bool: "int", int: "int", float: "float", str: "text",
}  # fmt: skip
