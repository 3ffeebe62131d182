"""Open Images: a CSV file with a row for each box, coordinates as parts of the image's width and height.

::

    train-annotations-bbox.csv         ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,...
    class-descriptions-boxable.csv     /m/011k07,Tortoise: names of the classes, in their order
    train/000002b66c9c498e.jpg         images by id, anywhere below the source

Columns may be in any order. Boxes of groups are crowds. Images that no row names are no part of the records.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from penstock.annotations.base import AnnotationFormat, refuse_unknown_split
from penstock.annotations.numbers import parse_int, parse_number
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError
from penstock.sample import Value

__all__ = ["OpenImagesFormat", "split_row"]

_REQUIRED: Final = ("ImageID", "LabelName", "XMin", "XMax", "YMin", "YMax")
_FIELDS: Final = {
    "Source": "source",
    "Confidence": "confidence",
    "IsOccluded": "occluded",
    "IsTruncated": "truncated",
    "IsDepiction": "depiction",
    "IsInside": "inside",
}
"""Names of fields by column; other columns keep their names."""
_TEXTS: Final = frozenset({"Source"})
_GROUP: Final = "IsGroupOf"


class OpenImagesFormat(AnnotationFormat):
    """Reads the boxes of Open Images."""

    name = "open_images"

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """Recognise a CSV file whose first row has the columns of ids, labels and corners."""
        return bool(_list_files(source))

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        files = _list_files(source)
        if not files:
            raise AnnotationError(
                f"there must be a CSV file whose first row has {', '.join(_REQUIRED)}", source=str(source.root)
            )
        parts = {path: path.name.lower().partition("-annotations")[0].rpartition("-")[2] for path in files}
        refuse_unknown_split(split, parts.values())
        names = _read_class_names(source, builder)
        if names:
            builder.set_classes(tuple(dict.fromkeys(names.values())))
        for path, part in parts.items():
            if split in {None, part}:
                is_split = "-annotations" in path.name.lower()
                _read_boxes(source, builder, path, part if is_split else None, names)


def split_row(line: str, delimiter: str = ",") -> list[str]:
    """Return the fields of one line, without spaces around them. A quote that is not closed ends with the line.

    Raises ValueError if a field is too long.
    """
    if '"' not in line:
        return [each.strip() for each in line.split(delimiter)]
    try:
        return [each.strip() for each in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True))]
    except csv.Error as error:
        raise ValueError(f"it is no row of a CSV file: {error}, as of a quote that is not closed") from error


def _list_files(source: AnnotationSource) -> list[Path]:
    return [path for path in source.list_given(".csv") if _has_header(source, path)]


def _has_header(source: AnnotationSource, path: Path) -> bool:
    """Return whether a file begins with the columns that are needed; reads a few bytes of files that may be large."""
    first = source.read_head(path, 4096).lstrip("\r\n ").splitlines()[:1]
    columns = {each.strip(' "') for line in first for each in line.split(",")}
    return columns.issuperset(_REQUIRED)


def _read_class_names(source: AnnotationSource, builder: RecordBuilder) -> dict[str, str]:
    """Names of the classes by their codes; none where there is no such file."""
    path = source.classes
    if path is None:
        found = [path for path in source.list_files(None, ".csv") if "class-descriptions" in path.name.lower()]
        path = min(found, key=lambda each: ("boxable" not in each.name.lower(), len(each.parts), each), default=None)
    names: dict[str, str] = {}
    if path is None:
        return names
    for number, line in source.read_lines(path):
        try:
            code, name = split_row(line)[:2]
        except ValueError:
            builder.note(
                path, f"the row must have a code and a name, got {line!r:.100}", number, effect="class left out"
            )
            continue
        if (code, name) == ("LabelName", "DisplayName"):
            continue
        if names.setdefault(code, name) != name:
            reason = f"the class {code!r:.100} has the name {names[code]!r:.100} already"
            builder.note(path, reason, number, effect="class left out")
    return names


def _read_boxes(
    source: AnnotationSource, builder: RecordBuilder, path: Path, split: str | None, names: Mapping[str, str]
) -> None:
    lines = source.read_lines(path)
    columns = _read_columns(source, path, lines)
    images: dict[str, ImageObjects | None] = {}
    for number, line in lines:
        try:
            values = split_row(line)
            if len(values) != len(columns):
                raise ValueError(f"its row must have {len(columns)} values, got {len(values)}")  # noqa: TRY301
        except ValueError as error:
            builder.note(path, str(error), number, effect="object left out")
            continue
        row = dict(zip(columns, values, strict=True))
        key = row["ImageID"]
        if key not in images:
            found = _find_image(source, key, split)
            images[key] = builder.image(key, found, file=path, line=number, id=key, split=split)
        if (image := images[key]) is not None:
            try:
                _add_object(image, row, number, names)
            except ValueError as error:
                image.note(str(error), number)


def _read_columns(source: AnnotationSource, path: Path, lines: Iterator[tuple[int, str]]) -> list[str]:
    try:
        columns = split_row(next(lines, (0, ""))[1])
    except ValueError:
        columns = []
    if not set(columns).issuperset(_REQUIRED) or len(set(columns)) != len(columns):
        raise AnnotationError(
            f"the first row of {source.relative(path)} must have {', '.join(_REQUIRED)}, each once, got "
            f"{', '.join(columns)!r:.300}",
            source=str(source.root),
        )
    return columns


def _find_image(source: AnnotationSource, key: str, split: str | None) -> Path | None:
    found = source.image_files.get(key, [])
    if len(found) > 1 and split is not None:
        found = [path for path in found if split in path.parts] or found
    found = [path for path in found if source.is_of_split(path.parent, split)]
    if not found:
        return source.find_image(key)
    return found[0] if len(found) == 1 else None


def _add_object(image: ImageObjects, row: Mapping[str, str], line: int, names: Mapping[str, str]) -> None:
    width, height = float(image.width), float(image.height)
    x0, x1, y0, y1 = (parse_number(row[name], name) for name in ("XMin", "XMax", "YMin", "YMax"))
    attributes = {
        _FIELDS.get(name, name): value if name in _TEXTS else _parse_value(value)
        for name, value in row.items()
        if name not in _REQUIRED and name != _GROUP and value
    }
    crowd = parse_int(row[_GROUP], _GROUP) == 1 if row.get(_GROUP) else False
    label = row["LabelName"]
    box = (x0 * width, y0 * height, x1 * width, y1 * height)
    image.add(names.get(label, label), box, line=line, crowd=crowd, attributes=attributes)


def _parse_value(text: str) -> Value:
    try:
        number = parse_number(text, "value")
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
