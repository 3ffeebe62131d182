"""Padding around an image: Pad, and Letterbox, which first resizes the image to fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.errors import ArgumentError, check_choice
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, Sizes, as_height_width, require_hwc
from penstock.transforms.checks import FLOAT_ADVICE, as_byte_colour, as_colour, as_integer, as_padding, colour_as_dtype
from penstock.transforms.ops.resize import Resize, check_filter, require_resizable, resize_native, resize_reference
from penstock.transforms.pixel_arithmetic import Pixels, paint
from penstock.transforms.program.geometry import Geometry
from penstock.transforms.targets.box_geometry import scale_boxes, scale_points, shift_boxes, shift_points

__all__ = ["Letterbox", "Pad", "put_in_frame"]

_MODES: Final = ("constant", "edge", "reflect")


class Pad(Op):
    """Add rows and columns: ``torchvision.transforms.Pad`` on PIL images.

    Parameters
    ----------
    padding : int or sequence of 1, 2 or 4 ints
        Pixels to add, not negative: on all sides; left-right, top-bottom; or left, top, right, bottom.
    fill : float or (float, float, float)
        Value for "constant", on the scale of the image; integers in [0, 255] for uint8.
    mode : {"constant", "edge", "reflect"}
        ``fill``; the border, repeated; or the mirrored image without its border, repeated if necessary.
    mask_fill : int
        Value for "constant" in masks, in [0, 255].

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Works on uint8 and on floats. Boxes and keypoints are shifted.
    """

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] = 0,
        mode: str = "constant",
        mask_fill: int = 0,
    ) -> None:
        self.padding = as_padding(padding)
        check_choice("mode", mode, _MODES)
        self.fill = as_colour(fill)
        self.mode = mode
        self.mask_fill = as_integer(mask_fill, "mask_fill", 0, 255)

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # nothing drawn
        """Return the size with the padding."""
        left, top, right, bottom = self.padding
        return sizes + np.array([left + right, top + bottom], np.int32)

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return the size with the padding."""
        left, top, right, bottom = self.padding
        width = None if require_hwc(spec, self).width is None else (spec.width or 0) + left + right
        return replace(spec, width=width, height=None if spec.height is None else spec.height + top + bottom)

    def image(self, image: Array, params: Params) -> Array:  # noqa: ARG002  # nothing drawn
        """Pad the image; returns a new array."""
        constant = self.mode == "constant"
        return self._pad(image, colour_as_dtype(self.fill, image.shape, image.dtype, self) if constant else np.empty(0))

    def mask(self, mask: Array, params: Params) -> Array:  # noqa: ARG002  # nothing drawn
        """Pad with ``mask_fill``."""
        return self._pad(mask, np.array(self.mask_fill, mask.dtype))

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Shift."""
        return shift_boxes(boxes, np.array(self.padding))

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Shift."""
        return shift_points(points, np.array(self.padding))

    def _pad(self, image: Array, fill: Array) -> Array:
        left, top, right, bottom = self.padding
        if self.mode == "constant":
            return put_in_frame(image, left, top, image.shape[1] + left + right, image.shape[0] + top + bottom, fill)
        channels = [(0, 0)] * (image.ndim - 2)
        padded: Array = np.pad(image, [(top, bottom), (left, right), *channels], mode=self.mode)  # type: ignore[call-overload]  # one of _MODES
        return padded


class Letterbox(Op):
    """Resize to the largest size that fits, keeping the aspect ratio, and pad both sides equally.

    Parameters
    ----------
    size : int or (int, int)
        A square's side, or (height, width).
    fill : int or (int, int, int)
        Colour of the bars, in [0, 255]; detectors of the YOLO family are trained with 114.
    filter : {"box", "bilinear", "bicubic", "lanczos", "cv2-linear", "cv2-area", "cv2-nearest"}
        Resampling filter, as in :class:`~penstock.transforms.Resize`.
    enlarge : bool
        Whether an image smaller than the size is enlarged; else it is only framed.
    mask_fill : int
        Value of the bars in masks, in [0, 255].

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    The image becomes ``round(side * min(width / image width, height / image height))`` pixels, at least 1; if the
    number of rows or columns to add is odd, the extra one is at the bottom or right. Boxes and keypoints follow. Params
    of a sample: left, top, width and height of the image within the result.
    """

    def __init__(
        self,
        size: int | tuple[int, int],
        fill: int | Sequence[int] = 114,
        filter: str = "bilinear",  # noqa: A002  # Pillow's word
        enlarge: bool = True,
        mask_fill: int = 0,
    ) -> None:
        self.size_ = as_height_width(size, "Letterbox")
        self.fill = as_byte_colour(fill)
        self.filter = check_filter(filter)
        self.enlarge = enlarge
        self.mask_fill = as_integer(mask_fill, "mask_fill", 0, 255)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # nothing random
        """Return the position and size of each image in the frame, (n, 4)."""
        room = np.array(self.size_[::-1], np.int32)
        scale = (room / sizes).min(axis=1, keepdims=True)
        if not self.enlarge:
            scale = np.minimum(scale, 1)
        inner = np.clip(np.rint(sizes * scale), 1, room).astype(np.int32)
        return np.concatenate([(room - inner) // 2, inner], axis=1)

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # whatever it was
        """Return the size of the frame."""
        result = np.empty((len(params), 2), np.int32)
        result[:] = self.size_[::-1]
        return result

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return a spec of fixed size."""
        _require_bytes(require_resizable(spec, self).dtype, self)
        return replace(spec, dtype="uint8", height=self.size_[0], width=self.size_[1])

    def image(self, image: Array, params: Params) -> Pixels:
        """Resize by Pillow, then frame."""
        _require_bytes(image.dtype.name, self)
        return self._frame(resize_reference(image, int(params[2]), int(params[3]), self.filter), params)

    def native(self, image: Array, params: Params) -> Pixels:
        """Resize by the native core, then frame."""
        _require_bytes(image.dtype.name, self)
        return self._frame(resize_native(image, int(params[2]), int(params[3]), self.filter), params)

    def mask(self, mask: Array, params: Params) -> Array:
        """Resize by nearest neighbour, then frame."""
        inner = Resize((int(params[3]), int(params[2]))).mask(mask, params[2:])
        left, top = params[:2].tolist()
        return put_in_frame(inner, left, top, self.size_[1], self.size_[0], np.array(self.mask_fill, mask.dtype))

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Scale, then shift."""
        return shift_boxes(scale_boxes(boxes, params[..., 2:], size), params)

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Scale, then shift."""
        return shift_points(scale_points(points, params[2:], size), params)

    def __repr__(self) -> str:
        return (
            f"Letterbox({self.size_}, fill={self.fill}, filter={self.filter!r}, enlarge={self.enlarge}, "
            f"mask_fill={self.mask_fill})"
        )

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse like a resize, with a colour for the padding."""
        if fusion.resized or fusion.flipped or fusion.scale is not None:
            return False
        if fusion.source != "uint8" or fusion.channels != 3:
            return False
        fusion.resized, fusion.filter, fusion.beside = True, self.filter, self.fill
        return True

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Resize, then frame."""
        geometry.resize(params[:, 2:])
        geometry.frame(params[:, :2], self.size(params, geometry.size))

    def _frame(self, inner: Pixels, params: Params) -> Pixels:
        left, top = params[:2].tolist()
        return put_in_frame(
            inner, left, top, self.size_[1], self.size_[0], colour_as_dtype(self.fill, inner.shape, inner.dtype, self)
        )


def _require_bytes(dtype: str | None, op: Op) -> None:
    if dtype not in {"uint8", None}:
        raise ArgumentError(f"{op!r} needs uint8 images, got {dtype}; {FLOAT_ADVICE}")


def put_in_frame(image: Array, left: int, top: int, width: int, height: int, fill: Array) -> Array:
    """A new array of ``fill`` with ``image`` at (left, top)."""
    framed = np.empty((height, width, *image.shape[2:]), image.dtype)
    bottom, right = top + image.shape[0], left + image.shape[1]
    for bar in (framed[:top], framed[bottom:], framed[top:bottom, :left], framed[top:bottom, right:]):
        paint(bar, fill)
    framed[top:bottom, left:right] = image
    return framed
