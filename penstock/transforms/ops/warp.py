"""Geometric maps: RandomRotation, RandomAffine, RandomPerspective.

::

    params ──matrix──> the position of each pixel of the result in the image      (from result to source, as in Pillow)
              │           └ PIL.Image.transform or the native core: image; mask, nearest
              └ inverse ──> the position of each point of the image in the result      boxes, keypoints

A matrix acts on continuous coordinates, in which pixel (0, 0) has its centre at (0.5, 0.5); results equal
torchvision's on PIL images. The size is unchanged; pixels from outside the image are filled. Pillow is the
specification; the native core equals it in every pixel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError, check_choice
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Params, Sizes, uniforms
from penstock.transforms.checks import (
    as_angles,
    as_byte_colour,
    as_integer,
    as_probability,
    as_range,
    as_shares,
    as_shears,
    require_pixels,
)
from penstock.transforms.pixel_arithmetic import PixelOp, Pixels
from penstock.transforms.targets.box_geometry import (
    AFFINE_NUMBERS,
    clip_boxes,
    invert_map,
    move_points,
    place_boxes,
)

__all__ = [
    "WARP_FILTERS",
    "MapOp",
    "Matrix",
    "RandomAffine",
    "RandomPerspective",
    "RandomRotation",
    "Warp",
    "affine_matrix",
    "rotation_matrix",
]

Matrix = tuple[float, ...]
"""A map from the result to the image: six numbers of an affine map, row by row, or eight of a projective map."""

WARP_FILTERS: Final = ("nearest", "bilinear")
"""Samples of the image at a point: the pixel that contains it, or the four nearest. Neither prevents aliasing."""


class MapOp(PixelOp):
    """Base class of ops that move pixels by a map, and keep the size of the image."""

    def onward(self, params: Params, size: tuple[int, int]) -> NDArray[np.float64] | None:
        """The map from an image of ``size`` (width, height) to the result, 3 x 3; None for the identity."""
        raise NotImplementedError(f"{type(self).__name__} must define onward")

    def boxes(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Return the upright boxes around the mapped corners, clipped to the image.

        A box outside is kept with zero area.
        """
        return self.move_and_place(boxes, params, size)[0]

    def place(self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Return the upright boxes around the mapped corners."""
        onward = self.onward(params, size)
        return boxes if onward is None else place_boxes(boxes, onward, size)

    def move_and_place(
        self, boxes: NDArray[np.float32], params: Params, size: tuple[int, int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the upright boxes around the mapped corners, clipped and not."""
        placed = self.place(boxes, params, size)
        return clip_boxes(placed, size) if placed is not boxes else boxes, placed

    def keypoints(self, points: NDArray[np.float32], params: Params, size: tuple[int, int]) -> NDArray[np.float32]:
        """Map; points outside the image are kept."""
        onward = self.onward(params, size)
        return points if onward is None else move_points(points, onward)


class Warp(MapOp):
    """Base class of geometric maps that keep the size of the image; :meth:`matrix` defines the map.

    Parameters
    ----------
    filter : {"nearest", "bilinear"}
        How the image is sampled; a mask always by "nearest".
    fill : int or (int, int, int)
        Value, 0 to 255, of pixels from outside the image.
    mask_fill : int
        Value, 0 to 255, of pixels of masks from outside.
    """

    random: ClassVar[bool] = True

    def __init__(self, filter: str, fill: int | Sequence[int], mask_fill: int) -> None:  # noqa: A002  # Pillow's word
        check_choice("filter", filter, WARP_FILTERS)
        self.filter = filter
        self.fill = as_byte_colour(fill)
        self.mask_fill = as_integer(mask_fill, "mask_fill", 0, 255)

    def matrix(self, params: Params, size: tuple[int, int]) -> Matrix | None:
        """The map from the result to an image of ``size`` (width, height); None for the identity."""
        raise NotImplementedError(f"{type(self).__name__} must define matrix")

    def image(self, image: Array, params: Params) -> Pixels:
        """Return a new array, or the image itself for the identity."""
        pixels = require_pixels(image, self)
        matrix = self.matrix(params, (image.shape[1], image.shape[0]))
        return pixels if matrix is None else _transform(pixels, matrix, self.filter, self.fill)

    def native(self, image: Array, params: Params) -> Pixels:
        """Apply by the native core."""
        pixels = require_pixels(image, self)
        matrix = self.matrix(params, (image.shape[1], image.shape[0]))
        return pixels if matrix is None else _transform_native(pixels, matrix, self.filter, self.fill)

    def mask(self, mask: Array, params: Params) -> Array:
        """Map the mask, by the nearest pixel; any dtype."""
        if mask.ndim == 3:
            return np.stack([self.mask(mask[:, :, i], params) for i in range(mask.shape[2])], axis=2)
        height, width = mask.shape
        matrix = self.matrix(params, (width, height))
        if matrix is None:
            return mask
        if mask.dtype == np.uint8:
            return _transform_native(mask, matrix, "nearest", (self.mask_fill,) * 3)
        numbers = np.arange(1, mask.size + 1, dtype=np.int32).reshape(mask.shape)
        padded = np.concatenate([np.array([self.mask_fill], mask.dtype), mask.ravel()])
        moved: Array = padded[_transform(numbers, matrix, "nearest", (0, 0, 0))]
        return moved

    def onward(self, params: Params, size: tuple[int, int]) -> NDArray[np.float64] | None:
        """Invert :meth:`matrix`."""
        matrix = self.matrix(params, size)
        return None if matrix is None else invert_map(matrix)


class RandomRotation(Warp):
    """Rotate about the centre by a random angle: ``torchvision.transforms.RandomRotation``, without ``expand``.

    Parameters
    ----------
    degrees : float or (float, float)
        Range of the angle, counter-clockwise; one number ``x`` is the range ``-x`` to ``x``.
    filter : {"nearest", "bilinear"}
        How the image is sampled; a mask always by "nearest".
    fill : int or (int, int, int)
        Value, 0 to 255, of pixels from outside the image.
    mask_fill : int
        The same for masks.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws one number, which is the params of a sample: the angle.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        filter: str = "nearest",  # noqa: A002  # Pillow's word
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
    ) -> None:
        super().__init__(filter, fill, mask_fill)
        self.degrees = as_angles(degrees, "degrees")

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Return the angle of each image, (n, 1)."""
        least, most = self.degrees
        return least + uniforms(keys, stream, 1) * (most - least)

    def matrix(self, params: Params, size: tuple[int, int]) -> Matrix | None:
        """A map about the centre of the image."""
        return rotation_matrix(float(params[0]), size)


class RandomAffine(Warp):
    """Rotate, translate, scale and shear about the centre at random: ``torchvision.transforms.RandomAffine``.

    Parameters
    ----------
    degrees : float or (float, float)
        Range of the angle, clockwise; one number ``x`` is the range ``-x`` to ``x``.
    translate : (float, float), optional
        Largest shift, to either side, as a share of width and of height, 0 to 1; rounded to whole pixels.
    scale : (float, float), optional
        Range of the factor of size.
    shear : float, (float, float) or (float, float, float, float), optional
        Range of the angle along x in degrees (one number ``x``: ``-x`` to ``x``), then along y; within -90 to 90.
    filter : {"nearest", "bilinear"}
        How the image is sampled; a mask always by "nearest".
    fill : int or (int, int, int)
        Value, 0 to 255, of pixels from outside the image.
    mask_fill : int
        The same for masks.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws six numbers; params of a sample: angle, shift along x and y, factor, shear along x and y, in degrees
    and pixels.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: tuple[float, float] | None = None,
        scale: tuple[float, float] | None = None,
        shear: float | Sequence[float] | None = None,
        filter: str = "nearest",  # noqa: A002  # Pillow's word
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
    ) -> None:
        super().__init__(filter, fill, mask_fill)
        self.degrees = as_angles(degrees, "degrees")
        self.translate = (0.0, 0.0) if translate is None else as_shares(translate)
        self.scale = (1.0, 1.0) if scale is None else as_range(scale, "scale", low=0)
        if self.scale[0] <= 0:
            raise ArgumentError(f"scale must be positive, got {scale!r}")
        self.shear = as_shears(shear)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Angle, translation, scale and shear of each image, (n, 6)."""
        params = uniforms(keys, stream, 6)
        across = np.array(self.translate) * sizes
        ranges = np.array([self.degrees, (0, 0), (0, 0), self.scale, self.shear[:2], self.shear[2:]])
        shift = np.rint((2 * params[:, 1:3] - 1) * across)
        drawn: Params = ranges[:, 0] + params * (ranges[:, 1] - ranges[:, 0])
        drawn[:, 1:3] = shift
        return drawn

    def matrix(self, params: Params, size: tuple[int, int]) -> Matrix | None:
        """A map about the centre of the image."""
        angle, x, y, scale, shear_x, shear_y = params.tolist()
        return affine_matrix((size[0] * 0.5, size[1] * 0.5), angle, (x, y), scale, (shear_x, shear_y))


class RandomPerspective(Warp):
    """Change the perspective with probability ``p``: ``torchvision.transforms.RandomPerspective``.

    Parameters
    ----------
    distortion_scale : float
        How far each corner may go inwards, 0 to 1: 1 is to the middle.
    p : float
        0 to 1.
    filter : {"nearest", "bilinear"}
        How the image is sampled; a mask always by "nearest".
    fill : int or (int, int, int)
        Value, 0 to 255, of pixels from outside the image.
    mask_fill : int
        The same for masks.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws nine numbers; params of a sample: whether it is tilted, and the whole pixels to which its top left, top right,
    bottom right and bottom left corner go, x and y. An image is left as it is where those are no convex quadrilateral:
    where it is one pixel wide or high, and, with a scale near 1, rarely.
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        filter: str = "bilinear",  # noqa: A002  # Pillow's word
        fill: int | Sequence[int] = 0,
        mask_fill: int = 0,
    ) -> None:
        super().__init__(filter, fill, mask_fill)
        self.distortion_scale = as_range(distortion_scale, "distortion_scale", 0, 1)[0]
        self.p = as_probability(p)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return whether each image is changed, and the positions of its corners: (n, 9)."""
        numbers = uniforms(keys, stream, 9)
        reach = np.floor(self.distortion_scale * (sizes // 2))
        near = np.floor(numbers[:, 1:].reshape(-1, 4, 2) * (reach + 1)[:, None])
        far = (sizes - 1)[:, None] - near
        corners = np.where(np.array([(0, 0), (1, 0), (1, 1), (0, 1)]) == 1, far, near)
        params = np.empty((len(sizes), 9))
        params[:, 0] = (numbers[:, 0] < self.p) & _is_convex(corners)
        params[:, 1:] = corners.reshape(-1, 8)
        return params

    def matrix(self, params: Params, size: tuple[int, int]) -> Matrix | None:
        """The map from the quadrilateral to the corners of the image, given as pixel indices, as in torchvision."""
        if not params[0]:
            return None
        right, bottom = size[0] - 1, size[1] - 1
        return _perspective_matrix(params[1:].reshape(4, 2), ((0, 0), (right, 0), (right, bottom), (0, bottom)))


def affine_matrix(
    centre: tuple[float, float],
    angle: float,
    translate: tuple[float, float],
    scale: float,
    shear: tuple[float, float],
) -> Matrix:
    """The inverse of: shear, rotate clockwise, scale (all about the centre), translate; exactly torchvision's."""
    turn, shear_x, shear_y = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(turn - shear_y) / math.cos(shear_y)
    b = -math.cos(turn - shear_y) * math.tan(shear_x) / math.cos(shear_y) - math.sin(turn)
    c = math.sin(turn - shear_y) / math.cos(shear_y)
    d = -math.sin(turn - shear_y) * math.tan(shear_x) / math.cos(shear_y) + math.cos(turn)
    m0, m1, m3, m4 = d / scale, -b / scale, -c / scale, a / scale
    (centre_x, centre_y), (x, y) = centre, translate
    m2 = m0 * (-centre_x - x) + m1 * (-centre_y - y) + centre_x
    m5 = m3 * (-centre_x - x) + m4 * (-centre_y - y) + centre_y
    return m0, m1, m2, m3, m4, m5


def rotation_matrix(angle: float, size: tuple[int, int]) -> Matrix | None:
    """The map of ``PIL.Image.rotate``, counter-clockwise about the centre; None for the identity."""
    angle %= 360.0
    if angle == 0:
        return None
    turn = -math.radians(angle)
    cos, sin = round(math.cos(turn), 15), round(math.sin(turn), 15)  # so that right angles are exact
    x, y = size[0] / 2, size[1] / 2
    return cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y


def _perspective_matrix(ends: NDArray[np.float64], starts: Sequence[tuple[int, int]]) -> Matrix:
    """The projective map from four points to four others, rounded to float32 as in torchvision."""
    rows, values = [], []
    for (x, y), (u, v) in zip(ends.tolist(), starts, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    solution = np.linalg.solve(np.array(rows, np.float64), np.array(values, np.float64))
    solution[np.abs(solution) < 1e-12] = 0  # what should be nothing would decide between two pixels
    return tuple(solution.astype(np.float32).tolist())


def _transform(image: Array, matrix: Matrix, filter: str, fill: tuple[int, int, int]) -> Array:  # noqa: A002
    from PIL import Image

    method = Image.Transform.AFFINE if len(matrix) == AFFINE_NUMBERS else Image.Transform.PERSPECTIVE
    resample = Image.Resampling.BILINEAR if filter == "bilinear" else Image.Resampling.NEAREST
    outside = fill if image.ndim == 3 else fill[0]
    source = Image.fromarray(image)
    return np.array(source.transform(source.size, method, matrix, resample, fillcolor=outside))


def _transform_native(image: Pixels, matrix: Matrix, filter: str, fill: tuple[int, int, int]) -> Pixels:  # noqa: A002
    """Do what :func:`_transform` does for uint8 pixels by the native core: the same, bit for bit."""
    return _native.warp(np.ascontiguousarray(image), matrix, filter, fill)


def _is_convex(corners: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return whether quadrilaterals, (n, 4, 2), are convex, with their corners in clockwise order (y downwards)."""
    edge = np.roll(corners, -1, axis=1) - corners
    following = np.roll(edge, -1, axis=1)
    turn = edge[:, :, 0] * following[:, :, 1] - edge[:, :, 1] * following[:, :, 0]
    convex: NDArray[np.bool_] = np.all(turn > 0, axis=1)
    return convex
