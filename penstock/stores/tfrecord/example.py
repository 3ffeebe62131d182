"""The features of ``tf.train.Example`` as fields of records: which feature is what, and how each is read.

::

    record ──_native.example_features──> [(name, kind, values), ...] ──summary of all records──> kinds of the fields
                                                                     └──plan──> image, label, boxes, ... of a record

Names follow the conventions of TensorFlow's models and of TensorFlow Datasets: ``image/encoded``,
``image/class/label``, ``image/object/bbox/xmin``; ``objects/bbox``. Called by :mod:`penstock.stores.tfrecord.store`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from penstock import _native
from penstock.errors import ArgumentError
from penstock.sample import Array, Field
from penstock.stores.fields.box_corners import FractionBoxes, to_corners
from penstock.stores.fields.exact_casts import UnfitValueError
from penstock.stores.fields.image_signatures import looks_like_image
from penstock.stores.fields.pixels import PixelLayout
from penstock.stores.fields.values import view_array

__all__ = [
    "INTEGERS",
    "FeaturePixels",
    "FeatureSummary",
    "Features",
    "ReadFeature",
    "find_boxes",
    "find_content",
    "find_feature_field",
    "make_box_reader",
    "make_pixel_reader",
    "make_reader",
    "parse_example",
    "summarise",
]

_BYTES: Final = 1
_FLOATS: Final = 2
_INTS: Final = 3
_KINDS: Final = ("none", "bytes", "float", "int64")
_MAX_TEXT_NBYTES: Final = 1 << 16
_FLOAT_KINDS: Final = 1 << (_FLOATS - 1)
INTEGERS: Final = 1 << (_INTS - 1)
"""The ``kinds`` of a feature that has integers only."""
_EDGES: Final = ("xmin", "ymin", "xmax", "ymax")
_FLOAT: Final = struct.Struct("<f")

Features = Mapping[str, tuple[int, Any]]
"""The features of one record: kind and values, by name."""

ReadFeature = Callable[[Features, memoryview], object]
"""Returns the value of a field from the features of a record, and its bytes."""


@dataclass(slots=True)
class FeatureSummary:
    """What a feature holds in all records.

    ``kinds``: bit 1 for bytes, 2 for floats, 4 for integers; ``present``: records that have values; ``least`` and
    ``most``: number of values in these; ``is_text``: all values are short texts in UTF-8; ``images`` and
    ``others``: records whose values all begin as images do, and records with other bytes; empty values are neither.
    """

    kinds: int = 0
    present: int = 0
    least: int = 1 << 62
    most: int = 0
    is_text: bool = True
    images: int = 0
    others: int = 0

    @property
    def is_image(self) -> bool:
        """Whether the values of most records are images: one that is damaged changes nothing."""
        return self.images > self.others


@dataclass(frozen=True, slots=True)
class FeaturePixels:
    """How raw pixels lie in a feature: numbers or names of features for height, width and channels; dtype; order."""

    shape: tuple[int | str, ...]
    dtype: str
    order: PixelLayout


def parse_example(record: memoryview) -> dict[str, tuple[int, Any]]:
    """The features of a record, by name.

    Raises ValueError if it is no ``tf.train.Example``.
    """
    return {name: (kind, values) for name, kind, values in _native.example_features(record)}


def summarise(
    summaries: dict[str, FeatureSummary], features: Features, record: memoryview, is_undamaged: Callable[[], bool]
) -> bool:
    """Add the features of a record to the summaries.

    ``is_undamaged`` is called if the record differs from those before it: a damaged record changes no summary.

    Returns
    -------
    bool
        Whether the record was added.
    """
    seen = []
    is_new = False
    for name, (kind, values) in features.items():
        if not kind or not values:
            continue
        count = len(values) if kind == _BYTES else len(values) // (4 if kind == _FLOATS else 8)
        summary = summaries.get(name) or FeatureSummary()
        is_text, images, others = summary.is_text, 0, 0
        if kind == _BYTES and (contents := [record[begin:end] for begin, end in values if end > begin]):
            is_text = is_text and all(map(_is_text, contents))
            images = int(all(map(looks_like_image, contents)))
            others = 1 - images
        kinds = summary.kinds | 1 << (kind - 1)
        seen.append((name, summary, kinds, count, is_text, images, others))
        is_new = is_new or (
            (kinds, is_text) != (summary.kinds, summary.is_text)
            or not summary.least <= count <= summary.most
            or (others if summary.is_image else images) > 0
        )
    if is_new and not is_undamaged():
        return False
    for name, summary, kinds, count, is_text, images, others in seen:
        summaries[name] = summary
        summary.present += 1
        summary.kinds, summary.is_text = kinds, is_text
        summary.images += images
        summary.others += others
        summary.least, summary.most = min(summary.least, count), max(summary.most, count)
    return True


def find_feature_field(name: str, summary: FeatureSummary, count: int) -> Field:
    """Return the kind of a field that holds one feature.

    Raises ArgumentError if its values cannot be a field.
    """
    advice = f"leave feature {name!r} out with fields="
    if summary.kinds not in {1, 2, 4}:
        kinds = " and ".join(title for bit, title in enumerate(_KINDS[1:]) if summary.kinds >> bit & 1)
        raise ArgumentError(f"a feature must have values of one kind, got {kinds}; {advice}")
    if summary.kinds == 1:
        if summary.most == 1:
            return Field("text" if summary.is_text else "image" if summary.is_image else "bytes")
        if summary.is_text:
            return Field("json")
        raise ArgumentError(f"a record can have one binary value in a feature, got {summary.most}; {advice}")
    scalar, array = ("float", "float32") if summary.kinds == 2 else ("int", "int64")
    if summary.most == 1:
        return Field(scalar)
    is_fixed = summary.least == summary.most and summary.present == count
    return Field(f"{array}[{summary.most if is_fixed else '*'}]")


def make_reader(name: str, field: Field) -> ReadFeature:
    """Return what reads a feature as a field of some kind; None where a record has no value, and an empty array."""
    if field.array is not None:
        return _make_array_reader(name, field)
    if field.kind in {"int", "label"}:
        return lambda features, record: _read_number(name, features, _INTS)  # noqa: ARG005  # the signature of ReadFeature
    if field.kind == "float":
        return lambda features, record: _read_number(name, features, _FLOATS)  # noqa: ARG005  # as above
    if field.kind == "json":
        return lambda features, record: [str(each, "utf-8") for each in _find_bytes(name, features, record)]
    is_text = field.kind == "text"

    def read(features: Features, record: memoryview) -> object:
        contents = _find_bytes(name, features, record)
        if len(contents) > 1:
            raise ValueError(f"feature {name!r} must have one value, got {len(contents)}")
        if not contents:
            return None
        return str(contents[0], "utf-8") if is_text else contents[0]

    return read


def make_pixel_reader(name: str, layout: FeaturePixels) -> ReadFeature:
    """Return what reads raw pixels as an HWC array, RGB."""
    dtype = np.dtype(layout.dtype)

    def read(features: Features, record: memoryview) -> object:
        contents = _find_bytes(name, features, record)
        if len(contents) != 1:
            raise ValueError(f"feature {name!r} must have one value, got {len(contents)}")
        shape = []
        for axis in layout.shape:
            length = _read_number(axis, features, _INTS) if isinstance(axis, str) else axis
            if not isinstance(length, int) or not 0 < length < 1 << 31:
                raise ValueError(f"an axis of an image, {axis!r}, cannot have the length {length!r}")
            shape.append(length)
        return layout.order.convert(view_array(contents[0], dtype, tuple(shape)))

    return read


def find_boxes(summaries: Mapping[str, FeatureSummary]) -> tuple[str, ...]:
    """Return the features of the boxes: four with the edges, or one with rows of ymin, xmin, ymax, xmax; else none.

    Edges that are whole numbers can only be pixels.
    """
    for name in summaries:
        if name.endswith("xmin"):
            edges = tuple(name.removesuffix("xmin") + edge for edge in _EDGES)
            kinds = {summaries[edge].kinds if edge in summaries else 0 for edge in edges}
            if kinds in ({_FLOAT_KINDS}, {INTEGERS}):
                return edges
    rows = [name for name in ("objects/bbox", "image/object/bbox") if name in summaries]
    return tuple(rows[:1]) if rows and summaries[rows[0]].kinds == 2 else ()


def make_box_reader(names: Sequence[str], image: str | None, fractions: FractionBoxes | None = None) -> ReadFeature:
    """Return what reads boxes: float32 (n, 4), xyxy in pixels.

    ``names``: what :func:`find_boxes` found. ``image``: the feature of the encoded image, whose size counts where
    ``image/height`` and ``image/width`` are not there. ``fractions``: what makes pixels of edges that are fractions of
    the image's size; None: they are pixels.
    """

    def read(features: Features, record: memoryview) -> object:
        edges = [_read_edges(name, features) for name in names]
        if len(edges) == 1:
            if len(edges[0]) % 4:
                raise ValueError(f"feature {names[0]!r} must have 4 values for each box, got {len(edges[0])}")
            boxes, form = edges[0].reshape(-1, 4), "yxyx"
        else:
            counts = [len(each) for each in edges]
            if len(set(counts)) > 1:
                raise ValueError(f"the features of boxes must have equally many values, got {counts}")
            boxes, form = np.stack(edges, axis=1), "xyxy"
        if fractions is None or not len(boxes):
            boxes = to_corners(boxes, form)
        else:
            content, size = find_content(features, record, image), _find_size(features)
            if content is None and size is None:
                raise ValueError(
                    "boxes are fractions of the image's size, and the record has neither the size nor an image"
                )
            boxes = fractions.place(boxes, form, content, size)
        boxes.flags.writeable = False
        return boxes

    return read


def find_content(features: Features, record: memoryview, image: str | None) -> memoryview | None:
    """The encoded image of a record, in the feature ``image``; None if there is none."""
    return next(iter(_find_bytes(image, features, record)), None) if image is not None else None


def _find_size(features: Features) -> tuple[int, int] | None:
    width, height = (_read_number(f"image/{axis}", features, _INTS) for axis in ("width", "height"))
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _make_array_reader(name: str, field: Field) -> ReadFeature:
    kind = field.array
    assert kind is not None, "the kind of an array"
    number, stored = (_INTS, "<i8") if kind.dtype.kind == "i" else (_FLOATS, "<f4")

    def read(features: Features, record: memoryview) -> object:
        del record
        found, values = features.get(name, (0, b""))
        if values and found != number:
            raise UnfitValueError(f"feature {name!r} must hold {_KINDS[number]} values, got {_KINDS[found]}")
        array = np.frombuffer(values or b"", stored)
        if not kind.allows(array.shape):
            raise UnfitValueError(f"feature {name!r} must be {kind}, got {len(array)} values")
        return array

    return read


def _read_number(name: str, features: Features, kind: int) -> int | float | None:
    found, values = features.get(name, (0, b""))
    if not values:
        return None
    if found != kind or len(values) != (8 if kind == _INTS else 4):
        raise ValueError(f"feature {name!r} must hold one {_KINDS[kind]} value")
    if kind == _INTS:
        return int.from_bytes(values, "little", signed=True)
    number: float = _FLOAT.unpack(values)[0]
    return number


def _read_edges(name: str, features: Features) -> Array:
    found, values = features.get(name, (0, b""))
    if values and found not in {_FLOATS, _INTS}:
        raise ValueError(f"feature {name!r} must hold numbers, got {_KINDS[found]}")
    return np.frombuffer(values or b"", "<i8" if found == _INTS else "<f4").astype(np.float32, copy=False)


def _find_bytes(name: str, features: Features, record: memoryview) -> list[memoryview]:
    found, values = features.get(name, (0, b""))
    if values and found != _BYTES:
        raise ValueError(f"feature {name!r} must hold bytes, got {_KINDS[found]} values")
    return [record[begin:end] for begin, end in values]


def _is_text(content: memoryview) -> bool:
    if len(content) > _MAX_TEXT_NBYTES:
        return False
    try:
        return "\0" not in str(content, "utf-8")
    except UnicodeDecodeError:
        return False
