"""The records of a store as images with annotations: which field is what, and names of files. Used by `exporting`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Self

import numpy as np
from PIL import Image

from penstock.annotations.writing import WrittenImage
from penstock.errors import ArgumentError, PackError
from penstock.pack.sources.conversion import PictureEncoding
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Array, Record, Schema, Value
from penstock.stores.base import Store
from penstock.transforms.decoding import fallback

__all__ = ["ExportedFields", "name_images"]

_ENDINGS: Final = {"JPEG": ".jpg", "TIFF": ".tif"}
_NOT_IN_NAMES: Final = re.compile(r"[\s/\\:*?\"<>|\x00-\x1f\x7f-\x9f\ud800-\udfff]|^\.")
_SPLIT: Final = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}")
_DEFAULT_SPLIT: Final = "train"
_LABEL_NAMES: Final = ("labels", "classes")
_MAX_STEM: Final = 150
_MAX_PIXELS: Final = 1 << 27


@dataclass(frozen=True, slots=True)
class ExportedFields:
    """Which field of a store is the image, the boxes, and their classes."""

    schema: Schema  # fields of the store
    image: str
    boxes: str
    labels: str
    """``image``, ``boxes`` and ``labels``: names of the fields."""
    classes: tuple[str, ...]  # names of the classes; their numbers, where the store has no names
    crowds: str  # what becomes of crowds; see :attr:`AnnotationWriter.crowds`

    @classmethod
    def of(cls, store: Store, crowds: str) -> Self:
        """Find the fields.

        Raises
        ------
        ArgumentError
            If one of them is missing.
        """
        fields = store.schema.fields
        image = _choose(["image"], (name for name, each in fields.items() if each.is_image))
        boxes = _choose(["boxes"], (name for name, each in fields.items() if each.kind == "boxes"))
        lists = [name for name, each in fields.items() if each.kind == "int64[*]"]
        labels = _choose(_LABEL_NAMES, (name for name in lists if name in _LABEL_NAMES or fields[name].classes))
        if image is None or boxes is None or labels is None:
            raise ArgumentError(
                "annotations are written from stores with a field of images, one of boxes, and one of the boxes' "
                f"classes (labels: int64[*]); got the fields {', '.join(f'{n} ({f.kind})' for n, f in fields.items())}"
            )
        classes = fields[labels].classes
        if not classes:
            classes = tuple(map(str, range(int(store.ragged_column(labels).values.max(initial=-1)) + 1)))
        return cls(store.schema, image, boxes, labels, classes, crowds)

    def convert(self, record: Record, stem: str) -> tuple[bytes, WrittenImage]:
        """The encoded image of a record, and its annotation.

        Raises
        ------
        PackError, DecodeError
            If it has no image, or its values do not fit together.
        """
        content, name = self._encode(record, stem)
        values = self.name_values(record)
        boxes, labels = values.pop("boxes"), values.pop("labels")
        if len(boxes) != len(labels):
            raise PackError(f"it has {len(boxes)} boxes and {len(labels)} classes")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
            raise PackError(f"its classes must be 0 to {len(self.classes) - 1}, got {labels.min()} to {labels.max()}")
        points = values.pop("keypoints", None)
        is_list = {each: self._is_of_objects(each, value, len(labels)) for each, value in values.items()}
        width, height = fallback.image_size(content, _MAX_PIXELS)
        image = WrittenImage(
            name=name,
            split=_name_split(record.fields.get("split")),
            width=width,
            height=height,
            boxes=boxes,
            labels=labels,
            keypoints=points if points is not None and len(points) == len(labels) else None,
            objects={each: value for each, value in values.items() if is_list[each]},
            fields={each: value for each, value in values.items() if not is_list[each]},
        )
        return content, image

    def name_values(self, record: Record) -> dict[str, Value]:
        """The values of a record but its image and its size, by the names that annotations have; crowds as written."""
        names = {self.boxes: "boxes", self.labels: "labels"}
        left = {self.image, "width", "height"}
        values = {names.get(each, each): record.fields[each] for each in self.schema.fields if each not in left}
        missing: Mapping[str, Array] = {"boxes": np.zeros((0, 4), np.float32), "labels": np.zeros(0, np.int64)}
        values.update({each: empty for each, empty in missing.items() if values[each] is None})
        crowd, count = values.get("crowd"), len(values["labels"])
        if self.crowds == "kept" or not isinstance(crowd, np.ndarray) or crowd.shape != (count,):
            return values
        del values["crowd"]
        if self.crowds == "difficult":
            given = values.get("difficult")
            if isinstance(given, np.ndarray) and given.shape == crowd.shape:
                crowd = np.maximum(given, crowd)
            return {**values, "difficult": crowd}
        rows = np.flatnonzero(crowd == 0)
        return {
            name: value if not self._is_of_objects(name, value, count)
            else value[rows] if isinstance(value, np.ndarray)
            else [value[row] for row in rows]
            for name, value in values.items()
        }  # fmt: skip

    def count_crowds(self, record: Record) -> int:
        """How many objects of a record stand for several."""
        crowd = record.fields.get("crowd")
        if not isinstance(crowd, np.ndarray) or crowd.shape != np.shape(record.fields[self.labels]):
            return 0
        return int(np.count_nonzero(crowd))

    def _encode(self, record: Record, stem: str) -> tuple[bytes, str]:
        value = record.fields[self.image]
        if self.schema[self.image].pixels is not None:
            pixels = value[:, :, 0] if value.shape[2] == 1 else value
            try:
                return PictureEncoding("png").encode(Image.fromarray(pixels)), f"{stem}.png"
            except TypeError as error:
                raise PackError(f"its pixels cannot be a PNG: {error}") from error
        if value is None:
            raise PackError("it has no image")
        content = bytes(value)
        suffix = PurePosixPath(record.key).suffix
        if suffix.lower() not in IMAGE_SUFFIXES:
            found = fallback.sniff(content[:32])
            suffix = _ENDINGS.get(found, f".{found.lower()}")
        return content, f"{stem}{suffix}"

    def _is_of_objects(self, name: str, value: Value, count: int) -> bool:
        """Whether a field has a value for each object."""
        if name not in self.schema:  # its name is that of annotations
            return len(value) == count
        kind = self.schema[name]
        if kind.array is not None:
            return kind.array.axes[0] is None and value is not None and len(value) == count
        return kind.kind == "json" and isinstance(value, list) and len(value) == count


def name_images(keys: Iterable[str]) -> list[str]:
    """A name for the image of each record, without ending: the last part of its key, or more where these are equal."""
    listed = list(keys)
    stems = [_clean(PurePosixPath(key).name, number) for number, key in enumerate(listed)]
    if len({each.casefold() for each in stems}) < len(stems):
        stems = [_clean(key, number) for number, key in enumerate(listed)]
    seen: set[str] = set()
    for number, stem in enumerate(stems):
        unique = stem
        while unique.casefold() in seen:
            unique = f"{unique}_{number}"
        seen.add(unique.casefold())
        stems[number] = unique
    return stems


def _clean(key: str, number: int) -> str:
    ending = PurePosixPath(key).suffix
    stem = key[: -len(ending)] if ending.lower() in IMAGE_SUFFIXES else key
    cleaned = _NOT_IN_NAMES.sub("_", stem).rstrip(".")
    while len(cleaned.encode()) > _MAX_STEM:
        cleaned = cleaned[1:]
    return cleaned or str(number)


def _name_split(value: object) -> str:
    if value is None or value == "":
        return _DEFAULT_SPLIT
    if not isinstance(value, str) or _SPLIT.fullmatch(value) is None:
        raise PackError(f"its split must be the name of a folder, got {value!r:.100}")
    return value


def _choose(wanted: Iterable[str], found: Iterable[str]) -> str | None:
    """The first of the wanted names that was found, else the first that was found."""
    names = list(found)
    return next((name for name in wanted if name in names), names[0] if names else None)
