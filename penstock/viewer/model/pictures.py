"""Images of any form as small pictures for a page, and what is said of their values.

Called by :mod:`.steps` and :mod:`.routes`. Nothing here changes an array in place.
"""

from __future__ import annotations

import base64
import contextlib
from typing import Final

import numpy as np

from penstock.errors import ArgumentError, DecodeError
from penstock.sample import Array, Sample
from penstock.sheets.annotated import Annotated
from penstock.sheets.shown_pixels import PixelForm, as_array, to_rgb
from penstock.transforms.inputs import is_encoded, is_pil
from penstock.viewer.browse.layers import JsonObject, make_layers
from penstock.viewer.browse.pictures import PictureForm, make_picture

__all__ = ["describe_value", "draw_sample"]

_LOSSLESS: Final = 128  # pixels across and down, up to which each pixel is seen: pictures are sent without loss


def draw_sample(found: Annotated, form: PixelForm, side: int) -> JsonObject:
    """A sample as JSON: ``picture`` (an address, at most ``side`` pixels), ``width``, ``height``, ``layers``, ...

    Further ``label``, ``values`` (of the image), ``note`` (what was done to show it); or only ``problem``.
    """
    if found.image is None:
        return {"problem": "the sample has no image that can be recognised"}
    try:
        pixels, note = to_rgb(found.image, form)
        height, width = pixels.shape[:2]
        layers = make_layers(found, {}, (width, height))
    except (ArgumentError, DecodeError) as error:
        return {"problem": str(error)[:500]}
    name = dict(enumerate(found.label_classes)).get(found.label or 0, str(found.label))
    is_exact = min(side, max(width, height)) <= _LOSSLESS
    shown = base64.b64encode(make_picture(pixels, PictureForm(side, is_exact=is_exact))).decode("ascii")
    address = f"data:image/{'png' if is_exact else 'webp'};base64,{shown}"
    return {
        "picture": address, "width": width, "height": height, "layers": layers, "note": note,
        "values": describe_value(found.image),
        "label": None if found.label is None else {"class": found.label, "name": name},
    }  # fmt: skip


def describe_value(value: Sample) -> JsonObject:
    """Describe type, dtype, shape and range of a value; of floats mean and standard deviation, too."""
    said: JsonObject = {"type": type(value).__name__}
    if is_encoded(value):
        said["nbytes"] = len(value)
    elif is_pil(value):
        said |= {"shape": [value.height, value.width], "dtype": value.mode}
    elif isinstance(value, str | int | float | bool):
        said["text"] = repr(value)[:200]
    elif hasattr(value, "dtype"):
        said |= {"dtype": str(value.dtype), "shape": list(value.shape)}
        with contextlib.suppress(ArgumentError):
            said |= _describe_numbers(as_array(value))
    return said


def _describe_numbers(array: Array) -> JsonObject:
    if array.dtype.kind not in "iufb" or not array.size:
        return {}
    if array.dtype.kind != "f":
        return {"low": int(array.min()), "high": int(array.max())}
    finite = array[np.isfinite(array)].astype(np.float64)
    said: JsonObject = {"not_finite": array.size - finite.size}
    if finite.size:
        found = {"low": finite.min(), "high": finite.max(), "mean": finite.mean(), "std": finite.std()}
        said |= {name: float(f"{number:.4g}") for name, number in found.items()}
    return said
