"""Images as a loader gives them, as uint8 RGB for a person: any layout and dtype, normalisation undone.

Called by :mod:`.tiles`. Nothing here changes an array in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from penstock.bfloat16 import to_floats
from penstock.errors import ArgumentError
from penstock.sample import Array
from penstock.sheets.canvas import as_rgb
from penstock.transforms.decoding.decode import Decode, decode
from penstock.transforms.inputs import is_encoded, is_pil

__all__ = ["PixelForm", "as_array", "to_mask", "to_rgb"]

_CHANNELS = frozenset({1, 2, 3, 4})


@dataclass(frozen=True, slots=True)
class PixelForm:
    """What the ops of a transform do to the form of its images."""

    layout: str | None = None  # {"HWC", "CHW"} or None: order of the axes of the results; None if it is unknown
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    """``mean`` and ``std``: of the last op that normalises: ``(value - mean) / std`` of values from 0 to 1."""
    orient: bool = False  # whether encoded images are turned by their Exif orientation

    @classmethod
    def of(cls, transform: object) -> Self:
        """Return the form of the results of a pipeline, a list of ops, or a container of transforms (``Compose``)."""
        layout = mean = std = None
        for op in _iterate_ops(transform):
            name = type(op).__name__
            if name == "ToLayout" and hasattr(op, "layout"):
                layout = op.layout
            elif name == "Normalize" and hasattr(op, "mean") and hasattr(op, "std"):
                mean, std = (tuple(np.ravel(values).astype(float).tolist()) for values in (op.mean, op.std))
        return cls(layout, mean, std)


def _iterate_ops(transform: object) -> Iterable[object]:
    inner = transform
    if not isinstance(inner, list | tuple):
        inner = getattr(transform, "ops", None) or getattr(transform, "transforms", None)
    if not isinstance(inner, list | tuple):
        yield transform
        return
    for op in inner:
        yield from _iterate_ops(op)


def to_rgb(image: object, form: PixelForm) -> tuple[NDArray[np.uint8], str]:
    """Return an image as uint8 RGB, (H, W, 3), and what was done to its values for that; empty if nothing was.

    Raises ArgumentError if it is no image. Raises DecodeError if it is encoded, and cannot be decoded.
    """
    if is_encoded(image):
        return decode(image, orient=form.orient), ""
    array = np.asarray(image.convert("RGB")) if is_pil(image) and hasattr(image, "convert") else as_array(image)
    array = array[:, :, None] if array.ndim == 2 else array
    if array.ndim != 3 or 0 in array.shape:
        raise ArgumentError(f"an image must have two or three axes, none of length 0, got {array.dtype} {array.shape}")
    if form.layout == "CHW" or (
        form.layout is None and array.shape[0] in _CHANNELS and array.shape[2] not in _CHANNELS
    ):
        array = array.transpose(1, 2, 0)
    if array.dtype.kind == "f":
        return _scale_floats(array, form)
    if array.dtype == np.bool_:
        return as_rgb(array.astype(np.uint8) * np.uint8(255)), ""
    return as_rgb(array), "" if array.dtype == np.uint8 else str(array.dtype)


def to_mask(mask: object) -> Array:
    """Return a mask as integers, (H, W), or (n, H, W) for one of each object.

    Raises ArgumentError if it is no mask. Raises DecodeError if it is encoded, and cannot be decoded.
    """
    array = Decode().mask(mask, np.empty(0)) if is_encoded(mask) or is_pil(mask) else as_array(mask)
    if array.ndim == 3 and array.shape[2] == 1 and array.shape[0] != 1:
        array = array[:, :, 0]
    if array.ndim not in {2, 3} or array.dtype.kind not in "iubf":
        raise ArgumentError(f"a mask must have the shape (H, W), got {array.dtype} {array.shape}")
    if array.dtype.kind == "f":
        array = np.clip(np.nan_to_num(array.astype(np.float64)), -(1 << 31), 1 << 31)
    return array.astype(np.int64)


def as_array(value: object) -> Array:
    """Return an array, a list of numbers, or a tensor of any device, as an array.

    Raises ArgumentError if it is none of these.
    """
    if hasattr(value, "detach"):
        tensor = value.detach().cpu()
        value = tensor.float() if "bfloat16" in str(tensor.dtype) else tensor
    try:
        return to_floats(np.asarray(value))
    except (TypeError, ValueError, OverflowError) as error:  # lists of lists of different lengths
        raise ArgumentError(f"a value must be an array, got {type(value).__name__}: {error}") from error


def _scale_floats(array: Array, form: PixelForm) -> tuple[NDArray[np.uint8], str]:
    values = np.nan_to_num(array.astype(np.float64), posinf=0, neginf=0)
    note = str(array.dtype)
    if form.mean is not None and form.std is not None and len(form.mean) in {1, values.shape[2]}:
        values, note = values * np.array(form.std) + np.array(form.mean), f"{note}, normalised"
    elif values.min() < -1e-3 or values.max() > 1.001:
        low, high = float(values.min()), float(values.max())
        values, note = (values - low) / max(high - low, 1e-12), f"{note}, {low:.3g} to {high:.3g}"
    return as_rgb((np.clip(values, 0, 1) * 255 + 0.5).astype(np.uint8)), note
