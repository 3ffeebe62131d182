"""Resizing with antialiasing, as Pillow does; each pixel differs from Pillow's by at most one level."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, Sizes, as_height_width, require_hwc
from penstock.transforms.geometry import Geometry

__all__ = ["FILTERS", "Resize", "check_filter", "require_uint8", "resize_native", "resize_pillow"]

FILTERS: Final = ("box", "bilinear", "bicubic", "lanczos")
"""Pillow's filters of these names; their support grows with the reduction, which prevents aliasing."""


class Resize(Op):
    """Resize, as ``torchvision.transforms.Resize`` on a PIL image.

    Parameters
    ----------
    size : int or (int, int)
        An int: the shorter side becomes ``size``, the longer ``int(size * longer / shorter)``. A pair: exactly
        (height, width).
    filter : {"box", "bilinear", "bicubic", "lanczos"}
        Resampling filter.
    max_size : int, optional
        With an int ``size``: if the longer side would exceed it, it becomes ``max_size`` and the shorter one
        ``int(max_size * size / longer)``.

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    def __init__(self, size: int | tuple[int, int], filter: str = "bilinear", max_size: int | None = None) -> None:  # noqa: A002  # Pillow's word
        height, width = as_height_width(size, "Resize")
        self.size_ = height if isinstance(size, int | np.integer) else (height, width)
        self.filter = check_filter(filter)
        self.max_size = max_size
        if max_size is not None and (not isinstance(self.size_, int) or max_size <= self.size_):
            raise ArgumentError(f"size must be an int below max_size={max_size!r}, got {size!r}")

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # nothing random
        """Width and height of each result."""
        if isinstance(self.size_, tuple):
            params = np.empty((len(sizes), 2), np.int32)
            params[:] = self.size_[::-1]
            return params
        return np.array([self._size(width, height) for width, height in sizes.tolist()], np.int32).reshape(-1, 2)

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # whatever it was
        """The sizes of the results."""
        return params

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """A spec of fixed size, if the size is (height, width)."""
        require_uint8(require_hwc(spec, self).dtype, self)
        height, width = self.size_ if isinstance(self.size_, tuple) else (None, None)
        return replace(spec, height=height, width=width)

    def image(self, image: NDArray[np.uint8], params: Params) -> NDArray[np.uint8]:
        """Resize by ``PIL.Image.resize``."""
        return resize_pillow(image, int(params[0]), int(params[1]), self.filter)

    def native(self, image: NDArray[np.uint8], params: Params) -> NDArray[np.uint8]:
        """Resize by the native core, in fixed point."""
        require_uint8(image.dtype.name, self)
        return resize_native(image, int(params[0]), int(params[1]), self.filter)

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Scale with the image."""
        ratio = np.asarray(params, np.float64) / size
        return np.asarray(boxes * np.concatenate([ratio, ratio]), np.float32)

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Scale with the image."""
        moved = points.copy()
        moved[:, :2] = points[:, :2] * (np.asarray(params, np.float64) / size)
        return moved

    def mask(self, mask: Array, params: Params) -> Array:
        """Resize by nearest neighbour: the source pixel that contains the centre of each new pixel."""
        columns, rows = (
            (2 * np.arange(new) + 1) * old // (2 * new)  # in integers, so that a centre on an edge falls on one side
            for new, old in ((int(params[0]), mask.shape[1]), (int(params[1]), mask.shape[0]))
        )
        nearest: Array = mask[rows[:, None], columns]
        return nearest

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse, once and before any flip: mirrored filter weights are rounded differently."""
        if fusion.resized or fusion.flipped or fusion.scale is not None:
            return False
        fusion.resized, fusion.filter = True, self.filter
        return True

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Resize."""
        geometry.resize(params)

    def _size(self, width: int, height: int) -> tuple[int, int]:
        """Sizes of the results for an int size. A Python loop, because chunks are small; see RandomResizedCrop."""
        assert isinstance(self.size_, int)
        short, long = self.size_, int(self.size_ * max(width, height) / min(width, height))
        if self.max_size is not None and long > self.max_size:
            short, long = max(1, int(self.max_size * short / long)), self.max_size
        return (short, long) if width <= height else (long, short)

    def __repr__(self) -> str:
        more = "" if self.max_size is None else f", max_size={self.max_size}"
        return f"Resize({self.size_}, filter={self.filter!r}{more})"


def check_filter(filter: str) -> str:  # noqa: A002  # Pillow's word
    """``filter``, if it is one of :data:`FILTERS`."""
    if filter not in FILTERS:
        raise ArgumentError(f"filter must be one of {', '.join(FILTERS)}, got {filter!r}")
    return filter


def require_uint8(dtype: str | None, op: Op) -> None:
    """Raise ArgumentError unless ``dtype`` is uint8, or None (unknown)."""
    if dtype not in {"uint8", None}:
        raise ArgumentError(f"{op!r} needs uint8 images, got {dtype}; put it before Normalize and ToLayout")


def resize_pillow(image: NDArray[np.uint8], width: int, height: int, filter: str) -> NDArray[np.uint8]:  # noqa: A002
    """Resize an HWC or HW array by ``PIL.Image.resize``: the specification."""
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((width, height), getattr(Image.Resampling, filter.upper())))


def resize_native(image: NDArray[np.uint8], width: int, height: int, filter: str) -> NDArray[np.uint8]:  # noqa: A002
    """Resize an HWC or HW array by the native core."""
    if image.ndim == 2:
        return resize_native(image[:, :, None], width, height, filter)[:, :, 0]
    resized: NDArray[np.uint8] = _native.resize(np.ascontiguousarray(image), width, height, filter)
    return resized
