"""What is done with a record before it is written: its images are checked, measured and rewritten.

Called by :mod:`.pipeline.run` in threads, or by :mod:`.pipeline.processes` in worker processes, to which the settings
are pickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock import _native
from penstock.errors import PackError
from penstock.orientation import get_upright_size
from penstock.pack.pipeline.image_check import MAX_PIXELS, check_image
from penstock.pack.resize.fields import FieldResizing
from penstock.pack.resize.resizing import NOTHING_RESIZED, ResizeReport, Resizing
from penstock.pack.sources.base import KEY
from penstock.pack.upright_fields import find_placed, has_values, warn_of_unknown_picture
from penstock.sample import Array, Blob, Field, Schema, Value
from penstock.transforms.decoding.decode import read_orientations

__all__ = [
    "TRANSCODES",
    "CheckedRecord",
    "RecordChecks",
    "count_bytes",
    "count_fields",
    "find_new_numbers",
    "make_stored_schema",
    "renumber",
    "rewrite",
]


TRANSCODES: Final = ("none", "baseline", "coefficients")


@dataclass(frozen=True, slots=True)
class CheckedRecord:
    """The fields of a record to write, the bytes of its blobs, and how many images were rewritten, and kept.

    ``key`` is its name, if that was unknown before it was loaded; ``resized`` says what resizing changed.
    """

    key: str | None
    fields: Mapping[str, Value]
    nbytes: int
    transcoded: int
    kept: int
    resized: ResizeReport = NOTHING_RESIZED


@dataclass(frozen=True, slots=True)
class RecordChecks:
    """The checks of all records of one run."""

    images: tuple[str, ...]  # fields of encoded images and masks
    blobs: tuple[str, ...]  # fields whose bytes are counted
    check: str  # {"header", "decode"}: how an image is checked
    transcode: str  # how JPEGs are rewritten, one of TRANSCODES
    adds_size: bool  # whether the size of ``image`` is added
    new_numbers: Mapping[str, Array]  # for fields whose classes have other numbers in the store: the new number of each
    resizing: FieldResizing | None = None  # how images are made smaller, and fields with them
    is_upright: bool = False  # whether the size that is added is that of the upright picture
    unsaid: tuple[str, ...] = ()  # fields of boxes and points that do not say which picture they are of

    @classmethod
    def for_schema(
        cls, schema: Schema, stored: Schema, check: str, transcode: str, resizing: Resizing | None = None
    ) -> RecordChecks:
        """The checks of records of a source's schema, which are stored with the schema ``stored``."""
        images = tuple(name for name in schema.blobs if schema[name].kind in {"image", "mask"})
        adds_size = "width" in stored and "width" not in schema
        return cls(
            images,
            schema.blobs,
            check,
            transcode,
            adds_size,
            find_new_numbers(schema, stored),
            None if resizing is None else FieldResizing.for_schema(resizing, schema),
            stored.upright is True,
            () if resizing is not None or schema.upright is not None else find_placed(schema),
        )

    def apply(self, fields: Mapping[str, Value]) -> CheckedRecord:
        """Check the images of a record.

        Raises DecodeError if one is not a complete image. Raises PackError if the record lacks an image, or a field
        cannot be resized with its image.
        """
        if lacking := next((name for name in self.blobs if fields[name] is None), None):
            raise PackError(f"field {lacking!r} must hold encoded bytes, and this record has none")
        checked, resized, smaller = dict(fields), NOTHING_RESIZED, frozenset[str]()
        if self.resizing is not None:
            checked, resized = self.resizing.apply(fields, self.check)
            smaller = frozenset(self.resizing.images)
        key = checked.pop(KEY, None)
        transcoded = 0
        for name, numbers in self.new_numbers.items():
            checked[name] = renumber(checked[name], numbers)
        for name in self.images:
            image = bytes(checked[name])
            size = check_image(image, "header" if name in smaller else self.check)
            if name == "image" and (self.is_upright or self.unsaid):
                orientation = int(read_orientations([image], MAX_PIXELS)[0])
                size = get_upright_size(size, orientation) if self.is_upright else size
                if orientation != 1:
                    warn_of_unknown_picture([each for each in self.unsaid if has_values(fields[each])])
            if name == "image" and self.adds_size:
                checked["width"], checked["height"] = size
            if (rewritten := rewrite(image, self.transcode)) is not None:
                checked[name] = rewritten
                transcoded += 1
        nbytes = sum(count_bytes(checked[name]) for name in self.blobs)
        return CheckedRecord(key, checked, nbytes, transcoded, len(self.images) - transcoded, resized)


def make_stored_schema(schema: Schema, resizing: Resizing | None) -> Schema:
    """Return the fields of the source, with ``width`` and ``height`` if there is an ``image`` and no such fields.

    With ``resizing``, no image is stored turned, and no field says whether it is of the upright one.
    """
    if resizing is not None and schema.upright is not None:
        schema = Schema({name: replace(field, upright=None) for name, field in schema.fields.items()})
    if "image" in schema and schema["image"].kind == "image" and "width" not in schema and "height" not in schema:
        return Schema({**schema.fields, "width": Field("int"), "height": Field("int")})
    return schema


def find_new_numbers(held: Schema, wanted: Schema) -> dict[str, Array]:
    """Find new numbers of classes for fields where ``wanted``, which has all of them, has other numbers."""
    numbers = {}
    for name, field in held.fields.items():
        classes = wanted[name].classes if name in wanted else ()
        if field.classes and classes and field.classes != classes:
            places = {each: number for number, each in enumerate(classes)}
            numbers[name] = np.array([places[each] for each in field.classes], np.int64)
    return numbers


def renumber(value: object, numbers: Array) -> Value:
    """Return a class number, or an array of them, with new numbers; None, and numbers of no class, stay as they are."""
    if value is None:
        return None
    found = np.asarray(value)
    is_known = (found >= 0) & (found < len(numbers))
    replaced = np.where(is_known, numbers[np.where(is_known, found, 0)], found).astype(found.dtype)
    return int(replaced) if found.ndim == 0 else replaced


def rewrite(image: bytes, transcode: str) -> bytes | None:
    """Rewrite a JPEG without loss; None for no JPEG, where it stays as it is, and where something would be lost.

    ``"coefficients"``: stored without Huffman codes, such that the file comes back byte for byte.
    ``"baseline"``: in one scan. Decoding can begin inside a JPEG of one scan. In one of several scans (progressive, and
    some baseline) it cannot, since each scan covers the whole image. The result has the same coefficients, and so the
    same pixels, and the same metadata. It depends on the bytes alone: ``verify`` compares with it.
    """
    if transcode == "none" or not image.startswith(b"\xff\xd8"):
        return None
    try:
        if transcode == "coefficients":
            return _native.coefficients_from_jpeg(image, MAX_PIXELS)
        return _native.transcode_baseline(image, MAX_PIXELS)
    except (_native.UnsupportedError, _native.CorruptError, _native.TooLargeError):
        return None  # it stays as it is, and decoding handles it


def count_fields(fields: Mapping[str, Value]) -> int:
    """About the bytes of all values of a record: those of blobs and arrays, and the length of others as text."""
    return sum(
        getattr(value, "nbytes", 0) or len(value if isinstance(value, bytes) else repr(value))
        for value in fields.values()
    )


def count_bytes(blob: Blob) -> int:
    """Return the number of bytes of a blob."""
    return len(blob) if type(blob) is bytes else memoryview(blob).nbytes
