"""The changes of colour with which single-shot detectors are trained."""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np

from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Params, Sizes, uniforms
from penstock.transforms.checks import as_probability, as_range, require_pixels
from penstock.transforms.ops.color import apply_steps
from penstock.transforms.pixel_arithmetic import PixelOp, Pixels, Steps, adjust

__all__ = ["CHANNEL_ORDERS", "RandomPhotometricDistort"]

CHANNEL_ORDERS: Final = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
"""Of the channels of the result; the first changes nothing."""


class RandomPhotometricDistort(PixelOp):
    """Change brightness, contrast, saturation, hue and the order of channels, each with probability ``p``.

    ``torchvision.transforms.v2.RandomPhotometricDistort`` on a PIL image.

    Parameters
    ----------
    brightness, contrast, saturation : (float, float)
        Ranges of factors, not negative.
    hue : (float, float)
        Range of turns of the colour circle, within -0.5 to 0.5.
    p : float
        Probability of each of the five, in [0, 1].

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Contrast is changed after brightness or, as often, after hue. Draws eleven numbers. Params of a sample: the factors
    of the four steps, NaN for those left out; whether contrast comes early; the number of the order of the channels.
    Works on uint8; saturation, hue and channels of gray images (HW) are unchanged.

    W. Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016, section 2.2.
    """

    random: ClassVar[bool] = True

    def __init__(
        self,
        brightness: tuple[float, float] = (0.875, 1.125),
        contrast: tuple[float, float] = (0.5, 1.5),
        saturation: tuple[float, float] = (0.5, 1.5),
        hue: tuple[float, float] = (-0.05, 0.05),
        p: float = 0.5,
    ) -> None:
        self.brightness = as_range(brightness, "brightness", 0)
        self.contrast = as_range(contrast, "contrast", 0)
        self.saturation = as_range(saturation, "saturation", 0)
        self.hue = as_range(hue, "hue", -0.5, 0.5)
        self.p = as_probability(p)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Factors, place of contrast and order of channels of each image, (n, 6)."""
        numbers = uniforms(keys, stream, 11)
        least, most = np.array([self.brightness, self.contrast, self.saturation, self.hue]).T
        params = np.empty((len(numbers), 6))
        params[:, :4] = np.where(numbers[:, :4] < self.p, least + numbers[:, 4:8] * (most - least), np.nan)
        params[:, 4] = numbers[:, 8] < 0.5
        params[:, 5] = np.where(numbers[:, 9] < self.p, np.floor(numbers[:, 10] * len(CHANNEL_ORDERS)), 0)
        return params

    def image(self, image: Array, params: Params) -> Pixels:
        """Return a new array, or the image where every step is left out."""
        return _permute(apply_steps(require_pixels(image, self), _steps(params)), params)

    def native(self, image: Array, params: Params) -> Pixels:
        """Change colours by one native call."""
        return _permute(adjust(require_pixels(image, self), _steps(params)), params)


def _steps(params: Params) -> Steps:
    """The steps that are not left out, in their order."""
    brightness, contrast, saturation, hue, is_early, _ = params.tolist()
    steps = [("brightness", brightness), ("saturation", saturation), ("hue", hue)]
    steps.insert(1 if is_early else 3, ("contrast", contrast))
    return [(name, factor) for name, factor in steps if factor == factor]  # noqa: PLR0124  # not NaN


def _permute(image: Pixels, params: Params) -> Pixels:
    order = CHANNEL_ORDERS[int(params[5])]
    if image.ndim == 2 or image.shape[2] != 3 or order == CHANNEL_ORDERS[0]:
        return image
    return image.take(order, axis=2)
