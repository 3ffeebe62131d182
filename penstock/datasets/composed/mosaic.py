"""Mosaic: four pictures around a random point.

::

     0        xc      2s
     ┌─────────┬───────┐ 0         each picture is resized to a longer side of s, and has one corner at (xc, yc):
     │     own │ second│           the sample's own its lower right one, and so on
     ├─────────┼───────┤ yc        the rest has one colour
     │   third │fourth │
     └─────────┴───────┘ 2s
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.composed.instance_masks import open_instances, renumber
from penstock.datasets.composed.merged_fields import FieldRoles, Placement, merge_fields
from penstock.datasets.composed.sample_mixture import SampleMixture
from penstock.sample import Array, DatasetLike, Sample, SampleKeys
from penstock.transforms.checks import as_byte_colour, as_integer
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.ops.resize import check_filter
from penstock.transforms.pixel_arithmetic import Pixels, paint
from penstock.transforms.program.placed_pictures import (
    Area,
    Paste,
    Picture,
    as_mask_array,
    open_picture,
    paste,
    paste_mask,
)
from penstock.transforms.program.seen_window import SeenWindow
from penstock.transforms.targets.object_masks import ObjectMasks

__all__ = ["Mosaic"]


class Mosaic(SampleMixture):
    """Samples of four pictures around a random point, for detectors: sample ``i`` and three others, drawn by its key.

    Parameters
    ----------
    dataset : dataset
        Map-style. Samples are mappings with an image: encoded, or uint8 pixels of shape (H, W, 3). Encoded JPEGs are
        decoded as far as the mosaic shows them, so give a :class:`penstock.StoreDataset` without a transform.
    size : int
        The longer side of each picture, s; results are 2s x 2s pixels.
    p : float
        Probability of a mosaic. Other results have the sample's own picture in the middle.
    fill : int or (int, int, int)
        Colour beside the pictures, in [0, 255].
    filter : {"box", "bilinear", "bicubic", "lanczos", "cv2-linear", "cv2-area", "cv2-nearest"}
        Resampling filter, as in :class:`~penstock.transforms.Resize`.
    mask_fill : int
        Value beside the pictures in masks, in [0, 255].
    instances : bool
        Whether the mask has the numbers of objects: ``k`` for row ``k - 1`` of boxes, 0 for the background. They are
        then renumbered, in int32.
    decode : Decode, optional
        How encoded images are decoded. ``Decode(scale="auto")`` decodes large JPEGs at a reduced size.
    transform : Pipeline, list of ops, or callable, optional
        Called with each result, with random numbers of its own: see Examples.
    kinds : mapping of str to str, optional
        Kinds of fields (image, boxes, keypoints, mask, instances), as for :class:`~penstock.transforms.Pipeline`.
        Default: by their names.
    objects : sequence of str, optional
        Fields with one row for each box, such as labels. Default: where there are boxes, all arrays and lists that
        have no kind.
    epochs : int, optional
        Make mosaics in the first ``epochs`` epochs only, so that the last ones train on single pictures.

    Raises
    ------
    ArgumentError
        If an argument is out of range, or the dataset is empty.

    Notes
    -----
    The point is in [s/2, 3s/2), in whole pixels. Boxes follow their pictures, are clipped to the result, and are left
    out with their objects' rows if nothing of them is left; a box on the edge may be thin. Keypoints, k for each box,
    follow, also to positions outside. Other fields (``key``, ``index``) are those of the sample's own. Each picture is
    drawn from the whole inner dataset, the sample's own included. The result depends on (seed, epoch, index) only.
    Thread-safe where the inner dataset and the transform are.

    Where the transform begins with RandomAffine or RandomRotation, bilinear, and CenterCrop, and there are no masks,
    only what the window shows is decoded and drawn; flips that follow take no time, RandomHSV and ToLayout to uint8
    little. Of a million values about fifty then differ by one level from those of the whole mosaic before RandomHSV,
    and a damaged file raises only where it is shown.

    A. Bochkovskiy et al., "YOLOv4: Optimal Speed and Accuracy of Object Detection", 2020. As in the detectors of
    Ultralytics, :class:`~penstock.transforms.RandomAffine` and ``CenterCrop(size)`` follow.

    Examples
    --------
    >>> import numpy as np
    >>> import penstock as ps
    >>> picture = {"image": np.zeros((48, 64, 3), np.uint8), "boxes": np.array([[8, 8, 24, 24]], np.float32)}
    >>> mosaic = ps.Mosaic([picture | {"labels": np.array([number])} for number in range(10)], size=64)
    >>> mosaic[3]["image"].shape
    (128, 128, 3)
    """

    pictures: ClassVar[int] = 4
    numbers: ClassVar[int] = 2

    def __init__(
        self,
        dataset: DatasetLike,
        size: int = 640,
        p: float = 1.0,
        fill: int | Sequence[int] = 114,
        *,
        filter: str = "bilinear",  # noqa: A002  # Pillow's word
        mask_fill: int = 0,
        instances: bool = False,
        decode: Decode | None = None,
        transform: Callable[[Sample], Sample] | Sequence[object] | None = None,
        kinds: Mapping[str, str | None] | None = None,
        objects: Sequence[str] | None = None,
        epochs: int | None = None,
    ) -> None:
        super().__init__(dataset, p, decode, transform, kinds, objects, epochs)
        self.size = as_integer(size, "size", 2, 1 << 14)
        self.fill = as_byte_colour(fill)
        self.filter = check_filter(filter)
        self.mask_fill = as_integer(mask_fill, "mask_fill", 0, 255)
        self.instances = instances

    def combine(self, samples: list[Sample], numbers: NDArray[np.float64], keys: SampleKeys) -> Sample:  # noqa: ARG002  # the interface
        """A sample of 2s x 2s pixels."""
        mosaic = self._lay_out(samples, numbers, self.roles(samples))
        merged = mosaic.merged
        merged[mosaic.roles.image] = self._paint(mosaic, self._whole)
        if mosaic.roles.mask is not None:
            merged[mosaic.roles.mask] = self._paint_mask(mosaic, samples)
        if mosaic.roles.instances is not None:
            merged[mosaic.roles.instances] = self._paint_instances(mosaic, samples)
        return merged

    def build(self, samples: list[Sample], numbers: NDArray[np.float64], keys: SampleKeys) -> Sample:
        """A transformed sample; only what the transform shows is decoded and drawn, where that is known."""
        window = SeenWindow.find(self.transform, keys, self._whole[2:])
        roles = self.roles(samples)
        if window is None or roles.mask is not None or roles.instances is not None:
            return super().build(samples, numbers, keys)
        mosaic = self._lay_out(samples, numbers, roles)
        named = {roles.image: "image", roles.boxes: "boxes", roles.keypoints: "keypoints"}
        kinds = {name: kind for name, kind in named.items() if name is not None}
        part = self._paint(mosaic, window.seen)
        return mosaic.merged | window.apply(part, keys, mosaic.merged, kinds)

    @property
    def _whole(self) -> Area:
        return 0, 0, 2 * self.size, 2 * self.size

    def _lay_out(self, samples: list[Sample], numbers: NDArray[np.float64], roles: FieldRoles) -> _MosaicPlan:
        opened = [open_picture(sample[roles.image], self.decode) for sample in samples]
        placements = self.place([picture.size for picture in opened], numbers)
        merged, kept = merge_fields(roles, samples, placements)
        return _MosaicPlan(roles, opened, placements, merged, kept)

    def place(self, sizes: Sequence[tuple[int, int]], numbers: NDArray[np.float64]) -> list[Placement]:
        """Return where pictures of these widths and heights lie: four around a random point, or one in the middle."""
        side = 2 * self.size
        x, y = (self.size // 2 + (numbers * self.size).astype(np.int64)).tolist()
        placements = []
        for number, own in enumerate(sizes):
            width, height = self._resized(own)
            left, top = x if number % 2 else x - width, y if number // 2 else y - height
            if len(sizes) == 1:
                left, top = (side - width) // 2, (side - height) // 2
            area = max(left, 0), max(top, 0), min(left + width, side), min(top + height, side)
            placements.append(Placement((width / own[0], height / own[1]), left, top, area))
        return placements

    def _resized(self, own: tuple[int, int]) -> tuple[int, int]:
        """Return the width and height of a picture in the mosaic."""
        scale = self.size / max(own)
        return max(round(own[0] * scale), 1), max(round(own[1] * scale), 1)

    def _paint(self, mosaic: _MosaicPlan, seen: Area) -> Pixels:
        """Return a part of the mosaic; the rest is not decoded."""
        left, top = seen[:2]
        canvas = np.empty((seen[3] - top, seen[2] - left, 3), np.uint8)
        for gap in self._gaps(mosaic.placements):
            x0, y0, x1, y1 = _intersect(gap, seen)
            if x0 < x1 and y0 < y1:
                paint(canvas[y0 - top : y1 - top, x0 - left : x1 - left], np.array(self.fill, np.uint8))
        pastes = []
        for picture, placement in zip(mosaic.opened, mosaic.placements, strict=True):
            x0, y0, x1, y1 = _intersect(placement.area, seen)
            area = x0 - left, y0 - top, x1 - left, y1 - top
            corner = placement.left - left, placement.top - top
            pastes.append(Paste(picture, self._resized(picture.size), *corner, area))
        paste(pastes, canvas, self.decode, self.filter)
        return canvas

    def _gaps(self, placements: Sequence[Placement]) -> Iterator[Area]:
        """Yield what no picture covers: around each one, as far as its quarter of the mosaic."""
        side = 2 * self.size
        x, y = placements[0].area[2:]
        quarters = [(0, 0, x, y), (x, 0, side, y), (0, y, x, side), (x, y, side, side)]
        cells = quarters if len(placements) > 1 else [self._whole]
        for placement, (x0, y0, x1, y1) in zip(placements, cells, strict=True):
            left, top, right, bottom = placement.area
            yield from ((x0, y0, x1, top), (x0, bottom, x1, y1), (x0, top, left, bottom), (right, top, x1, bottom))

    def _paint_mask(self, mosaic: _MosaicPlan, samples: Sequence[Sample]) -> Array:
        masks = [
            as_mask_array(sample[mosaic.roles.mask], picture.size, self.decode)
            for sample, picture in zip(samples, mosaic.opened, strict=True)
        ]
        if self.instances:
            masks = list(renumber(masks, mosaic.kept))
        canvas = np.full((2 * self.size, 2 * self.size), self.mask_fill, np.result_type(*masks))
        for mask, picture, placement in zip(masks, mosaic.opened, mosaic.placements, strict=True):
            size = self._resized(picture.size)
            paste_mask(mask, canvas, size, placement.left, placement.top, placement.area)
        return canvas

    def _paint_instances(self, mosaic: _MosaicPlan, samples: Sequence[Sample]) -> ObjectMasks:
        parts = []
        for sample, picture, placement, kept in zip(
            samples, mosaic.opened, mosaic.placements, mosaic.kept, strict=True
        ):
            masks = open_instances(mosaic.roles, sample, picture.size, len(kept))[kept]
            canvases = np.zeros((len(masks.planes), 2 * self.size, 2 * self.size), np.uint8)
            for plane, canvas in zip(masks.planes, canvases, strict=True):
                size = self._resized(picture.size)
                paste_mask(plane, canvas, size, placement.left, placement.top, placement.area)
            parts.append(ObjectMasks(tuple(canvases), masks.bits))
        return ObjectMasks.join(parts)


@dataclass(frozen=True, slots=True)
class _MosaicPlan:
    """A mosaic before it is painted: its pictures, where they lie, and its fields."""

    roles: FieldRoles
    opened: Sequence[Picture]
    placements: Sequence[Placement]
    merged: dict[str, Sample]
    kept: Sequence[NDArray[np.bool_]]


def _intersect(one: Area, other: Area) -> Area:
    return max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])
