"""Which fields of a record change with ``resize``, and how. What cannot be scaled is refused before anything is read.

::

    image      images               encoded anew, each by its own size
    masks      masks                nearest pixels, PNG
    boxes, keypoints, areas         multiplied by the scale of the image
    instances  run lengths          decoded, nearest pixels, encoded
    width, height                   the new ones

Boxes, points and masks are those of the picture that the schema says (:attr:`penstock.Field.upright`); those of the
picture as it is stored are turned with it. Called by :mod:`.pipeline.record_checks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock.annotations import rle
from penstock.errors import ArgumentError, PackError
from penstock.orientation import FIRST_TRANSPOSED, get_upright_size
from penstock.pack.pipeline.image_check import MAX_PIXELS, check_image
from penstock.pack.resize.resizing import NOTHING_RESIZED, ResizedImage, ResizeReport, Resizing
from penstock.pack.upright_fields import TURNED_ROLES, find_role, refuse_unknown_picture, turn_upright
from penstock.sample import Array, Blob, Field, Schema, Value
from penstock.transforms.decoding import fallback
from penstock.transforms.decoding.encode import encode
from penstock.transforms.targets.object_masks import ObjectMasks

__all__ = ["FieldResizing"]

_ALWAYS_MEASURED: Final = 32
_MEASURED: Final = 16
"""Of the images after these, one of so many is measured."""


class MeasuredShare:
    """Chooses the images whose loss is measured: the first ones of a run, and then each sixteenth.

    It is shared by threads without a lock: a number may be counted twice, which changes no result.
    """

    def __init__(self) -> None:
        self._count = 0

    def is_next(self) -> bool:
        """Return whether to measure the next image."""
        self._count += 1
        return self._count <= _ALWAYS_MEASURED or self._count % _MEASURED == 0


@dataclass(frozen=True, slots=True)
class FieldResizing:
    """The fields that change, of the records of one source."""

    resizing: Resizing  # how images change
    images: tuple[str, ...]  # fields of encoded images; the first is the one that boxes and masks belong to
    followers: Mapping[str, str]  # fields that are scaled with it, and what each is
    upright: bool | None = None  # which picture these are of, as in :class:`penstock.Field`
    _share: MeasuredShare = field(default_factory=MeasuredShare, compare=False)

    @classmethod
    def for_schema(cls, resizing: Resizing, schema: Schema) -> FieldResizing:
        """Find the fields.

        Raises ArgumentError if there is no encoded image, or a field cannot be scaled with it.
        """
        images = [name for name, each in schema.fields.items() if each.kind == "image"]
        pixels = [name for name, each in schema.fields.items() if each.pixels is not None]
        if pixels or not images:
            what = f"{pixels[0]!r} is stored as pixels" if pixels else f"the fields are {', '.join(schema.fields)}"
            raise ArgumentError(f"resize needs encoded images, and {what}; pack files, or leave out resize")
        images.sort(key=lambda name: name != "image")
        followers = {name: _find_role(name, each) for name, each in schema.fields.items()}
        roles = {name: role for name, role in followers.items() if role}
        return cls(resizing, tuple(images), roles, schema.upright)

    def apply(self, fields: Mapping[str, Value], check: str) -> tuple[dict[str, Value], ResizeReport]:
        """The fields of a record with smaller images, and what was changed.

        Raises DecodeError or PackError if an image cannot be decoded, or a field does not belong to it.
        """
        changed = dict(fields)
        report = NOTHING_RESIZED
        main: ResizedImage | None = None
        for name in self.images:
            encoded = bytes(fields[name])
            image = self.resizing.apply(encoded, check_image(encoded, check))
            main = main or image
            changed[name] = image.content
            report += self._report(encoded, image)
        assert main is not None, "there is an image"
        held = {name: role for name, role in self.followers.items() if fields.get(name) is not None}
        if self.upright is None:
            sizes_tell = main.orientation >= FIRST_TRANSPOSED and main.old[0] != main.old[1]
            roles = TURNED_ROLES - ({"mask", "instances"} if sizes_tell else set())
            placed = [name for name, role in held.items() if role in roles and len(fields[name])]
            refuse_unknown_picture(placed, main.orientation)
        for name, role in held.items():
            changed[name] = self._scale(name, role, fields[name], main)
        return changed, report

    def _report(self, encoded: bytes, image: ResizedImage) -> ResizeReport:
        sizes = len(encoded), len(image.content)
        if image.pixels is None:
            return ResizeReport(0, 1, *sizes)
        if not self._share.is_next():
            return ResizeReport(1, 0, *sizes)
        return ResizeReport(1, 0, *sizes, 1, image.measure_psnr())

    def _scale(self, name: str, role: str, value: object, image: ResizedImage) -> Value:
        if role in {"width", "height"}:
            return image.new[role == "height"]
        if image.pixels is None:
            return value
        try:
            if image.orientation != 1 and self.upright is False and role in TURNED_ROLES:
                stored = get_upright_size(image.old, image.orientation)
                value = turn_upright(role, value, image.orientation, stored)
            if image.old == image.new and role != "mask":
                return value
            return _SCALES[role](value, image, self.resizing)
        except (ArgumentError, ValueError) as error:
            message = error.message if isinstance(error, ArgumentError) else str(error)
            raise PackError(f"field {name!r} cannot be scaled with the image: {message}") from error


def _find_role(name: str, kind: Field) -> str:
    """What a field is to the image: empty if nothing."""
    array = kind.array
    if (name in {"width", "height"} and kind.kind == "int") or (name == "area" and array and array.dtype.kind == "f"):
        return name
    role = find_role(name, kind)
    are_points = array is not None and array.dtype == np.float32 and array.axes[-1] in {(2,), (3,)}
    if role in {"", kind.kind} or (role == "keypoints" and are_points) or (role == "instances" and kind.kind == "json"):
        return role
    raise ArgumentError(
        f"resize cannot scale the field {name!r} of kind {kind.kind}, which looks like {role}: give its kind, "
        f"such as schema={{{name!r}: 'boxes'}} for x0, y0, x1, y1 in pixels, or {{{name!r}: None}} to leave it out"
    )


def _scale_boxes(boxes: Array, image: ResizedImage, resizing: Resizing) -> Array:
    return resizing.op.boxes(np.asarray(boxes, np.float32), np.array(image.new), image.old)


def _scale_points(points: Array, image: ResizedImage, resizing: Resizing) -> Array:
    rows = np.asarray(points, np.float32).reshape(-1, points.shape[-1])
    return resizing.op.keypoints(rows, np.array(image.new), image.old).reshape(points.shape)


def _scale_area(area: Array, image: ResizedImage, resizing: Resizing) -> Array:
    del resizing
    factor = (image.new[0] * image.new[1]) / (image.old[0] * image.old[1])
    scaled: Array = (area * factor).astype(area.dtype)
    return scaled


def _scale_instances(instances: Value, image: ResizedImage, resizing: Resizing) -> list[Value]:
    masks = ObjectMasks.of(instances, image.old).move(resizing.op, np.array(image.new)).dense()
    return [None if old is None else rle.encode(mask) for old, mask in zip(instances, masks, strict=True)]


def _scale_mask(mask: Blob, image: ResizedImage, resizing: Resizing) -> bytes:
    content = bytes(mask)
    values = fallback.channel_pixels(content, MAX_PIXELS)
    if (values.shape[1], values.shape[0]) != image.old:
        raise ArgumentError(
            f"a mask must have the size of its upright image, {image.old[0]} x {image.old[1]}, got {values.shape[1]} x "
            f"{values.shape[0]}"
        )
    if image.old == image.new:
        return content
    moved = resizing.op.mask(values, np.array(image.new))
    if moved.dtype.kind in "iu" and moved.dtype.itemsize > 2 and moved.min() >= 0 and moved.max() <= 0xFFFF:
        moved = moved.astype(np.uint16)
    return encode(moved, "png")


_SCALES: Final[Mapping[str, Callable[[Value, ResizedImage, Resizing], Value]]] = {
    "boxes": _scale_boxes,
    "keypoints": _scale_points,
    "area": _scale_area,
    "instances": _scale_instances,
    "mask": _scale_mask,
}
