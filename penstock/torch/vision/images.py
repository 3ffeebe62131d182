"""A torchvision transform as a store's images go through it: ``StoreDataset(store, transform=v2.Compose([...]))``.

Pixels, types and random numbers are those of :class:`penstock.torch.ImageFolder` for the same transform.
"""

from __future__ import annotations

import io
import logging
from typing import Any

from penstock.torch.vision.native import Native

__all__ = ["TorchvisionImages"]

_logger = logging.getLogger(__name__)


class TorchvisionImages(Native):
    """:class:`~penstock.datasets.converting.ImageTransform` of torchvision's transforms, v1 and v2.

    Parameters
    ----------
    transform : callable
        A Compose, or one transform.
    """

    def __init__(self, transform: Any) -> None:
        super().__init__(transform)
        _logger.info("StoreDataset: %s", self.what)

    def __call__(self, encoded: bytes) -> Any:
        """The image, of the type that the transform gives."""
        if self.program is None:
            return self.transform(_opened(encoded))
        return self.finished(self.program.run_one(encoded, self.keys()), encoded)


def _opened(encoded: bytes) -> Any:
    """As torchvision's loader opens a file."""
    from PIL import Image

    return Image.open(io.BytesIO(encoded)).convert("RGB")
