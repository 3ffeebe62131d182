"""Changes of colour: ColorJitter (brightness, contrast, saturation, hue in random order) and Grayscale.

The meaning of a factor is torchvision's on PIL images (``torchvision.transforms.functional.adjust_*``), which is
Pillow's; results are equal on every pixel. torchvision's tensors round otherwise and, in saturation, contrast and hue,
work in float; they differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import ImageSpec, Params, Sizes, uniforms
from penstock.transforms.checks import as_range, is_number, require_pixels
from penstock.transforms.ops.tone import auto_contrast, equalize, posterize, solarize
from penstock.transforms.pixel_arithmetic import (
    IDENTITY,
    PixelOp,
    Pixels,
    ProbabilisticOp,
    Steps,
    adjust,
    blend,
    blend_table,
    look_up,
    luma,
    repeat_channels,
)

__all__ = ["ColorJitter", "Grayscale", "apply_steps", "brighten", "contrast", "rotate_hue", "saturate"]

Range = tuple[float, float]


class ColorJitter(PixelOp):
    """Change brightness, contrast, saturation and hue by random factors, in random order.

    ``torchvision.transforms.ColorJitter`` on a PIL image.

    Parameters
    ----------
    brightness, contrast, saturation : float or (float, float)
        A range of factors, not negative; one number ``x`` is the range ``max(0, 1 - x)`` to ``1 + x``. 0 leaves the
        step out.
    hue : float or (float, float)
        A range of turns of the colour circle, within -0.5 to 0.5; one number ``x`` is the range ``-x`` to ``x``. 0
        leaves the step out. It costs more than all other steps together.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Draws eight numbers: the factors of brightness, contrast, saturation and hue, uniform in their ranges; and four
    whose order determines the order of the steps. Params of a sample: the four factors, then the numbers of the steps
    in their order. Works on uint8; saturation and hue of gray images (HW) are unchanged.
    """

    random: ClassVar[bool] = True

    def __init__(
        self,
        brightness: float | Sequence[float] = 0,
        contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0,
        hue: float | Sequence[float] = 0,
    ) -> None:
        self.brightness = _factors(brightness, "brightness")
        self.contrast = _factors(contrast, "contrast")
        self.saturation = _factors(saturation, "saturation")
        self.hue = _turns(hue)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Factors and order of each image, (n, 8)."""
        params = uniforms(keys, stream, 8)
        ranges = (self.brightness, self.contrast, self.saturation, self.hue)
        least = np.array([0.0 if bounds is None else bounds[0] for bounds in ranges])
        span = np.array([0.0 if bounds is None else bounds[1] - bounds[0] for bounds in ranges])
        params[:, :4] = least + params[:, :4] * span
        params[:, 4:] = np.argsort(params[:, 4:], axis=1, kind="stable")
        return params

    def image(self, image: Array, params: Params) -> Pixels:
        """Return a new array, or the image where every step is left out."""
        return apply_steps(require_pixels(image, self), self._steps(params))

    def native(self, image: Array, params: Params) -> Pixels:
        """Apply all steps by one native call."""
        return adjust(require_pixels(image, self), self._steps(params))

    def _steps(self, params: Params) -> Steps:
        """The steps that have a range, in their order."""
        numbers: list[float] = params.tolist()
        chosen = [(_STEPS[int(place)], numbers[int(place)]) for place in numbers[4:]]
        return [(name, factor) for name, factor in chosen if getattr(self, name) is not None]


class Grayscale(ProbabilisticOp):
    """Make an image gray: ``torchvision.transforms.Grayscale`` and, with ``p``, ``RandomGrayscale``, on PIL images.

    Parameters
    ----------
    num_output_channels : {3, 1}
        3: three equal channels. 1: an HW array, to which :class:`~penstock.transforms.ToLayout` gives its channel;
        only with ``p=1``.
    p : float
        Probability, in [0, 1].

    Raises
    ------
    ArgumentError
        If an argument is out of range.
    """

    def __init__(self, num_output_channels: int = 3, p: float = 1.0) -> None:
        super().__init__(p)
        if num_output_channels not in {1, 3}:
            raise ArgumentError(f"num_output_channels must be 1 or 3, got {num_output_channels!r}")
        if num_output_channels == 1 and self.p != 1:
            raise ArgumentError(
                f"p must be 1 with num_output_channels=1, got {p!r}, because samples would differ in their channels"
            )
        self.num_output_channels = num_output_channels

    def spec(self, spec: ImageSpec) -> ImageSpec | None:
        """Return the spec, unchanged with three channels; nothing is known with one."""
        known = super().spec(spec)
        return known if self.num_output_channels == 3 else None

    def change(self, image: Pixels) -> Pixels:
        """Compute the luma of ITU-R BT.601."""
        gray = luma(image)
        return repeat_channels(gray) if self.num_output_channels == 3 and image.ndim == 3 else gray

    def change_native(self, image: Pixels) -> Pixels:
        """Apply by one native call."""
        if image.ndim == 2:
            return image
        gray = adjust(image, [("gray", 0)])
        return gray if self.num_output_channels == 3 else np.ascontiguousarray(gray[:, :, 0])


def brighten(image: Pixels, factor: float) -> Pixels:
    """Multiply each value by ``factor``."""
    return look_up(image, blend_table(0, factor))


def contrast(image: Pixels, factor: float) -> Pixels:
    """Distance from the rounded mean luma of the image, times ``factor``."""
    gray = luma(image)
    mean = int(int(gray.sum(dtype=np.int64)) / gray.size + 0.5)
    return look_up(image, blend_table(mean, factor))


def saturate(image: Pixels, factor: float) -> Pixels:
    """Multiply the distance from the luma of each pixel by ``factor``."""
    return blend(repeat_channels(luma(image)), image, factor) if image.ndim == 3 else image


def rotate_hue(image: Pixels, turns: float) -> Pixels:
    """Turn the hue by ``int(turns * 255)`` of 256 steps, in Pillow's 8-bit HSV."""
    if image.ndim == 2:
        return image
    from PIL import Image

    turned = IDENTITY + np.uint8(int(turns * 255) % 256)
    table = [*turned.tolist(), *range(256), *range(256)]
    return np.array(Image.fromarray(image).convert("HSV").point(table).convert("RGB"))


_STEPS: Final = ("brightness", "contrast", "saturation", "hue")
"""Names of the settings and of the native steps, in the order of params."""

_SPECIFIED: Final[Mapping[str, Callable[[Pixels, float], Pixels]]] = {
    "brightness": brighten,
    "contrast": contrast,
    "saturation": saturate,
    "hue": rotate_hue,
    "posterize": lambda image, bits: posterize(image, int(bits)),
    "solarize": solarize,
    "auto_contrast": lambda image, _: auto_contrast(image),
    "equalize": lambda image, _: equalize(image),
}


def apply_steps(image: Pixels, steps: Steps) -> Pixels:
    """The specification of :func:`~penstock.transforms.pixel_arithmetic.adjust`: each step in NumPy or Pillow."""
    for name, factor in steps:
        image = _SPECIFIED[name](image, factor)
    return image


def _factors(bounds: float | Sequence[float], what: str) -> Range | None:
    """Return the range of factors; None to leave the step out."""
    if is_number(bounds):
        if not 0 <= bounds < math.inf:
            raise ArgumentError(f"{what} must be a number of at least 0, or (least, most), got {bounds!r}")
        bounds = (max(0.0, 1 - bounds), 1 + bounds)
    least, most = as_range(bounds, what, low=0)
    return None if least == most == 1 else (least, most)


def _turns(bounds: float | Sequence[float]) -> Range | None:
    """The range of turns; None to leave the step out."""
    if is_number(bounds):
        if not 0 <= bounds <= 0.5:
            raise ArgumentError(f"hue must be a number in [0, 0.5], or (least, most), got {bounds!r}")
        bounds = (-bounds, bounds)
    least, most = as_range(bounds, "hue", -0.5, 0.5)
    return None if least == most == 0 else (least, most)
