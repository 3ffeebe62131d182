"""Resizing as Pillow does, with antialiasing, or as OpenCV does; values differ from theirs by at most one level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError, check_choice
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Fusion, ImageSpec, Op, Params, Sizes, as_height_width, require_hwc, uniforms
from penstock.transforms.checks import FLOAT_ADVICE, as_integer, as_range
from penstock.transforms.ops.resize_opencv import CV2_FILTERS, resize_opencv
from penstock.transforms.program.geometry import Geometry
from penstock.transforms.targets.box_geometry import scale_boxes, scale_points

__all__ = [
    "FILTERS",
    "MASK_FILTERS",
    "RandomShortestSize",
    "Resize",
    "check_filter",
    "require_integers",
    "require_resizable",
    "resize_native",
    "resize_reference",
    "set_mask_filter",
]

FILTERS: Final = ("box", "bilinear", "bicubic", "lanczos", *CV2_FILTERS)
"""Pillow's filters of these names, whose support grows with the reduction, which prevents aliasing; and OpenCV's."""

MASK_FILTERS: Final = ("nearest-exact", "nearest")
"""torch's names of the rules by which a pixel of a mask is taken."""

_CHANNELS: Final = (1, 3)
"""Numbers of channels that the native core resizes at once."""

_DECODED_CHANNELS: Final = (1, 3, 4)
"""The same, of images that it has decoded itself."""

_MOST_CHANNELS: Final = 4
_DTYPES: Final = frozenset({"uint8", "uint16"})


class Resize(Op):
    """Resize, as ``torchvision.transforms.Resize`` on a PIL image.

    Parameters
    ----------
    size : int, (int, int) or None
        An int: the shorter side becomes ``size``, the longer ``int(size * longer / shorter)``. A pair: exactly
        (height, width). None: the longer side becomes ``max_size``, the shorter ``int(max_size * shorter / longer)``.
    filter : {"box", "bilinear", "bicubic", "lanczos", "cv2-linear", "cv2-area", "cv2-nearest"}
        Resampling filter.
    max_size : int, optional
        With an int ``size``, which must be less: if the longer side would exceed it, it becomes ``max_size`` and the
        shorter one ``int(max_size * size / longer)``.
    mask_filter : {"nearest-exact", "nearest"}
        Which pixel a mask's new one is: that at its centre, or that at its corner, as torchvision resizes masks.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    No side becomes less than 1 pixel. Images have 1 to 4 channels of uint8 or uint16 (uint16 with Pillow's filters
    only); each channel is resized alone, also alpha.
    """

    mask_filter: str = "nearest-exact"
    """Of this op; a setting of its own only where it is another one."""

    def __init__(
        self,
        size: int | tuple[int, int] | None,
        filter: str = "bilinear",  # noqa: A002  # Pillow's word
        max_size: int | None = None,
        *,
        mask_filter: str = "nearest-exact",
    ) -> None:
        set_mask_filter(self, mask_filter)
        self.size_ = None if size is None else _shorter_or_both(size)
        self.filter = check_filter(filter)
        self.max_size = None if max_size is None else as_integer(max_size, "max_size", 1, 1 << 16)
        if size is None and max_size is None:
            raise ArgumentError("size must be an int or (height, width) where max_size is not given, got None")
        if isinstance(self.size_, tuple) and max_size is not None:
            raise ArgumentError(f"size must be an int or None where max_size={max_size!r} is given, got {size!r}")
        if isinstance(self.size_, int) and self.max_size is not None and self.max_size <= self.size_:
            raise ArgumentError(f"size must be an int below max_size={max_size!r}, got {size!r}")

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # nothing random
        """Return the width and height of each result."""
        if isinstance(self.size_, tuple):
            params = np.empty((len(sizes), 2), np.int32)
            params[:] = self.size_[::-1]
            return params
        return np.array([self._size(width, height) for width, height in sizes.tolist()], np.int32).reshape(-1, 2)

    def size(self, params: Params, sizes: Sizes) -> Sizes:  # noqa: ARG002  # whatever it was
        """Return the sizes of the results."""
        return params

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return a spec of fixed size, if the size is (height, width)."""
        require_resizable(spec, self)
        height, width = self.size_ if isinstance(self.size_, tuple) else (None, None)
        return replace(spec, height=height, width=width)

    def image(self, image: Array, params: Params) -> Array:
        """Resize by ``PIL.Image.resize``, or in NumPy."""
        return resize_reference(image, int(params[0]), int(params[1]), self.filter)

    def native(self, image: Array, params: Params) -> Array:
        """Resize by the native core, in fixed point."""
        require_integers(image.dtype.name, self)
        return resize_native(image, int(params[0]), int(params[1]), self.filter)

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Scale with the image."""
        return scale_boxes(boxes, params, size)

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Scale with the image."""
        return scale_points(points, params, size)

    def mask(self, mask: Array, params: Params) -> Array:
        """Resize by nearest neighbour, by ``mask_filter``: the source pixel at the centre of each new pixel."""
        find = _find_corners if self.mask_filter == "nearest" else _find_centres
        columns, rows = find(int(params[0]), mask.shape[1]), find(int(params[1]), mask.shape[0])
        if len(rows) < len(mask):  # the smaller array between the two; both at once take five times as long
            return mask.take(rows, axis=0).take(columns, axis=1)
        return mask.take(columns, axis=1).take(rows, axis=0)

    def fuse(self, fusion: Fusion) -> bool:
        """Fuse, once and before any flip: mirrored filter weights are rounded differently."""
        if fusion.resized or fusion.flipped or fusion.scale is not None:
            return False
        is_deep = fusion.source == "uint16" and fusion.decode is not None and self.filter not in CV2_FILTERS
        if not is_deep and fusion.source != "uint8":
            return False
        if fusion.channels not in (_CHANNELS if fusion.stored else _DECODED_CHANNELS):
            return False
        fusion.resized, fusion.filter = True, self.filter
        return True

    def compose(self, geometry: Geometry, params: Params) -> None:
        """Resize."""
        geometry.resize(params)

    def _size(self, width: int, height: int) -> tuple[int, int]:
        """Sizes of the results for an int size. A Python loop, because chunks are small; see RandomResizedCrop."""
        assert not isinstance(self.size_, tuple)
        if self.size_ is None:
            assert self.max_size is not None
            short, long = max(1, int(self.max_size * min(width, height) / max(width, height))), self.max_size
        else:
            short, long = self.size_, int(self.size_ * max(width, height) / min(width, height))
            if self.max_size is not None and long > self.max_size:
                short, long = max(1, int(self.max_size * short / long)), self.max_size
        return (short, long) if width <= height else (long, short)

    def __repr__(self) -> str:
        more = "" if self.max_size is None else f", max_size={self.max_size}"
        return f"Resize({self.size_}, filter={self.filter!r}{more})"


def set_mask_filter(op: Op, mask_filter: str) -> None:
    """Give an op the filter of its masks, where it is not that of its class; ArgumentError if it is unknown."""
    check_choice("mask_filter", mask_filter, MASK_FILTERS)
    if mask_filter != MASK_FILTERS[0]:
        op.mask_filter = mask_filter  # type: ignore[attr-defined]  # it has one


def _find_centres(new: int, old: int) -> NDArray[np.int64]:
    """Return the pixel that contains the centre of each new one, in integers: a centre on an edge falls on one side."""
    found: NDArray[np.int64] = (2 * np.arange(new) + 1) * old // (2 * new)
    return found


def _find_corners(new: int, old: int) -> NDArray[np.int64]:
    """Return the pixel that contains the upper left corner of each new one, in float32, as torch computes it."""
    scale = np.float32(old) / np.float32(new)
    found: NDArray[np.int64] = np.minimum((np.arange(new, dtype=np.float32) * scale).astype(np.int64), old - 1)
    return found


class RandomShortestSize(Resize):
    """Resize so that the shorter side has a random size: ``torchvision.transforms.v2.RandomShortestSize``.

    The sizes of DETR's and of torchvision's detection recipes: ``RandomShortestSize(range(480, 801, 32), 1333)``.

    Parameters
    ----------
    min_size : int or sequence of int
        The shorter side, one of these.
    max_size : int, optional
        The longer side is at most this: then the factor is ``max_size / longer``.
    filter : {"box", "bilinear", "bicubic", "lanczos", "cv2-linear", "cv2-area", "cv2-nearest"}
        Resampling filter.
    mask_filter : {"nearest-exact", "nearest"}
        As for :class:`Resize`.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Each side is multiplied by the factor and rounded down, to at least 1. Draws one number.
    """

    random: ClassVar[bool] = True

    def __init__(
        self,
        min_size: int | Sequence[int],
        max_size: int | None = None,
        filter: str = "bilinear",  # noqa: A002  # Pillow's word
        *,
        mask_filter: str = "nearest-exact",
    ) -> None:
        set_mask_filter(self, mask_filter)
        listed = (min_size,) if isinstance(min_size, int | np.integer) else tuple(min_size)
        if not listed:
            raise ArgumentError(f"min_size must be an int or a sequence of ints, got {min_size!r}")
        self.min_sizes = tuple(as_integer(side, "min_size", 1, 1 << 16) for side in listed)
        self.max_size = None if max_size is None else as_integer(max_size, "max_size", 1, 1 << 16)
        self.filter = check_filter(filter)
        self.size_ = None

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return the width and height of each result."""
        places = (uniforms(keys, stream, 1)[:, 0] * len(self.min_sizes)).astype(np.intp)
        factors = np.array(self.min_sizes)[places] / sizes.min(axis=1)
        if self.max_size is not None:
            factors = np.minimum(factors, self.max_size / sizes.max(axis=1))
        results: Params = np.maximum((sizes * factors[:, None]).astype(np.int32), 1)
        return results

    def __repr__(self) -> str:
        return f"RandomShortestSize({self.min_sizes}, max_size={self.max_size}, filter={self.filter!r})"


class ScaleJitter(Resize):
    """Resize so that the image fits into ``size``, times a random scale: ``torchvision.transforms.v2.ScaleJitter``.

    Parameters
    ----------
    size : int or (int, int)
        Height and width into which the image fits at scale 1; an int is both.
    scale_range : (float, float)
        Range of the scale, above 0.
    filter : {"box", "bilinear", "bicubic", "lanczos", "cv2-linear", "cv2-area", "cv2-nearest"}
        Resampling filter.
    mask_filter : {"nearest-exact", "nearest"}
        As for :class:`Resize`.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Each side is multiplied by the factor and rounded down, to at least 1. Draws one number. The pair that torchvision
    takes is (width, height).

    G. Ghiasi et al., "Simple copy-paste is a strong data augmentation method for instance segmentation", CVPR 2021.
    """

    random: ClassVar[bool] = True

    def __init__(
        self,
        size: int | tuple[int, int],
        scale_range: tuple[float, float] = (0.1, 2.0),
        filter: str = "bilinear",  # noqa: A002  # Pillow's word
        *,
        mask_filter: str = "nearest-exact",
    ) -> None:
        set_mask_filter(self, mask_filter)
        self.target = as_height_width(size, "ScaleJitter")
        self.scale_range = as_range(scale_range, "scale_range", 1e-6, 1000)
        self.filter = check_filter(filter)
        self.size_ = self.max_size = None

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return the width and height of each result."""
        least, most = self.scale_range
        scales = (least + uniforms(keys, stream, 1)[:, 0] * (most - least)).astype(np.float32)
        factors = (np.array(self.target[::-1]) / sizes).min(axis=1).astype(np.float32) * scales  # as torch's tensors
        results: Params = np.maximum((sizes.astype(np.float32) * factors[:, None]).astype(np.int32), 1)
        return results

    def __repr__(self) -> str:
        return f"ScaleJitter({self.target}, scale_range={self.scale_range}, filter={self.filter!r})"


def check_filter(filter: str) -> str:  # noqa: A002  # Pillow's word
    """``filter``, if it is one of :data:`FILTERS`."""
    check_choice("filter", filter, FILTERS)
    return filter


def _shorter_or_both(size: int | tuple[int, int]) -> int | tuple[int, int]:
    height, width = as_height_width(size, "Resize")
    return height if isinstance(size, int | np.integer) else (height, width)


def require_integers(dtype: str | None, op: Op) -> None:
    """Raise ArgumentError unless ``dtype`` is uint8 or uint16, or None (unknown)."""
    if dtype is not None and dtype not in _DTYPES:
        raise ArgumentError(f"{op!r} needs uint8 or uint16 images, got {dtype}; {FLOAT_ADVICE}")


def require_resizable(spec: ImageSpec, op: Op) -> ImageSpec:
    """``spec``, if such images can be resized: HWC, uint8 or uint16, of 1 to 4 channels, as far as these are known."""
    require_integers(require_hwc(spec, op).dtype, op)
    if spec.channels is not None and not 0 < spec.channels <= _MOST_CHANNELS:
        raise ArgumentError(f"{op!r} needs images of 1 to {_MOST_CHANNELS} channels, got {spec.channels}")
    return spec


def resize_reference(image: Array, width: int, height: int, filter: str) -> Array:  # noqa: A002  # Pillow's word
    """Resize an HWC or HW array by ``PIL.Image.resize``, or by OpenCV's rules in NumPy: the specification.

    Each channel alone, also that of transparency, which Pillow would multiply into the others. uint16 is computed in
    float32 and rounded.
    """
    from PIL import Image

    if filter in CV2_FILTERS and image.dtype == np.uint8:
        return resize_opencv(image, width, height, filter)
    if image.ndim == 3 and (image.shape[2] != 3 or image.dtype != np.uint8):
        planes = [resize_reference(image[:, :, place], width, height, filter) for place in range(image.shape[2])]
        return np.stack(planes, axis=2)
    if filter in CV2_FILTERS:
        raise ArgumentError(f"filter must be one of Pillow's for {image.dtype} images, got {filter!r}")
    resampling = getattr(Image.Resampling, filter.upper())
    if image.dtype == np.uint8:
        return np.asarray(Image.fromarray(image).resize((width, height), resampling))
    real = np.asarray(Image.fromarray(image.astype(np.float32)).resize((width, height), resampling))
    rounded: Array = np.rint(real).clip(0, 65535).astype(np.uint16)
    return rounded


def resize_native(image: Array, width: int, height: int, filter: str) -> Array:  # noqa: A002  # Pillow's word
    """Resize an HWC or HW array by the native core; uint16 equals :func:`resize_reference` of Pillow 13."""
    if image.ndim == 2:
        return resize_native(image[:, :, None], width, height, filter)[:, :, 0]
    channels = image.shape[2]
    if not 0 < channels <= _MOST_CHANNELS:
        raise ArgumentError(
            f"only images of 1 to {_MOST_CHANNELS} channels can be resized, got an array of shape {image.shape}"
        )
    if image.dtype == np.uint16 and filter not in CV2_FILTERS:
        # As a view: a dtype that states its order, as those of stores do, is another one for the native core.
        deep = [np.ascontiguousarray(image[:, :, place]).view(np.uint16) for place in range(channels)]
        return np.stack([_native.resize_samples(plane, width, height, filter) for plane in deep], axis=2)
    if image.dtype != np.uint8:
        return resize_reference(image, width, height, filter)
    if channels in _CHANNELS:
        resized: NDArray[np.uint8] = _native.resize(np.ascontiguousarray(image), width, height, filter)
        return resized
    planes = [resize_native(image[:, :, place : place + 1], width, height, filter) for place in range(channels)]
    return np.concatenate(planes, axis=2)
