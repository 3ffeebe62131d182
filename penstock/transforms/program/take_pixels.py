"""The first op of a pipeline over a store of pixels, in place of ``Decode``."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from penstock.errors import ArgumentError
from penstock.pixel_rows import to_rgb
from penstock.sample import Array
from penstock.transforms.base import Fusion, ImageLike, ImageSpec, Op, Params
from penstock.transforms.decoding.decode import Decode

__all__ = ["TakePixels"]


class TakePixels(Op):
    """In place of Decode, where images are stored as their pixels: these are kept, and encoded images are decoded.

    Parameters
    ----------
    decode : Decode
        The op that it replaces.
    is_mixed : bool
        Whether gray and colour pictures are side by side: then all become RGB, unless the mode is "unchanged".

    Raises
    ------
    ArgumentError
        If it converts images to another mode, which pixels that are stored do not have.
    """

    takes_pixels: ClassVar[bool] = False

    def __init__(self, decode: Decode, *, is_mixed: bool = False) -> None:
        if decode.mode not in {"RGB", "unchanged"} or decode.frame or decode.to_srgb:
            raise ArgumentError(
                f"{decode!r} cannot convert images that are stored as their pixels; leave out mode, frame and to_srgb"
            )
        self.decode = decode
        self.converts = is_mixed and decode.mode == "RGB"

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Three channels, where images are converted."""
        return replace(spec, channels=3) if self.converts else spec

    def image(self, image: ImageLike, params: Params) -> Array:
        """The image itself, if it is an array of pixels, or in three channels."""
        if not isinstance(image, np.ndarray) or image.ndim != 3:
            return self.decode.image(image, params)
        return to_rgb(image) if self.converts else image

    def mask(self, mask: ImageLike, params: Params) -> Array:
        """As :meth:`Decode.mask`."""
        return self.decode.mask(mask, params)

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse where images are stored as their pixels: nothing happens to them."""
        return fusion.stored
