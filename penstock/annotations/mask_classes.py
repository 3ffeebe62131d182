"""Names of the classes of masks, in the order of the values of their pixels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError

__all__ = ["CITYSCAPES", "CITYSCAPES_TRAINING", "VOC", "MaskClasses", "read_mask_classes"]

# fmt: off
CITYSCAPES: Final = (
    "unlabeled", "ego vehicle", "rectification border", "out of roi", "static", "dynamic", "ground", "road",
    "sidewalk", "parking", "rail track", "building", "wall", "fence", "guard rail", "bridge", "tunnel", "pole",
    "polegroup", "traffic light", "traffic sign", "vegetation", "terrain", "sky", "person", "rider", "car", "truck",
    "bus", "caravan", "trailer", "train", "motorcycle", "bicycle",
)
"""The ids 0 to 33; the 35th class, "license plate", has the id -1 and is in no mask."""
CITYSCAPES_TRAINING: Final = (
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation", "terrain",
    "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
)
"""The training ids 0 to 18; 255 is to be ignored."""
VOC: Final = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable",
    "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)
"""The values 0 to 20; 255 is the border of an object, to be ignored."""
# fmt: on

_FILES: Final = ("labelmap.txt", "objectInfo150.txt", "classes.txt", "class_names.txt", "labels.txt")
_IGNORED: Final = "__ignore__"
_REST: Final = "other"
"""The value 0 of ADE20K: everything that is none of its classes."""


@dataclass(frozen=True, slots=True)
class MaskClasses:
    """Names by the values of pixels, and the colors that stand for them in masks of three channels."""

    names: Sequence[str] | None  # None if they are not known
    colors: list[tuple[int, int, int]] | None = None  # red, green and blue of each class


def read_mask_classes(source: AnnotationSource) -> MaskClasses | None:
    """The classes that a file of the source lists: a label map of CVAT, ADE20K's table, or a name a line.

    Raises AnnotationError if the file cannot be read, or has a line of another kind.
    """
    folders = (source.folder, source.root)
    paths = [folder / name for folder in folders for name in _FILES] if source.classes is None else [source.classes]
    for path in paths:
        if source.classes is not None or path.is_file():
            return _read_file(source, path)
    return None


def _read_file(source: AnnotationSource, path: Path) -> MaskClasses:
    lines = [(number, line) for number, line in source.read_lines(path) if not line.startswith("#")]
    try:
        if lines and all("\t" in line for _, line in lines):
            found = MaskClasses(_read_table(lines))
        elif lines and all(line.count(":") >= 1 for _, line in lines):
            found = _read_label_map(lines)
        else:
            found = MaskClasses([line for _, line in lines if line != _IGNORED])
    except ValueError as error:
        raise AnnotationError(f"{source.relative(path)}:{error}", source=str(source.root)) from None
    names = found.names or ()
    if len(set(names)) != len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise AnnotationError(
            f"{source.relative(path)}: classes must have different names, got {twice!r:.100} twice",
            source=str(source.root),
        )
    return found


def _read_table(lines: Sequence[tuple[int, str]]) -> list[str]:
    """ADE20K's table: a heading, then number, ..., name; the numbers begin with 1."""
    names = [_REST]
    for position, (number, line) in enumerate(lines):
        cells = [cell.strip() for cell in line.split("\t")]
        if position == 0 and not cells[0].isdecimal():
            continue
        if cells[0] != str(len(names)):
            raise ValueError(f"{number}: the class must have the number {len(names)}, got {cells[0]!r:.100}")
        names.append(cells[-1])
    return names


def _read_label_map(lines: Sequence[tuple[int, str]]) -> MaskClasses:
    """CVAT's label map: ``name:red,green,blue:parts:actions``; the color may be missing."""
    names, colors = [], []
    for number, line in lines:
        name, _, rest = line.partition(":")
        cells = [cell.strip() for cell in rest.partition(":")[0].split(",")]
        names.append(name.strip())
        if cells != [""]:
            if len(cells) != 3 or not all(cell.isascii() and cell.isdecimal() and len(cell) < 4 for cell in cells):
                raise ValueError(f"{number}: a color must be red, green and blue, got {rest!r:.100}")
            red, green, blue = (int(cell) for cell in cells)
            if max(red, green, blue) > 255:
                raise ValueError(f"{number}: a color must be in [0, 255], got {rest!r:.100}")
            colors.append((red, green, blue))
    return MaskClasses(names, colors if len(colors) == len(names) else None)
