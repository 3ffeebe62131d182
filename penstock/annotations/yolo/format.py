"""YOLO: a text file for each image, a line for each object, all coordinates as parts of the image's width and height.

::

    0 0.5 0.5 0.2 0.4                       class, centre, width, height: a detection
    0 0.1 0.1 0.9 0.1 0.5 0.8 ...           class, points of a polygon: a segmentation
    0 0.5 0.5 0.2 0.4 0.4 0.4 2 ...         class, box, keypoints as `kpt_shape` has them: a pose
    0 0.1 0.1 0.9 0.1 0.9 0.8 0.1 0.8       class, four corners: an oriented box

An image without a label file has no objects. Where the files lie: :mod:`penstock.annotations.yolo.files`;
what they say of the classes: :mod:`penstock.annotations.yolo.description`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.annotations.base import AnnotationFormat
from penstock.annotations.numbers import parse_int
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.annotations.yolo.description import YoloDescription, find_description, read_description
from penstock.annotations.yolo.files import LabelFiles, find_images, has_label_row
from penstock.errors import AnnotationError, ArgumentError, check_choice

__all__ = ["YoloFormat"]

TASKS: Final = ("auto", "detect", "segment", "pose", "obb")
_VISIBLE: Final = 2.0
"""The flag of points that have none: COCO's for a visible point."""
_POLYGON: Final = 7
"""Numbers of the shortest polygon: its class, and three points."""
_MIN_POSES: Final = 5
"""Fewer lines than these may look like poses by chance."""
_MAX_NUMBER: Final = 1 << 16
"""Above it, a class number without a name is taken for damage."""
_MAX_LOOKED_AT: Final = 100


class YoloFormat(AnnotationFormat):
    """Reads YOLO.

    Parameters
    ----------
    task : {"auto", "detect", "segment", "pose", "obb"}
        What the lines are. By default poses where there is a `kpt_shape`; else a line of 5 numbers is a detection, and
        a longer one a polygon, or an oriented box if each of the longer lines has 9 numbers.
    kpt_shape : tuple of two int, optional
        Number of keypoints, and 2 (x, y) or 3 (x, y, flag), where no `data.yaml` says it.
    """

    name = "yolo"

    def __init__(self, *, task: str = "auto", kpt_shape: tuple[int, int] | None = None) -> None:
        check_choice("task", task, TASKS)
        if kpt_shape is not None and (kpt_shape[0] < 1 or kpt_shape[1] not in {2, 3}):
            raise ArgumentError(f"kpt_shape must be the number of keypoints, and 2 or 3, got {kpt_shape!r}")
        self._task, self._kpt_shape = task, kpt_shape

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """A `data.yaml` with names or splits, darknet's `obj.data`, or texts of numbers paired with images."""
        if source.path.is_file():
            suffix = source.path.suffix.lower()
            return suffix in {".names", ".data"} or (suffix in {".yaml", ".yml"} and "names" in _read_start(source))
        if not source.image_files:
            return False
        try:
            if find_description(source) is not None:
                return True
        except ArgumentError:  # several
            return True
        texts = [path for path in source.list_files(None, ".txt") if path.stem in source.image_files][:_MAX_LOOKED_AT]
        return any(has_label_row(source, path) for path in texts)

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        described = read_description(source, builder)
        images, folders = find_images(source, builder, described, split)
        files = LabelFiles(source)
        labels = [_read_labels(source, builder, path, files.find(path)) for path in images]
        if images and all(each.file is None for each in labels):
            raise AnnotationError(
                f"none of the {len(images)} images has a label file in a folder `labels` or beside it; give "
                '{"annotations": folder of label files, "images": folder of images}',
                source=str(source.root),
            )
        for path in files.list_unpaired(folders):
            builder.image(path.stem, None, file=path)
        names = _name_classes(builder, described, labels)
        task, shape = self._find_task(described, labels)
        builder.details.update(task=task)
        if shape is not None:
            builder.details.update(kpt_shape=shape)
        if described.flip_idx is not None:
            builder.details.update(flip_idx=described.flip_idx)
        for each, part in zip(labels, images.values(), strict=True):
            if each.is_readable:
                _add_image(source, builder, each, part, _RowLayout(task, shape, names))

    def _find_task(self, described: YoloDescription, labels: Sequence[_Labels]) -> tuple[str, tuple[int, int] | None]:
        shape = self._kpt_shape or described.kpt_shape
        if self._task == "pose" and shape is None:
            raise ArgumentError("task='pose' needs kpt_shape=, the number of keypoints and 2 or 3")
        if self._task != "auto":
            return self._task, shape if self._task == "pose" else None
        if shape is not None:
            return "pose", shape
        rows = [row.numbers for each in labels for row in each.rows if len(row.numbers) > 5]
        if _look_like_poses(rows):
            raise ArgumentError(
                f"each longer line has {len(rows[0])} numbers, and its points lie in its box, as those of poses do; "
                "give kpt_shape=, the number of keypoints and 2 or 3, or task='segment'"
            )
        lengths = {len(row) for row in rows if len(row) >= _POLYGON and len(row) % 2}
        if not lengths:
            return "detect", None
        return "obb" if lengths == {9} else "segment", None


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    numbers: tuple[float, ...]


@dataclass(slots=True)
class _Labels:
    """The lines of one label file that are numbers, and what is wrong with the others."""

    image: Path
    file: Path | None
    rows: list[_Row] = field(default_factory=list)
    wrong: list[tuple[int, str]] = field(default_factory=list)
    is_readable: bool = True


@dataclass(frozen=True, slots=True)
class _RowLayout:
    task: str
    kpt_shape: tuple[int, int] | None
    names: Mapping[int, str]


def _look_like_poses(rows: Sequence[tuple[float, ...]]) -> bool:
    """Whether lines of one length are a box and three or more points in it, which would be wrong polygons."""
    if len(rows) < _MIN_POSES or len({len(row) for row in rows}) != 1:
        return False
    lines = np.array(rows)
    centres, sides = lines[:, None, 1:3], lines[:, None, 3:5]
    for width in (2, 3):
        points = lines[:, 5:]
        if points.shape[1] % width or points.shape[1] < 3 * width:
            continue
        points = points.reshape(len(rows), -1, width)
        with np.errstate(over="ignore", invalid="ignore"):
            is_inside = (np.abs(points[..., :2] - centres) <= sides / 2 + 0.01).all(axis=2)
        is_none = (points[..., :2] <= 0).all(axis=2)
        if (is_inside | is_none).all() and (width == 2 or np.isin(points[..., 2], (0, 1, 2)).all()):
            return True
    return False


def _read_start(source: AnnotationSource) -> str:
    try:
        return source.read_text(source.path)
    except AnnotationError:
        return ""


def _read_labels(source: AnnotationSource, builder: RecordBuilder, image: Path, file: Path | None) -> _Labels:
    labels = _Labels(image, file)
    if file is None:
        return labels
    try:
        lines = list(source.read_lines(file))
    except AnnotationError as error:
        builder.note(file, error.message, image=source.relative(image))
        labels.is_readable = False
        return labels
    held: dict[tuple[float, ...], int] = {}
    for line, text in lines:
        try:
            numbers = tuple(map(float, text.split()))
        except ValueError:
            labels.wrong.append((line, f"its line must have numbers only, got {text!r:.100}"))
            continue
        first = held.setdefault(numbers, line)
        if first != line:
            labels.wrong.append((line, f"its line is that of line {first} again"))
        else:
            labels.rows.append(_Row(line, numbers))
    return labels


def _name_classes(builder: RecordBuilder, described: YoloDescription, labels: Sequence[_Labels]) -> Mapping[int, str]:
    """Names by number: those of the source, those that the caller gave, or the numbers themselves."""
    names = described.names
    if names is None and builder.classes is not None:
        return dict(enumerate(builder.classes))
    if names is None:
        used = [row.numbers[0] for each in labels for row in each.rows]
        top = max((number for number in used if 0 <= number < _MAX_NUMBER), default=-1.0)
        names = {number: str(number) for number in range(int(top) + 1)}
    first: dict[str, int] = {}
    for number, name in names.items():
        held = first.setdefault(name, number)
        if held != number and described.file is not None:
            reason = f"the classes {held} and {number} are both named {name!r:.100}"
            builder.note(described.file, reason, effect="classes joined")
    builder.set_classes(tuple(first))
    if list(names) != list(range(len(names))):
        builder.details["class_numbers"] = tuple(first.values())
    return names


def _add_image(
    source: AnnotationSource, builder: RecordBuilder, labels: _Labels, split: str | None, layout: _RowLayout
) -> None:
    file = labels.file or labels.image
    image = builder.image(source.relative(labels.image), labels.image, file=file, split=split)
    if image is None:
        return
    for line, reason in labels.wrong:
        image.note(reason, line)
    for row in labels.rows:
        try:
            _add_object(image, row, layout)
        except ValueError as error:
            image.note(str(error), row.line)


def _add_object(image: ImageObjects, row: _Row, layout: _RowLayout) -> None:
    numbers = row.numbers
    number = parse_int(numbers[0], "class")
    label = layout.names.get(number)
    if label is None:
        raise ValueError(f"its class {number} is not one of the {len(layout.names)} classes")
    size = (float(image.width), float(image.height))
    if layout.task == "pose" and layout.kpt_shape is not None:
        count, width = layout.kpt_shape
        _expect_length(numbers, {5 + count * width}, "a pose")
        keypoints = _read_keypoints(numbers[5:], width, size)
        image.add(label, _read_box(numbers, size), line=row.line, keypoints=keypoints)
    elif len(numbers) == 5 and layout.task in {"detect", "segment"}:
        image.add(label, _read_box(numbers, size), line=row.line)
    elif layout.task == "obb":
        _expect_length(numbers, {9}, "an oriented box")
        points = _read_points(numbers[1:], size)
        image.add(label, _bound(points), line=row.line, corners=points)
    elif layout.task == "segment":
        if len(numbers) < _POLYGON or len(numbers) % 2 == 0:
            raise ValueError(f"its line must have a class and three or more points, got {len(numbers)} numbers")
        points = _read_points(numbers[1:], size)
        image.add(label, _bound(points), line=row.line, polygon=points)
    else:
        _expect_length(numbers, {5}, "a detection")


def _expect_length(numbers: Sequence[float], lengths: set[int], what: str) -> None:
    if len(numbers) not in lengths:
        raise ValueError(f"its line must have {', '.join(map(str, lengths))} numbers, as {what}, got {len(numbers)}")


def _read_box(numbers: Sequence[float], size: tuple[float, float]) -> tuple[float, float, float, float]:
    x, y, width, height = numbers[1:5]
    return (
        (x - width / 2) * size[0],
        (y - height / 2) * size[1],
        (x + width / 2) * size[0],
        (y + height / 2) * size[1],
    )


def _read_points(numbers: Sequence[float], size: tuple[float, float]) -> list[float]:
    """x0, y0, x1, y1, ... in pixels."""
    points = [number * size[place % 2] for place, number in enumerate(numbers)]
    if not all(map(math.isfinite, points)):
        raise ValueError("its points must be finite numbers")
    return points


def _bound(points: Sequence[float]) -> tuple[float, float, float, float]:
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def _read_keypoints(numbers: Sequence[float], width: int, size: tuple[float, float]) -> NDArray[np.float32]:
    """Points in pixels with their flags; without flags, 0 for a point left of or above the image, and else 2."""
    given = np.array(numbers, np.float64).reshape(-1, width)
    points = np.empty((len(given), 3), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        points[:, :2] = given[:, :2] * size
        points[:, 2] = given[:, 2] if width == 3 else np.where((given < 0).any(axis=1), 0.0, _VISIBLE)
        return points.astype(np.float32)
