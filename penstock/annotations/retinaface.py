"""Faces with five landmarks: RetinaFace's ``label.txt``, and WIDER FACE's own lists of boxes.

::

    # 0--Parade/1.jpg                                    label.txt: a line for each image, beside the folder `images`
    260 177 231 199 329.3 256.6 0.0 ... 336.2 0.0 0.82   x y w h, five of (x y flag), blur; or only x y w h

    0--Parade/1.jpg                                      wider_face_train_bbx_gt.txt: image, number of faces,
    1                                                    x y w h blur expression illumination invalid occlusion pose
    449 330 122 149 0 0 0 0 0 0

Landmarks keep the flag of the file; a row that has none, or -1, has -1 in all of its landmarks.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from penstock.annotations.base import AnnotationFormat, refuse_unknown_split
from penstock.annotations.numbers import parse_int, parse_number
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError
from penstock.paths import IMAGE_SUFFIXES
from penstock.sample import Array

__all__ = ["RetinaFaceFormat"]

_WIDER_NAME: Final = re.compile(r"wider_face_(\w+?)_bbx_gt\.txt", re.IGNORECASE)
_LIST_NAME: Final = "label.txt"
_ATTRIBUTES: Final = ("blur", "expression", "illumination", "invalid", "occlusion", "pose")
_SUFFIXES: Final = tuple(IMAGE_SUFFIXES)
_POINTS: Final = 5
_CLASS: Final = "face"
_MAX_LOOKED_AT: Final = 200


class RetinaFaceFormat(AnnotationFormat):
    """Reads RetinaFace's ``label.txt`` and WIDER FACE's ``wider_face_*_bbx_gt.txt``."""

    name = "retinaface"

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """Recognise a file that begins with ``# path`` and a row, or with a path, a count and a row."""
        path = source.path if source.path.is_file() else next((each for each, _ in _list_files(source)), None)
        if path is None or path.suffix.lower() != ".txt":
            return False
        try:
            lines = [line for _, line in itertools.islice(source.read_lines(path), _MAX_LOOKED_AT)]
        except AnnotationError:
            return False
        if not lines or not _has_image_suffix(lines[0]):
            return False
        if lines[0].startswith("#"):
            rows = [line for line in lines if not line.startswith("#")]
            return all(_is_row(row) and len(row.split()) in {4, 19, 20} for row in rows[:1])
        return len(lines) > 2 and lines[1].isdecimal() and _is_row(lines[2]) and len(lines[2].split()) == 10

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        builder.set_classes((_CLASS,))
        files = list(_list_files(source))
        if not files:
            raise AnnotationError(
                f"there must be a file {_LIST_NAME} or wider_face_*_bbx_gt.txt; give its path", source=str(source.root)
            )
        refuse_unknown_split(split, (part for _, part in files if part is not None))
        for path, part in files:
            if split in {None, part}:
                folders = [path.parent / "images", path.parent, path.parent.parent / f"WIDER_{part}" / "images"]
                folders = [each for each in folders if each.is_relative_to(source.root)]
                group = None
                for group in _group_lines(source, builder, path):
                    _read_group(source, builder, path, group, part, folders)
                if group is None:
                    builder.note(path, "it names no image")


@dataclass(slots=True)
class _Group:
    """The lines of one image."""

    name: str
    line: int
    is_wider: bool = False
    count: int | None = None
    rows: list[tuple[int, str]] = field(default_factory=list)


def _list_files(source: AnnotationSource) -> Iterator[tuple[Path, str | None]]:
    """The lists of a source, each with its split: that of WIDER's name, or the folder of each of several."""
    if source.path.is_file():
        match = _WIDER_NAME.fullmatch(source.path.name)
        yield source.path, match[1] if match else None
        return
    texts = source.list_files(None, ".txt")
    lists = [path for path in texts if path.name.lower() == _LIST_NAME]
    for path in lists:
        yield path, path.parent.name if path.parent != source.folder else None
    if not lists:
        found = ((path, _WIDER_NAME.fullmatch(path.name)) for path in texts)
        yield from ((path, match[1]) for path, match in found if match)


def _is_row(line: str) -> bool:
    try:
        return bool([float(part) for part in line.split()])
    except ValueError:
        return False


def _has_image_suffix(line: str) -> bool:
    return line.lower().endswith(_SUFFIXES)


def _has_number(line: str) -> bool:
    return any(_is_row(part) for part in line.split())


def _group_lines(source: AnnotationSource, builder: RecordBuilder, path: Path) -> Iterator[_Group]:
    """Yield the images of a file; a line that may be the damaged name of an image ends the image before it."""
    group: _Group | None = None
    lost: _Group | None = None
    pairs = itertools.pairwise(itertools.chain(source.read_lines(path), [(0, "")]))
    for (number, line), (_, following) in pairs:
        is_name = line.startswith("#") or ((following.isdecimal() or _has_image_suffix(line)) and not _is_row(line))
        if is_name:
            is_wider = following.isdecimal() and not _is_row(line)
            if group is not None:
                yield group
            group, lost = _Group(line.removeprefix("#").strip(), number, is_wider), None
        elif not _has_number(line):
            if group is not None:
                yield group
            group, lost = None, _Group(line, number)
            builder.note(path, f"it must be the path of an image or a row of numbers, got {line!r:.100}", number)
        elif group is not None and group.is_wider and group.count is None and not group.rows:
            group.count = int(line) if line.isdecimal() and len(line) < 10 else -1
        elif group is not None:
            group.rows.append((number, line))
        elif lost is None:
            builder.note(path, "the row belongs to no image", number, effect="object left out")
    if group is not None:
        yield group


def _read_group(
    source: AnnotationSource,
    builder: RecordBuilder,
    path: Path,
    group: _Group,
    split: str | None,
    folders: Sequence[Path],
) -> None:
    found = source.find_image(group.name, *folders, split=split)
    image = builder.image(group.name, found, file=path, line=group.line, split=split)
    if image is None:
        return
    rows = group.rows
    if group.is_wider:
        if group.count == 0 and len(rows) == 1 and not any(map(_parse_or_nan, rows[0][1].split())):
            return  # WIDER has a row of zeros for an image without faces
        if group.count != len(rows):
            reason = f"it must have as many rows as the line after its path says, {group.count}, got {len(rows)}"
            image.note(reason, group.line, "count ignored")
    for number, line in rows:
        try:
            _read_row(image, number, [parse_number(part, "row") for part in line.split()], is_wider=group.is_wider)
        except ValueError as error:
            image.note(str(error), number)


def _parse_or_nan(text: str) -> float:
    return float(text) if _is_row(text) else math.nan


def _read_row(image: ImageObjects, line: int, numbers: Sequence[float], *, is_wider: bool) -> None:
    lengths = (10,) if is_wider else (4, 4 + 3 * _POINTS, 5 + 3 * _POINTS)
    if len(numbers) not in lengths:
        raise ValueError(f"its row must have {', '.join(map(str, lengths))} numbers, got {len(numbers)}")
    x, y, width, height = numbers[:4]
    box = (x, y, x + width, y + height)
    if is_wider:
        fields = {name: parse_int(value, name) for name, value in zip(_ATTRIBUTES, numbers[4:], strict=True)}
        image.add(_CLASS, box, line=line, attributes=fields)
    else:
        blur = {"blur": numbers[-1]} if len(numbers) == lengths[-1] else {}
        points = _read_points(numbers[4 : 4 + 3 * _POINTS])
        image.add(_CLASS, box, line=line, keypoints=points, attributes=blur)


def _read_points(numbers: Sequence[float]) -> Array:
    if not numbers:
        return np.full((_POINTS, 3), -1, np.float32)
    points = np.array(numbers, np.float64).reshape(_POINTS, 3)
    if (points[:, :2] == -1).all():
        return np.full((_POINTS, 3), -1, np.float32)
    with np.errstate(over="ignore"):
        return points.astype(np.float32)
