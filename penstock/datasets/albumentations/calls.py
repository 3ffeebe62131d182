"""A transform of albumentations that changes the image alone, called as an op of a pipeline.

::

    key of the sample ──draw──> seed ──set_random_seed──> this thread's copy of the transform ──(image=...)──> image

Made by :mod:`penstock.datasets.albumentations.recognise` for transforms that penstock has no op for; albumentations is
not imported here.
"""

from __future__ import annotations

import copy
import threading
from typing import Any, ClassVar

import numpy as np

from penstock.errors import ArgumentError
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Params, Sizes, uniforms
from penstock.transforms.pixel_arithmetic import PixelOp

__all__ = ["CalledTransform"]


class CalledTransform(PixelOp):
    """Calls a transform with the image; its generators are seeded by the key of the sample.

    Parameters
    ----------
    transform : object
        A transform of albumentations 2 that changes only the image, and keeps its shape and dtype; or a OneOf, SomeOf
        or Sequential of such.

    Notes
    -----
    A transform has state: each thread calls a copy of its own. Params of a sample: the seed.
    """

    random: ClassVar[bool] = True

    def __init__(self, transform: Any) -> None:
        self.transform = transform
        self._own = threading.local()

    def draw(self, keys: SampleKeys, sizes: Sizes, stream: int) -> Params:  # noqa: ARG002  # any size
        """A seed of 53 bits for each image, (n, 1)."""
        return np.floor(uniforms(keys, stream, 1) * (1 << 53))

    def image(self, image: Array, params: Params) -> Array:
        """What the transform returns."""
        own = getattr(self._own, "transform", None)
        if own is None:
            own = self._own.transform = copy.deepcopy(self.transform)
        own.set_random_seed(int(params[0]))
        changed: Array = own(image=np.ascontiguousarray(image))["image"]
        if changed.shape != image.shape or changed.dtype != image.dtype:
            raise ArgumentError(
                f"{type(self.transform).__name__} must keep shape and dtype of the image, {image.shape} and "
                f"{image.dtype}, got {changed.shape} and {changed.dtype}"
            )
        return changed

    def __getstate__(self) -> dict[str, Any]:
        return {"transform": self.transform}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["transform"])  # type: ignore[misc]  # as if made anew

    def __repr__(self) -> str:
        return f"CalledTransform({type(self.transform).__name__})"
