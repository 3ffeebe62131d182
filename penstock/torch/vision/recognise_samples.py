"""Translate a detection transform of torchvision v2 to penstock's ops: the image, and what moves with it.

Called by :mod:`penstock.torch.vision.samples`. The rules for images are those of
:mod:`penstock.torch.vision.recognise`; here are the transforms of objects, and the cases in which torchvision moves
boxes, keypoints or masks by another rule than penstock. Nothing is decoded or called here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Final

import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

from penstock import transforms as T
from penstock.sample import Index
from penstock.torch.vision.recognise import (
    ImageType,
    NotRecognisedError,
    Transform,
    Translation,
    is_modified,
    translate_filter,
    translate_image_transform,
)
from penstock.transforms.ops.resize import set_mask_filter

__all__ = ["SampleTranslator", "makes_tensors"]

_CONVERTERS: Final = (v2.ToImage, v2.PILToTensor, v2.ToTensor)
_NOT_TENSORS: Final = frozenset({"label", "int", "float", "text", "json", "bytes"})
_ON_VALUES: Final = (v2.ToDtype, v2.ConvertImageDtype, v2.Normalize, v2.Identity, torch.nn.Identity)
_MOVE_POINTS_ALIKE: Final = (v2.Resize, v2.RandomShortestSize, v2.ScaleJitter)
_TYPES: Final = {"boxes": tv_tensors.BoundingBoxes, "mask": tv_tensors.Mask, "instances": tv_tensors.Mask}
_MASKS: Final = frozenset({"mask", "instances"})


def makes_tensors(transform: Transform) -> bool:
    """Return whether a transform, or one inside it, makes tensors of PIL images."""
    inner = getattr(transform, "transforms", None)
    if isinstance(inner, list | tuple | torch.nn.ModuleList):
        return any(makes_tensors(step) for step in inner)
    if isinstance(transform, torch.nn.Sequential):
        return any(makes_tensors(step) for step in transform)
    return isinstance(transform, _CONVERTERS)


class SampleTranslator:
    """Translates one transform after another, for samples with these fields.

    ``kinds``: the kind of each field, in the order of the sample. ``structure``: of a sample: dict or tuple.
    """

    def __init__(self, kinds: Mapping[Index, str | None], structure: type) -> None:
        self._structure = structure
        self._names = tuple(kinds)
        self._present = set(kinds.values())
        tensors = [kind for kind in kinds.values() if kind not in _NOT_TENSORS]
        self._is_image_first = tensors[0] == "image"
        self.is_pure = False
        """Whether boxes, keypoints and masks are plain tensors after the transforms so far."""

    def __call__(self, step: Transform, image: ImageType) -> Translation:
        """The translation of ``step``; raises as :func:`~penstock.torch.vision.recognise.translate_image_transform`."""
        if not type(step).__module__.startswith("torchvision.transforms.v2") and type(step) is not torch.nn.Identity:
            raise NotRecognisedError("it is no transform of v2")
        if is_modified(step):
            raise NotRecognisedError("it has a hook or a method of its own")
        if self.is_pure and not isinstance(step, _ON_VALUES):
            raise NotRecognisedError("boxes and masks before it are plain tensors")
        if image.kind == "tensor" and not self._is_image_first:
            raise NotRecognisedError("it takes the first tensor of the sample for the image, which is another field")
        self._refuse_other_rules(step)
        own = _TRANSLATORS.get(type(step))
        ops, result = translate_image_transform(step, image) if own is None else own(self, step, image)
        self.is_pure = self.is_pure or type(step) is v2.ToPureTensor
        return tuple(map(_take_corners, ops)), result

    def _refuse_other_rules(self, step: Transform) -> None:
        """Refuse what torchvision does to boxes, keypoints or masks by another rule."""
        moves = not isinstance(step, (*_ON_VALUES, *_CONVERTERS, v2.ToPureTensor, *_ON_PIXELS))
        if moves and "keypoints" in self._present and not isinstance(step, _MOVE_POINTS_ALIKE):
            raise NotRecognisedError("torchvision clips keypoints, and mirrors them by pixel numbers")
        has_masks = not self._present.isdisjoint(_MASKS)
        fill = getattr(step, "fill", 0)
        if has_masks and fill is not None and fill != 0:
            raise NotRecognisedError("it fills masks with the colour of the image")
        if self._present & {"boxes", "keypoints"} and getattr(step, "padding_mode", "constant") != "constant":
            raise NotRecognisedError("torchvision does not mirror boxes")
        if isinstance(step, v2.ToDtype) and isinstance(step.dtype, dict):
            for kind in _TYPES.keys() & self._present:
                if step.dtype.get(_TYPES[kind], step.dtype.get("others", torch.uint8)) is not None:
                    raise NotRecognisedError(f"it converts {kind}")

    def sanitize(self, step: Transform, image: ImageType) -> Translation:
        """Remove objects, with the one field that torchvision finds."""
        labels: tuple[Index, ...] = ()
        if step.labels_getter is not None:
            if step.labels_getter != "default" or self._structure is not dict:
                raise NotRecognisedError("its labels_getter is a function, or samples are no dicts")
            named = [name for name in self._names if name.lower() == "labels"]
            named += [name for name in self._names if "label" in name.lower()]
            if not named:
                raise NotRecognisedError("no field is named 'labels'")
            labels = (named[0],)
        self.refuse_no_boxes()
        return (T.SanitizeBoundingBoxes(step.min_size, step.min_area, labels),), image

    def refuse_no_boxes(self) -> None:
        """Refuse a transform that raises in torchvision."""
        if "boxes" not in self._present:
            raise NotRecognisedError("it needs boxes")


_Translator = Callable[[SampleTranslator, Transform, ImageType], Translation]


def _translate_iou_crop(fields: SampleTranslator, step: Transform, image: ImageType) -> Translation:
    fields.refuse_no_boxes()
    ratios = step.min_aspect_ratio, step.max_aspect_ratio
    return (T.RandomIoUCrop(step.min_scale, step.max_scale, *ratios, step.options, step.trials),), image


def _translate_zoom_out(_: SampleTranslator, step: Transform, image: ImageType) -> Translation:
    if image.dtype != "uint8":
        raise NotRecognisedError(f"its colour is one of a {image.dtype} image")
    fill = step.fill or 0
    return (T.RandomZoomOut(fill, tuple(step.side_range), step.p),), image


def _translate_shortest_size(_: SampleTranslator, step: Transform, image: ImageType) -> Translation:
    return (T.RandomShortestSize(step.min_size, step.max_size, translate_filter(step, image)),), image


def _translate_clamp(_: SampleTranslator, step: Transform, image: ImageType) -> Translation:
    if getattr(step, "clamping_mode", "auto") != "auto":
        raise NotRecognisedError(f"clamping_mode={step.clamping_mode!r}")
    return (T.ClampBoundingBoxes(),), image


def _translate_color_jitter(_: SampleTranslator, step: Transform, image: ImageType) -> Translation:
    _refuse_tensors(image)
    ranges = (step.brightness, step.contrast, step.saturation, step.hue)
    return (T.ColorJitter(*(0 if each is None else tuple(each) for each in ranges)),), image


def _translate_distort(_: SampleTranslator, step: Transform, image: ImageType) -> Translation:
    _refuse_tensors(image)
    brightness, contrast, saturation, hue = map(tuple, (step.brightness, step.contrast, step.saturation, step.hue))
    return (T.RandomPhotometricDistort(brightness, contrast, saturation, hue, step.p),), image


def _translate_scale_jitter(_: SampleTranslator, step: Transform, image: ImageType) -> Translation:
    width, height = step.target_size
    return (T.ScaleJitter((height, width), tuple(step.scale_range), translate_filter(step, image)),), image


def _take_corners(op: T.Op) -> T.Op:
    """Give the op torchvision's rule for masks: the pixel at the upper left corner, whatever its interpolation is."""
    if not hasattr(op, "mask_filter"):
        return op
    changed = copy.copy(op)
    set_mask_filter(changed, "nearest")
    return changed


def _refuse_tensors(image: ImageType) -> None:
    if image.kind != "pil":
        raise NotRecognisedError("colours of tensors are rounded otherwise than those of PIL images")


_TRANSLATORS: Final[dict[type, _Translator]] = {
    v2.ClampBoundingBoxes: _translate_clamp,
    v2.ColorJitter: _translate_color_jitter,
    v2.RandomPhotometricDistort: _translate_distort,
    v2.ScaleJitter: _translate_scale_jitter,
    v2.RandomIoUCrop: _translate_iou_crop,
    v2.RandomShortestSize: _translate_shortest_size,
    v2.RandomZoomOut: _translate_zoom_out,
    v2.SanitizeBoundingBoxes: SampleTranslator.sanitize,
}
_ON_PIXELS: Final = (v2.ColorJitter, v2.RandomPhotometricDistort)
