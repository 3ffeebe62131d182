"""The last op: dtype and order of axes for the model."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from penstock import bfloat16
from penstock.bfloat16 import array_dtype
from penstock.errors import ArgumentError
from penstock.sample import Array
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, require_hwc
from penstock.transforms.pixel_arithmetic import MAXIMA, is_colour, write_row

__all__ = ["ToLayout"]

_DTYPES: Final = ("uint8", "float16", "bfloat16", "float32")
_UNITS: Final = {dtype: np.float32(1 / largest) for dtype, largest in MAXIMA.items()}


class ToLayout(Op):
    """Bring images to a layout and dtype.

    Parameters
    ----------
    layout : {"CHW", "HWC"}
        Order of axes.
    dtype : {"uint8", "float16", "bfloat16", "float32"}
        A uint8 image becomes float on the scale 0 to 1, like torchvision's ToTensor (``value * (1 / 255)`` in
        float32, within one unit in the last place of torchvision's ``value / 255``), a uint16 image in the same way by
        ``1 / 65535``; a float image, also after Normalize, keeps its values. float16 and bfloat16 are rounded from
        float32 to nearest even.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Of bfloat16, a torch loader makes ``torch.bfloat16`` tensors. NumPy has no such dtype: arrays have that of the
    package ``ml_dtypes``. If it is not installed, a NumPy loader refuses, and a sample that is read by itself has a
    record dtype of one field, ``bfloat16``, with the bits.
    """

    def __init__(self, layout: str = "CHW", dtype: str = "float32") -> None:
        if layout not in {"CHW", "HWC"} or dtype not in _DTYPES:
            raise ArgumentError(
                f"layout must be 'CHW' or 'HWC', and dtype one of {', '.join(_DTYPES)}, got {layout!r} and {dtype!r}"
            )
        self.layout = layout
        self.dtype = dtype

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec with the op's layout and dtype."""
        self._check(require_hwc(spec, self).dtype)
        return replace(spec, layout=self.layout, dtype=self.dtype)

    def image(self, image: Array, params: Params) -> Array:  # noqa: ARG002  # nothing to draw
        """Return a C-contiguous array; the same one where nothing changes."""
        self._check(image.dtype.name)
        if image.ndim == 2:
            image = image[:, :, None]
        if self.layout == "CHW":
            image = image.transpose(2, 0, 1)
        unit = _UNITS.get(image.dtype.name)
        if unit is not None and self.dtype != "uint8":
            image = image.astype(np.float32) * unit
        if self.dtype == bfloat16.NAME:
            return bfloat16.from_floats(image.astype(np.float32, copy=False))
        return np.ascontiguousarray(image.astype(self.dtype, copy=False))

    def native(self, image: Array, params: Params) -> Array:
        """Apply; to uint8 by the native core, where values or axes change."""
        if not is_colour(image) or (self.layout, self.dtype) == ("HWC", "uint8"):
            return self.image(image, params)
        height, width = image.shape[:2]
        out = np.empty(
            (1, height, width, 3) if self.layout == "HWC" else (1, 3, height, width), array_dtype(self.dtype)
        )
        if self.dtype == "uint8":
            write_row(image, out, self.layout)
        else:
            write_row(image, out, self.layout, (float(_UNITS["uint8"]),) * 3, (0.0,) * 3)
        laid: Array = out[0]
        return laid

    def fuse(self, fusion: Fusion) -> bool:
        """End the fused prefix."""
        fusion.layout, fusion.dtype, fusion.final = self.layout, self.dtype, True
        unit = _UNITS.get(fusion.source)
        if self.dtype != "uint8" and fusion.scale is None and unit is not None:
            fusion.scale, fusion.offset = (float(unit),) * fusion.channels, (0.0,) * fusion.channels
        return True

    def _check(self, dtype: str | None) -> None:
        if dtype == bfloat16.NAME:
            raise ArgumentError(f"{self!r} needs images before ToLayout to bfloat16; use one ToLayout, at the end")
        if self.dtype == "uint8" and dtype not in {"uint8", None}:
            raise ArgumentError(
                f"{self!r} needs uint8 images, got {dtype}, whose values uint8 cannot hold; leave Normalize out, or "
                "give a float dtype"
            )
