"""Builds the records of a source: every object is checked, and whatever is left out or changed is noted.

::

    builder.image("train/1.jpg", path, file="1.xml", size=(640, 480)) ──> ImageObjects
        .add("dog", (48, 240, 195, 371), line=17, difficult=1)            one object
        .add("cat", ..., keypoints=..., crowd=True)
    builder.finish("voc")                                             ──> Annotations: the same fields in every record
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from penstock.annotations import rle
from penstock.annotations.numbers import find_kind, join_kinds, join_values
from penstock.annotations.polygons import Polygons
from penstock.annotations.result import AnnotationProblem, Annotations
from penstock.annotations.source import AnnotationSource
from penstock.errors import AnnotationError, ArgumentError
from penstock.orientation import get_upright_size, orient_boxes, orient_points
from penstock.sample import Array, Value

__all__ = ["ImageObjects", "RecordBuilder"]

_TOLERANCE: Final = 1.0
"""Pixels by which a box may end outside its image: formats count from 1, and round."""
_RECORD_FIELDS: Final = frozenset(
    {"image", "width", "height", "boxes", "labels", "keypoints", "instances", "area", "crowd", "mask"}
)
_POINT_LISTS: Final = frozenset({"polygon", "corners", "line_points", "cuboid"})
"""Fields of objects that are x, y of several points."""
_MAX_COORDINATE: Final = float(1 << 24)
_MAX_AREA: Final = _MAX_COORDINATE**2
_MAX_KEYPOINTS: Final = 1 << 28
"""Of all objects together: 3 GiB."""
_MAX_PROBLEMS: Final = 500_000
"""Problems that are listed; others are counted."""
_MAX_FIELDS: Final = 1024
_MAX_VALUES: Final = 1 << 27
"""Of all fields of all objects: 1 GiB."""
_MAX_WAITING: Final = 1 << 12
"""Objects whose polygons wait to become masks together."""


@dataclass(slots=True)
class _Object:
    label: str
    box: tuple[float, float, float, float]
    keypoints: Array | None
    instance: Mapping[str, Value] | None
    area: float | None
    crowd: bool
    fields: dict[str, Value]
    line: int | None = None


@dataclass(slots=True)
class ImageObjects:
    """The objects of one image; made by :meth:`RecordBuilder.image`.

    Attributes
    ----------
    width, height : int
        Size of the image in pixels that the annotation is of: of the upright picture, or as it is stored.
    orientation : int
        How that picture is turned to be the upright one, of which records are: 1 where it is.
    fields : dict
        Values of the image itself, such as its ``id`` or ``mask``.
    """

    builder: RecordBuilder
    name: str
    file: str
    width: int
    height: int
    orientation: int = 1
    fields: dict[str, Value] = field(default_factory=dict)
    objects: list[_Object] = field(default_factory=list)

    def add(
        self,
        label: str,
        box: Sequence[float],
        *,
        line: int | None = None,
        where: str = "",
        keypoints: Array | None = None,
        instance: Mapping[str, Value] | None = None,
        area: float | None = None,
        crowd: bool = False,
        polygon: Sequence[float] | None = None,
        attributes: Mapping[str, Value] | None = None,
        **fields: Value,
    ) -> bool:
        """Add an object; returns False if something is wrong with it, which is noted.

        Parameters
        ----------
        label : str
            The name of its class.
        box : sequence of four numbers
            x0, y0, x1, y1 in pixels.
        line : int, optional
            Where it stands in the file.
        where : str
            What problems begin with, where the format has no lines, such as "annotation 17: ".
        keypoints : ndarray, (k, 3), optional
            x, y in pixels, and the flag of the format.
        instance : mapping, optional
            Its run-length encoding: ``size`` (height, width) and ``counts``.
        area : float, optional
            As the format has it; by default that of the box.
        crowd : bool
            Whether it stands for several objects.
        polygon : sequence of float, optional
            x, y of three or more corners, pixels, in the box: a field of the object, and its instance, where none is
            given.
        attributes : mapping of str to values, optional
            Other values that the file names, whatever the names are.
        **fields
            Other values that the format names: numbers or texts.
        """
        checked = self._check_box(box, line, where)
        if checked is None:
            return False
        if not self.builder.knows(label):
            self.note(f"{where}its class {label!r:.200} is not one of the classes", line)
            return False
        if keypoints is not None and not np.isfinite(keypoints).all():
            self.note(f"{where}its keypoints must be finite numbers", line)
            return False
        if area is not None and not (0 <= area <= _MAX_AREA):
            self.note(f"{where}its area must be a number from 0 to 2**48, got {area}", line)
            return False
        held = {**(attributes or {}), **fields}
        if polygon is not None:
            held["polygon"] = polygon
        made = _Object(label, checked, keypoints, instance, area, crowd, held, line)
        self.objects.append(made)
        if polygon is not None and instance is None:
            self.builder.draw(self, made, polygon)
        return True

    def note(self, reason: str, line: int | None = None, effect: str = "object left out") -> None:
        """Note a problem of this image."""
        self.builder.note(self.file, reason, line, image=self.name, effect=effect)

    def turn_upright(self) -> None:
        """Make all values those of the upright picture."""
        size, orientation = (self.width, self.height), self.orientation
        if orientation == 1:
            return
        for each in self.objects:
            each.box = tuple(orient_boxes(np.array([each.box], np.float64), orientation, size)[0].tolist())
            if each.keypoints is not None:
                each.keypoints = orient_points(each.keypoints, orientation, size)
            if each.instance is not None:
                each.instance = rle.orient(each.instance, orientation)
            for name in _POINT_LISTS & each.fields.keys():
                if isinstance(each.fields[name], str | int | float):
                    continue  # an attribute that a person named so
                points = np.array(each.fields[name], np.float64).reshape(-1, 2)
                each.fields[name] = orient_points(points, orientation, size).ravel().tolist()
        self.width, self.height = get_upright_size(size, orientation)
        self.orientation = 1

    def _check_box(
        self, box: Sequence[float], line: int | None, where: str
    ) -> tuple[float, float, float, float] | None:
        x0, y0, x1, y1 = box
        text = "[" + ", ".join(f"{number:g}" for number in box) + "]"
        if not all(math.isfinite(number) and abs(number) <= _MAX_COORDINATE for number in box):
            self.note(f"{where}its box must have finite numbers, got {text}", line)
        elif x1 <= x0 or y1 <= y0:
            what = "inverted" if x1 < x0 or y1 < y0 else "empty"
            self.note(f"{where}its box must have x0 < x1 and y0 < y1, got {text}, which is {what}", line)
        elif x0 >= self.width or y0 >= self.height or x1 <= 0 or y1 <= 0:
            self.note(f"{where}its box must lie in the image of {self.width} x {self.height}, got {text}", line)
        elif min(x0, y0) < -_TOLERANCE or x1 > self.width + _TOLERANCE or y1 > self.height + _TOLERANCE:
            self.note(
                f"{where}its box ends outside the image of {self.width} x {self.height}, got {text}",
                line,
                "box clipped",
            )
            return max(x0, 0.0), max(y0, 0.0), min(x1, float(self.width)), min(y1, float(self.height))
        else:
            return x0, y0, x1, y1
        return None


class RecordBuilder:
    """Collects the images of a source, in order.

    ``source``: where they come from. ``classes``: names of the classes that the caller gave. ``upright``: which
    pictures the annotations are of, if the caller said it. Raises ArgumentError if two classes have one name.
    """

    def __init__(self, source: AnnotationSource, classes: Sequence[str] | None, *, upright: bool | None = None) -> None:
        self._source, self._upright = source, upright
        self._classes = None if classes is None else tuple(classes)
        if self._classes is not None and len(set(self._classes)) != len(self._classes):
            raise ArgumentError(f"classes must have different names, got {', '.join(self._classes)}")
        self._known = None if self._classes is None else frozenset(self._classes)
        self._images: list[ImageObjects] = []
        self._names: set[str] = set()
        self._turned: dict[str, int] = {}
        self._problems: list[AnnotationProblem] = []
        self._unlisted = 0
        self._noted: tuple[Path | None, str] = None, ""
        self._waiting: list[tuple[ImageObjects, _Object, Sequence[float]]] = []
        self.details: dict[str, Value] = {}

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names that are known so far, by label; None if there are none yet."""
        return self._classes

    def set_classes(self, names: Sequence[str]) -> None:
        """Set the classes that the source lists; those that the caller gave win."""
        if self._classes is None:
            self._classes = tuple(names)
            self._known = frozenset(names)

    def knows(self, label: str) -> bool:
        """Return whether a class is one of those that were given or listed; any is, where there is no list."""
        return self._known is None or label in self._known

    def note(
        self,
        file: str | Path,
        reason: str,
        line: int | None = None,
        *,
        image: str | None = None,
        effect: str = "image left out",
    ) -> None:
        """Note a problem; of very many, the last one that is kept says how many more there are."""
        if len(self._problems) >= _MAX_PROBLEMS:
            self._unlisted += 1
            return
        self._problems.append(AnnotationProblem(self._name_file(file), line, reason, image, effect))

    def _name_file(self, file: str | Path) -> str:
        """The name of a file in problems; one text for all of a file."""
        if isinstance(file, str):
            return file
        if file is not self._noted[0]:
            self._noted = file, self._source.relative(file)
        return self._noted[1]

    def image(
        self,
        name: str,
        path: Path | None,
        *,
        file: str | Path,
        line: int | None = None,
        size: tuple[int, int] | None = None,
        **fields: Value,
    ) -> ImageObjects | None:
        """Begin an image; returns None if something is wrong with it, which is noted.

        Parameters
        ----------
        name : str
            As the annotation names it.
        path : Path, optional
            Where it is; None if it was not found.
        file, line : Path or str, and int, optional
            The annotation.
        size : tuple of two int, optional
            Width and height that the annotation has; compared with those of the picture. 0 stands for unknown. An
            annotation is of the picture that has its size, and of the upright one where both have, or it has none.
        **fields
            Values of the image, without those that are None.
        """
        if path is None:
            self.note(file, f"there is no image {name!r:.300}", line, image=name)
            return None
        shown = self._source.relative(path)
        if shown in self._names:
            self.note(file, f"the image {shown!r:.300} is annotated already", line, image=shown)
            return None
        try:
            picture = self._source.measure_image(path)
        except ValueError as error:
            self.note(file, f"{shown}: {error}", line, image=shown)
            return None
        try:
            (width, height), orientation = picture.choose(size, self._upright)
        except ValueError as error:
            self.note(file, str(error), line, image=shown)
            return None
        if picture.orientation != 1:
            self._turned[shown] = orientation
        self._names.add(shown)
        given = {each: value for each, value in fields.items() if value is not None}
        made = ImageObjects(self, shown, self._name_file(file), width, height, orientation, given)
        self._images.append(made)
        return made

    def draw(self, image: ImageObjects, made: _Object, polygon: Sequence[float]) -> None:
        """Give an object the mask of its polygon, together with those of others."""
        self._waiting.append((image, made, polygon))
        if len(self._waiting) >= _MAX_WAITING:
            self._draw_waiting()

    def _draw_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        rings = [np.array(polygon, np.float64) for _, _, polygon in waiting]
        heights, widths = np.array([(image.height, image.width) for image, _, _ in waiting], np.int64).T
        texts = Polygons(rings, np.arange(len(rings)), heights, widths).encode()
        for (image, made, _), text in zip(waiting, texts, strict=True):
            if text is None:
                image.objects = [each for each in image.objects if each is not made]
                image.note("its polygon has too many and too long edges", made.line)
            else:
                made.instance = {"size": [image.height, image.width], "counts": text}

    def finish(self, name: str) -> Annotations:
        """The records, all with the same fields.

        Raises AnnotationError if one object has so many keypoints, or objects so many different fields, that values for
        all objects would not fit into memory.
        """
        self._draw_waiting()
        for image in self._images:
            image.turn_upright()
        if self._classes is None:
            self._classes = tuple(sorted({each.label for image in self._images for each in image.objects}))
        labels = {each: number for number, each in enumerate(self._classes)}
        layout = _RecordLayout.of(self._images)
        count = sum(len(image.objects) for image in self._images)
        if layout.points * count > _MAX_KEYPOINTS:
            raise AnnotationError(
                f"the keypoints of all objects must be at most {_MAX_KEYPOINTS:,}, got {count:,} objects with up to "
                f"{layout.points:,}, which all have rows for",
                source=str(self._source.root),
            )
        fields = len(layout.object_fields)
        if fields > _MAX_FIELDS or fields * count > _MAX_VALUES:
            raise AnnotationError(
                f"objects must have at most {_MAX_FIELDS:,} different fields, and {_MAX_VALUES:,} values together, got "
                f"{count:,} objects with {fields:,} fields, such as {next(reversed(layout.object_fields))!r:.100}, of "
                "which each object has a value",
                source=str(self._source.root),
            )
        if self._unlisted:
            self.details["problems_not_listed"] = self._unlisted
            reason = f"there are {self._unlisted:,} more problems, which are counted and not listed"
            self._problems.append(AnnotationProblem(self._problems[-1].file, None, reason, None, "not listed"))
        records = [layout.make_record(image, labels) for image in self._images]
        return Annotations(
            name, self._source.root, records, self._classes, tuple(self._problems), self.details, self._turned
        )


@dataclass(frozen=True, slots=True)
class _RecordLayout:
    """Which fields the records of a source have: each that one of them has."""

    points: int
    has_instances: bool
    has_area: bool
    has_crowd: bool
    object_fields: dict[str, type]
    image_fields: tuple[str, ...]

    @classmethod
    def of(cls, images: Sequence[ImageObjects]) -> _RecordLayout:
        objects = [each for image in images for each in image.objects]
        kinds: dict[str, type] = {}
        for each in objects:
            for name, value in each.fields.items():
                kinds[name] = join_kinds(kinds.get(name), find_kind(value))
        return cls(
            max((0 if each.keypoints is None else len(each.keypoints) for each in objects), default=0),
            any(each.instance is not None for each in objects),
            any(each.area is not None for each in objects),
            any(each.crowd for each in objects),
            kinds,
            tuple(dict.fromkeys(name for image in images for name in image.fields)),
        )

    def make_record(self, image: ImageObjects, labels: Mapping[str, int]) -> dict[str, Value]:
        objects = image.objects
        boxes = np.array([each.box for each in objects], np.float32).reshape(-1, 4)
        record: dict[str, Value] = {
            "image": image.name,
            "width": image.width,
            "height": image.height,
            "boxes": boxes,
            "labels": np.array([labels[each.label] for each in objects], np.int64),
        }
        if self.points:
            record["keypoints"] = np.zeros((len(objects), self.points, 3), np.float32)
            for row, each in enumerate(objects):
                if each.keypoints is not None:
                    record["keypoints"][row, : len(each.keypoints)] = each.keypoints
        if self.has_instances:
            record["instances"] = [each.instance for each in objects]
        if self.has_area:
            sides = boxes[:, 2:] - boxes[:, :2]
            areas = [sides[row].prod() if each.area is None else each.area for row, each in enumerate(objects)]
            record["area"] = np.array(areas, np.float32)
        if self.has_crowd:
            record["crowd"] = np.array([each.crowd for each in objects], np.int64)
        for name in self.image_fields:
            record[name] = image.fields.get(name)
        for name, kind in self.object_fields.items():
            values = [each.fields.get(name) for each in objects]
            record[self._free_name(name)] = join_values(values, kind)
        return record

    def _free_name(self, name: str) -> str:
        """The name of a field of objects: files have attributes with the names of other fields, such as "area"."""
        while name in _RECORD_FIELDS or name in self.image_fields:
            name += "_"
        return name
