"""Cropping: a window of the image, with zeros where the window reaches outside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError, check_choice
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, Sizes, as_height_width, require_hwc, uniforms
from penstock.transforms.checks import as_byte_colour, as_padding, as_range, colour_as_dtype
from penstock.transforms.ops.resize import (
    Resize,
    check_filter,
    require_integers,
    require_resizable,
    resize_native,
    resize_reference,
    set_mask_filter,
)
from penstock.transforms.program.geometry import Geometry
from penstock.transforms.targets.box_geometry import (
    clip_boxes,
    scale_boxes,
    scale_points,
    shift_boxes,
    shift_points,
    visible_shares,
)

__all__ = ["CenterCrop", "RandomCrop", "RandomResizedCrop"]


class CropOp(Op):
    """Base class of crops; params: left, top, width, height of the window, in pixels of the image."""

    may_pad: ClassVar[bool] = True

    @property
    def pads_with_zeros(self) -> bool:
        """Whether windows may leave the image, and hold zeros there."""
        return self.may_pad

    def __init__(self, size: int | tuple[int, int]) -> None:
        self.size_ = as_height_width(size, type(self).__name__)

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # the window decides
        """Return the size of the window."""
        return params[:, 2:4]

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return a spec of fixed size."""
        return replace(require_hwc(spec, self), height=self.size_[0], width=self.size_[1])

    def image(self, image: Array, params: Params) -> Array:
        """Return the window; a view if it is inside the image."""
        return _window(image, params)

    def mask(self, mask: Array, params: Params) -> Array:
        """Cut the window from the mask."""
        return _window(mask, params)

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Shift and clip to the window; a box outside is kept with zero area, so that labels stay aligned."""
        return clip_boxes(shift_boxes(boxes, -params), params[..., 2:4])

    def place(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Shift."""
        return shift_boxes(boxes, -params)

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:  # noqa: ARG002
        """Shift; points outside the window are kept."""
        return shift_points(points, -params)

    def fuse(self, fusion: Fusion) -> bool:  # noqa: ARG002  # a crop always fuses
        """Fuse always."""
        return True

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Crop."""
        geometry.crop(params, may_pad=self.may_pad)


class CenterCrop(CropOp):
    """The central window, as ``torchvision.transforms.CenterCrop``; a smaller image is padded with zeros.

    Parameters
    ----------
    size : int or (int, int)
        A square's side, or (height, width).

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # nothing random
        """Return the window of each image."""
        height, width = self.size_
        windows = [(_middle(w - width), _middle(h - height), width, height) for w, h in sizes.tolist()]
        return np.array(windows, np.int32).reshape(-1, 4)

    def __repr__(self) -> str:
        return f"CenterCrop({self.size_})"


class RandomCrop(CropOp):
    """A window at a random position, as ``torchvision.transforms.RandomCrop``.

    Parameters
    ----------
    size : int or (int, int)
        A square's side, or (height, width).
    padding : int or sequence of 1, 2 or 4 ints
        Zeros added around the image first: all sides; left-right, top-bottom; or left, top, right, bottom.
    pad_if_needed : bool
        Whether an image smaller than the window is padded on both sides; else it is an error.
    fill : int or (int, int, int)
        What an image is padded with, 0 to 255, for all channels or for R, G, B; masks get zeros in any case.
    padding_mode : {"constant", "edge", "reflect", "symmetric"}
        Or with its own border: repeated, mirrored without its outermost row, mirrored with it (:func:`numpy.pad`).
    min_visible : float
        A box of which the window shows a smaller share of its area, 0 to 1, becomes (0, 0, 0, 0), which
        :class:`~penstock.transforms.SanitizeBoundingBoxes` removes.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws two numbers: the top row and the left column.
    """

    random: ClassVar[bool] = True

    def __init__(
        self,
        size: int | tuple[int, int],
        padding: int | Sequence[int] = 0,
        pad_if_needed: bool = False,
        fill: int | tuple[int, int, int] = 0,
        padding_mode: str = "constant",
        min_visible: float = 0.0,
    ) -> None:
        super().__init__(size)
        self.min_visible = as_range(min_visible, "min_visible", 0, 1)[0]
        self.padding = as_padding(padding)
        self.pad_if_needed = pad_if_needed
        check_choice("padding_mode", padding_mode, _PADDING_MODES)
        self.fill, self.padding_mode = as_byte_colour(fill), padding_mode

    @property
    def pads_with_zeros(self) -> bool:
        """Whether windows may leave the image, and hold zeros there."""
        return self.padding_mode == "constant" and self.fill == (0, 0, 0)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return the window of each image; raises ArgumentError for an image that is too small."""
        wanted = np.array(self.size_[::-1], np.int32)
        before, after = np.array(self.padding[:2], np.int32), np.array(self.padding[2:], np.int32)
        padded = sizes + before + after
        lacking = np.maximum(wanted - padded, 0)
        if lacking.any():
            if not self.pad_if_needed:
                position = int(lacking.any(axis=1).argmax())
                raise ArgumentError(
                    f"{self!r} needs an image at least as large, got {sizes[position][0]} x {sizes[position][1]}; "
                    "resize first, or let pad_if_needed=True add zeros",
                    position=position,
                )
            padded = padded + 2 * lacking
        positions = uniforms(keys, stream, 2)[:, ::-1]
        params = np.empty((len(sizes), 4), np.int32)
        params[:, :2] = np.floor(positions * (padded - wanted + 1)) - before - lacking
        params[:, 2:] = wanted
        return params

    def image(self, image: Array, params: Params) -> Array:
        """Return the window of the padded image; a view if it is inside the image."""
        if self.padding_mode == "constant" and self.fill == (0, 0, 0):
            return _window(image, params)
        left, top, width, height = (int(v) for v in params)
        if min(left, top, image.shape[1] - left - width, image.shape[0] - top - height) >= 0:
            return _window(image, params)
        (above, below), (before, after) = self._sides(image.shape[0], image.shape[1])
        top, left = top + above, left + before
        if self.padding_mode == "constant":
            padded = np.empty(
                (above + image.shape[0] + below, before + image.shape[1] + after, *image.shape[2:]), image.dtype
            )
            padded[:] = colour_as_dtype(self.fill, image.shape, image.dtype, self) if image.ndim == 3 else self.fill[0]
            padded[above : above + image.shape[0], before : before + image.shape[1]] = image
        else:
            rest = [(0, 0)] * (image.ndim - 2)
            padded = np.pad(image, [(above, below), (before, after), *rest], mode=self.padding_mode)  # type: ignore[call-overload]  # one of four modes
        return padded[top : top + height, left : left + width]

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Shift and clip to the window; a box that shows too little of itself becomes (0, 0, 0, 0)."""
        clipped = super().boxes(boxes, params, size)
        if self.min_visible == 0:
            return clipped
        hidden = visible_shares(clipped, self.place(boxes, params, size)) < self.min_visible
        clipped[hidden] = 0
        return clipped

    def _sides(self, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows above and below, columns before and after, that an image of such a size is padded with."""
        left, top, right, bottom = self.padding
        rows = max(self.size_[0] - height - top - bottom, 0)
        columns = max(self.size_[1] - width - left - right, 0)
        return (top + rows, bottom + rows), (left + columns, right + columns)

    def __repr__(self) -> str:
        more = "" if self.fill == (0, 0, 0) else f", fill={self.fill}"
        more += "" if self.padding_mode == "constant" else f", padding_mode={self.padding_mode!r}"
        more += "" if self.min_visible == 0 else f", min_visible={self.min_visible}"
        return f"RandomCrop({self.size_}, padding={self.padding}, pad_if_needed={self.pad_if_needed}{more})"


class RandomResizedCrop(CropOp):
    """A window of random area and shape, resized: ``torchvision.transforms.RandomResizedCrop``.

    Parameters
    ----------
    size : int or (int, int)
        Of the result: a square's side, or (height, width).
    scale : (float, float)
        Range of the window's share of the image's area.
    ratio : (float, float)
        Range of its width / height, log-uniform.
    filter : {"box", "bilinear", "bicubic", "lanczos", "cv2-linear", "cv2-area", "cv2-nearest"}
        Resampling filter.
    mask_filter : {"nearest-exact", "nearest"}
        As for :class:`~penstock.transforms.Resize`.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    torchvision's algorithm: up to ten tries, then the largest central window of an allowed aspect ratio. Draws the
    position first (top, left) and then two numbers per try (area, aspect ratio), so that most samples cost three Philox
    blocks.

    C. Szegedy et al., "Going deeper with convolutions", CVPR 2015, section 6.
    """

    random: ClassVar[bool] = True
    may_pad: ClassVar[bool] = False
    mask_filter: str = "nearest-exact"

    def __init__(
        self,
        size: int | tuple[int, int],
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        filter: str = "bilinear",  # noqa: A002  # Pillow's word
        *,
        mask_filter: str = "nearest-exact",
    ) -> None:
        super().__init__(size)
        set_mask_filter(self, mask_filter)
        self.scale, self.ratio = _range(scale, "scale"), _range(ratio, "ratio")
        self.filter = check_filter(filter)
        low, high = (math.log(bound) for bound in self.ratio)
        self._log_ratio = low, high - low

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return the window of each image."""
        windows: Params = _native.resized_crop_windows(
            keys.seed,
            keys.epoch,
            np.ascontiguousarray(keys.indices, np.int64),
            stream,
            np.ascontiguousarray(sizes, np.int32),
            scale=(self.scale[0], self.scale[1] - self.scale[0]),
            ratio=self.ratio,
            log_ratio=self._log_ratio,
        )
        return windows

    def window_range(self) -> tuple[float, ...]:
        """Return what windows are allowed, in the native core's order."""
        return self.scale[0], self.scale[1] - self.scale[0], *self.ratio, *self._log_ratio

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # whatever it was
        """Return the size of the result."""
        result = np.empty((len(params), 2), np.int32)
        result[:] = self.size_[::-1]
        return result

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return a spec of fixed size."""
        return super().spec(require_resizable(spec, self))

    def image(self, image: Array, params: Params) -> Array:
        """Crop, then resize by Pillow."""
        return resize_reference(_window(image, params), self.size_[1], self.size_[0], self.filter)

    def native(self, image: Array, params: Params) -> Array:
        """Crop, then resize by the native core."""
        require_integers(image.dtype.name, self)
        return resize_native(_window(image, params), self.size_[1], self.size_[0], self.filter)

    def mask(self, mask: Array, params: Params) -> Array:
        """Crop, then resize by nearest neighbour."""
        return self._resize().mask(_window(mask, params), np.array(self.size_[::-1], np.int32))

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Crop, then scale."""
        return scale_boxes(super().boxes(boxes, params, size), self.size_[::-1], params[..., 2:4])

    def place(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Shift, then scale."""
        return scale_boxes(super().place(boxes, params, size), self.size_[::-1], params[..., 2:4])

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Crop, then scale."""
        return scale_points(super().keypoints(points, params, size), self.size_[::-1], params[2:4])

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse as a crop and then a resize."""
        return self._resize().fuse(fusion)

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Crop, then resize."""
        geometry.crop(params)
        geometry.resize(self.size(params, geometry.size))

    def __repr__(self) -> str:
        return f"RandomResizedCrop({self.size_}, scale={self.scale}, ratio={self.ratio}, filter={self.filter!r})"

    def _resize(self) -> Resize:
        return Resize(self.size_, self.filter, mask_filter=self.mask_filter)


_PADDING_MODES: Final = ("constant", "edge", "reflect", "symmetric")


def _middle(spare: int) -> int:
    """Start of a central window in an image with ``spare`` more pixels: half of them, rounded as torchvision does."""
    return round(spare / 2) if spare >= 0 else -(-spare // 2)


def _range(bounds: Sequence[float], what: str) -> tuple[float, float]:
    if len(bounds) != 2 or not 0 < bounds[0] <= bounds[1] < math.inf:
        raise ArgumentError(f"{what} must be a range (low, high) of positive numbers, got {bounds!r}")
    return float(bounds[0]), float(bounds[1])


def _window(image: Array, params: Params) -> Array:
    """``image[top:top + height, left:left + width]``, with zeros outside the image."""
    left, top, width, height = (int(v) for v in params[:4])
    y0, y1, x0, x1 = max(top, 0), min(top + height, image.shape[0]), max(left, 0), min(left + width, image.shape[1])
    inside = image[y0 : max(y1, y0), x0 : max(x1, x0)]
    if inside.shape[:2] == (height, width):
        return inside
    padded = np.zeros((height, width, *image.shape[2:]), image.dtype)
    padded[y0 - top : y0 - top + inside.shape[0], x0 - left : x0 - left + inside.shape[1]] = inside
    return padded
