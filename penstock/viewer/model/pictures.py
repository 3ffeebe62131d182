"""Images of any form as small pictures for a page, and what is said of their values.

Called by :mod:`.steps` and :mod:`.batches`. Nothing here changes an array in place.
"""

from __future__ import annotations

import base64
import io
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, DecodeError
from penstock.sample import Array, Sample
from penstock.transforms.inputs import is_encoded, is_pil
from penstock.view.annotated import Annotated
from penstock.view.shown_pixels import PixelForm, as_array, to_rgb
from penstock.viewer.browse.layers import make_layers

__all__ = ["describe_value", "draw_sample", "to_data_url"]

_LOSSLESS: Final = 128 * 128
"""Pictures of at most so many pixels are sent without loss: each of their pixels is seen."""


def to_data_url(pixels: NDArray[np.uint8], side: int) -> str:
    """A picture (H, W, 3) whose longer side is at most ``side`` pixels, as the address of an image."""
    from PIL import Image

    picture = Image.fromarray(np.ascontiguousarray(pixels))
    picture.thumbnail((side, side), Image.Resampling.BOX, reducing_gap=None)
    file = io.BytesIO()
    is_small = picture.width * picture.height <= _LOSSLESS
    picture.save(file, "PNG" if is_small else "WEBP", **({} if is_small else {"quality": 85, "method": 0}))
    return f"data:image/{'png' if is_small else 'webp'};base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def draw_sample(found: Annotated, form: PixelForm, side: int) -> tuple[dict[str, Any], NDArray[np.uint8] | None]:
    """A sample as JSON, and its image as uint8 RGB; None where it has none that can be shown.

    The JSON has ``picture`` (an address), ``width``, ``height``, ``layers``, ``values`` (of the image), ``note`` (what
    was done to show it), or ``problem``.
    """
    if found.image is None:
        return {"problem": "the sample has no image that can be recognised"}, None
    try:
        pixels, note = to_rgb(found.image, form)
        height, width = pixels.shape[:2]
        layers = make_layers(found, {}, (width, height))
    except (ArgumentError, DecodeError) as error:
        return {"problem": str(error)[:500]}, None
    label = None if found.label is None else {"class": found.label, "name": _name_class(found)}
    return {
        "picture": to_data_url(pixels, side), "width": width, "height": height, "layers": layers, "note": note,
        "values": describe_value(found.image), "label": label,
    }, pixels  # fmt: skip


def describe_value(value: Sample) -> dict[str, Any]:
    """Type, dtype, shape and range of a value; of floats mean and standard deviation, too."""
    said: dict[str, Any] = {"type": type(value).__name__}
    if is_encoded(value):
        return {**said, "nbytes": len(value)}
    if is_pil(value):
        return {**said, "shape": [value.height, value.width], "dtype": value.mode}
    if not hasattr(value, "dtype"):
        return {**said, "text": repr(value)[:200]} if isinstance(value, str | int | float | bool) else said
    said |= {"dtype": str(value.dtype), "shape": list(value.shape)}
    try:
        array = as_array(value)
    except ArgumentError:
        return said
    return {**said, **_describe_numbers(array)}


def _describe_numbers(array: Array) -> dict[str, Any]:
    if array.dtype.kind not in "iufb" or not array.size:
        return {}
    if array.dtype.kind != "f":
        return {"low": int(array.min()), "high": int(array.max())}
    finite = array[np.isfinite(array)].astype(np.float64)
    if finite.size == 0:
        return {"not_finite": array.size}
    found = {"low": finite.min(), "high": finite.max(), "mean": finite.mean(), "std": finite.std()}
    said: dict[str, Any] = {name: float(f"{number:.4g}") for name, number in found.items()}
    return {**said, "not_finite": array.size - finite.size} if finite.size < array.size else said


def _name_class(found: Annotated) -> str:
    number = found.label
    known = number is not None and 0 <= number < len(found.label_classes)
    return found.label_classes[number] if known and number is not None else str(number)
