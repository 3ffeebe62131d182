"""Writes the images of a store and their annotations as a folder: VOC, YOLO or COCO; ``convert`` with such a layout.

::

    1. write    record ──> the image's bytes, its annotation       in a folder beside the destination
    2. proof    the folder is read by penstock.annotations.read, and compared record by record
    3. rename   to the destination: it is never there in part

Which field is the image and which are annotations is found by names and kinds, and names of files are made of keys
(:class:`ExportedFields`). An interrupted run begins anew.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final, Self

import numpy as np
import xxhash
from PIL import Image

from penstock.annotations import WRITERS, Annotations, read
from penstock.annotations.writing import AnnotationWriter, WrittenImage
from penstock.errors import ArgumentError, PackError, PenstockError, StoreError
from penstock.fields.names import CLASS_NAMES
from penstock.orientation import get_upright_size
from penstock.pack.conversion.report import ConvertReport
from penstock.pack.pipeline.run import list_skipped
from penstock.pack.sources.conversion import PictureEncoding
from penstock.pack.upright_fields import find_role, has_values, refuse_unknown_picture, turn_record
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Array, Record, Schema, Value
from penstock.stores.base import Skipped, Store
from penstock.stores.common.regular_file import remove_tree
from penstock.stores.location import Location
from penstock.stores.problems import Problem
from penstock.transforms.decoding import fallback
from penstock.transforms.decoding.decode import read_orientations
from penstock.wording import counted

__all__ = ["export", "name_images"]

_REPORT: Final = "convert.json"
_BATCH: Final = 64
_EXACT: Final = ("boxes", "keypoints", "instances", "area", "crowd")
"""Fields that must be equal when they are read back, where the format has them."""
Progress = Callable[[str, int, int, int], None]
_ENDINGS: Final = {"JPEG": ".jpg", "TIFF": ".tif"}
_NOT_IN_NAMES: Final = re.compile(r"[\s/\\:*?\"<>|\x00-\x1f\x7f-\x9f\ud800-\udfff]|^\.")
_SPLIT: Final = re.compile(r"[A-Za-z0-9_][\w.-]{0,99}")
_DEFAULT_SPLIT: Final = "train"
_MAX_STEM: Final = 150
_MAX_PIXELS: Final = 1 << 27


@dataclass(slots=True)
class _Written:
    """An image that was written: its key, its path, and a hash of its bytes."""

    key: str
    path: str
    content: str


@dataclass(slots=True)
class _Export:
    """One run."""

    source: Store
    fields: ExportedFields
    writer: AnnotationWriter
    show: Progress
    written: dict[int, _Written] = field(default_factory=dict)
    left_out: list[Skipped] = field(default_factory=list)
    crowds: int = 0

    def write(self) -> None:
        """Write all records that can be written; list the others."""
        stems = name_images(self.source.keys())
        nbytes = 0
        for number, stem in enumerate(stems):
            try:
                record = self.source.read([number])[0]
                content, image = self.fields.convert(record, stem)
            except PenstockError as error:
                self.left_out.append(Skipped(self.source.keys()[number], error.message))
                continue
            path = self.writer.locate_image(image.name, image.split)
            target = self.writer.folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            self.writer.add(image)
            self.crowds += self.fields.count_crowds(record)
            self.written[number] = _Written(record.key, path, xxhash.xxh3_128_hexdigest(content))
            nbytes += len(content)
            if number % _BATCH == 0 or number + 1 == len(stems):
                self.show("copying", number + 1, len(stems), nbytes)
        if self.written:
            self.writer.finish()

    def prove(self, format: str, *, skips: bool) -> tuple[list[Problem], str, str, set[str]]:  # noqa: A002  # as in `read`
        """Differences, the digests of both sides, and other fields that are not the same when they are read.

        With ``skips``, what reading refuses (an empty box) is listed as left out, and is no difference.
        """
        folder = self.writer.folder
        found = read(folder, format, on_error="skip", classes=self.writer.classes)
        by_path = {os.path.normpath(found.root / record["image"]): record for record in found.records}
        reasons = {os.path.normpath(found.root / each.image): each for each in found.problems if each.image is not None}
        problems: list[Problem] = []
        one, other = xxhash.xxh3_128(), xxhash.xxh3_128()
        lost: set[str] = set()
        for done, (number, written) in enumerate(self.written.items(), 1):
            record = self.source.read([number])[0]
            path = os.path.normpath(folder / written.path)
            seen = by_path.get(path)
            refused = reasons.get(path)
            if seen is None or refused is not None:
                reason = "it is not there when it is read back" if refused is None else str(refused)
                if skips and refused is not None:
                    self.left_out.append(Skipped(record.key, reason))
                else:
                    problems.append(Problem(reason, record.key, number))
                continue
            differences, different = self._compare(record, seen, found)
            problems += [Problem(each, record.key, number) for each in differences]
            lost |= different
            copied = xxhash.xxh3_128_hexdigest((found.root / seen["image"]).read_bytes())
            one.update(f"{record.key}\0{written.content}\0".encode(errors="surrogatepass"))
            other.update(f"{written.key}\0{copied}\0".encode(errors="surrogatepass"))
            for state in (one, other):  # values that differ are problems
                state.update(np.asarray(record.fields[self.fields.boxes], "<f4").tobytes())
            if done % _BATCH == 0 or done == len(self.written):
                self.show("comparing", done, len(self.written), 0)
        return problems, one.hexdigest(), other.hexdigest(), lost

    def report(
        self, location: Location, problems: list[Problem], one: str, other: str, lost: set[str]
    ) -> ConvertReport:
        """Make the report of what :meth:`prove` has found, for a folder that gets its name afterwards."""
        keys = Counter(each.key for each in self.written.values())
        unplaced = f"{location.scheme} has no place for it, or not for its values"
        left_out = [*self.left_out, *self.list_crowds(), *self.source.problems]
        return ConvertReport(
            self.source.url,
            str(location),
            len(self.written),
            one,
            other,
            renamed=tuple((each.key, each.path) for each in self.written.values() if each.key != each.path),
            left_out=(*left_out, *(Skipped(f"field {name}", unplaced) for name in sorted(lost))),
            duplicates=tuple(key for key, count in keys.items() if count > 1),
            problems=tuple(problems),
        )

    def list_crowds(self) -> list[Skipped]:
        """Return how many objects that are crowds were not written as such."""
        if not self.crowds or self.writer.crowds == "kept":
            return []
        written = "written as difficult" if self.writer.crowds == "difficult" else "left out"
        reason = f"{self.writer.name} has no crowds; {written}: {counted(self.crowds, 'object')}"
        return [Skipped("field crowd", reason)]

    def _compare(self, record: Record, seen: Mapping[str, Value], found: Annotations) -> tuple[list[str], set[str]]:
        """Return what must be equal and is not; and other fields that are not equal, or have no place."""
        expected = self.fields.name_values(record)
        sides = np.array([seen["width"], seen["height"]] * 2)
        differences: list[str] = []
        lost: set[str] = set()
        for name, value in expected.items():
            if name == "labels":
                names = [found.classes[label] for label in seen["labels"].tolist()]
                is_equal = names == [self.writer.classes[label] for label in value.tolist()]
            elif name in {"boxes", "keypoints"} and name in seen:
                is_equal = self._are_close(value, seen[name], sides)
            else:
                is_equal = name in seen and _is_same(value, seen[name])
            if is_equal:
                continue
            if name == "labels" or (name in _EXACT and (name in seen or name == "boxes")):
                differences.append(f"field {name!r} is not the same when it is read back")
            else:
                lost.add(name)
        return differences, lost

    def _are_close(self, one: Array, other: Array, sides: Array) -> bool:
        if one.shape != other.shape:
            return False
        if np.array_equal(one, other):
            return True
        if other.ndim == 3 and not np.array_equal(one[..., 2], other[..., 2]):
            return False
        scale = sides if other.ndim == 2 else sides[:2]
        gap = np.abs(one[..., : len(scale)].astype(np.float64) - other[..., : len(scale)])
        return bool((gap <= self.writer.relative_error * scale).all())


def export(
    source: Store,
    dst: str | os.PathLike[str],
    format: str,  # noqa: A002  # as in `read`
    options: Mapping[str, object],
    *,
    on_error: str,
    overwrite: bool,
    show: Progress,
) -> ConvertReport:
    """Write a store as a folder of images and annotations; see :func:`penstock.convert`, which calls this.

    Raises
    ------
    ArgumentError
        If the store has no boxes with classes, an option is invalid, or something else is at the destination.
    PackError
        With ``on_error="raise"``, if records cannot be written.
    """
    kind: type[AnnotationWriter] = WRITERS.get(format)
    kind.refuse_unknown_options(options)
    fields = ExportedFields.of(source, kind.crowds)
    location = Location.from_path(format, dst)
    if source.location.overlaps(location):
        raise ArgumentError(f"the destination must be outside the source, got {source.location} and {location}")
    folder = location.local_path
    _refuse_other_files(folder, location, overwrite=overwrite)
    partial = folder.with_name(f".{folder.name}.unfinished")
    try:
        remove_tree(partial)
        partial.mkdir(parents=True)
        run = _Export(source, fields, kind(partial, fields.classes, **options), show)
        run.write()
        if run.left_out and on_error == "raise":
            raise PackError(
                f'{len(run.left_out):,} records cannot be written; repair them, or convert with on_error="skip":\n'
                f"{list_skipped(run.left_out)}",
                store=source.url,
            )
        if not run.written:
            raise PackError("no record can be written", store=source.url)
        report = run.report(location, *run.prove(format, skips=on_error == "skip"))
        remove_tree(folder)
        partial.replace(folder)
    except OSError as error:
        raise StoreError(f"the folder cannot be written: {error}", store=str(location)) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return report


def _refuse_other_files(folder: Path, location: Location, *, overwrite: bool) -> None:
    """Refuse a destination that is no folder of an earlier conversion, or may not be replaced."""
    if not os.path.lexists(folder) or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not overwrite:
        raise ArgumentError(f"{folder} exists; give overwrite=True (--overwrite) to replace it")
    if not location.sidecar(_REPORT).is_file():
        raise ArgumentError(f"{folder} is no folder that a conversion wrote, and is not replaced; remove it yourself")


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        one, other = np.asarray(one), np.asarray(other)
        both_float = one.dtype.kind == other.dtype.kind == "f"
        return one.shape == other.shape and bool(np.array_equal(one, other, equal_nan=both_float))
    return bool(one == other)


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
        labels = _choose(CLASS_NAMES, (name for name in lists if name in CLASS_NAMES or fields[name].classes))
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
        orientation = self._read_orientation(record)
        boxes, labels = values.pop("boxes"), values.pop("labels")
        if len(boxes) != len(labels):
            raise PackError(f"it has {len(boxes)} boxes and {len(labels)} classes")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
            raise PackError(f"its classes must be 0 to {len(self.classes) - 1}, got {labels.min()} to {labels.max()}")
        points = values.pop("keypoints", None)
        is_list = {each: self._is_of_objects(each, value, len(labels)) for each, value in values.items()}
        width, height = get_upright_size(fallback.image_size(content, _MAX_PIXELS), orientation)
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
        """The values of a record but its image and its size, by the names that annotations have; crowds as written.

        All are those of the upright picture, which readers of these formats show.
        """
        names = {self.boxes: "boxes", self.labels: "labels"}
        left = {self.image, "width", "height"}
        fields = self._turn(record)
        values = {names.get(each, each): fields[each] for each in self.schema.fields if each not in left}
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

    def _read_orientation(self, record: Record) -> int:
        if self.schema[self.image].pixels is not None or record.fields[self.image] is None:
            return 1
        return int(read_orientations([record.fields[self.image]], _MAX_PIXELS)[0])

    def _turn(self, record: Record) -> dict[str, Value]:
        """The fields of a record, all of the upright picture; PackError if it is unknown which picture they are of."""
        fields = record.fields
        if self.schema.upright is None:
            found = [name for name in fields if find_role(name, self.schema[name]) and has_values(fields[name])]
            refuse_unknown_picture(found, self._read_orientation(record))
        return turn_record(self.schema, fields[self.image], fields)

    def count_crowds(self, record: Record) -> int:
        """Return how many objects of a record stand for several."""
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
        """Return whether a field has a value for each object."""
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
