"""A torchvision transform as a native program, followed by the transforms that are not native.

::

    encoded ──Program──> array ──finish──> PIL image or tensor ──remaining transforms──> sample

Used by torchvision's folders, and by stores with a torchvision transform. The module
:mod:`penstock.torch.vision.recognise` decides which transforms are native. Nothing here opens a file.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import torch
from torchvision import tv_tensors

from penstock.rng import next_keys
from penstock.sample import Array, ArraySpec, Sample, SampleKeys
from penstock.torch.loader.randomness import draw_seed
from penstock.torch.vision.recognise import ImageType, RecognisedTransforms, Transform, recognise
from penstock.transforms import Decode, Pipeline, Program

if TYPE_CHECKING:
    from PIL import Image as PillowImage

__all__ = ["NativeTransform", "read_max_pixels"]


class NativeTransform:
    """A transform and its native program. ``what`` says which transforms are native.

    ``transform``: one of torchvision's transforms, or any callable. ``refused``: why nothing can be native, whatever
    the transform is; empty if there is no such reason. ``kind``: of the image that the transform gets.
    ``orient``: whether it is turned by its Exif orientation.
    """

    def __init__(self, transform: Transform, refused: str = "", kind: str = "pil", *, orient: bool = False) -> None:
        self.transform, self._orient = transform, orient
        self.program: Program | None = None
        self.spec: ArraySpec | None = None
        if transform is None and not refused:
            refused = "there is no transform, so samples are images as they are read, which no loader batches"
        self.what = f"nothing is native: {refused}"
        if not refused:
            self._compile(recognise(transform, ImageType(kind)))

    def _compile(self, recognised: RecognisedTransforms) -> None:
        self.recognised, self.what = recognised, str(recognised)
        if recognised.image_type.kind == "pil" and not recognised.remaining:
            self.what = "nothing is native: the transform returns PIL images, which no loader batches"
            return
        if not recognised.names:
            return
        max_pixels = read_max_pixels()  # Pillow limits pixels only, so the bytes that so many pixels take are allowed
        decode = Decode(orient=self._orient, max_pixels=max_pixels, max_nbytes=16 * max_pixels)
        self.program = Pipeline([decode, *recognised.ops]).compile("image")
        self.is_random = any(op.random for op in recognised.ops)
        self.spec = None if recognised.remaining else self.program.spec()

    def keys(self) -> SampleKeys:
        """The key of the current sample. Outside a loader, a random transform is seeded by torch's global generator."""
        return next_keys() or SampleKeys(draw_seed() if self.is_random else 0, 0, np.zeros(1, np.int64))

    def finish(self, array: Array, encoded: bytes) -> Sample:
        """Convert the program's result to torchvision's type, and call the remaining transforms."""
        value = self._to_image_type(array, encoded)
        for transform in self.recognised.remaining:
            value = transform(value)
        return value

    def _to_image_type(self, array: Array, encoded: bytes) -> Sample:
        kind = self.recognised.image_type.kind
        if kind == "pil":
            return _to_pil(array, encoded)
        tensor = torch.from_numpy(array)
        return tv_tensors.Image(tensor) if kind == "image" else tensor


def _to_pil(array: Array, encoded: bytes) -> PillowImage.Image:
    """Return a PIL image with the file's ``info`` (Exif and so on), which resizing and cropping keep."""
    from PIL import Image

    image = Image.fromarray(array)
    with Image.open(io.BytesIO(encoded)) as header:
        image.info = {name: value for name, value in header.info.items() if name != "transparency"}
    return image


def read_max_pixels() -> int:
    """Return the number of pixels above which Pillow raises, with its present settings."""
    from PIL import Image

    return 2 * Image.MAX_IMAGE_PIXELS if Image.MAX_IMAGE_PIXELS else (1 << 31) - 1
