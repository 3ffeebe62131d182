"""A torchvision transform as a native program, and what is called behind it.

::

    encoded ──Program──> array ──finished──> PIL image or tensor ──the rest, as it is──> sample

Shared by torchvision's folders and by stores that are given a torchvision transform. What is recognised is
:mod:`penstock.torch.vision.recognise`'s knowledge; nothing here opens a file.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchvision import tv_tensors

from penstock.rng import next_keys
from penstock.sample import ArraySpec, SampleKeys
from penstock.torch.vision.recognise import Recognised, recognise
from penstock.transforms import Decode, Pipeline, Program

__all__ = ["Native"]


class Native:
    """A transform's program; ``what`` says which of its steps run natively and which do not.

    Parameters
    ----------
    transform : callable, optional
        Of torchvision's, or anything.
    refused : str
        Why nothing can be native, whatever the transform is; empty if that is not known.
    """

    def __init__(self, transform: Any, refused: str = "") -> None:
        self.transform = transform
        self.program: Program | None = None
        self.spec: ArraySpec | None = None
        if transform is None and not refused:
            refused = "it has no transform, and its samples are PIL images"
        self.what = f"nothing is native: {refused}"
        if not refused:
            self._compile(recognise(transform))

    def _compile(self, found: Recognised) -> None:
        self.found, self.what = found, str(found)
        if found.value.kind == "pil" and not found.rest:
            self.what = "nothing is native: its transform ends in PIL images, which no loader batches"
            return
        if not found.taken:
            return
        max_pixels = _max_pixels()  # Pillow's only limit: whatever as many pixels take is allowed
        decode = Decode(max_pixels=max_pixels, max_nbytes=16 * max_pixels)
        self.program = Pipeline([decode, *found.ops]).compile("image")
        self.random = any(op.random for op in found.ops)
        self.spec = None if found.rest else self.program.spec()

    def keys(self) -> SampleKeys:
        """The current sample's key; outside of any, one from torch's global generator, where something is random."""
        return next_keys() or SampleKeys(_drawn_seed() if self.random else 0, 0, np.zeros(1, np.int64))

    def finished(self, array: NDArray[Any], encoded: bytes) -> Any:
        """What torchvision has where the program ends, given to the rest of the transforms."""
        value = self._as_value(array, encoded)
        for transform in self.found.rest:
            value = transform(value)
        return value

    def _as_value(self, array: NDArray[Any], encoded: bytes) -> Any:
        """The array as what torchvision has at this place."""
        if self.found.value.kind == "pil":
            return _as_pil(array, encoded)
        tensor = torch.from_numpy(array)
        return tv_tensors.Image(tensor) if self.found.value.kind == "image" else tensor


def _as_pil(array: NDArray[np.uint8], encoded: bytes) -> Any:
    """A PIL image with the file's ``info`` (Exif and all), which resizing and cropping keep."""
    from PIL import Image

    image = Image.fromarray(array)
    with Image.open(io.BytesIO(encoded)) as header:
        image.info = {name: value for name, value in header.info.items() if name != "transparency"}
    return image


def _max_pixels() -> int:
    """The number of pixels above which Pillow, as it is set, refuses an image."""
    from PIL import Image

    return 2 * Image.MAX_IMAGE_PIXELS if Image.MAX_IMAGE_PIXELS else (1 << 31) - 1


def _drawn_seed() -> int:
    """63 bits of torch's global generator."""
    return int(torch.empty((), dtype=torch.int64).random_().item())
