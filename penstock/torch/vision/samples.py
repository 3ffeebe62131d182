"""A torchvision v2 transform for the samples of a store: images with their boxes, keypoints and masks.

::

    record ──Pipeline──────────────────────────> arrays ──_type_values──> sample     every transform recognised
       └───decode──> _type_values ──> tv_tensors ──transform──> sample               otherwise: torchvision's code

A transform of v2 gets a sample in the structure that ``fields`` says, whose values have torchvision's types. Without
boxes, keypoints or masks, it gets the image alone; see :mod:`penstock.torch.vision.images`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import torch
from torchvision import tv_tensors

from penstock.datasets.store.selection import FieldSelection
from penstock.errors import SampleError
from penstock.rng import globals_of_sample, next_keys
from penstock.sample import Array, Index, Sample, SampleKeys
from penstock.torch.loader.randomness import draw_seed
from penstock.torch.vision.images import as_pil
from penstock.torch.vision.native_transform import read_max_pixels
from penstock.torch.vision.recognise import ImageType, RecognisedTransforms, Transform, recognise
from penstock.torch.vision.recognise_samples import SampleTranslator, makes_tensors
from penstock.transforms import Decode, Pipeline, decode
from penstock.transforms.targets.object_masks import ObjectMasks

__all__ = ["TorchvisionSamples", "convert"]

_logger = logging.getLogger(__name__)

_FOLLOWERS: Final = frozenset({"boxes", "keypoints", "mask", "instances"})


def convert(transform: Transform, selection: FieldSelection) -> TorchvisionSamples | None:
    """The transform for samples of these fields; None if it is not of v2, or nothing follows the image."""
    kinds = set(selection.kind_of.values())
    if "image" not in kinds or not kinds & _FOLLOWERS or not _is_v2(transform):
        return None
    return TorchvisionSamples(transform, selection)


class TorchvisionSamples:
    """The :class:`~penstock.datasets.store.image_transforms.SampleTransform` for torchvision's transforms v2.

    Parameters
    ----------
    transform : callable
        A Compose, or a single transform.
    selection : FieldSelection
        The fields of a sample.

    Notes
    -----
    Images are PIL images if the transform makes tensors of them (ToImage, PILToTensor, ToTensor), as those of
    torchvision's datasets are, and ``tv_tensors.Image`` otherwise. Boxes are ``tv_tensors.BoundingBoxes`` (XYXY, with
    the image's size), keypoints ``KeyPoints``, masks ``Mask`` (HW), instances ``Mask`` (n, H, W), other arrays plain
    tensors.
    """

    layout: str | None = "CHW"

    def __init__(self, transform: Transform, selection: FieldSelection) -> None:
        self.transform, self._selection = transform, selection
        self._takes_pil = makes_tensors(transform)
        translator = SampleTranslator(selection.kind_of, selection.structure)
        recognised = recognise(transform, ImageType("pil" if self._takes_pil else "image"), translator)
        self._is_pure, self._image_type = translator.is_pure, recognised.image_type
        max_pixels = read_max_pixels()
        orient = bool(selection.upright)
        self._decode_op = Decode(orient=orient, max_pixels=max_pixels, max_nbytes=16 * max_pixels)
        self.pipeline = self._compile(recognised)
        self._is_random = any(op.random for op in recognised.ops)
        self.what = f"native: {', '.join(recognised.names)}"
        if self.pipeline is None:
            self.what = f"nothing is native: {recognised.reason or 'it returns PIL images'}"
        _logger.info("StoreDataset: %s", self.what)

    def __call__(self, values: Mapping[Index, Sample]) -> Sample:
        """Transform one sample: in a loader by its key, elsewhere by torch's global generator."""
        selection = self._selection
        if self.pipeline is not None:
            keys = next_keys() or SampleKeys(draw_seed() if self._is_random else 0, 0, np.zeros(1, np.int64))
            moved = self.pipeline(selection.to_tree(values), keys=keys, kinds=selection.kinds)
            return selection.to_tree(self._type_values(selection.from_tree(moved), self._type_result))
        sample = selection.to_tree(self._type_values(values, self._decode))
        with globals_of_sample():
            if selection.structure is tuple and not isinstance(self.transform, torch.nn.Sequential):
                return self.transform(*sample)
            return self.transform(sample)

    def _compile(self, recognised: RecognisedTransforms) -> Pipeline | None:
        if recognised.remaining or recognised.image_type.kind == "pil":
            return None
        pipeline = Pipeline([self._decode_op, *recognised.ops])
        return pipeline.take_pixels(is_mixed=self._selection.is_mixed) if self._selection.pixels else pipeline

    def _type_values(
        self, values: Mapping[Index, Sample], image: Callable[[Sample], tuple[Sample, tuple[int, int]]]
    ) -> dict[Index, Sample]:
        """Return the values in torchvision's types; ``image`` converts an image, and returns height and width, too."""
        kinds = self._selection.kind_of
        images = {name: image(value) for name, value in values.items() if kinds[name] == "image"}
        size = next(iter(images.values()))[1]
        return {
            name: images[name][0] if name in images else self._type_value(name, value, size)
            for name, value in values.items()
        }

    def _type_value(self, name: Index, value: Sample, size: tuple[int, int]) -> Sample:
        kind = self._selection.kind_of[name]
        if kind == "boxes":
            boxes = _as_tensor(np.asarray(value, np.float32).reshape(-1, 4))
            return boxes if self._gives_pure else tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=size)
        if kind == "keypoints":
            points = _as_tensor(np.asarray(value, np.float32))
            if points.shape[-1] != 2:
                raise SampleError(
                    f"torchvision's keypoints have two numbers, x and y, got {self._selection.names[name]!r} of shape "
                    f"{tuple(points.shape)}; give a penstock.transforms.Pipeline, which keeps the visibility"
                )
            return points if self._gives_pure else tv_tensors.KeyPoints(points, canvas_size=size)
        if kind == "mask":
            pixels = self._decode_op.mask(value, np.empty(0))
            mask = _as_tensor(pixels.astype(np.int32) if pixels.dtype == np.uint16 else pixels)
            return mask if self._gives_pure else tv_tensors.Mask(mask)
        if kind == "instances":
            is_moved = isinstance(value, np.ndarray) and value.ndim == 3
            masks = _as_tensor(value if is_moved else ObjectMasks.of(value, (size[1], size[0])).dense())
            return masks if self._gives_pure else tv_tensors.Mask(masks)
        return _as_tensor(value) if isinstance(value, np.ndarray) else value

    @property
    def _gives_pure(self) -> bool:
        """Whether the result has plain tensors in place of boxes, keypoints and masks."""
        return self._is_pure and self.pipeline is not None

    def _decode(self, encoded: bytes | memoryview | Array) -> tuple[Sample, tuple[int, int]]:
        op = self._decode_op
        pixels: Array = (
            self._selection.take_pixels(encoded)
            if isinstance(encoded, np.ndarray)
            else decode(encoded, max_pixels=op.max_pixels, max_nbytes=op.max_nbytes, orient=bool(op.orient))
        )
        size = pixels.shape[0], pixels.shape[1]
        if self._takes_pil:
            return as_pil(pixels), size
        return tv_tensors.Image(_as_tensor(pixels).permute(2, 0, 1)), size

    def _type_result(self, image: Array) -> tuple[Sample, tuple[int, int]]:
        tensor = _as_tensor(image)
        size = image.shape[1], image.shape[2]
        return (tv_tensors.Image(tensor) if self._image_type.kind == "image" else tensor), size


def _is_v2(transform: Transform) -> bool:
    if type(transform) is torch.nn.Sequential:
        return _is_v2(transform[0])
    return type(transform).__module__.startswith("torchvision.transforms.v2")


def _as_tensor(array: Array) -> torch.Tensor:
    """Return the array as a tensor: a view, or a copy of a read-only one, which torch does not have."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())
