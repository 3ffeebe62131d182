"""A torchvision transform for the images of a store: ``StoreDataset(store, transform=v2.Compose([...]))``.

Pixels, types and random numbers are those of :class:`penstock.torch.ImageFolder` with the same transform.
"""

from __future__ import annotations

import io
import logging
from typing import TYPE_CHECKING

from penstock.sample import Sample
from penstock.torch.vision.native_transform import NativeTransform
from penstock.torch.vision.recognise import Transform

if TYPE_CHECKING:
    from PIL import Image as PillowImage

__all__ = ["TorchvisionImages"]

_logger = logging.getLogger(__name__)


class TorchvisionImages(NativeTransform):
    """The :class:`~penstock.datasets.image_transforms.ImageTransform` for torchvision's transforms, v1 and v2.

    Parameters
    ----------
    transform : callable
        A Compose, or a single transform.
    """

    def __init__(self, transform: Transform) -> None:
        super().__init__(transform)
        _logger.info("StoreDataset: %s", self.what)

    def __call__(self, encoded: bytes) -> Sample:
        """Decode and transform one image. The type is that of the transform's result."""
        if self.program is None:
            return self.transform(_open_rgb(encoded))
        return self.finish(self.program.run_one(encoded, self.keys()), encoded)


def _open_rgb(encoded: bytes) -> PillowImage.Image:
    """Open an image as torchvision's loader does."""
    from PIL import Image

    return Image.open(io.BytesIO(encoded)).convert("RGB")
