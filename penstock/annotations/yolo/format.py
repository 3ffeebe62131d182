"""YOLO: a text file for each image, a line for each object, all coordinates as parts of the image's width and height.

::

    0 0.5 0.5 0.2 0.4                       class, centre, width, height: a detection
    0 0.1 0.1 0.9 0.1 0.5 0.8 ...           class, points of a polygon: a segmentation
    0 0.5 0.5 0.2 0.4 0.4 0.4 2 ...         class, box, keypoints as `kpt_shape` has them: a pose
    0 0.1 0.1 0.9 0.1 0.9 0.8 0.1 0.8       class, four corners: an oriented box

Where the files lie::

    images/train/1.jpg          labels/train/1.txt: the last folder `images` replaced by `labels`
    train/1.jpg                 train/1.txt: beside the image, where there is none in `labels`

An image without a label file has no objects. No path leads out of the folders of the source: an absolute one is found
by its end. What the source says of its classes: :mod:`penstock.annotations.yolo.description`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.annotations.base import AnnotationFormat, refuse_unknown_split
from penstock.annotations.numbers import parse_int
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.source import AnnotationSource, find_split
from penstock.annotations.yolo.description import YoloDescription, find_description, find_inside, read_description
from penstock.errors import AnnotationError, ArgumentError, check_choice
from penstock.paths import IMAGE_SUFFIXES

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
_SPLIT_FOLDERS: Final = ("train", "training", "val", "valid", "validation", "test")
_IMAGE_FOLDERS: Final = ("images", "JPEGImages")
_NOT_LABELS: Final = frozenset(
    {"classes", "train", "val", "valid", "test", "trainval", "notes", "license", "requirements"}
)


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
    lists_images = False

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
    """Return whether lines of one length are a box and three or more points in it, which would be wrong polygons."""
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
    """Return x0, y0, x1, y1, ... in pixels."""
    points = [number * size[place % 2] for place, number in enumerate(numbers)]
    if not all(map(math.isfinite, points)):
        raise ValueError("its points must be finite numbers")
    return points


def _bound(points: Sequence[float]) -> tuple[float, float, float, float]:
    return min(points[::2]), min(points[1::2]), max(points[::2]), max(points[1::2])


def _read_keypoints(numbers: Sequence[float], width: int, size: tuple[float, float]) -> NDArray[np.float32]:
    """Return points in pixels with their flags; without flags, 0 for a point left of or above the image, and else 2."""
    given = np.array(numbers, np.float64).reshape(-1, width)
    points = np.empty((len(given), 3), np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        points[:, :2] = given[:, :2] * size
        points[:, 2] = given[:, 2] if width == 3 else np.where((given < 0).any(axis=1), 0.0, _VISIBLE)
        return points.astype(np.float32)


def find_images(
    source: AnnotationSource, builder: RecordBuilder, described: YoloDescription, split: str | None
) -> tuple[dict[Path, str | None], list[Path]]:
    """The images with their splits, in byte order of their paths, and the folders that they were found in.

    An image of several splits has the first of train, val and test.

    Raises ArgumentError if there is no such split. Raises AnnotationError if the split that was asked for, or each of
    them, leads nowhere.
    """
    if described.splits:
        found, folders = _find_described(source, builder, described, split)
    else:
        found, folders = _find_undescribed(source, split)
    return dict(sorted(found.items(), key=lambda each: os.fsencode(source.relative(each[0])))), folders


def _find_described(
    source: AnnotationSource, builder: RecordBuilder, described: YoloDescription, split: str | None
) -> tuple[dict[Path, str | None], list[Path]]:
    splits, file = described.splits, described.file or source.path
    refuse_unknown_split(split, splits)
    bases = _list_bases(source, file.parent, described.base)
    found: dict[Path, str | None] = {}
    folders: list[Path] = []
    missing = []
    by_end = source.images is not None or file.suffix.lower() == ".data"  # whose paths are of darknet's own folder
    for name, entry in ((each, entry) for each in splits if split in {None, each} for entry in splits[each]):
        place = find_inside(source, entry, bases, by_end=by_end, others=splits)
        if place is None:
            missing.append((name, entry))
        elif place.is_dir():
            folders.append(place)
            for path in source.list_files(place, *IMAGE_SUFFIXES):
                found.setdefault(path, name)
        else:
            listed = list(_read_image_list(source, builder, place, bases, name))
            folders += sorted({path.parent for path in listed})
            for path in listed:
                found.setdefault(path, name)
    if missing and not folders:
        raise AnnotationError(
            f"{source.relative(file)}: there is nothing at {missing[0][1]!r:.300}, its {missing[0][0]}, in the folders "
            "of the source; give images= where the images lie elsewhere",
            source=str(source.root),
        )
    for name, entry in missing:
        builder.note(file, f"there is nothing at {entry!r:.300}, its {name}", effect="split left out")
    return found, list(dict.fromkeys(folders))


def _find_undescribed(source: AnnotationSource, split: str | None) -> tuple[dict[Path, str | None], list[Path]]:
    """Find images of the folder; if some are in a folder `images`, only those. Splits are folders of usual names."""
    folder = source.images or source.folder
    paths = source.list_files(folder, *IMAGE_SUFFIXES)
    inner = [path.relative_to(folder).parts[:-1] for path in paths]
    if any("images" in parts for parts in inner):
        kept = [(path, parts) for path, parts in zip(paths, inner, strict=True) if "images" in parts]
    else:
        kept = list(zip(paths, inner, strict=True))
    found = {path: next((part for part in parts if part in _SPLIT_FOLDERS), None) for path, parts in kept}
    if split is not None:
        refuse_unknown_split(split, sorted({name for name in found.values() if name}))
        found = {path: name for path, name in found.items() if name == split}
        return found, sorted({path.parent for path in found})
    return found, [folder]


def _read_image_list(
    source: AnnotationSource, builder: RecordBuilder, path: Path, bases: Iterable[Path], split: str
) -> Iterator[Path]:
    folders = list(dict.fromkeys([path.parent, *bases]))
    for number, line in source.read_lines(path):
        found = source.find_image(line, *folders, split=None if find_split(line) else split)
        if found is None:
            builder.note(path, f"there is no image {line!r:.300}", number, image=line[:300])
        else:
            yield found


def _list_bases(source: AnnotationSource, folder: Path, base: str) -> list[Path]:
    found = find_inside(source, base, (folder,), by_end=False) if base else None
    bases = [found, folder, source.images, source.root]
    return list(dict.fromkeys(each for each in bases if each is not None and each.is_dir()))


class LabelFiles:
    """Finds the label file of each image, and remembers which were found.

    ``source``: where they are.
    """

    def __init__(self, source: AnnotationSource) -> None:
        self._source = source
        # annotations and images were given as two folders
        apart = source.path.is_dir() and source.images is not None and source.path != source.images
        self._folder = source.path if apart else None
        self._found: set[Path] = set()

    def find(self, image: Path) -> Path | None:
        """Return the label file of an image; None if it has none."""
        found = next((path for path in self._list_candidates(image) if os.path.lexists(path)), None)
        if found is not None:
            self._found.add(found)
        return found

    def list_unpaired(self, folders: Iterable[Path]) -> list[Path]:
        """Label files of folders of images that belong to no image, in order."""
        places = {place for folder in folders for place in (folder, *self._list_replaced(folder))}
        if self._folder is not None:
            places.add(self._folder)
        listed = {path for place in places if place.is_dir() for path in self._source.list_files(place, ".txt")}
        return sorted(path for path in listed - self._found if self._is_label(path) and not self._has_image(path))

    def _list_candidates(self, image: Path) -> Iterator[Path]:
        if self._folder is not None and self._source.images is not None and image.is_relative_to(self._source.images):
            yield from _with_suffixes(self._folder / image.relative_to(self._source.images))
            yield from _with_suffixes(self._folder / image.name)
        for replaced in self._list_replaced(image.parent):
            yield from _with_suffixes(replaced / image.name)
        yield from _with_suffixes(image)

    def _list_replaced(self, folder: Path) -> Iterator[Path]:
        """Yield the folder with its last part `images` replaced by `labels`, below the root of the source."""
        if not folder.is_relative_to(self._source.root):
            return
        parts = folder.relative_to(self._source.root).parts
        for name in _IMAGE_FOLDERS:
            if name in parts:
                last = len(parts) - 1 - parts[::-1].index(name)
                yield self._source.root.joinpath(*parts[:last], "labels", *parts[last + 1 :])

    def _has_image(self, path: Path) -> bool:
        return any(path in self._list_candidates(image) for image in self._source.image_files.get(path.stem, ()))

    def _is_label(self, path: Path) -> bool:
        """Return whether a text is meant as labels: all in a folder of labels, and those of numbers beside images."""
        if path.stem.lower() in _NOT_LABELS or path.stem.lower().startswith("readme"):
            return False
        if self._folder is not None or "labels" in path.relative_to(self._source.root).parts:
            return True
        return has_label_row(self._source, path)


def has_label_row(source: AnnotationSource, path: Path) -> bool:
    """Return whether the first line of a text has a class number and four or more numbers."""
    try:
        line = next((line for _, line in source.read_lines(path)), "")
        number, *others = [float(part) for part in line.split()]
    except ValueError:
        return False
    return len(others) >= 4 and number.is_integer()


def _with_suffixes(path: Path) -> Iterator[Path]:
    yield path.with_suffix(".txt")
    yield path.with_suffix(".TXT")
