"""Fields whose values are places in a picture: which say whether they are of the upright picture, and are turned.

A picture whose file has an Exif orientation is two pictures: as its rows are stored, and as it is turned to be upright.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.annotations import rle
from penstock.errors import ArgumentError, PackError, PenstockError
from penstock.fields.names import guess_kind
from penstock.orientation import orient_boxes, orient_file, orient_points
from penstock.sample import Blob, Field, Schema, Value
from penstock.transforms.decoding import fallback
from penstock.transforms.decoding.decode import MAX_PIXELS, read_orientations

__all__ = [
    "TURNED_ROLES",
    "find_placed",
    "find_role",
    "has_values",
    "refuse_unknown_picture",
    "state_upright",
    "turn_record",
    "turn_upright",
    "warn_of_unknown_picture",
]

TURNED_ROLES: Final = frozenset({"boxes", "keypoints", "mask", "instances"})


def find_role(name: str, field: Field) -> str:
    """Return what a field holds, by its kind or else its name: boxes, keypoints, mask, instances.

    It is empty if none of these.
    """
    if field.kind in TURNED_ROLES:
        return field.kind
    looks = "instances" if name == "instances" else guess_kind(name)
    may_be = field.array is not None or field.kind in {"json", "bytes"}
    return looks if looks in TURNED_ROLES and may_be else ""


def find_placed(schema: Schema) -> tuple[str, ...]:
    """Return the fields of boxes and points, whose values do not show which picture they are of.

    Masks have its size.
    """
    return tuple(name for name, field in schema.fields.items() if find_role(name, field) in {"boxes", "keypoints"})


def has_values(value: Value) -> bool:
    """Return whether a field of a record has boxes, points, masks."""
    return value is not None and len(value) > 0


def state_upright(schema: Schema, *, upright: bool) -> Schema:
    """Return the schema, whose boxes, keypoints, masks and instances say which picture they are of; see :class:`Field`.

    Raises ArgumentError if there are none, or they say the other.
    """
    found = [name for name, field in schema.fields.items() if find_role(name, field)]
    if not found or schema.upright not in {None, upright}:
        said = f"{', '.join(found)} say upright={schema.upright}" if found else "there are none"
        raise ArgumentError(f"upright says which picture boxes, keypoints, masks and instances are of, and {said}")
    return Schema({
        name: replace(field, upright=upright) if name in found else field for name, field in schema.fields.items()
    })  # fmt: skip


def turn_upright(role: str, value: Value, orientation: int, size: tuple[int, int]) -> Value:
    """Return a value of a picture as it is stored, of the ``size`` (width, height), as that of the upright picture.

    Raises PackError if it has no such values.
    """
    try:
        if role == "boxes":
            return orient_boxes(np.asarray(value), orientation, size)
        if role == "mask":
            return orient_file(bytes(value), orientation)
        if role == "instances":
            return [None if each is None else rle.orient(each, orientation) for each in value]
        if isinstance(value, list):  # of JSON
            return [None if each is None else _turn_corners(each, orientation, size) for each in value]
        return orient_points(np.asarray(value), orientation, size)
    except (PenstockError, OSError, IndexError, TypeError, ValueError) as error:
        raise PackError(f"its {role} cannot be turned with its picture: {error}") from error


def turn_record(schema: Schema, image: Blob, fields: Mapping[str, Value]) -> dict[str, Value]:
    """The fields of a record, those of a picture that is stored turned as those of the upright one.

    Raises DecodeError if its header cannot be read. Raises PackError if a value is none of its role.
    """
    turned = dict(fields)
    if schema.upright is not False or isinstance(image, np.ndarray):
        return turned
    orientation = int(read_orientations([image], MAX_PIXELS)[0])
    if orientation != 1:
        size = fallback.image_size(bytes(image), MAX_PIXELS)
        for name in turned.keys() & schema.fields.keys():
            if (role := find_role(name, schema[name])) and has_values(turned[name]):
                turned[name] = turn_upright(role, turned[name], orientation, size)
    return turned


def refuse_unknown_picture(found: Sequence[str], orientation: int) -> None:
    """Raise PackError if a picture is stored turned, and it is not said which picture some fields are of."""
    if orientation != 1 and found:
        raise PackError(
            f"its Exif orientation is {orientation}, and it is not said whether {', '.join(found)} are of the upright "
            "picture or of the one that is stored: pack with upright=True or upright=False (--upright, --no-upright)"
        )


def warn_of_unknown_picture(found: Sequence[str]) -> None:
    """Say, once in a process, that an image is stored turned and its boxes may be of either picture."""
    if found:
        warnings.warn(
            f"images are stored turned by an Exif orientation, and it is not said whether their {found[0]} are of the "
            "upright picture, which most programs show, or of the stored one, which Decode() gives: pack with "
            "upright=True or upright=False (--upright, --no-upright)",
            stacklevel=2,
        )


def _turn_corners(given: Sequence[Value], orientation: int, size: tuple[int, int]) -> Value:
    """Return the corners of an object: x, y of all in one list, or a list for each."""
    corners = np.array(given, np.float64)
    rows = corners.reshape(-1, 2) if corners.ndim == 1 else corners
    return orient_points(rows, orientation, size).reshape(corners.shape).tolist()
