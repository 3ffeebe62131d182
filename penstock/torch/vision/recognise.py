"""torchvision's transforms in penstock's words: which of them run natively, and what the others are then given.

::

    Compose([RandomResizedCrop(224), RandomHorizontalFlip(), ToTensor(), Normalize(mean, std), RandomErasing()])
             RandomResizedCrop       HorizontalFlip                       Normalize  ToLayout    │
             └───────────────── ops, behind Decode ───────────────────────────────────────────┘  └ rest: as it is

Only torchvision's own classes count, by exact type: a subclass may do anything. A value is followed through the
transforms (PIL image, tensor, ``tv_tensors.Image``; its dtype), because what torchvision does hangs on it: a PIL image
is always resized with antialiasing, a tensor only if it is asked for, and by other arithmetic. Where penstock
would not give the same pixels within one level, or the same type, the list ends; the rest stay ordinary callables.
Nothing is drawn, decoded or called here.
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

__all__ = ["Recognised", "Value", "recognise"]


@dataclass(frozen=True, slots=True)
class Value:
    """What one transform hands to the next.

    Parameters
    ----------
    kind : {"pil", "tensor", "image"}
        A PIL image of mode RGB, HWC; or a CHW tensor, ``image`` being a ``tv_tensors.Image``.
    dtype : {"uint8", "float32", "float16"}
        Floats are on the scale 0 to 1 until they are normalised.
    """

    kind: str = "pil"
    dtype: str = "uint8"


@dataclass(frozen=True, slots=True)
class Recognised:
    """What became of a transform.

    Parameters
    ----------
    ops : tuple of Op
        For a pipeline, behind Decode.
    value : Value
        What the transforms that became ops would have given.
    taken : tuple of str
        The names of those.
    rest : tuple of callable
        The transforms behind them, to be called in order with that value.
    reason : str
        Why the first of the rest is not among the ops; empty if there is none.
    """

    ops: tuple[T.Op, ...]
    value: Value
    taken: tuple[str, ...]
    rest: tuple[Callable[[Any], Any], ...]
    reason: str

    def __str__(self) -> str:
        native = f"native: {', '.join(self.taken) or 'nothing'}"
        if not self.rest:
            return native
        names = ", ".join(type(transform).__name__ for transform in self.rest)
        return f"{native}; as they are: {names} ({self.reason})"


def recognise(transform: Any) -> Recognised:
    """Translate as many transforms as can be, from the first.

    Parameters
    ----------
    transform : callable
        One of torchvision's (v1 or v2), a Compose or ``nn.Sequential`` of them, or any callable.

    Returns
    -------
    Recognised
        With no ``taken`` where already the first transform is not recognised.
    """
    steps = _flattened(transform)
    ops: list[T.Op] = []
    value, taken, reason = Value(), 0, ""
    for step in steps:
        try:
            more, value = _translate(step, value)
        except _NotRecognisedError as error:
            reason = f"{type(step).__name__}: {error}"
            break
        except (ArgumentError, TypeError, ValueError) as error:
            reason = f"{type(step).__name__}: its settings are none of penstock's: {error}"
            break
        ops += more
        taken += 1
    if value.kind != "pil":
        ops.append(T.ToLayout("CHW", value.dtype))
    names = tuple(type(step).__name__ for step in steps[:taken])
    return Recognised(tuple(ops), value, names, tuple(steps[taken:]), reason)


class _NotRecognisedError(Exception):
    """Why one transform is left as it is."""


_Step = tuple[tuple[T.Op, ...], Value]

_DTYPES: Final = {torch.uint8: "uint8", torch.float32: "float32", torch.float16: "float16"}
_FILTERS: Final = {name: name for name in ("box", "bilinear", "bicubic", "lanczos")}
_PILLOW_NUMBERS: Final = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def _flattened(transform: Any) -> list[Any]:
    """The transforms of nested containers, in order."""
    if type(transform) in {v1.Compose, v2.Compose} and isinstance(transform.transforms, (list, tuple)):
        inner: Sequence[Any] = transform.transforms
    elif type(transform) is torch.nn.Sequential:
        inner = list(transform)
    elif type(transform) is _presets.ImageClassification:
        inner = _preset(transform)
    else:
        return [transform]
    if _changed(transform):
        return [transform]
    return [step for part in inner for step in _flattened(part)]


def _preset(preset: Any) -> list[Any]:
    """What ``weights.transforms()`` of a classifier does, as transforms."""
    return [
        v1.Resize(preset.resize_size, preset.interpolation, antialias=preset.antialias),
        v1.CenterCrop(preset.crop_size),
        v1.PILToTensor(),
        v1.ConvertImageDtype(torch.float32),
        v1.Normalize(preset.mean, preset.std),
    ]


def _changed(transform: Any) -> bool:
    """Whether somebody hung a hook or a method on this one object."""
    own = vars(transform)
    return bool({"forward", "__call__", "transform"} & own.keys()) or any(
        own.get(hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks")
    )


def _translate(step: Any, value: Value) -> _Step:
    translator = _TRANSLATORS.get(type(step))
    if translator is None:
        raise _NotRecognisedError("it is none of torchvision's that penstock has an op for")
    if _changed(step):
        raise _NotRecognisedError("it carries a hook or a method of its own")
    if value.kind == "image" and type(step) in _OLD:
        raise _NotRecognisedError("a transform of v1 behind v2.ToImage")
    return translator(step, value)


# geometry


def _resize(step: Any, value: Value) -> _Step:
    if step.size is None:
        raise _NotRecognisedError("size=None")
    size = step.size[0] if not isinstance(step.size, int) and len(step.size) == 1 else step.size
    return (T.Resize(size, _filter(step, value), step.max_size),), value


def _random_resized_crop(step: Any, value: Value) -> _Step:
    return (T.RandomResizedCrop(tuple(step.size), step.scale, step.ratio, _filter(step, value)),), value


def _filter(step: Any, value: Value) -> str:
    """The resampling filter, if what torchvision does with it on such a value is what penstock does."""
    mode = step.interpolation
    name = _PILLOW_NUMBERS.get(mode) if isinstance(mode, int) else InterpolationMode(mode).value
    if name not in _FILTERS:
        raise _NotRecognisedError(f"interpolation {name}")
    if value.dtype != "uint8":
        raise _NotRecognisedError("float images are resized without rounding")
    if value.kind != "pil" and step.antialias is not True:
        raise _NotRecognisedError("tensors are resized without antialiasing")
    if value.kind != "pil" and name != "bilinear":
        raise _NotRecognisedError(f"torch's {name} on tensors is not Pillow's")
    return name


def _center_crop(step: Any, value: Value) -> _Step:
    return (T.CenterCrop(tuple(step.size)),), value


def _random_crop(step: Any, value: Value) -> _Step:
    size, padding = tuple(step.size), _sides(step)
    if not (padding or step.pad_if_needed):
        return (T.RandomCrop(size),), value
    mode = step.padding_mode
    fill = (step.fill or 0) if mode == "constant" else 0
    if fill != 0 and (value.dtype != "uint8" or not (isinstance(fill, int) or value.kind == "pil")):
        raise _NotRecognisedError(f"fill={fill!r} of a {value.dtype} {value.kind}")
    if mode in {"reflect", "symmetric"} and padding and step.pad_if_needed and type(step) is v1.RandomCrop:
        raise _NotRecognisedError("an image that is too small would be mirrored twice")
    return (T.RandomCrop(size, padding, step.pad_if_needed, fill, mode),), value


def _sides(step: Any) -> Any:
    """Padding as v1 takes it; v2 keeps left, right, top, bottom."""
    if type(step) is v2.RandomCrop and step.padding:
        left, right, top, bottom = step.padding
        return left, top, right, bottom
    return step.padding or 0


def _horizontal_flip(step: Any, value: Value) -> _Step:
    return (T.HorizontalFlip(step.p),), value


def _vertical_flip(step: Any, value: Value) -> _Step:
    return (T.VerticalFlip(step.p),), value


# types and values


def _to_tensor(step: Any, value: Value) -> _Step:
    if value.kind != "pil":
        return _passed(value, is_v2=type(step) is v2.ToTensor)
    dtype = torch.get_default_dtype()
    if dtype != torch.float32:
        raise _NotRecognisedError(f"the default dtype is {dtype}")
    return (), Value("tensor", "float32")


def _pil_to_tensor(step: Any, value: Value) -> _Step:
    if value.kind != "pil":
        return _passed(value, is_v2=type(step) is v2.PILToTensor)
    return (), Value("tensor")


def _passed(value: Value, *, is_v2: bool) -> _Step:
    """A tensor, given to what makes tensors: v2 passes it on, v1 raises."""
    if not is_v2:
        raise _NotRecognisedError("it takes PIL images, and would be given a tensor")
    return (), value


def _to_image(step: Any, value: Value) -> _Step:  # noqa: ARG001  # it has no settings
    return (), replace(value, kind="image")


def _to_pure_tensor(step: Any, value: Value) -> _Step:  # noqa: ARG001  # it has no settings
    return (), replace(value, kind="tensor") if value.kind == "image" else value


def _identity(step: Any, value: Value) -> _Step:  # noqa: ARG001  # it has no settings
    return (), value


def _to_dtype(step: Any, value: Value) -> _Step:
    if value.kind == "pil":
        return (), value  # v2.ToDtype passes PIL images on
    dtype = step.dtype
    if isinstance(dtype, dict):
        own = torch.Tensor if value.kind == "tensor" else tv_tensors.Image
        if own not in dtype and "others" not in dtype:
            raise _NotRecognisedError("its dtype names neither this type nor others")
        dtype = dtype[own] if own in dtype else dtype["others"]
        if dtype is None:
            return (), value
    return _converted(dtype, value, scale=step.scale)


def _convert_image_dtype(step: Any, value: Value) -> _Step:
    if value.kind == "pil":
        raise _NotRecognisedError("it takes tensors, and would be given a PIL image")
    return _converted(step.dtype, value, scale=True)


def _converted(dtype: torch.dtype, value: Value, *, scale: bool) -> _Step:
    name = _DTYPES.get(dtype)
    if name is None:
        raise _NotRecognisedError(f"penstock gives uint8, float16 and float32, not {dtype}")
    if name != value.dtype and name == "uint8":
        raise _NotRecognisedError("floats are not brought back to uint8")
    if value.dtype == "uint8" and name != "uint8" and not scale:
        raise _NotRecognisedError("scale=False keeps values at 0..255")
    return (), replace(value, dtype=name)


def _normalize(step: Any, value: Value) -> _Step:
    if value.kind == "pil" or value.dtype == "uint8":
        raise _NotRecognisedError(f"it takes float tensors, and would be given {value}")
    mean, std = ([float(v) for v in numbers] for numbers in (step.mean, step.std))
    return (T.Normalize(mean, std),), value


_TRANSLATORS: Final[dict[type, Callable[[Any, Value], _Step]]] = {
    torch.nn.Identity: _identity,
    v1.CenterCrop: _center_crop,
    v1.ConvertImageDtype: _convert_image_dtype,
    v1.Normalize: _normalize,
    v1.PILToTensor: _pil_to_tensor,
    v1.RandomCrop: _random_crop,
    v1.RandomHorizontalFlip: _horizontal_flip,
    v1.RandomResizedCrop: _random_resized_crop,
    v1.RandomVerticalFlip: _vertical_flip,
    v1.Resize: _resize,
    v1.ToTensor: _to_tensor,
    v2.CenterCrop: _center_crop,
    v2.ConvertImageDtype: _convert_image_dtype,
    v2.Identity: _identity,
    v2.Normalize: _normalize,
    v2.PILToTensor: _pil_to_tensor,
    v2.RandomCrop: _random_crop,
    v2.RandomHorizontalFlip: _horizontal_flip,
    v2.RandomResizedCrop: _random_resized_crop,
    v2.RandomVerticalFlip: _vertical_flip,
    v2.Resize: _resize,
    v2.ToDtype: _to_dtype,
    v2.ToImage: _to_image,
    v2.ToPureTensor: _to_pure_tensor,
    v2.ToTensor: _to_tensor,
}

_OLD: Final = frozenset(kind for kind in _TRANSLATORS if kind.__module__ == v1.__name__)
"""v1's: they do not keep a ``tv_tensors.Image`` what it is."""
