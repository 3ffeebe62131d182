"""LabelMe: a JSON file for each image, as the program `labelme` and its relatives write it.

::

    folder/1.json    imagePath "1.jpg", imageWidth, imageHeight, shapes: label, points, shape_type, group_id, flags
    folder/1.jpg
    folder/labels.txt    names of the classes, one a line, where there is one

Shapes with an area are objects: their box bounds them. Several of one label and one ``group_id`` are the parts of one
object, as labelme's own converters have it: its box bounds all, its mask is that of all. Points are keypoints of the
object that has their ``group_id``.
Lines are objects with the box that bounds them; one that is level or upright has an empty box and is left out.
"""

from __future__ import annotations

import base64
import binascii
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, UnidentifiedImageError

from penstock.annotations.base import AnnotationFormat
from penstock.annotations.numbers import parse_int, parse_number
from penstock.annotations.polygons import MAX_COORDINATE, Polygons
from penstock.annotations.records import ImageObjects, RecordBuilder
from penstock.annotations.shapes import Box, bound_ellipse, bound_points, encode_crop
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError
from penstock.run_lengths import format_counts, parse_counts
from penstock.sample import Array, Value

__all__ = ["LabelmeFormat"]

_SHAPES: Final = re.compile(rb'"shapes"\s*:\s*\[')
_HEAD_NBYTES: Final = 1 << 16
_CLASS_FILES: Final = ("labels.txt", "classes.txt")
_IGNORED_CLASS: Final = "__ignore__"
_MAX_KEYPOINTS: Final = 1000
_VISIBLE: Final = 2.0
"""The flag of a point: COCO's for a visible one."""
_PARTS: Final = frozenset({"polygon", "rectangle", "mask"})
"""Kinds of shapes that may be parts of one object."""
_FEWEST_POINTS: Final = {
    "polygon": 3,
    "rectangle": 2,
    "circle": 2,
    "line": 2,
    "linestrip": 2,
    "mask": 2,
    "point": 1,
    "points": 1,
}


@dataclass(slots=True)
class _LabelmeShape:
    """A shape whose parts have been checked."""

    label: str
    kind: str
    points: list[tuple[float, float]]
    group: int | None
    flags: dict[str, int]
    mask: str | None


@dataclass(slots=True)
class _LabelmeFile:
    image: ImageObjects
    shapes: list[_LabelmeShape]


class LabelmeFormat(AnnotationFormat):
    """Reads LabelMe.

    Parameters
    ----------
    keypoints : sequence of str, optional
        Labels of points in the order of an object's keypoints; by default all labels in alphabetical order.
    points_class : str, optional
        The class of points that have no other shape of their ``group_id``: each group becomes an object with the box
        that bounds its points. By default such points are left out.
    """

    name = "labelme"

    def __init__(self, *, keypoints: Sequence[str] | None = None, points_class: str | None = None) -> None:
        if isinstance(keypoints, str) or (keypoints is not None and len(set(keypoints)) != len(keypoints)):
            raise ArgumentError(f"keypoints must be a sequence of different labels, got {keypoints!r:.200}")
        self._keypoints = None if keypoints is None else tuple(keypoints)
        self._points_class = points_class

    @classmethod
    def recognises(cls, source: AnnotationSource) -> bool:
        """JSON files that have a list of shapes."""
        return source.begins(".json", _HEAD_NBYTES, _SHAPES)

    def read(self, source: AnnotationSource, builder: RecordBuilder, split: str | None) -> None:
        """Add all images; see :meth:`AnnotationFormat.read`."""
        if split is not None:
            raise ArgumentError(f"labelme has no splits, got {split!r}: give the folder of one")
        if (classes := _read_classes(source)) is not None:
            builder.set_classes(classes)
        files = list(_read_files(source, builder))
        labels = {each.label for file in files for each in file.shapes if each.kind == "point"}
        names = tuple(sorted(labels)) if self._keypoints is None else self._keypoints
        if len(names) > _MAX_KEYPOINTS:  # every object has a row for each
            raise AnnotationError(
                f"points must have at most {_MAX_KEYPOINTS:,} different labels, which are their places among the "
                f"keypoints of an object, got {len(names):,}; give keypoints= with those to read",
                source=str(source.root),
            )
        for file in files:
            _add_objects(file, names, self._points_class)
        if labels:
            builder.details["keypoint_names"] = list(names)


def _read_classes(source: AnnotationSource) -> list[str] | None:
    """Names of the classes in their order, where a file lists them; labelme's own list begins with what is ignored."""
    paths = [source.classes] if source.classes is not None else [source.folder / name for name in _CLASS_FILES]
    for path in paths:
        if source.classes is not None or path.is_file():
            names = [line for _, line in source.read_lines(path) if line != _IGNORED_CLASS]
            return list(dict.fromkeys(names))
    return None


def _read_files(source: AnnotationSource, builder: RecordBuilder) -> Iterator[_LabelmeFile]:
    for path in source.list_given(".json"):
        try:
            content = source.read_json(path)
        except AnnotationError as error:
            builder.note(path, error.message)
            continue
        if not isinstance(content, dict) or not isinstance(content.get("shapes"), list):
            builder.note(path, "it must be an object with a list of shapes, as labelme writes it")
            continue
        if (image := _begin_image(source, builder, path, content)) is not None:
            yield _LabelmeFile(image, list(_read_shapes(image, content["shapes"])))


def _begin_image(
    source: AnnotationSource, builder: RecordBuilder, path: Path, content: Mapping[str, Value]
) -> ImageObjects | None:
    name = content.get("imagePath")
    name = name if isinstance(name, str) else ""
    try:
        width, height = (_read_side(content.get(side), side) for side in ("imageWidth", "imageHeight"))
    except ValueError as error:
        builder.note(path, str(error), image=name or None)
        return None
    found = source.find_image(name, path.parent)
    if found is None:  # the image was renamed with its JSON file
        near = [each for each in source.image_files.get(path.stem, ()) if each.parent == path.parent]
        found = near[0] if len(near) == 1 else None
    if found is None and content.get("imageData"):
        reason = f"there is no image {name!r:.300}, only a copy inside the JSON file (imageData); write it to a file"
        builder.note(path, reason, image=name)
        return None
    flags = content.get("flags")
    raised = sorted(k for k, v in flags.items() if v) if isinstance(flags, dict) and flags else None
    return builder.image(name, found, file=path, size=(width, height), flags=raised)


def _read_side(value: object, what: str) -> int:
    return 0 if value is None else parse_int(value, what)


def _read_shapes(image: ImageObjects, shapes: list[Value]) -> Iterator[_LabelmeShape]:
    for number, each in enumerate(shapes):
        try:
            yield _read_shape(each)
        except ValueError as error:
            image.note(f"shape {number}: {error}")


def _read_shape(given: object) -> _LabelmeShape:
    """Return a shape of the file; ValueError says what is wrong with it."""
    if not isinstance(given, dict):
        raise ValueError(f"it must be an object, got {type(given).__name__}")  # noqa: TRY004  # caught by the caller
    label, kind = given.get("label"), given.get("shape_type") or "polygon"
    if not isinstance(label, str) or not label:
        raise ValueError(f"its label must be a text, got {label!r:.100}")
    if not isinstance(kind, str) or kind not in _FEWEST_POINTS:
        raise ValueError(f"its shape_type must be one of {', '.join(_FEWEST_POINTS)}, got {kind!r:.100}")
    points = _read_points(given.get("points"))
    if len(points) < _FEWEST_POINTS[kind]:
        raise ValueError(f"a {kind} must have at least {_FEWEST_POINTS[kind]} points, got {len(points)}")
    group = given.get("group_id")
    flags = given.get("flags")
    mask = given.get("mask")
    if kind == "mask" and not isinstance(mask, str):
        raise ValueError(f"its mask must be a text in base64, got {type(mask).__name__}")
    return _LabelmeShape(
        label,
        "point" if kind == "points" and len(points) == 1 else kind,
        points,
        None if group is None else parse_int(group, "group_id"),
        {name: int(bool(value)) for name, value in flags.items()} if isinstance(flags, dict) else {},
        mask if isinstance(mask, str) else None,
    )


def _read_points(given: object) -> list[tuple[float, float]]:
    if not isinstance(given, list):
        raise ValueError(f"its points must be a list, got {type(given).__name__}")  # noqa: TRY004  # caught above
    points = []
    for each in given:
        if not isinstance(each, list) or len(each) != 2:
            raise ValueError(f"its points must be pairs of x and y, got {each!r:.100}")
        x, y = parse_number(each[0], "x"), parse_number(each[1], "y")
        if not (math.isfinite(x) and math.isfinite(y)):
            raise ValueError(f"its points must have finite numbers, got {each!r:.100}")
        points.append((x, y))
    return points


def _add_objects(file: _LabelmeFile, names: Sequence[str], points_class: str | None) -> None:
    """Add the shapes of a file to its image, points with the only other shape of their group."""
    joined: dict[object, list[_LabelmeShape]] = {}
    for number, each in enumerate(file.shapes):
        if each.kind != "point":
            is_part = each.group is not None and each.kind in _PARTS
            joined.setdefault((each.label, each.group) if is_part else number, []).append(each)
    objects = list(joined.values())
    by_group: dict[int | None, list[_LabelmeShape]] = {}
    for each in file.shapes:
        if each.kind == "point":
            by_group.setdefault(each.group, []).append(each)
    owners = Counter(parts[0].group for parts in objects)
    for parts in objects:
        group = parts[0].group
        held = by_group.pop(group, []) if group is not None and owners[group] == 1 else []
        _add_object(file.image, parts, _join_points(file.image, held, names))
    for group, points in by_group.items():
        if points_class is not None and (group is None or not owners[group]):
            box = bound_points([point for each in points for point in each.points])
            _add(file.image, points_class, box, points[0], _join_points(file.image, points, names))
            continue
        count = 0 if group is None else owners[group]
        for each in points:
            file.image.note(
                f"the point {each.label!r:.100} must have one other shape of its group_id {group}, got {count}"
                + ("" if count else '; points_class="..." makes objects of points alone'),
                effect="point left out",
            )


def _join_points(image: ImageObjects, points: list[_LabelmeShape], names: Sequence[str]) -> Array | None:
    """Keypoints in the order of the names; zeros where there is none."""
    if not points:
        return None
    joined = np.zeros((len(names), 3), np.float32)
    places = {name: place for place, name in enumerate(names)}
    for each in points:
        if each.label not in places:
            image.note(f"the point {each.label!r:.100} is not one of the keypoints", effect="point left out")
        elif joined[row := places[each.label], 2]:
            image.note(f"the group has the point {each.label!r:.100} twice", effect="point left out")
        else:
            with np.errstate(over="ignore"):
                joined[row] = *each.points[0], _VISIBLE
    return joined


def _add_object(image: ImageObjects, parts: Sequence[_LabelmeShape], keypoints: Array | None) -> None:
    try:
        found = [_read_area(image, part) for part in parts]
        box = bound_points([corner for (x0, y0, x1, y1), _ in found for corner in ((x0, y0), (x1, y1))])
        fields = found[0][1] if len(parts) == 1 else _join_parts(image, box, found)
    except ValueError as error:
        image.note(str(error))
        return
    shape = parts[0]
    flags = {name: max(part.flags.get(name, 0) for part in parts) for part in parts for name in part.flags}
    _add(image, shape.label, box, replace(shape, flags=flags), keypoints, **fields)


def _read_area(image: ImageObjects, shape: _LabelmeShape) -> tuple[Box, dict[str, Value]]:
    """Return the box of a shape, and the fields that it has; ValueError if its mask is damaged."""
    box = bound_points(shape.points)
    flat = [number for point in shape.points for number in point]
    if shape.kind == "circle":
        (x, y), (edge_x, edge_y) = shape.points[:2]
        radius = math.hypot(edge_x - x, edge_y - y)
        return bound_ellipse(x, y, radius, radius), {}
    if shape.kind == "mask":
        box, instance = _read_mask(image, shape)
        return box, {"instance": instance}
    if shape.kind == "polygon":
        return box, {"polygon": flat}
    return box, {"line_points": flat} if shape.kind in {"line", "linestrip", "points"} else {}


def _join_parts(image: ImageObjects, box: Box, found: Sequence[tuple[Box, Mapping[str, Value]]]) -> dict[str, Value]:
    """Return the mask of the parts of one object.

    It is None where all of them are boxes and circles, which have none alone.
    """
    if not any(fields for _, fields in found) or not max(map(abs, box)) <= MAX_COORDINATE:  # which is noted
        return {}
    counts = [fields["instance"]["counts"] for _, fields in found if "instance" in fields]
    outlines = [
        fields.get("polygon") or [x0, y0, x1, y0, x1, y1, x0, y1]
        for (x0, y0, x1, y1), fields in found
        if "instance" not in fields
    ]
    heights, widths = np.array([[image.height], [image.width]], np.int64)
    if outlines:
        rings = [np.array(each, np.float64) for each in outlines]
        counts += Polygons(rings, np.zeros(len(rings), np.int64), heights, widths).encode()
    if None in counts:
        raise ValueError("its polygons have too many and too long edges")
    runs, _ = parse_counts(counts, np.repeat(heights * widths, len(counts)))
    united = runs.unite(np.zeros(len(counts), np.int64), heights * widths)
    instance = {"size": [image.height, image.width], "counts": format_counts(united)[0]}
    return {"instance": instance, **({"polygons": outlines} if outlines else {})}


def _add(
    image: ImageObjects,
    label: str,
    box: Sequence[float],
    shape: _LabelmeShape,
    keypoints: Array | None,
    **fields: Value,
) -> None:
    attributes: dict[str, Value] = {"shape_type": shape.kind, **shape.flags}
    if shape.group is not None:
        attributes["group_id"] = shape.group
    attributes |= {name: fields.pop(name) for name in ("line_points", "polygons") if name in fields}
    image.add(label, box, keypoints=keypoints, attributes=attributes, **fields)


def _read_mask(image: ImageObjects, shape: _LabelmeShape) -> tuple[Box, dict[str, Value]]:
    """The box and the runs of a mask; its two points are its first and last pixel. ValueError if it is damaged."""
    corners = bound_points(shape.points)
    if not all(number.is_integer() and 0 <= number <= max(image.width, image.height) for number in corners):
        raise ValueError(f"its mask must lie on whole pixels of the image, got the points {shape.points!r:.100}")
    left, top, right, bottom = (int(number) for number in corners)
    width, height = right - left + 1, bottom - top + 1
    if right >= image.width or bottom >= image.height:
        raise ValueError(f"its mask must lie in the image of {image.width} x {image.height}, got {shape.points!r:.100}")
    try:
        content = base64.b64decode(shape.mask or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"its mask must be in base64: {error}") from None
    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as opened:
            if opened.size != (width, height):  # compared before anything of this size is allocated
                raise ValueError(f"its mask must have {width} x {height} pixels, got {opened.size}")  # noqa: TRY301
            crop = np.asarray(opened.convert("L")) > 0
    except ValueError:
        raise
    except UnidentifiedImageError:  # whose text has the address of an object, and is another one at each call
        raise ValueError("its mask must be a PNG, got other bytes") from None
    except Exception as error:  # noqa: BLE001  # Pillow raises errors of many kinds for damaged files
        raise ValueError(f"its mask must be a PNG: {type(error).__name__}: {error}") from None
    return (float(left), float(top), float(right + 1), float(bottom + 1)), encode_crop(
        crop, left, top, image.width, image.height
    )
