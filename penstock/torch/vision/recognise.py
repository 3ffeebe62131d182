"""Translate torchvision's transforms to penstock's ops, from the first one as far as possible.

::

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor(), Normalize(mean, std), RandomErasing()])
             RandomResizedCrop       HorizontalFlip                       Normalize  ToLayout    │
             └───────────────── ops, after Decode ────────────────────────────────────────────┘  └ remaining: called

Only torchvision's own classes are translated, by exact type, because a subclass may do anything. The type of the image
(PIL image, tensor or ``tv_tensors.Image``, and its dtype) is followed through the transforms, because torchvision's
result depends on it: for example, a PIL image is always resized with antialiasing, a tensor only on request. The
translation ends at the first transform for which penstock would not give the same pixels within one level, or not the
same type. The remaining transforms are called as usual. Nothing is decoded or called here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, _presets, v2
from torchvision.transforms import transforms as v1

from penstock import transforms as T
from penstock.errors import ArgumentError

__all__ = [
    "ImageType",
    "NotRecognisedError",
    "RecognisedTransforms",
    "Transform",
    "Translation",
    "is_modified",
    "recognise",
    "translate_filter",
    "translate_image_transform",
]

Transform = Any
"""One of torchvision's transforms, which have no types, or any other callable."""


@dataclass(frozen=True, slots=True)
class ImageType:
    """The type of an image between two transforms."""

    kind: str = "pil"
    """{"pil", "array", "tensor", "image"}: a PIL image of mode RGB, an HWC array of NumPy, a CHW tensor, or a
    ``tv_tensors.Image``."""
    dtype: str = "uint8"
    """{"uint8", "float32", "float16"}: the dtype. Floats are on the scale 0 to 1 until they are normalised."""


@dataclass(frozen=True, slots=True)
class RecognisedTransforms:
    """The result of :func:`recognise`."""

    ops: tuple[T.Op, ...]  # the translated transforms, for a pipeline after Decode
    image_type: ImageType  # the type of the image after them
    names: tuple[str, ...]  # the class names of the translated transforms
    remaining: tuple[Transform, ...]  # the other transforms, to be called in order
    reason: str  # why the first of them is not translated; empty if there is none

    def __str__(self) -> str:
        native = f"native: {', '.join(self.names) or 'nothing'}"
        if not self.remaining:
            return native
        names = ", ".join(type(transform).__name__ for transform in self.remaining)
        return f"{native}; called as usual: {names} ({self.reason})"


class NotRecognisedError(Exception):
    """Why a transform is not translated."""


Translation = tuple[tuple[T.Op, ...], ImageType]
"""The ops of a transform, and the type of the image after it."""


def translate_image_transform(step: Transform, image: ImageType) -> Translation:
    """Return the translation of one transform of images, for an image of this type.

    Raises
    ------
    NotRecognisedError, ArgumentError, TypeError, ValueError
        If it is not recognised, or penstock does not accept its arguments.
    """
    translator = _TRANSLATORS.get(type(step))
    if translator is None:
        raise NotRecognisedError("penstock has no op for it")
    if image.kind == "array" and type(step) not in _TAKE_ARRAYS:
        raise NotRecognisedError("it gets an array of NumPy; put ToPILImage or ToImage before it")
    if is_modified(step):
        raise NotRecognisedError("it has a hook or a method of its own")
    if image.kind == "image" and type(step) in _V1_TRANSFORMS:
        raise NotRecognisedError("a v1 transform after v2.ToImage")
    return translator(step, image)


def recognise(
    transform: Transform,
    image: ImageType = ImageType(),  # frozen
    translate: Callable[[Transform, ImageType], Translation] = translate_image_transform,
) -> RecognisedTransforms:
    """Translate transforms from the first one as far as possible.

    Parameters
    ----------
    transform : callable
        One of torchvision's (v1 or v2), a Compose or ``nn.Sequential`` of them, or any callable.
    image : ImageType
        The type of the image before the first of them.
    translate : callable
        Translates one transform, as :func:`translate_image_transform` does.

    Returns
    -------
    RecognisedTransforms
        Its ``names`` are empty if the first transform is not recognised.
    """
    steps = _flatten(transform)
    ops: list[T.Op] = []
    count, reason = 0, ""
    for step in steps:
        try:
            more, image = translate(step, image)
        except NotRecognisedError as error:
            reason = f"{type(step).__name__}: {error}"
            break
        except (ArgumentError, TypeError, ValueError) as error:
            reason = f"{type(step).__name__}: penstock does not accept its arguments: {error}"
            break
        ops += more
        count += 1
    if image.kind != "pil":
        ops.append(T.ToLayout("CHW", image.dtype))
    names = tuple(type(step).__name__ for step in steps[:count])
    return RecognisedTransforms(tuple(ops), image, names, tuple(steps[count:]), reason)


_DTYPES: Final = {torch.uint8: "uint8", torch.float32: "float32", torch.float16: "float16"}
_FILTERS: Final = {name: name for name in ("box", "bilinear", "bicubic", "lanczos")}
_PILLOW_NUMBERS: Final = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def _flatten(transform: Transform) -> list[Transform]:
    """Return the transforms of nested containers, in order."""
    if type(transform) in {v1.Compose, v2.Compose} and isinstance(transform.transforms, (list, tuple)):
        inner: Sequence[Transform] = transform.transforms
    elif type(transform) is torch.nn.Sequential:
        inner = list(transform)
    elif type(transform) is _presets.ImageClassification:
        inner = _preset_transforms(transform)
    else:
        return [transform]
    if is_modified(transform):
        return [transform]
    return [step for part in inner for step in _flatten(part)]


def _preset_transforms(preset: Transform) -> list[Transform]:
    """Return the transforms that a classifier's ``weights.transforms()`` applies."""
    return [
        v1.Resize(preset.resize_size, preset.interpolation, antialias=preset.antialias),
        v1.CenterCrop(preset.crop_size),
        v1.PILToTensor(),
        v1.ConvertImageDtype(torch.float32),
        v1.Normalize(preset.mean, preset.std),
    ]


def is_modified(transform: Transform) -> bool:
    """Return whether this object has a hook or a method of its own."""
    own = vars(transform)
    return bool({"forward", "__call__", "transform"} & own.keys()) or any(
        own.get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks")
    )


# geometry


def _translate_resize(step: Transform, image: ImageType) -> Translation:
    if step.size is None:
        raise NotRecognisedError("size=None")
    size = step.size[0] if not isinstance(step.size, int) and len(step.size) == 1 else step.size
    return (T.Resize(size, translate_filter(step, image), step.max_size),), image


def _translate_random_resized_crop(step: Transform, image: ImageType) -> Translation:
    return (T.RandomResizedCrop(tuple(step.size), step.scale, step.ratio, translate_filter(step, image)),), image


def translate_filter(step: Transform, image: ImageType) -> str:
    """The name of the resampling filter, if torchvision's result for this type of image is penstock's."""
    mode = step.interpolation
    name = _PILLOW_NUMBERS.get(mode) if isinstance(mode, int) else InterpolationMode(mode).value
    if name not in _FILTERS:
        raise NotRecognisedError(f"interpolation {name}")
    if image.dtype != "uint8":
        raise NotRecognisedError("torchvision resizes float images without rounding")
    if image.kind != "pil" and step.antialias is not True:
        raise NotRecognisedError("it resizes tensors without antialiasing")
    if image.kind != "pil" and name != "bilinear":
        raise NotRecognisedError(f"{name} on tensors differs from Pillow's")
    return name


def _translate_random_crop(step: Transform, image: ImageType) -> Translation:
    size, padding = tuple(step.size), _read_padding(step)
    if not (padding or step.pad_if_needed):
        return (T.RandomCrop(size),), image
    mode = step.padding_mode
    fill = (step.fill or 0) if mode == "constant" else 0
    if fill != 0 and (image.dtype != "uint8" or not (isinstance(fill, int) or image.kind == "pil")):
        raise NotRecognisedError(f"fill={fill!r} for a {image.dtype} {image.kind}")
    if mode in {"reflect", "symmetric"} and padding and step.pad_if_needed and type(step) is v1.RandomCrop:
        raise NotRecognisedError("it mirrors an image that is too small twice")
    return (T.RandomCrop(size, padding, step.pad_if_needed, fill, mode),), image


def _read_padding(step: Transform) -> int | tuple[int, ...]:
    """Padding in the order of v1: left, top, right, bottom. v2 stores left, right, top, bottom."""
    if type(step) is v2.RandomCrop and step.padding:
        left, right, top, bottom = step.padding
        return left, top, right, bottom
    sides: int | tuple[int, ...] = step.padding or 0
    return sides


# types and values


def _translate_to_picture(step: Transform, image: ImageType) -> Translation:
    if image.kind == "pil" or image.dtype != "uint8" or step.mode not in {None, "RGB"}:
        raise NotRecognisedError(f"mode={step.mode!r} for a {image.dtype} {image.kind}")
    return (), ImageType()


def _translate_to_tensor(step: Transform, image: ImageType) -> Translation:
    if image.kind not in {"pil", "array"}:
        return _keep_tensor(image, is_v2=type(step) is v2.ToTensor)
    dtype = torch.get_default_dtype()
    if dtype != torch.float32:
        raise NotRecognisedError(f"the default dtype is {dtype}")
    return (), ImageType("tensor", "float32")


def _translate_pil_to_tensor(step: Transform, image: ImageType) -> Translation:
    if image.kind != "pil":
        return _keep_tensor(image, is_v2=type(step) is v2.PILToTensor)
    return (), ImageType("tensor")


def _keep_tensor(image: ImageType, *, is_v2: bool) -> Translation:
    """A tensor is passed to a transform that makes tensors: v2 returns it unchanged, v1 raises."""
    if not is_v2:
        raise NotRecognisedError("it takes PIL images, got a tensor")
    return (), image


def _translate_to_dtype(step: Transform, image: ImageType) -> Translation:
    if image.kind == "pil":
        return (), image  # v2.ToDtype returns PIL images unchanged
    dtype = step.dtype
    if isinstance(dtype, dict):
        own = torch.Tensor if image.kind == "tensor" else tv_tensors.Image
        if own not in dtype and "others" not in dtype:
            raise NotRecognisedError("its dtype has neither this type nor 'others'")
        dtype = dtype[own] if own in dtype else dtype["others"]
        if dtype is None:
            return (), image
    return _convert_dtype(dtype, image, scale=step.scale)


def _translate_convert_image_dtype(step: Transform, image: ImageType) -> Translation:
    if image.kind == "pil":
        raise NotRecognisedError("it takes tensors, got a PIL image")
    return _convert_dtype(step.dtype, image, scale=True)


def _convert_dtype(dtype: torch.dtype, image: ImageType, *, scale: bool) -> Translation:
    name = _DTYPES.get(dtype)
    if name is None:
        raise NotRecognisedError(f"dtype must be uint8, float16 or float32, got {dtype}")
    if name != image.dtype and name == "uint8":
        raise NotRecognisedError("penstock does not convert floats to uint8")
    if image.dtype == "uint8" and name != "uint8" and not scale:
        raise NotRecognisedError("penstock does not support scale=False")
    return (), replace(image, dtype=name)


def _translate_normalize(step: Transform, image: ImageType) -> Translation:
    if image.kind == "pil" or image.dtype == "uint8":
        raise NotRecognisedError(f"it takes float tensors, got {image}")
    mean, std = ([float(v) for v in numbers] for numbers in (step.mean, step.std))
    return (T.Normalize(mean, std),), image


_BY_NAME: Final[dict[str, Callable[[Transform, ImageType], Translation]]] = {
    "CenterCrop": lambda step, image: ((T.CenterCrop(tuple(step.size)),), image),
    "ConvertImageDtype": _translate_convert_image_dtype,
    "Identity": lambda _, image: ((), image),
    "Normalize": _translate_normalize,
    "PILToTensor": _translate_pil_to_tensor,
    "RandomCrop": _translate_random_crop,
    "RandomHorizontalFlip": lambda step, image: ((T.HorizontalFlip(step.p, []),), image),
    "RandomResizedCrop": _translate_random_resized_crop,
    "RandomVerticalFlip": lambda step, image: ((T.VerticalFlip(step.p),), image),
    "Resize": _translate_resize,
    "ToDtype": _translate_to_dtype,
    "ToImage": lambda _, image: ((), replace(image, kind="image")),
    "ToPILImage": _translate_to_picture,
    "ToPureTensor": lambda _, image: ((), replace(image, kind="tensor") if image.kind == "image" else image),
    "ToTensor": _translate_to_tensor,
}
"""Transforms of v1 and v2; v1 does not have all of them."""

_TRANSLATORS: Final[dict[type, Callable[[Transform, ImageType], Translation]]] = {
    getattr(library, name): translate
    for library in (v1, v2)
    for name, translate in _BY_NAME.items()
    if hasattr(library, name)
} | {torch.nn.Identity: _BY_NAME["Identity"]}

_TAKE_ARRAYS: Final = frozenset({v1.ToTensor, v2.ToTensor, v2.ToImage, v1.ToPILImage, v2.ToPILImage})
_V1_TRANSFORMS: Final = frozenset(kind for kind in _TRANSLATORS if kind.__module__ == v1.__name__)
"""They turn a ``tv_tensors.Image`` into a plain tensor."""
