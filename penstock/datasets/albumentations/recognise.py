"""Translate a Compose of albumentations 2 to penstock's ops: the image, and what moves with it.

::

    Compose([RandomCrop(256, 256), HorizontalFlip(), RandomBrightnessContrast(), ToTensorV2()], bbox_params=...)
             PlacedCrop            HorizontalFlip    ScaleValues                 ToLayout
             FilterBoxes, Clamp

Only albumentations' own classes are translated, by exact type, and all or none of them; those of its others that change
the image alone are called by an op. The result for the same drawn numbers is albumentations': pixels within one level
where they are resized, else equal; boxes and labels the same. The numbers are drawn by penstock, from the same
distributions, but for an op that calls a transform::

    key of the sample ──draw──> seed ──set_random_seed──> this thread's copy of the transform ──(image=...)──> image

Called by :mod:`penstock.datasets.albumentations.samples`; albumentations is not imported here.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from penstock import transforms as T
from penstock.datasets.albumentations.ops import (
    BoxRules,
    CheckBoxes,
    FilterBoxes,
    FitSides,
    InnerCrop,
    PadToSize,
    PlacedCrop,
    PlacedResizedCrop,
    ScaleValues,
)
from penstock.errors import ArgumentError
from penstock.sample import Array, Index, SampleKeys
from penstock.transforms.base import Params, Sizes, uniforms
from penstock.transforms.pixel_arithmetic import PixelOp

__all__ = ["CalledTransform", "NotCompiledError", "Recognised", "recognise"]

_Transform = Any
_Ops = list[T.Op]

_FILTERS: Final = {0: "cv2-nearest", 1: "cv2-linear", 3: "cv2-area"}
"""OpenCV's numbers of interpolations."""

_METHODS: Final = frozenset({"__call__", "apply", "apply_to_bboxes", "apply_to_mask", "get_params", "should_apply"})
"""What a user may have replaced in an object."""


_OTHER_DTYPES: Final = frozenset({"FromFloat", "Normalize", "ToFloat", "ToRGB", "ToTensorV2"})
"""Transforms of the image alone whose result may have another dtype or shape."""


class NotCompiledError(Exception):
    """Why a Compose is not translated."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """A translated Compose."""

    ops: tuple[T.Op, ...]  # for a pipeline, after Decode
    names: tuple[str, ...]  # class names of the transforms that are native
    called: tuple[str, ...]  # class names of those that are called
    makes_tensors: bool  # whether images become tensors, CHW

    def __str__(self) -> str:
        native = f"native: {', '.join(self.names) or 'decoding'}"
        return f"{native}; called with the image: {', '.join(self.called)}" if self.called else native


def recognise(transform: _Transform, kinds: Iterable[str | None], labels: tuple[Index, ...]) -> Recognised:
    """Translate a Compose, or a single transform.

    Parameters
    ----------
    transform : object
        Of albumentations.
    kinds : iterable of str or None
        The kinds of the fields that it is given.
    labels : tuple of str or int
        The fields with a row for each box.

    Raises
    ------
    NotCompiledError
        If something of it is not recognised: why.
    """
    library: Any = sys.modules.get(type(transform).__module__.partition(".")[0])
    version = str(getattr(library, "__version__", ""))
    if not version.startswith("2.0."):
        raise NotCompiledError(f"albumentations {version} is not known")
    present = frozenset(kind for kind in kinds if kind)
    steps = _steps(transform, library)
    if "keypoints" in present:
        raise NotCompiledError("albumentations mirrors keypoints by pixel numbers")
    rules = _box_rules(transform) if "boxes" in present else None
    translator = _Translator(library, present)
    ops: _Ops = []
    if rules is not None:
        ops += _begin_ops(rules, labels)
    for position, step in enumerate(steps):
        follows = steps[position + 1] if position + 1 < len(steps) else None
        name = type(step).__name__
        try:
            own = translator(step, follows)
        except NotCompiledError as error:
            raise NotCompiledError(f"{name}: {error}") from None
        except (ArgumentError, TypeError, ValueError) as error:
            raise NotCompiledError(f"{name}: penstock does not accept its arguments: {error}") from None
        ops += own
        if rules is not None and (not position or any(map(_changes_sizes, own))):
            ops += _filter(rules, labels)
    if rules is not None and not steps:
        ops += _filter(rules, labels)
    ops.append(T.ToLayout("CHW" if translator.makes_tensors else "HWC", translator.dtype))
    called = tuple(type(op.transform).__name__ for op in ops if isinstance(op, CalledTransform))
    names = tuple(name for step in steps if (name := type(step).__name__) not in called)
    return Recognised(tuple(ops), names, called, translator.makes_tensors)


def _steps(transform: _Transform, library: Any) -> list[_Transform]:
    """Return the transforms of a Compose whose own settings change nothing."""
    if getattr(transform, "seed", None) is not None:
        raise NotCompiledError("its seed asks for albumentations' own numbers")
    if type(transform) is not library.Compose:
        return [transform]
    if transform.p != 1 or transform.additional_targets or transform.save_applied_params or transform.replay_mode:
        raise NotCompiledError("Compose: p, additional_targets or save_applied_params")
    return list(transform.transforms)


def _box_rules(transform: _Transform) -> BoxRules:
    params = transform.processors["bboxes"].params
    if not params.check_each_transform:
        raise NotCompiledError("bbox_params with check_each_transform=False")
    names = "min_area", "min_visibility", "min_width", "min_height", "max_accept_ratio", "clip", "filter_invalid_bboxes"
    return BoxRules(**{name: getattr(params, name) for name in names})


def _begin_ops(rules: BoxRules, labels: tuple[Index, ...]) -> _Ops:
    """Return what is done with boxes before the first transform."""
    ops: _Ops = [T.ClampBoundingBoxes()] if rules.clip else []
    if rules.filter_invalid_bboxes:
        ops += _filter(BoxRules(0, 0, 0, 0, None, rules.clip, filter_invalid_bboxes=True), labels)
    return [*ops, CheckBoxes()]


def _changes_sizes(op: T.Op) -> bool:
    """Return whether a box, or what is seen of it, may have another size after an op; a flip leaves all sizes."""
    return type(op).boxes is not T.Op.boxes and not isinstance(op, T.HorizontalFlip | T.VerticalFlip)


def _filter(rules: BoxRules, labels: tuple[Index, ...]) -> _Ops:
    """Return what is done with boxes after a transform."""
    return [FilterBoxes(rules, labels), T.ClampBoundingBoxes()]


class _Translator:
    """Translates one transform after another, and follows the dtype of the image."""

    def __init__(self, library: Any, present: frozenset[str]) -> None:
        self._by_type = {getattr(library, name, None): translate for name, translate in _TRANSLATORS.items()}
        self.library, self.present = library, present
        self.dtype = "uint8"
        self.makes_tensors = False
        self.follows: _Transform = None
        self.is_padded = False
        """Whether the step before included this one, which pads."""

    def __call__(self, step: _Transform, follows: _Transform) -> _Ops:
        self.follows = follows
        translate = self._by_type.get(type(step), _call)
        if _METHODS & vars(step).keys():
            raise NotCompiledError("it has a method of its own")
        if self.makes_tensors:
            raise NotCompiledError("it follows ToTensorV2")
        if self.dtype != "uint8" and type(step) is not self.library.ToTensorV2:
            raise NotCompiledError(f"the image before it is {self.dtype}")
        return translate(self, step)


def _require_always(step: _Transform) -> None:
    if step.p != 1:
        raise NotCompiledError(f"p={step.p}: images would have several sizes or dtypes")


def _filter_name(translator: _Translator, step: _Transform) -> str:
    """Return the filter of a transform that resizes images, always."""
    _require_always(step)
    if "mask" in translator.present:
        raise NotCompiledError("penstock takes the nearest pixel of a mask by its centre, OpenCV by its corner")
    if step.area_for_downscale is not None:
        raise NotCompiledError("area_for_downscale: its filter depends on the size of the image")
    if step.interpolation not in _FILTERS:
        raise NotCompiledError(f"interpolation={step.interpolation}: one of OpenCV's that penstock does not have")
    return _FILTERS[step.interpolation]


def _call(translator: _Translator, step: _Transform) -> _Ops:
    """Call a transform of albumentations that changes the image alone."""
    library = translator.library
    if type(step) in {library.OneOf, library.SomeOf, library.Sequential, library.RandomOrder}:
        inner: list[_Transform] = [_call(translator, each) for each in step.transforms]
        return [CalledTransform(step)] if inner else []
    is_known = getattr(library, type(step).__name__, None) is type(step)
    if not (is_known and isinstance(step, library.ImageOnlyTransform)) or _METHODS & vars(step).keys():
        raise NotCompiledError(
            "penstock has no op for it, and it is none of albumentations' that change the image alone"
        )
    if type(step).__name__ in _OTHER_DTYPES or step.targets_as_params:
        raise NotCompiledError("penstock has no op for it, and it changes the dtype, or reads other images")
    return [CalledTransform(step)]


def _longest_max_size(translator: _Translator, step: _Transform) -> _Ops:
    name, sides = _filter_name(translator, step), _sides(step)
    if len(sides) == 1 and type(translator.follows) is translator.library.PadIfNeeded:
        size, fill = _read_padding(translator, translator.follows)
        if size == sides[0]:
            translator.is_padded = True
            return [T.Letterbox(size, fill, name)]
    return [FitSides(sides, True, name)]


def _sides(step: _Transform) -> list[tuple[int, int]]:
    """Heights and widths that are asked for, one of which is drawn."""
    if step.max_size is not None:
        listed = [step.max_size] if isinstance(step.max_size, int) else list(step.max_size)
        return [(side, side) for side in listed]
    height, width = step.max_size_hw
    if height is None or width is None:
        raise NotCompiledError(f"max_size_hw={step.max_size_hw}")
    return [(height, width)]


def _pad_if_needed(translator: _Translator, step: _Transform) -> _Ops:
    size, fill = _read_padding(translator, step)
    if translator.is_padded:
        translator.is_padded = False
        return []
    return [PadToSize(size, fill)]


def _read_padding(translator: _Translator, step: _Transform) -> tuple[tuple[int, int], Any]:
    _require_always(step)
    if step.min_height is None or step.min_width is None:
        raise NotCompiledError("pad_height_divisor or pad_width_divisor")
    if step.position != "center" or step.border_mode != 0:
        raise NotCompiledError(f"position={step.position!r}, border_mode={step.border_mode}")
    if "mask" in translator.present and step.fill_mask != 0:
        raise NotCompiledError(f"fill_mask={step.fill_mask}")
    return (step.min_height, step.min_width), step.fill


def _crop_size(step: _Transform) -> tuple[int, int]:
    _require_always(step)
    if step.pad_if_needed:
        raise NotCompiledError("pad_if_needed=True")
    return step.height, step.width


def _brightness_contrast(_: _Translator, step: _Transform) -> _Ops:
    if not step.brightness_by_max or step.ensure_safe_range:
        raise NotCompiledError("brightness_by_max=False or ensure_safe_range=True")
    return [ScaleValues(step.brightness_limit, step.contrast_limit, step.p)]


def _to_gray(_: _Translator, step: _Transform) -> _Ops:
    if step.method != "weighted_average" or step.num_output_channels != 3:
        raise NotCompiledError(f"method={step.method!r}, num_output_channels={step.num_output_channels}")
    return [T.Grayscale(p=step.p)]


def _normalize(translator: _Translator, step: _Transform) -> _Ops:
    _require_always(step)
    if step.normalization != "standard":
        raise NotCompiledError(f"normalization={step.normalization!r}")
    unit = step.max_pixel_value / 255
    translator.dtype = "float32"
    mean, std = ([each * unit for each in _listed(values)] for values in (step.mean, step.std))
    return [T.Normalize(mean, std)]


def _listed(values: float | Iterable[float]) -> list[float]:
    return list(values) if isinstance(values, Iterable) else [values]


def _to_float(translator: _Translator, step: _Transform) -> _Ops:
    _require_always(step)
    if step.max_value not in {None, 255}:
        raise NotCompiledError(f"max_value={step.max_value}")
    translator.dtype = "float32"
    return []


def _to_tensor(translator: _Translator, step: _Transform) -> _Ops:
    _require_always(step)
    translator.makes_tensors = True
    return []


_TRANSLATORS: Final[Mapping[str, Callable[[_Translator, _Transform], _Ops]]] = {
    "CenterCrop": lambda _, step: [InnerCrop(_crop_size(step))],
    "HorizontalFlip": lambda _, step: [T.HorizontalFlip(step.p, [])],
    "InvertImg": lambda _, step: [T.Invert(step.p)],
    "LongestMaxSize": _longest_max_size,
    "NoOp": lambda *_: [],
    "Normalize": _normalize,
    "PadIfNeeded": _pad_if_needed,
    "RandomBrightnessContrast": _brightness_contrast,
    "RandomCrop": lambda _, step: [PlacedCrop(_crop_size(step))],
    "RandomResizedCrop": lambda translator, step: [
        PlacedResizedCrop(tuple(step.size), step.scale, step.ratio, _filter_name(translator, step))
    ],
    "Resize": lambda translator, step: [T.Resize((step.height, step.width), _filter_name(translator, step))],
    "SmallestMaxSize": lambda translator, step: [FitSides(_sides(step), False, _filter_name(translator, step))],
    "ToFloat": _to_float,
    "ToGray": _to_gray,
    "ToTensorV2": _to_tensor,
    "VerticalFlip": lambda _, step: [T.VerticalFlip(step.p)],
}
"""By the names of albumentations' classes."""


class CalledTransform(PixelOp):
    """Calls a transform with the image; its generators are seeded by the key of the sample.

    Parameters
    ----------
    transform : object
        A transform of albumentations 2 that changes only the image, and keeps its shape and dtype; or a OneOf, SomeOf
        or Sequential of such.

    Notes
    -----
    A transform has state: each thread calls a copy of its own. Params of a sample: the seed.
    """

    random: ClassVar[bool] = True

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self._own = threading.local()

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """A seed of 53 bits for each image, (n, 1)."""
        return np.floor(uniforms(keys, stream, 1) * (1 << 53))

    def image(self, image: Array, params: Params) -> Array:
        """Return what the transform returns."""
        own = getattr(self._own, "transform", None)
        if own is None:
            own = self._own.transform = copy.deepcopy(self.transform)
        own.set_random_seed(int(params[0]))
        changed: Array = own(image=np.ascontiguousarray(image))["image"]
        if changed.shape != image.shape or changed.dtype != image.dtype:
            raise ArgumentError(
                f"{type(self.transform).__name__} must keep shape and dtype of the image, {image.shape} and "
                f"{image.dtype}, got {changed.shape} and {changed.dtype}"
            )
        return changed

    def __getstate__(self) -> dict[str, Any]:
        return {"transform": self.transform}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["transform"])  # type: ignore[misc]  # as if made anew

    def __repr__(self) -> str:
        return f"CalledTransform({type(self.transform).__name__})"
