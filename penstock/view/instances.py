"""Masks of single objects, as arrays or in COCO's run-length encoding, where it is that of the image that is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from penstock.annotations import rle
from penstock.errors import AnnotationError

__all__ = ["decode_instance"]


def decode_instance(instance: Any, width: int, height: int) -> NDArray[np.bool_] | None:
    """The pixels of an object, (height, width); None if it is no mask, or has another size."""
    if isinstance(instance, np.ndarray):
        return instance != 0 if instance.shape == (height, width) else None
    if not isinstance(instance, Mapping) or instance.get("size") not in ([height, width], (height, width)):
        return None
    try:
        return rle.decode(instance).view(np.bool_)
    except AnnotationError:
        return None
