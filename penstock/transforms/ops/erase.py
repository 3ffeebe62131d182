"""Erasing a rectangle at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np

from penstock.errors import ArgumentError
from penstock.sample import Array, DType, SampleKeys
from penstock.transforms.base import ImageSpec, Op, Params, Sizes, require_hwc, uniforms
from penstock.transforms.checks import as_colour, as_probability, as_range, colour_as_dtype
from penstock.transforms.pixel_arithmetic import paint

__all__ = ["RandomErasing"]

_TRIES: Final = 10
_HEAD, _FEW, _ALL = 4, 4 + 2 * 2, 4 + 2 * _TRIES


class RandomErasing(Op):
    """Overwrite a rectangle, with probability ``p``: ``torchvision.transforms.RandomErasing``.

    Parameters
    ----------
    p : float
        Probability, in [0, 1].
    scale : (float, float)
        Range of the rectangle's share of the image's area, within 0 to 1.
    ratio : (float, float)
        Range of its height / width, log-uniform.
    value : float, (float, float, float) or "random"
        The new value, on the scale of the image: integers in [0, 255] for uint8. "random": a new random number for each
        value, standard normal for float images (as in torchvision), uniform for uint8 and uint16.

    Raises
    ------
    ArgumentError
        If an argument is out of range.

    Notes
    -----
    Works on uint8 and on floats, HWC; put it before :class:`~penstock.transforms.ToLayout`, and after Normalize to
    erase with 0 as usual with torchvision. Draws whether to erase, the position (top, left), a seed of the noise, and
    up to ten tries of two numbers (area, aspect ratio); if none fits, nothing is erased. Params: left, top, width,
    height (0, 0: nothing), seed. Boxes, keypoints and masks are unchanged. The loop over samples is Python, as in
    RandomResizedCrop.

    Z. Zhong et al., "Random Erasing Data Augmentation", AAAI 2020.
    """

    random: ClassVar[bool] = True

    def __init__(
        self,
        p: float = 0.5,
        scale: tuple[float, float] = (0.02, 0.33),
        ratio: tuple[float, float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0,
    ) -> None:
        self.p = as_probability(p)
        self.scale = as_range(scale, "scale", 0, 1)
        self.ratio = as_range(ratio, "ratio", low=0)
        if self.ratio[0] <= 0:
            raise ArgumentError(f"ratio must be positive, got {ratio!r}")
        if isinstance(value, str) and value != "random":
            raise ArgumentError(f"value must be a number, three numbers or 'random', got {value!r}")
        self.value = value if isinstance(value, str) else as_colour(value, "value")

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:
        """Return the rectangle of each image, and the seed of its noise, (n, 5)."""
        params = np.zeros((len(sizes), 5))
        few = uniforms(keys, stream, _FEW)
        params[:, 4] = few[:, 3]
        for i in np.flatnonzero(few[:, 0] < self.p).tolist():
            width, height = sizes[i].tolist()
            rectangle = self._rectangle(width, height, few[i].tolist())
            if rectangle is None:
                rectangle = self._rectangle(width, height, uniforms(keys[i : i + 1], stream, _ALL)[0].tolist())
            params[i, :4] = rectangle or (0, 0, 0, 0)
        return params

    def spec(self, spec: ImageSpec) -> ImageSpec:
        """Return the spec, unchanged."""
        return require_hwc(spec, self)

    def image(self, image: Array, params: Params) -> Array:
        """Return a new array, or the image where nothing is erased."""
        if params[2] == 0 or params[3] == 0:
            return image
        erased = image.copy()
        self.erase(erased, params, image.dtype)
        return erased

    def erase(self, image: Array, params: Params, dtype: DType) -> None:
        """Overwrite the rectangle in ``image`` itself, HWC or HW, by values of ``dtype``, cast to the image's."""
        left, top, width, height = params[:4].astype(int).tolist()
        area = image[top : top + height, left : left + width]
        if area.size == 0:
            return
        if not isinstance(self.value, str):
            paint(area, colour_as_dtype(self.value, image.shape, dtype, self))
            return
        noise = np.random.Generator(np.random.Philox(key=int(float(params[4]) * 2**53)))
        if dtype in {np.dtype(np.uint8), np.dtype(np.uint16)}:
            area[:] = noise.integers(0, np.iinfo(dtype).max + 1, area.shape, dtype)
        else:
            area[:] = noise.standard_normal(area.shape, np.float32)

    def _rectangle(self, width: int, height: int, numbers: list[float]) -> tuple[int, int, int, int] | None:
        """The first try that is smaller than the image: left, top, width, height; None if none of ``numbers`` is."""
        low, high = (math.log(bound) for bound in self.ratio)
        for i in range(_HEAD, len(numbers), 2):
            area = width * height * (self.scale[0] + numbers[i] * (self.scale[1] - self.scale[0]))
            shape = math.exp(low + numbers[i + 1] * (high - low))
            h, w = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
            if h < height and w < width:
                return int(numbers[2] * (width - w + 1)), int(numbers[1] * (height - h + 1)), w, h
        return None
