"""A chunk of encoded images and what is known of them before they are decoded: sizes, orientations, decode indices.

::

    images ──headers──> sizes ──Exif──> upright sizes, which are turned          asked for where the caller did not know
       └──last bytes──> which were cut off

Used by :mod:`penstock.transforms.program`, by one thread at a time. Nothing here decodes a pixel or draws a number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.sample import SampleKeys
from penstock.transforms import fallback, markers
from penstock.transforms.base import ImageLike
from penstock.transforms.decode import as_bytes, fill_missing_sizes
from penstock.transforms.followers import Step

__all__ = ["Chunk", "Indexed"]

_LARGE_PIXELS: Final = 4 << 20
"""Pixels from which on an image that is filled alone is decoded on several threads."""


@dataclass(slots=True)
class Indexed:
    """Decode indices of a chunk's images, and what decoding finds out about them.

    Parameters
    ----------
    entries : list of bytes or None
        Of each image, as ``penstock._native.build_index`` makes it; None: it has none.
    learn : {"rows", "tiles"}, optional
        Note where decoding comes by.
    found : list of tuple
        ``(position, damaged, entry)``, appended by ``fill``: whether the entry given is wrong (bool), and the one to
        use from now on (bytes or None).
    """

    entries: list[bytes | None]
    learn: str | None = None
    found: list[tuple[int, bool, bytes | None]] = field(default_factory=list)


@dataclass(slots=True)
class Chunk:
    """Images that go through a program together.

    Parameters
    ----------
    images : sequence of bytes-like
        Encoded (arrays, if the pipeline does not begin with Decode).
    keys : SampleKeys
        The samples', in the same order.
    sizes : ndarray, shape (n, 2), int32, optional
        Widths and heights; (0, 0) where the caller does not know.
    indexed : Indexed, optional
        The images' decode indices.
    steps : sequence of list of Step, optional
        For each image, a list to which the ops that move it are appended.
    """

    images: Sequence[ImageLike]
    keys: SampleKeys
    sizes: NDArray[np.int32] | None
    indexed: Indexed | None = None
    steps: Sequence[list[Step]] | None = None

    def one(self, i: int) -> Chunk:
        """Image ``i`` alone, without its index."""
        return Chunk(
            self.images[i : i + 1],
            self.keys[i : i + 1],
            None if self.sizes is None else self.sizes[i : i + 1],
            steps=None if self.steps is None else self.steps[i : i + 1],
        )

    def steps_of(self, i: int) -> list[Step] | None:
        """Where the ops of image ``i`` are noted, if they are."""
        return None if self.steps is None else self.steps[i]

    @property
    def known_sizes(self) -> NDArray[np.int32]:
        """The sizes, when they have been read."""
        assert self.sizes is not None
        return self.sizes

    def read_sizes(self, max_pixels: int) -> None:
        """Ask the images for the sizes that are missing."""
        if self.sizes is None:
            self.sizes = _native.sizes(self.images)
        if np.count_nonzero(self.sizes) < 2 * len(self.images):
            self.sizes = fill_missing_sizes(self.images, self.sizes.copy(), max_pixels)

    def orient_sizes(self, max_pixels: int) -> NDArray[np.bool_] | None:
        """Turn the sizes of images whose Exif orientation transposes them; which images are not upright, or None."""
        orientations = [fallback.read_orientation(as_bytes(image), max_pixels) for image in self.images]
        oriented: NDArray[np.bool_] = np.array(orientations) != 1
        if not oriented.any():
            return None
        turned = np.array(orientations) >= 5
        self.sizes = np.where(turned[:, None], self.known_sizes[:, ::-1], self.known_sizes)
        return oriented

    def cut_off(self) -> NDArray[np.bool_] | None:
        """Which images are JPEGs without an end, for the general path to judge; None: none."""
        suspects = [i for i, image in enumerate(self.images) if bytes(image[-2:]) != b"\xff\xd9"]
        if not suspects:
            return None
        cut = np.zeros(len(self.images), np.bool_)
        for i in suspects:
            encoded = as_bytes(self.images[i])
            cut[i] = encoded.startswith(b"\xff\xd8") and markers.is_cut(encoded)
        return cut if cut.any() else None

    def threads(self) -> int:
        """A picture alone may have every core: what is not large is done on one all the same."""
        if len(self.images) > 1 or self.known_sizes.prod() < _LARGE_PIXELS:
            return 1
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
