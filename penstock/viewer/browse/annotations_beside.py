"""Annotations of pictures that are not in the store: boxes of VOC, COCO or YOLO files beside a folder of images."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.annotations import Annotations, SourceLike, read
from penstock.errors import ArgumentError
from penstock.pack.sources.annotation_fields import AnnotationFields
from penstock.sample import Schema, Value
from penstock.stores.base import Store

__all__ = ["AnnotationsBeside", "read_beside"]


class AnnotationsBeside:
    """Annotations by the keys of a store: by the path of a picture in ``folder``; without one by its name."""

    def __init__(self, found: Annotations, folder: Path | None) -> None:
        self._root, self._folder = found.root, folder
        fields = AnnotationFields.of(found).schema.fields
        self.schema = Schema({name: field for name, field in fields.items() if name != "image"})
        """Of the fields that every record gets."""
        names = (os.path.normpath(found.root / record["image"]) for record in found.records)
        self._records = {self._shorten(name): record for name, record in zip(names, found.records, strict=True)}

    def __contains__(self, key: str) -> bool:
        return self._shorten(key) in self._records

    def find(self, key: str) -> dict[str, Value]:
        """The annotations of the record with a key; without values where there are none."""
        record = self._records.get(self._shorten(key), {})
        values = {name: record.get(name) for name in self.schema.fields}
        if isinstance(mask := values.get("mask"), str):
            path = self._root / mask
            values["mask"] = path.read_bytes() if path.is_file() else None
        return values

    def _shorten(self, name: str) -> str:
        return Path(name).stem if self._folder is None else os.path.normpath(self._folder / name)


def read_beside(store: Store, source: SourceLike, format: str = "auto") -> AnnotationsBeside:  # noqa: A002  # as `pack`
    """Read the annotations of a store's pictures; what is wrong in them is left out.

    Raises ArgumentError if no format recognises the source, or none of its annotations is of a picture of the store.
    Raises AnnotationError if it cannot be read.
    """
    folder = Path(store.location.path) if store.kind == "files" and store.location.is_local else None
    annotations = read(source, format, folder, "skip")
    found = AnnotationsBeside(annotations, folder) if annotations.records else None
    if found is None or (len(store) and not any(map(found.__contains__, store.keys()))):
        first = f"; the first problem: {annotations.problems[0]}" if annotations.problems else ""
        raise ArgumentError(f"no annotation in {str(source)!r:.500} is of a picture of {store.url}{first}")
    return found
