"""The fields of records that annotations give, and the values of each record as they are stored.

::

    boxes (n, 4)         boxes: boxes               labels (n,)      labels: int64[*], with the classes
    keypoints (n, k, 3)  keypoints: float32[*,k,3]  mask "a/1.png"   mask: mask, the bytes of the file
    area, crowd, ...     float32[*], int64[*], ...  lists, dicts     json

Every record has every field: what one lacks is empty. Called by :mod:`.annotations`.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from penstock.annotations import Annotations
from penstock.errors import PackError
from penstock.orientation import orient_file
from penstock.pack.sources.values import to_json
from penstock.pack.upright_fields import state_upright
from penstock.sample import Field, Schema, Value

__all__ = ["AnnotationFields"]

_UNLABELLED: Final = 255
"""The value of the pixels of a mask that a record lacks: no class, which losses are told to ignore."""
_NOT_STORED: Final = frozenset({"width", "height"})
"""Added by the pack itself, from the header of the image."""


@dataclass(frozen=True, slots=True)
class AnnotationFields:
    """The fields of the records of one source."""

    schema: Schema  # fields of the records
    root: Path  # the folder of paths of images and masks
    turned: Mapping[str, int]  # the orientation that turns a mask upright, by image

    @classmethod
    def of(cls, found: Annotations) -> AnnotationFields:
        """Find the fields of annotations, by the values of all records.

        Raises
        ------
        PackError
            If there are no records.
        ArgumentError
            If a field has a name that no field may have.
        """
        if not found.records:
            raise PackError("there are no images with annotations to pack")
        names = [name for name in found.records[0] if name not in _NOT_STORED]
        fields = {name: _find_field(name, [record[name] for record in found.records], found) for name in names}
        schema = Schema(fields)
        return cls(state_upright(schema, upright=True) if found.turned else schema, found.root, found.turned)

    def convert(self, record: Mapping[str, Value]) -> dict[str, Value]:
        """The values of a record as they are stored; its image and its mask are read.

        Raises
        ------
        PackError
            If a file cannot be read, or JSON cannot hold a value.
        """
        return {name: self._convert(name, field, record) for name, field in self.schema.fields.items()}

    def _convert(self, name: str, field: Field, record: Mapping[str, Value]) -> Value:
        value = record[name]
        if field.kind == "mask" and value is None:
            return _make_unlabelled(record["width"], record["height"])
        if field.kind == "mask" and (orientation := self.turned.get(record["image"], 1)) != 1:
            return self._read_turned(value, orientation)
        if field.is_blob:
            return self._read(value)
        if field.kind == "json":
            return to_json(value)
        if value is None and field.kind == "text":
            return ""
        return value if field.array is None or value is None else np.asarray(value, field.array.dtype)

    def _read_turned(self, path: str, orientation: int) -> bytes:
        """Return a mask of an image as it is stored, turned as the image."""
        mask = self._read(path)
        try:
            return orient_file(mask, orientation)
        except Exception as error:
            raise PackError(f"the mask {path} cannot be turned with its image: {error}") from error

    def _read(self, path: str) -> bytes:
        try:
            return (self.root / path).read_bytes()
        except OSError as error:
            raise PackError(f"the file {path} cannot be read: {error.strerror or error}") from error


def _find_field(name: str, values: Sequence[Value], found: Annotations) -> Field:
    if name in {"image", "mask", "boxes"}:
        return Field(name)
    if name == "labels":
        return Field("int64[*]", found.classes)
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if arrays:
        return _find_array(arrays)
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool, int} and kinds:
        is_label = name == "label" and all(value is None or -1 <= value < len(found.classes) for value in values)
        return Field("label", found.classes) if is_label else Field("int")
    if kinds <= {bool, int, float} and kinds:
        return Field("float")
    return Field("text" if kinds == {str} else "json")


def _find_array(arrays: Sequence[Value]) -> Field:
    """Return the kind of arrays; axes on which they differ, and that of the objects, have any length."""
    dtype, axes = arrays[0].dtype.name, {array.ndim for array in arrays}
    if len(axes) > 1 or not all(array.dtype.kind in "biuf" and array.ndim for array in arrays):
        return Field("json")
    lengths = [{array.shape[axis] for array in arrays} for axis in range(1, min(axes))]
    shape = ["*", *("*" if len(each) > 1 else str(next(iter(each))) for each in lengths)]
    return Field(f"{dtype}[{','.join(shape)}]")


def _make_unlabelled(width: int, height: int) -> bytes:
    """Return a mask of an image that has none."""
    file = io.BytesIO()
    Image.new("L", (width, height), _UNLABELLED).save(file, "PNG")
    return file.getvalue()
