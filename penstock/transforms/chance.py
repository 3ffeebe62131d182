"""The base class of ops that change the values of an image with some probability."""

from __future__ import annotations

from typing import ClassVar

from penstock.sample import Array, SampleKeys
from penstock.transforms.base import ImageSpec, Op, Params, Sizes, uniforms
from penstock.transforms.checks import as_probability, require_pixel_spec, require_pixels
from penstock.transforms.pixel_arithmetic import Pixels

__all__ = ["ProbabilisticOp"]


class ProbabilisticOp(Op):
    """Applies :meth:`change` with probability ``p``; params: whether each sample is changed. Draws one number."""

    random: ClassVar[bool] = True

    def __init__(self, p: float = 0.5) -> None:
        self.p = as_probability(p)

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """Whether each image is changed, because its number is below ``p``."""
        return uniforms(keys, stream, 1)[:, 0] < self.p

    def spec(self, spec: ImageSpec) -> ImageSpec | None:
        """The spec, unchanged."""
        return require_pixel_spec(spec, self)

    def image(self, image: Array, params: Params) -> Array:
        """A changed image, or the image itself."""
        pixels = require_pixels(image, self)
        return self.change(pixels) if params else pixels

    def native(self, image: Array, params: Params) -> Array:
        """Apply; by the native core, where it has a kernel."""
        pixels = require_pixels(image, self)
        return self.change_native(pixels) if params else pixels

    def change(self, image: Pixels) -> Pixels:
        """A changed image, as a new array."""
        raise NotImplementedError(f"{type(self).__name__} must define change")

    def change_native(self, image: Pixels) -> Pixels:
        """Like :meth:`change`, by the native core; default: :meth:`change`."""
        return self.change(image)
