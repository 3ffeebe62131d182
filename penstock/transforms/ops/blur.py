"""Ops on the neighbourhood of each pixel: GaussianBlur and Sharpness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import ArgumentError
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import ImageSpec, Op, Params, Sizes, require_hwc, uniforms
from penstock.transforms.checks import as_numbers, as_range, is_number
from penstock.transforms.pixel_arithmetic import Pixels, ProbabilisticOp, blend

__all__ = ["GaussianBlur", "Sharpness", "gaussian_weights", "group_gaussians", "sharpen", "sharpen_native"]

_LIGHTEST: Final = 2.0**-20
"""Weights below it are left out; all those of a kernel change a value by less than 0.01 of a level."""

_ROWS: Final = 32
"""Rows that are blurred together: temporary arrays stay in the cache, and are not allocated anew."""


class GaussianBlur(Op):
    """Blur by a Gaussian of random width: ``torchvision.transforms.GaussianBlur``.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Odd number of pixels of a square kernel, or (width, height), at most 255.
    sigma : float or (float, float)
        Standard deviation in pixels, or its range.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws one number: sigma, uniform in its range. The image is mirrored at its borders without repeating the border,
    several times if it is smaller than half the kernel (torchvision refuses it). Separable, in float32; uint8 is
    rounded half to even. Results differ by at most one level from torchvision, whose kernel is not separable. The
    result of a float image is float32.
    """

    random: ClassVar[bool] = True

    def __init__(self, kernel_size: int | tuple[int, int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        sides = as_numbers(kernel_size, "kernel_size")
        sides = sides * 2 if is_number(kernel_size) else sides
        if len(sides) != 2 or not all(isinstance(v, int | np.integer) and 0 < v < 256 and v % 2 for v in sides):
            raise ArgumentError(
                f"kernel_size must be an odd number of pixels below 256, or (width, height), got {kernel_size!r}"
            )
        self.kernel_size = (int(sides[0]), int(sides[1]))
        self.sigma = as_range(sigma, "sigma", low=0)
        if self.sigma[0] <= 0:
            raise ArgumentError(f"sigma must be positive, got {sigma!r}")

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Return the sigma of each image, (n, 1)."""
        least, most = self.sigma
        return least + uniforms(keys, stream, 1) * (most - least)

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, unchanged."""
        if spec.dtype == "uint16":
            raise ArgumentError(f"{self!r} needs uint8 or float images, got uint16; put it after Normalize")
        return require_hwc(spec, self)

    def image(self, image: Array, params: Params) -> Array:
        """Blur the image; returns a new array."""
        sigma = float(params[0])
        across, down = (gaussian_weights(length, sigma) for length in self.kernel_size)
        x, y = len(across) // 2, len(down) // 2
        padded = np.pad(image, [(y, y), (x, x), (0, 0)][: image.ndim], "reflect")
        blurred = np.empty(image.shape, np.uint8 if image.dtype == np.uint8 else np.float32)
        for top in range(0, len(image), _ROWS):
            rows = padded[top : top + _ROWS + 2 * y].astype(np.float32)
            rows = _convolve(_convolve(rows, down, 0), across, 1)
            # Weights sum to 1, but for float32's rounding: no value is carried beyond 255.5.
            blurred[top : top + _ROWS] = np.rint(rows, out=rows) if image.dtype == np.uint8 else rows
        return blurred

    def native(self, image: Array, params: Params) -> Array:
        """Blur by the native core; adds the same numbers in the same order."""
        if not (image.ndim == 2 or (image.ndim == 3 and image.shape[2] in {1, 3})):
            return self.image(image, params)
        across, down = (gaussian_weights(length, float(params[0])) for length in self.kernel_size)
        if image.dtype == np.uint8:
            return _native.blur(np.ascontiguousarray(image), across, down)
        if image.dtype.kind == "f":
            return _native.blur_floats(np.ascontiguousarray(image, np.float32), across, down)
        return self.image(image, params)


class Sharpness(ProbabilisticOp):
    """Blur or sharpen by a factor, with probability ``p``: ``torchvision.transforms.RandomAdjustSharpness`` on PIL.

    Parameters
    ----------
    sharpness_factor : float
        0: blurred (3 x 3, ``PIL.ImageFilter.SMOOTH``); 1: unchanged; 2: sharpened as much as 0 is blurred.
    p : float
        Probability, in [0, 1].

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.sharpness_factor = as_range(sharpness_factor, "sharpness_factor", low=0)[0]

    def change(self, image: Pixels) -> Pixels:
        """Blend with the blurred image."""
        return sharpen(image, self.sharpness_factor)

    def change_native(self, image: Pixels) -> Pixels:
        """Apply the same by the native core."""
        return sharpen_native(image, self.sharpness_factor)


def sharpen(image: Pixels, factor: float) -> Pixels:
    """Move away from the blurred image by ``factor``, as ``PIL.ImageEnhance.Sharpness``."""
    return blend(_smooth(image), image, factor)


def sharpen_native(image: Pixels, factor: float) -> Pixels:
    """Sharpen as :func:`sharpen` by the native core: the result is the same, bit for bit."""
    return _native.sharpen(np.ascontiguousarray(image), factor)


def _smooth(image: Pixels) -> Pixels:
    """Average each inner pixel: 5/13 of itself, 1/13 of each of eight neighbours, rounded; the border is unchanged."""
    smooth = image.copy()
    if min(image.shape[:2]) < 3:
        return smooth
    rows = image[:-2].astype(np.uint16)
    rows += image[1:-1]
    rows += image[2:]
    total = rows[:, :-2] + rows[:, 1:-1]
    total += rows[:, 2:]
    total += image[1:-1, 1:-1] * np.uint16(4)
    mean = total * np.float32(1 / 13)  # never within 1/26 of a half, so that float32 rounds as exact numbers would
    mean += np.float32(0.5)
    smooth[1:-1, 1:-1] = mean.astype(np.uint8)
    return smooth


def gaussian_weights(length: int, sigma: float) -> NDArray[np.float32]:
    """Return symmetric weights with sum 1, without negligible ones; their number is odd."""
    distance = np.arange(length) - (length - 1) / 2
    weights = np.exp(-0.5 * (distance / sigma) ** 2)
    weights /= weights.sum()
    weights = weights[weights >= _LIGHTEST]
    kernel: NDArray[np.float32] = (weights / weights.sum()).astype(np.float32)
    return kernel


def group_gaussians(length: int, sigmas: Array) -> Iterator[tuple[NDArray[np.intp], NDArray[np.float32]]]:
    """Group :func:`gaussian_weights` of many sigmas: positions in ``sigmas``, weights (n, count), by their count."""
    distance = np.arange(length) - (length - 1) / 2
    weights = np.exp(-0.5 * (distance / sigmas[:, None]) ** 2)
    weights /= weights.sum(axis=1, keepdims=True)
    counts = (weights >= _LIGHTEST).sum(axis=1)
    for count in np.unique(counts).tolist():
        rows = np.flatnonzero(counts == count)
        first = (length - count) // 2
        middle = np.ascontiguousarray(weights[rows, first : first + count])
        yield rows, (middle / middle.sum(axis=1, keepdims=True)).astype(np.float32)


def _convolve(image: NDArray[np.float32], weights: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    """Convolve along one axis, without the borders; pairs of equal weight are added first."""
    half = len(weights) // 2
    if half == 0:
        return image
    moved = np.moveaxis(image, axis, 0)
    length = len(moved) - 2 * half
    total = moved[half : half + length] * weights[half]
    both = np.empty_like(total)
    for reach in range(1, half + 1):
        np.add(moved[half - reach : half - reach + length], moved[half + reach : half + reach + length], out=both)
        both *= weights[half - reach]
        total += both
    return np.moveaxis(total, 0, axis)
