"""Lists of paths: an image on each line, with its class, its classes, or its boxes.

::

    cats/1.jpg 3                          layout "label": one class an image, by number or name; spaces, tabs, commas
    cats/1.jpg cat dog                    layout "labels": several
    cats/1.jpg 10 20 30 40 cat ...        layout "boxes": x0 y0 x1 y1 class, several times, or a line for each box
    cats/1.jpg 10,20,30,40,cat ...        the same

``path,,,,,`` is an image without objects. A first line without a path of an image is a header.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from penstock.annotations.base import AnnotationFormat, refuse_unknown_split
from penstock.annotations.numbers import parse_number
from penstock.annotations.open_images import split_row
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError, check_choice
from penstock.paths import IMAGE_SUFFIXES

__all__ = ["PathListFormat"]

LAYOUTS: Final = ("auto", "label", "labels", "boxes")
_SUFFIXES: Final = (".txt", ".csv", ".tsv", ".lst")
_COLUMN: Final = re.compile(r'#|#?"?[A-Za-z_][\w ]*"?')
"""The name of a column in a header."""
_IMAGE_END: Final = re.compile(rf"(?ia)(?:{'|'.join(map(re.escape, sorted(IMAGE_SUFFIXES)))})(?=[\t,; ]|\Z)")
"""The suffix of an image that a delimiter or the end of the line follows."""
_BOX_LENGTH: Final = 5
_MAX_CLASS: Final = 1 << 16


class PathListFormat(AnnotationFormat):
    """Reads lists of paths.

    Parameters
    ----------
    layout : {"auto", "label", "labels", "boxes"}
        What follows a path. By default the class of the image where each line has one value, and boxes where each has
        corners and a class, one or several times; other lines can be read in more than one way, and are refused.
    """

    name = "path_list"

    def __init__(self, *, layout: str = "auto") -> None:
        check_choice("layout", layout, LAYOUTS)
        self._layout = layout

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """Recognise a text whose first or second line begins with the path of an image, and has a value after it."""
        return bool(_list_files(source))

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        files = _list_files(source) or ([source.path] if source.path.is_file() else [])
        if not files:
            raise AnnotationError("there must be a list of paths of images with their classes", source=str(source.root))
        parts = [path.stem for path in files]
        refuse_unknown_split(split, parts)
        rows = [
            row
            for path in files
            if split in {None, path.stem}
            for row in _read_rows(source, path, path.stem if len(files) > 1 else None)
        ]
        layout = self._layout if self._layout != "auto" else _find_layout(rows)
        builder.details["layout"] = layout
        names = _read_names(source, builder)
        if layout == "boxes":
            _add_boxes(source, builder, rows, names)
        else:
            _add_labels(source, builder, rows, names, is_single=layout == "label")


@dataclass(frozen=True, slots=True)
class _PathRow:
    file: Path
    folder: Path
    line: int
    split: str | None
    path: str
    values: tuple[str, ...]
    rest: str
    """What follows the path, as it stands."""


def _list_files(source: AnnotationSource) -> list[Path]:
    if source.path.is_file():
        given = [source.path]
    else:
        given = sorted(path for path in source.folder.iterdir() if path.is_file() and not path.name.startswith("."))
    return [path for path in given if path.suffix.lower() in _SUFFIXES and _is_list(source, path)]


def _is_list(source: AnnotationSource, path: Path) -> bool:
    """Return whether a text is such a list, by its beginning."""
    lines = [line.strip() for line in source.read_head(path, 65536).splitlines() if line.strip()]
    return any((parts := _split_line(line)) is not None and parts[1] for line in lines[:2])


def _split_line(line: str) -> tuple[str, tuple[str, ...], str] | None:
    """Split a line into path, values and the text after the path; None if it begins with no path of an image.

    The path may have spaces: it ends with the first delimiter after the suffix of an image.
    """
    if line.startswith('"'):
        try:
            path, *values = split_row(line)
        except ValueError:
            return None
        return (path, _strip_end(values), ",".join(values)) if path.lower().endswith(tuple(IMAGE_SUFFIXES)) else None
    found = _IMAGE_END.search(line, 1)
    if found is None:
        return None
    end = found.end()
    rest = line[end:].strip()
    delimiter = line[end : end + 1]
    if delimiter in {",", ";", "\t"}:
        try:
            values = split_row(line[end + 1 :], delimiter)
        except ValueError:
            return None
        return line[:end], _strip_end(values), rest.lstrip(delimiter).strip()
    values = [part for each in rest.split() for part in each.split(",")]
    return line[:end], _strip_end(values), rest


def _strip_end(values: list[str]) -> tuple[str, ...]:
    """The values without empty ones at the end."""
    count = max((place for place, value in enumerate(values, 1) if value), default=0)
    return tuple(values[:count])


def _read_rows(source: AnnotationSource, path: Path, split: str | None) -> Iterator[_PathRow]:
    folder = path.parent  # one object for all rows
    for place, (number, line) in enumerate(source.read_lines(path)):
        found = _split_line(line)
        if found is not None:
            yield _PathRow(path, folder, number, split, *found)
        elif place > 0 or not all(_COLUMN.fullmatch(each) for each in re.split(r"[\t,;]| +", line)):  # else the header
            yield _PathRow(path, folder, number, split, "", (), line)


def _find_layout(rows: Sequence[_PathRow]) -> str:
    counts = {len(row.values) for row in rows if row.path and any(row.values)}
    if counts == {1}:
        return "label"
    if counts and all(count % _BOX_LENGTH == 0 for count in counts):
        boxes = [corners for row in rows for corners in _list_corners(row)]
        if 2 * sum(corners is not None for corners in boxes) > len(boxes):
            return "boxes"
    found = ", ".join(map(str, sorted(counts)[:10])) or "no"
    raise ArgumentError(
        f"what follows the paths can be read in more than one way, with {found} values a line; give layout=, one of "
        f"{', '.join(LAYOUTS[1:])}"
    )


def _list_corners(row: _PathRow) -> list[tuple[float, ...] | None]:
    """Return the corners of each box of a row; None for what is no box."""
    found: list[tuple[float, ...] | None] = []
    for place in range(0, len(row.values) - _BOX_LENGTH + 1, _BOX_LENGTH):
        try:
            x0, y0, x1, y1 = (parse_number(value, "box") for value in row.values[place : place + 4])
        except ValueError:
            found.append(None)
        else:
            found.append((x0, y0, x1, y1) if x0 < x1 and y0 < y1 else None)
    return found if any(row.values) else []


def _read_names(source: AnnotationSource, builder: RecordBuilder) -> tuple[str, ...] | None:
    """Return the classes that were given, as a sequence or as a file with a name on each line."""
    if source.classes is not None:
        builder.set_classes(tuple(dict.fromkeys(line for _, line in source.read_lines(source.classes))))
    return builder.classes


def _begin_image(source: AnnotationSource, builder: RecordBuilder, row: _PathRow) -> ImageObjects | None:
    if not row.path:
        builder.note(row.file, f"its line must begin with the path of an image, got {row.rest!r:.100}", row.line)
        return None
    found = source.find_image(row.path, row.folder, split=row.split)
    return builder.image(row.path, found, file=row.file, line=row.line, split=row.split)


def _parse_class(text: str) -> int | None:
    """Return a class number; None for a name."""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 16 else None


def _add_labels(
    source: AnnotationSource,
    builder: RecordBuilder,
    rows: Sequence[_PathRow],
    names: tuple[str, ...] | None,
    *,
    is_single: bool,
) -> None:
    per_row = [_list_labels(row, is_single=is_single) for row in rows]
    numbers = [_parse_class(text) for labels in per_row for text in labels]
    are_numbers = all(number is not None for number in numbers)
    if names is None and not are_numbers:
        names = tuple(sorted({text for labels in per_row for text in labels}))
        builder.set_classes(names)
    elif names is None:
        top = max((number for number in numbers if number is not None), default=-1)
        builder.set_classes(tuple(map(str, range(top + 1))) if top < _MAX_CLASS else ())
    by_name = {name: number for number, name in enumerate(names or ())}
    for row, labels in zip(rows, per_row, strict=True):
        if row.path and not labels:
            builder.note(row.file, "its line must have a class after the path", row.line, image=row.path)
            continue
        known = [_find_number(text, by_name, names, are_numbers=are_numbers) for text in labels]
        if row.path and None in known:
            text = labels[known.index(None)]
            builder.note(row.file, f"its class {text!r:.200} is not one of the classes", row.line, image=row.path)
            continue
        image = _begin_image(source, builder, row)
        if image is not None:
            image.fields["label"] = known[0] if is_single else np.array(known, np.int64)


def _list_labels(row: _PathRow, *, is_single: bool) -> tuple[str, ...]:
    if not is_single:
        return tuple(value for value in row.values if value)
    return row.values if len(row.values) == 1 and row.values[0] else ((row.rest,) if row.rest and row.path else ())


def _find_number(
    text: str, by_name: Mapping[str, int], names: tuple[str, ...] | None, *, are_numbers: bool
) -> int | None:
    if text in by_name:
        return by_name[text]
    number = _parse_class(text)
    if number is None or not (are_numbers or names is None):
        return None
    return number if names is None or 0 <= number < len(names) else None


def _add_boxes(
    source: AnnotationSource, builder: RecordBuilder, rows: Sequence[_PathRow], names: tuple[str, ...] | None
) -> None:
    texts = [text for row in rows for text in row.values[_BOX_LENGTH - 1 :: _BOX_LENGTH] if text]
    numbers = [_parse_class(text) for text in texts]
    if names is None and texts and all(number is not None and 0 <= number < _MAX_CLASS for number in numbers):
        names = tuple(map(str, range(max(number for number in numbers if number is not None) + 1)))
        builder.set_classes(names)
    images: dict[tuple[Path, str], ImageObjects | None] = {}
    for row in rows:
        key = (row.file, row.path)
        if not row.path or key not in images:
            images[key] = _begin_image(source, builder, row)
        image = images[key]
        if image is None or not any(row.values):
            continue
        if len(row.values) % _BOX_LENGTH:
            reason = f"its line must have x0, y0, x1, y1 and a class for each box, got {len(row.values)} values"
            image.note(reason, row.line, f"{-(-len(row.values) // _BOX_LENGTH)} objects left out")
            continue
        for place in range(0, len(row.values), _BOX_LENGTH):
            _add_box(image, row.values[place : place + _BOX_LENGTH], row.line, names)


def _add_box(image: ImageObjects, values: Sequence[str], line: int, names: tuple[str, ...] | None) -> None:
    *corners, label = values
    try:
        box = [parse_number(value, "box") for value in corners]
    except ValueError as error:
        image.note(str(error), line)
        return
    number = _parse_class(label)
    if names is not None and label not in names and number is not None and 0 <= number < len(names):
        label = names[number]
    image.add(label, box, line=line)
