"""What lies in a folder, by the formats of annotations, tables and stores that :func:`penstock.pack` reads.

The first of these that recognises it is taken: annotations, a table beside the images, a store, a folder of classes.
The fields of its records say for which tasks it has what is needed. Called by ``penstock init``.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock import stores
from penstock.annotations import FORMATS
from penstock.annotations.source import AnnotationSource
from penstock.errors import ArgumentError, PenstockError, StoreNotFoundError, check_choice
from penstock.fields.names import CLASS_NAMES
from penstock.pack.sources import SourceOptions, open_source
from penstock.pack.sources.annotations import AnnotatedImages
from penstock.pack.sources.base import Source
from penstock.pack.sources.manifest import ManifestSource
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Field
from penstock.stores.writing import Skipped
from penstock.transforms.decoding.decode import MAX_PIXELS
from penstock.transforms.decoding.fallback import channel_pixels
from penstock.wording import counted

__all__ = ["IGNORED", "TASKS", "Form", "TrainingData", "recognise"]

TASKS: Final = ("landmarks", "segmentation", "detection", "classification", "regression")
"""What can be learned; of several, the first that the fields allow is the default."""

_VALIDATION: Final = ("val", "valid", "validation", "test")
_SPLIT_COLUMNS: Final = ("split", "subset", "partition", "set")
_LAST_FORM: Final = "path_list"
"""A format of annotations that a table of other columns looks like."""
_MASKS_EXAMINED: Final = 500
_TASKS_OF_CLASSES: Final = ("segmentation", "detection", "classification")
IGNORED: Final = 255
"""The value of pixels of a mask without a class, as in VOC."""
_CHILDREN_EXAMINED: Final = 100
_LEAST_RECORDS: Final = 2
_OBJECT_POINTS: Final = re.compile(r"float32\[\*,[0-9]+,3\]")
"""The kind of the keypoints of objects."""


@dataclass(frozen=True, slots=True)
class Form:
    """One way to read a folder."""

    kind: str
    """{"annotations", "table", "store", "classes"}: which reader of :func:`penstock.pack`; a store is read in place."""
    path: Path  # the folder or file that is read
    name: str = ""  # of the format of annotations, or of the kind of store

    def __str__(self) -> str:
        named = {"annotations": f"annotations of the format {self.name!r}", "table": f"the table {self.path.name}"}
        return named.get(self.kind, f"a store of the kind {self.name!r}" if self.name else "a folder of classes")


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The training data that were recognised."""

    form: Form  # how it is read
    task: str  # one of :data:`TASKS`
    fields: Mapping[str, Field]  # those that the task needs, the image first
    records: int  # their number
    reason: str  # a sentence: what was recognised, and why
    others: tuple[str, ...] = ()  # what else it could be
    parts: tuple[str, ...] = ()  # the parts for training and validation, where the source has them; else empty
    classes: int = 0  # the number of classes; 0 for tasks without
    names: tuple[str, ...] = ()  # of the classes, where they have names
    problems: tuple[Skipped, ...] = ()  # entries that cannot be read, such as annotations of missing images
    column: str = ""  # the column of a table whose values are the parts; else empty
    points: int = 0  # the number of points of an image, where a record has one set of them

    @property
    def target(self) -> str:
        """The field that is learned."""
        return _find_target(self.fields)


def recognise(path: Path, task: str | None = None) -> TrainingData:
    """Recognise what lies in a folder or a file. Nothing is written.

    Parameters
    ----------
    path : Path
        A folder of images, annotations or stores, or one file.
    task : str, optional
        One of :data:`TASKS`; by default the first for which there are fields.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    ArgumentError
        If it is empty, nothing recognises it, or it has not what the task needs.
    """
    check_choice("task", task, TASKS, optional=True)
    if not path.exists():
        raise StoreNotFoundError("there is nothing at this path", store=str(path))
    if path.is_dir() and not any(path.iterdir()):
        raise ArgumentError(f"the folder is empty: {path}")
    failures: list[str] = []
    forms = list(_find_forms(path))
    for form in forms:
        try:
            found = _examine(form, task, [str(each) for each in forms if each is not form])
        except PenstockError as error:
            failures.append(f"{form}: {error.message.splitlines()[0]}")
            continue
        return found
    known = "images in sub-folders of classes, annotations, a table of paths, or a store that penstock.open reads"
    why = f" ({'; '.join(failures)})" if failures else ""
    raise ArgumentError(f"nothing in {path} is recognised; it must have {known}{why}")


def _find_forms(path: Path) -> Iterator[Form]:
    """Ways to read what is there, the most specific first."""
    source = AnnotationSource.open(path, None)
    formats = [each for each in FORMATS if (form := FORMATS.try_get(each)) is not None and form.recognises(source)]
    yield from (Form("annotations", path, name) for name in formats if name != _LAST_FORM)
    names = sorted(path.iterdir())[:_CHILDREN_EXAMINED] if path.is_dir() else [path]
    if formats in ([], [_LAST_FORM]):  # else the tables are annotations
        tables = [each for each in names if each == path or each.suffix.lower() != ".json"]  # those are often others
        yield from (Form("table", each) for each in tables if ManifestSource.recognises(each))
    if _LAST_FORM in formats:
        yield Form("annotations", path, _LAST_FORM)
    if (kind := _find_kind(path)) is not None:
        yield Form("store", path, kind)
    elif path.is_dir() and _has_images(path):
        if not formats or sum(map(_has_images, path.iterdir())) > 1:  # annotated images are often in one folder
            yield Form("classes", path)
    else:
        yield from (Form("store", each, kind) for each in names if (kind := _find_kind(each)) is not None)


def _find_kind(path: Path) -> str | None:
    """The kind of a store, unless it is a folder of images."""
    try:
        kind = stores.find(path)[0].kind
    except PenstockError:
        return None
    return None if kind == "files" else kind


def _has_images(folder: Path) -> bool:
    """Return whether a folder, or one below, has an image."""
    return folder.is_dir() and any(path.suffix.lower() in IMAGE_SUFFIXES for path in folder.rglob("*"))


def _examine(form: Form, task: str | None, others: list[str]) -> TrainingData:
    """Read the fields of a source, and choose the task."""
    parts = _find_parts(form)
    with closing(_open(form, parts[0] if parts else None)) as source:
        records = len(source.keys) if source.keys is not None else source.total or 0
        if records < _LEAST_RECORDS and not parts:
            raise ArgumentError(f"it has {counted(records, 'record')}; a script trains on one and validates on another")
        by_task = dict(_find_tasks(source.schema.fields))
        if form.name == _LAST_FORM and "label" in source.schema:  # each image has a class, and none has boxes
            by_task.pop("detection", None)
        if task is not None and task not in by_task:
            has = ", ".join(by_task) or "none"
            raise ArgumentError(f"there is nothing for the task {task}: its fields allow {has}")
        if not by_task and form.kind == "classes":
            raise ArgumentError("images without sub-folders are one class, from which nothing can be learned")
        if not by_task:
            raise ArgumentError(
                f"records have no classes, boxes, masks or numbers, only {', '.join(source.schema.fields)}"
            )
        chosen = next(each for each in TASKS if each in by_task) if task is None else task
        fields = {name: source.schema[name] for name in by_task[chosen]}
        names = _find_class_names(source, chosen, fields)
        column = ""
        if form.kind == "table":
            column, parts = _find_split_column(source)
        return TrainingData(
            form, chosen, fields, records, _describe_recognition(form, source, parts, column, records),
            (*(f"data for {each} (--task {each})" for each in by_task if each != chosen), *others), parts,
            len(names) or _count_classes(source, chosen, _find_target(fields)), names, tuple(source.unreadable), column,
            _count_points(source, fields),
        )  # fmt: skip


def _find_parts(form: Form) -> tuple[str, ...]:
    """Names of the parts for training and validation, where a source has both."""
    for name in _VALIDATION:
        if form.kind == "classes" and all(
            (form.path / part).is_dir() and any(map(_has_images, (form.path / part).iterdir()))
            for part in ("train", name)
        ):
            return "train", name
        if form.kind == "annotations" and all(_has_split(form, part) for part in ("train", name)):
            return "train", name
    return ()


def _find_split_column(table: Source) -> tuple[str, tuple[str, ...]]:
    """Return the column of a table that says the part of each record, and the parts for training and validation."""
    for name in _SPLIT_COLUMNS:
        if name in table.schema:
            values = {str(item.token.values[name]).strip().lower() for item in table.items(0)}
            for part in _VALIDATION:
                if {"train", part} <= values:
                    return name, ("train", part)
    return "", ()


def _has_split(form: Form, part: str) -> bool:
    try:
        return bool(AnnotatedImages(None, form.path, form.name, part).read(None).records)
    except PenstockError:
        return False


def _open(form: Form, part: str | None) -> Source:
    if form.kind == "annotations":
        return open_source(AnnotatedImages(None, form.path, form.name, part), SourceOptions())
    return open_source(form.path if part is None or form.kind != "classes" else form.path / part, SourceOptions())


def _find_tasks(fields: Mapping[str, Field]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the tasks that fields allow, and the fields of each."""
    kinds = {name: each.kind for name, each in fields.items()}
    image = next((name for name, kind in kinds.items() if kind == "image"), None)
    if image is None:
        return
    boxes = next((name for name, kind in kinds.items() if kind == "boxes"), None)
    mask = next((name for name, kind in kinds.items() if kind == "mask"), None)
    points = next((name for name, kind in kinds.items() if kind == "keypoints"), None)
    if points is not None:
        yield "landmarks", (image, points)
    elif boxes is not None and _OBJECT_POINTS.fullmatch(kinds.get("keypoints", "")):
        yield "landmarks", (image, boxes, "keypoints")
    if mask is not None:
        yield "segmentation", (image, mask)
    if boxes is not None and "labels" in kinds and mask is None:
        yield "detection", (image, boxes, "labels", *(["crowd"] if "crowd" in kinds else []))
    label = next((name for name, kind in kinds.items() if kind == "label"), None)
    label = label or next((name for name, kind in kinds.items() if kind == "int" and name in CLASS_NAMES), None)
    if label is not None and len(fields[label].classes) != 1:  # of images without sub-folders, which are one class
        yield "classification", (image, label)
    number = next((name for name, kind in kinds.items() if kind == "float"), None)
    if number is not None:
        yield "regression", (image, number)


def _find_target(fields: Mapping[str, Field]) -> str:
    """Return the last field but that of crowds, which are left out of batches."""
    return [name for name in fields if name != "crowd"][-1]


def _find_class_names(source: Source, task: str, fields: Mapping[str, Field]) -> tuple[str, ...]:
    """The names of classes; those of masks are the names of the field ``labels``."""
    names = [*fields, *(["labels"] if task == "segmentation" and "labels" in source.schema else [])]
    if task not in _TASKS_OF_CLASSES:
        return ()
    return next((source.schema[name].classes for name in names if source.schema[name].classes), ())


def _count_classes(source: Source, task: str, name: str) -> int:
    """Return the largest number of a class, plus one; of masks, that in the first of them."""
    if task not in _TASKS_OF_CLASSES:
        return 0
    count = _MASKS_EXAMINED if task == "segmentation" else sys.maxsize
    most = 0
    for item in itertools.islice(source.items(0), count):
        value = source.load(item.token)[name]
        if value is None:
            continue
        if task == "segmentation":
            value = channel_pixels(value, MAX_PIXELS)
        numbers = np.asarray(value).ravel()
        most = max(most, int(numbers[numbers != IGNORED].max(initial=0)))
    return most + 1


def _count_points(source: Source, fields: Mapping[str, Field]) -> int:
    """The number of points of the first record that has some; 0 for other tasks."""
    name = next((name for name, field in fields.items() if field.kind == "keypoints"), None)
    if name is None:
        return 0
    for item in source.items(0):
        value = source.load(item.token)[name]
        if value is not None and len(value):
            return len(value)
    return 0


def _describe_recognition(form: Form, source: Source, parts: tuple[str, ...], column: str, records: int) -> str:
    """Return what was recognised, and why, in a sentence."""
    count = counted(records, "record")
    if column:
        count += f", of which the column {column} names {' and '.join(parts)}"
    elif parts:
        count += f" in {parts[0]}, and a part {parts[1]}"
    if form.kind == "classes":
        names = source.schema["label"].classes if "label" in source.schema else ()
        shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        return f"a folder of images with a sub-folder for each of {counted(len(names), 'class')} ({shown}), {count}"
    if form.kind == "store":
        return getattr(getattr(source, "store", None), "description", "") or f"{form}, {count}"
    return f"{form} with the fields {', '.join(source.schema.fields)}, {count}"
