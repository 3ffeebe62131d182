"""A torchvision transform for the images of a store: ``StoreDataset(store, transform=v2.Compose([...]))``.

Pixels, types and random numbers are those of :class:`penstock.torch.ImageFolder` with the same transform.
"""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import ArgumentError
from penstock.repairs import get_policy
from penstock.sample import Array, Sample
from penstock.torch.vision.native_transform import NativeTransform
from penstock.torch.vision.recognise import Transform
from penstock.transforms import decode

if TYPE_CHECKING:
    from PIL import Image as PillowImage

__all__ = ["TorchvisionImages", "as_pil", "open_rgb"]

_logger = logging.getLogger(__name__)


class TorchvisionImages(NativeTransform):
    """The :class:`~penstock.datasets.store.image_transforms.ImageTransform` for torchvision's transforms, v1 and v2.

    ``transform``: a Compose, or a single transform.
    """

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform)
        _logger.info("StoreDataset: %s", self.what)

    def __call__(self, encoded: bytes | Array) -> Sample:
        """Decode and transform one image. The type is that of the transform's result."""
        if not isinstance(encoded, bytes):
            return self.transform(as_pil(encoded))
        if self.program is None:
            return self.transform(open_rgb(encoded))
        return self.finish(self.program.run_one(encoded, self.keys()), encoded)


def as_pil(pixels: Array) -> PillowImage.Image:
    """Return an image that is stored as its pixels, as a PIL image."""
    from PIL import Image

    if pixels.dtype != np.uint8 or pixels.shape[2] not in {1, 3}:
        raise ArgumentError(
            f"torchvision's transforms get uint8 pixels of 1 or 3 channels, got {pixels.dtype} of shape "
            f"{pixels.shape}; give a penstock.transforms.Pipeline"
        )
    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)


def open_rgb(encoded: bytes) -> PillowImage.Image:
    """Open an image as torchvision's loader does; one that Pillow refuses, as ``on_truncated`` says."""
    from PIL import Image

    try:
        return Image.open(io.BytesIO(encoded)).convert("RGB")
    except Exception:  # Pillow's parsers raise exceptions of any type on hostile bytes
        if get_policy() == "raise":
            raise
        return Image.fromarray(decode(encoded))
