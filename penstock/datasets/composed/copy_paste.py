"""CopyPaste: objects of one picture, cut out by their masks, are pasted into another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.composed.instance_masks import open_instances, renumber
from penstock.datasets.composed.merged_fields import FieldRoles, Placement, merge_fields, take_rows
from penstock.datasets.composed.sample_mixture import SampleMixture
from penstock.errors import ArgumentError
from penstock.rng import derive_keys
from penstock.sample import DatasetLike, Sample, SampleKeys
from penstock.transforms.base import uniforms
from penstock.transforms.checks import as_range
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.program.placed_pictures import as_mask_array, decode_pictures
from penstock.transforms.targets.object_masks import ObjectMasks
from penstock.transforms.targets.target_forms import as_boxes

__all__ = ["CopyPaste"]


class CopyPaste(SampleMixture):
    """Samples into which objects of another one, drawn by the sample's key, are pasted.

    Parameters
    ----------
    dataset : dataset
        Map-style. Samples are mappings with an image, uint8 pixels of shape (H, W, 3) or encoded, all of one size;
        boxes; and instances, or a mask of objects, HW of integers or encoded: ``k`` for the object of row ``k - 1`` of
        boxes, 0 for the background.
    p : float
        Probability that objects are pasted into a sample.
    share : float
        Probability of each object that may be pasted.
    overlap : float
        An object may be pasted if its box covers at most this part of the area of each box in the picture, in [0, 1].
    decode : Decode, optional
        How encoded images and masks are decoded.
    transform, kinds, objects, epochs
        As for :class:`penstock.Mosaic`.

    Raises
    ------
    ArgumentError
        If an argument is out of range, or the dataset is empty.

    Notes
    -----
    Pasted pixels replace those of the picture, without blending. Objects of which no pixel is left are left out with
    their rows, other boxes stay as they are. Pasted objects have the last rows. The mask of the result is int32.
    Pictures of different sizes need a Letterbox, or :class:`penstock.Mosaic` with ``instances=True``, before.

    G. Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method for Instance Segmentation", CVPR 2021.
    """

    pictures: ClassVar[int] = 2

    def __init__(
        self,
        dataset: DatasetLike,
        p: float = 0.5,
        share: float = 0.5,
        overlap: float = 0.3,
        *,
        decode: Decode | None = None,
        transform: Callable[[Sample], Sample] | Sequence[object] | None = None,
        kinds: Mapping[str, str | None] | None = None,
        objects: Sequence[str] | None = None,
        epochs: int | None = None,
    ) -> None:
        super().__init__(dataset, p, decode, transform, kinds, objects, epochs)
        self.share = as_range(share, "share", 0, 1)[0]
        self.overlap = as_range(overlap, "overlap", 0, 1)[0]

    def combine(self, samples: list[Sample], numbers: NDArray[np.float64], keys: SampleKeys) -> Sample:  # noqa: ARG002  # the interface
        """A sample with pasted objects."""
        roles = self.roles(samples)
        if roles.boxes is None or (roles.mask is None and roles.instances is None):
            raise ArgumentError(
                "CopyPaste needs boxes, and instances or a mask of objects, got the fields "
                f"{', '.join(map(str, samples[0]))}"
            )
        images = decode_pictures([sample[roles.image] for sample in samples], self.decode, self)
        size = images[0].shape[1], images[0].shape[0]
        boxes = [as_boxes(sample[roles.boxes]).reshape(-1, 4) for sample in samples]
        kept = [np.ones(len(boxes[0]), np.bool_), *(self._choose(boxes[0], own, keys) for own in boxes[1:])]
        everywhere = Placement((1.0, 1.0), 0, 0, (0, 0, *size))
        merged, _ = merge_fields(roles, samples, [everywhere] * len(samples), kept=kept)
        merged[roles.image] = images[0]
        where = self._mix_masks(roles, samples, size, kept, merged)
        if where is not None and where.any():
            merged[roles.image] = images[0].copy()
            np.copyto(merged[roles.image], images[1], where=where[:, :, None])
        return merged

    def _mix_masks(
        self,
        roles: FieldRoles,
        samples: list[Sample],
        size: tuple[int, int],
        kept: list[NDArray[np.bool_]],
        merged: dict[str, Sample],
    ) -> NDArray[np.bool_] | None:
        """Put mask and instances into ``merged``, without objects that are covered; where pixels are pasted."""
        where: NDArray[np.bool_] | None = None
        stays: NDArray[np.bool_] | None = None
        if roles.mask is not None:
            masks = [as_mask_array(sample[roles.mask], size, self.decode) for sample in samples]
            mask, *pasted = renumber(masks, kept)
            if pasted:
                where = pasted[0] > 0
                stays = _find_left(mask, np.where(where, pasted[0], mask), sum(map(np.count_nonzero, kept)))
                mask = renumber([np.where(where, pasted[0], mask)], [stays])[0]
            merged[roles.mask] = mask
        if roles.instances is not None:
            own, *others = [
                open_instances(roles, sample, size, len(keep))[keep] for sample, keep in zip(samples, kept, strict=True)
            ]
            if others:
                where = others[0].union() if where is None else where
                cut = own.cut(where)
                visible = np.concatenate([cut.has_pixels() | ~own.has_pixels(), np.ones(len(others[0]), np.bool_)])
                stays = visible if stays is None else stays
                own = ObjectMasks.join([cut, others[0]])[stays]
            merged[roles.instances] = own
        if stays is not None and not stays.all():
            take_rows(roles, merged, stays)
        return where

    def _choose(self, boxes: NDArray[np.float32], others: NDArray[np.float32], keys: SampleKeys) -> NDArray[np.bool_]:
        """Return which of the ``others`` are pasted into a picture with these boxes."""
        start = np.maximum(boxes[None, :, :2], others[:, None, :2])
        shared = np.prod(np.maximum(np.minimum(boxes[None, :, 2:], others[:, None, 2:]) - start, 0), axis=2)
        areas = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0), axis=1)
        fits = (shared <= self.overlap * areas).all(axis=1)
        chosen: NDArray[np.bool_] = fits & (uniforms(derive_keys(keys, 1), 0, len(others))[0] < self.share)
        return chosen


def _find_left(before: NDArray[np.int32], after: NDArray[np.int32], count: int) -> NDArray[np.bool_]:
    """Find which of ``count`` objects are left: all but those whose pixels in ``before`` are covered in ``after``."""
    covered = np.zeros(count + 1, np.bool_)
    covered[np.unique(before)] = True
    covered[np.unique(after)] = False
    left: NDArray[np.bool_] = ~covered[1:]
    return left
