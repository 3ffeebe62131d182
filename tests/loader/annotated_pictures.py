"""Pictures with objects that the tests of ragged batches and of batch forms share, and the workers that build them."""

from __future__ import annotations

import io
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["WORKERS", "AnnotatedPicture", "draw_picture"]

WORKERS: Final[dict[str, dict[str, Any]]] = {
    "serial": {},
    "threads": {"num_workers": 2, "workers": "threads", "chunk_size": 3},
    "processes": {"num_workers": 2, "workers": "processes"},
}


class AnnotatedPicture(NamedTuple):
    """A JPEG, its size, the corners of its objects (n, 2, 2) and their classes; and the generator that drew them."""

    image: bytes
    width: int
    height: int
    corners: NDArray[np.float32]
    classes: NDArray[np.int64]
    random: np.random.Generator


def draw_picture(index: int) -> AnnotatedPicture:
    """A picture of its own size with some objects; every fourth has none."""
    random = np.random.default_rng(index)
    width, height = random.integers(30, 60, 2).tolist()
    file = io.BytesIO()
    Image.fromarray(random.integers(0, 255, (height, width, 3), np.uint8)).save(file, "JPEG", quality=80)
    count = index % 4
    corners = np.sort(random.random((count, 2, 2), np.float32), axis=1) * np.array([width, height], np.float32)
    return AnnotatedPicture(file.getvalue(), width, height, corners, random.integers(0, 9, count), random)
