"""MixUp of samples for detectors: the pixels of two pictures are blended, and their objects are kept together."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.datasets.composed.instance_masks import open_instances
from penstock.datasets.composed.merged_fields import Placement, merge_fields
from penstock.datasets.composed.sample_mixture import SampleMixture
from penstock.errors import ArgumentError
from penstock.rng import derive_keys, generator, sample_scope
from penstock.sample import DatasetLike, Sample, SampleKeys
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.pixel_arithmetic import blend
from penstock.transforms.program.placed_pictures import as_mask_array, decode_pictures
from penstock.transforms.targets.object_masks import ObjectMasks

__all__ = ["SampleMixUp"]


class SampleMixUp(SampleMixture):
    """Samples whose picture is blended with that of another one, drawn by the sample's key; with the objects of both.

    Parameters
    ----------
    dataset : dataset
        Map-style. Samples are mappings with an image, uint8 pixels of shape (H, W, 3) or encoded; all of one size, as
        those of :class:`penstock.Mosaic` or Letterbox are.
    p : float
        Probability that a sample is blended.
    alpha : float
        The share of the own picture is drawn from Beta(alpha, alpha). With 32 it is near 0.5.
    decode : Decode, optional
        How encoded images are decoded.
    transform, kinds, objects, epochs
        As for :class:`penstock.Mosaic`.

    Raises
    ------
    ArgumentError
        If an argument is out of range, or the dataset is empty.

    Notes
    -----
    Boxes, keypoints and instances stay where they are. A mask is that of the picture with the greater share. Other
    fields are those of the sample's own. :class:`penstock.transforms.MixUp` mixes batches and class probabilities
    instead.

    H. Zhang et al., "mixup: Beyond Empirical Risk Minimization", ICLR 2018; Z. Zhang et al., "Bag of Freebies for
    Training Object Detection Neural Networks", 2019.
    """

    pictures: ClassVar[int] = 2

    def __init__(
        self,
        dataset: DatasetLike,
        p: float = 0.5,
        alpha: float = 32.0,
        *,
        decode: Decode | None = None,
        transform: Callable[[Sample], Sample] | Sequence[object] | None = None,
        kinds: Mapping[str, str | None] | None = None,
        objects: Sequence[str] | None = None,
        epochs: int | None = None,
    ) -> None:
        super().__init__(dataset, p, decode, transform, kinds, objects, epochs)
        if not 0 < alpha < math.inf:
            raise ArgumentError(f"alpha must be a positive number, got {alpha!r}")
        self.alpha = float(alpha)

    def combine(self, samples: list[Sample], numbers: NDArray[np.float64], keys: SampleKeys) -> Sample:  # noqa: ARG002  # the interface
        """A sample with the objects of both."""
        roles = self.roles(samples)
        images = decode_pictures([sample[roles.image] for sample in samples], self.decode, self)
        size = images[0].shape[1], images[0].shape[0]
        everywhere = Placement((1.0, 1.0), 0, 0, (0, 0, *size))
        merged, kept = merge_fields(roles, samples, [everywhere] * len(samples))
        share = 1.0 if len(samples) == 1 else self._draw_share(keys)
        merged[roles.image] = images[0] if len(samples) == 1 else blend(images[1], images[0], share)
        if roles.mask is not None:
            merged[roles.mask] = as_mask_array(samples[0 if share >= 0.5 else 1][roles.mask], size, self.decode)
        if roles.instances is not None:
            masks = [open_instances(roles, sample, size, len(own)) for sample, own in zip(samples, kept, strict=True)]
            parts = masks if roles.boxes is None else [own[keep] for own, keep in zip(masks, kept, strict=True)]
            merged[roles.instances] = ObjectMasks.join(parts)
        return merged

    def _draw_share(self, keys: SampleKeys) -> float:
        own = derive_keys(keys, 1)
        with sample_scope(own.seed, own.epoch, int(own.indices[0])):
            return float(generator().beta(self.alpha, self.alpha))
