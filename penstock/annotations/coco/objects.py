"""The objects of COCO's JSON, one by one: each value is checked, since it may be of any type."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.annotations.numbers import parse_int, parse_number
from penstock.annotations.polygons import MAX_COORDINATE
from penstock.sample import Array, Value

__all__ = [
    "CocoCategory",
    "CocoObject",
    "ObjectId",
    "name_other_type",
    "parse_category",
    "parse_id",
    "parse_object",
    "parse_skeleton",
]

ObjectId = int | str
_USED: Final = frozenset(
    {"id", "image_id", "category_id", "bbox", "segmentation", "area", "iscrowd", "keypoints", "num_keypoints"}
)
_MAX_DIGITS: Final = 20
_MIN_NUMBERS: Final = 6
"""Of a ring: three corners."""


@dataclass(frozen=True, slots=True)
class CocoCategory:
    """A category: its name, and the names of its keypoints."""

    name: str
    keypoints: tuple[str, ...] = ()
    is_thing: bool | None = None


@dataclass(slots=True)
class CocoObject:
    """An annotation, or a segment of a panoptic image; its polygons or counts are not masks yet."""

    label: str
    box: tuple[float, float, float, float]
    area: float | None
    is_crowd: bool
    keypoints: Array | None
    rings: list[Array] = field(default_factory=list)
    counts: Value = None
    fields: dict[str, Value] = field(default_factory=dict)


def parse_id(value: object, what: str) -> ObjectId:
    """An id: a whole number or a text; ValueError if it is neither."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError(f"its {what} must be a whole number or a text, got {value!r:.100}")
    return value


def name_other_type(number: ObjectId, known: Container[ObjectId]) -> str:
    """The end of an error about an unknown id: that it is known as a text in place of a number, or reverse."""
    digits = str(number)
    if not digits.removeprefix("-").isdecimal() or len(digits) > _MAX_DIGITS:
        return ""
    other: ObjectId = int(digits) if isinstance(number, str) else digits
    of, to = ("text", "number") if isinstance(number, str) else ("number", "text")
    return f", a {of}, but of {other!r}, a {to}; write both as numbers" if other in known else ""


def parse_object(
    given: Mapping[str, Value], categories: Mapping[ObjectId, CocoCategory], height: int, width: int
) -> CocoObject:
    """An object of an image.

    Raises
    ------
    ValueError
        Says what is wrong with it.
    """
    number = parse_id(given.get("category_id"), "category_id")
    category = categories.get(number)
    if category is None:
        other = name_other_type(number, categories)
        raise ValueError(f"there is no category of its category_id {number!r:.100}{other}")
    crowd = given.get("iscrowd")
    if crowd is not None and crowd not in (0, 1):
        raise ValueError(f"its iscrowd must be 0 or 1, got {crowd!r:.100}")
    area = given.get("area")
    made = CocoObject(
        category.name,
        _parse_box(given.get("bbox")),
        None if area is None else parse_number(area, "area"),
        bool(crowd),
        _parse_keypoints(given.get("keypoints"), category),
    )
    _parse_segmentation(made, given.get("segmentation"), height, width)
    if len(given) > len(_USED) or not given.keys() <= _USED:
        made.fields = {name: value for name, value in given.items() if name not in _USED}
    return made


def _parse_box(given: object) -> tuple[float, float, float, float]:
    if not isinstance(given, list) or len(given) != 4:
        raise ValueError(f"its bbox must have four numbers, got {given!r:.100}")
    x, y, width, height = (parse_number(each, "bbox") for each in given)
    return x, y, x + width, y + height


def _parse_keypoints(given: object, category: CocoCategory) -> Array | None:
    if given is None or given == []:
        return None
    if not isinstance(given, list) or len(given) % 3 or not set(map(type, given)) <= {int, float}:
        raise ValueError(f"its keypoints must have three numbers each, got {given!r:.100}")
    points = _make_numbers(given, "keypoints").reshape(-1, 3)
    if category.keypoints and len(points) != len(category.keypoints):
        raise ValueError(f"it must have {len(category.keypoints)} keypoints as its category, got {len(points)}")
    return points


def _parse_segmentation(made: CocoObject, given: object, height: int, width: int) -> None:
    if isinstance(given, Mapping):
        size = given.get("size")
        if size != [height, width]:
            raise ValueError(f"its segmentation must have the size [{height}, {width}] of the image, got {size!r:.100}")
        made.counts = given.get("counts") or ""
    elif isinstance(given, list):
        made.rings = [_parse_ring(ring) for ring in given if ring != []]
    elif given is not None:
        raise ValueError(f"its segmentation must be polygons or run lengths, got {given!r:.100}")


def _parse_ring(given: object) -> Array:
    if not isinstance(given, list) or not set(map(type, given)) <= {int, float}:
        raise ValueError(f"its polygons must be lists of numbers, got {given!r:.100}")
    if len(given) < _MIN_NUMBERS or len(given) % 2:
        raise ValueError(f"its polygons must have x and y of three corners or more, got {len(given)} numbers")
    return _make_numbers(given, "polygons")


def _make_numbers(given: list[Value], what: str) -> Array:
    """An array of numbers; its largest is a coordinate that float32 and all arithmetic hold."""
    try:
        made = np.array(given, np.float64)
    except OverflowError:
        made = np.array([np.inf])
    if not np.abs(made).max() <= MAX_COORDINATE:  # or one of them is not a number
        raise ValueError(f"its {what} must have numbers of at most 2**24, got {given!r:.100}")
    return made


def parse_category(given: Mapping[str, Value]) -> CocoCategory:
    """A category; ValueError says what is wrong with it."""
    name, points = given.get("name"), given.get("keypoints")
    if not isinstance(name, str) or not name:
        raise ValueError(f"its name must be a text, got {name!r:.100}")
    if points is not None and (not isinstance(points, list) or not all(isinstance(each, str) for each in points)):
        raise ValueError(f"its keypoints must be a list of names, got {points!r:.100}")
    is_thing = given.get("isthing")
    return CocoCategory(name, tuple(points or ()), None if is_thing not in (0, 1) else bool(is_thing))


def parse_skeleton(given: Mapping[str, Value], count: int) -> tuple[tuple[int, int], ...]:
    """The pairs of a category's ``count`` keypoints that a skeleton joins, counted from 0 (COCO counts from 1).

    Raises ValueError if they are none.
    """
    pairs = given.get("skeleton")
    if pairs is None:
        return ()
    if not isinstance(pairs, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise ValueError(f"its skeleton must be a list of pairs, got {pairs!r:.100}")
    skeleton = [(parse_int(first, "skeleton") - 1, parse_int(second, "skeleton") - 1) for first, second in pairs]
    if not all(0 <= each < count for pair in skeleton for each in pair):
        raise ValueError(f"its skeleton must have numbers of keypoints from 1 to {count}, got {pairs!r:.100}")
    return tuple(skeleton)
