"""A chunk of encoded images, their sizes, orientations and seek tables; the plan of a chunk, failures of its rows.

::

    images ──headers──> sizes ──Exif──> sizes after orientation          read if the caller does not give them

Used by :mod:`penstock.transforms.program.program`, by one thread at a time. Nothing here decodes or draws random
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.errors import PenstockError, SampleError
from penstock.orientation import FIRST_TRANSPOSED
from penstock.pixel_rows import EncodedRows
from penstock.sample import Array, SampleKeys, Value
from penstock.system.control_group import count_usable_cores
from penstock.transforms.base import ImageLike
from penstock.transforms.decoding.decode import fill_missing_sizes, read_orientations
from penstock.transforms.targets.moved_targets import Drawn, Step

__all__ = ["Chunk", "ChunkSeekTables", "Failure", "Plan", "raise_first", "seek_table_arguments"]

_LARGE_PIXELS: Final = 4 << 20
"""Least number of pixels of an image that, alone in its chunk, is decoded on several threads."""


class StoredTables(Protocol):
    """Seek tables in a file: see :class:`penstock.stores.common.seek_table_file.TablesInFile`."""

    def __iter__(self) -> Iterator[bytes | None]: ...

    def take(self, positions: NDArray[np.int64]) -> StoredTables:
        """Return the tables at some positions."""
        ...


@dataclass(slots=True)
class ChunkSeekTables:
    """Seek tables of the images of a chunk, and those that are made while the images are decoded.

    Parameters
    ----------
    entries : list of bytes or None, or StoredTables
        The table of each image, from ``penstock._native.build_index``; None if it has none. Or where they are in a
        file, from which the native core reads them.
    learn : {"rows", "tiles"}, optional
        The kind of tables to make while decoding.
    found : list of tuple
        ``(position, damaged, entry)``, appended by ``fill``: whether the given table is wrong (bool), and the table
        to use in future (bytes or None).
    any_kind : bool
        Whether tables of the other kind are kept as well.
    """

    entries: list[bytes | None] | StoredTables
    learn: str | None = None
    found: list[tuple[int, bool, bytes | None]] = field(default_factory=list)
    any_kind: bool = False


@dataclass(slots=True)
class Chunk:
    """Images that a program fills together."""

    images: Sequence[ImageLike]  # encoded (arrays, if the pipeline does not begin with Decode)
    keys: SampleKeys  # the samples', in the same order
    sizes: NDArray[np.int32] | None
    """(n, 2): widths and heights as stored; (0, 0) where one is unknown. After :meth:`read_orientations`, those of the
    oriented images."""
    seek_tables: ChunkSeekTables | None = None  # the seek tables of the images
    steps: Sequence[list[Step]] | None = None  # for each image, a list to which the ops that move it are appended
    boxes: Sequence[object] | None = None  # boxes of each image, if an op reads them
    orientations: NDArray[np.uint8] | None = None  # (n,): set by :meth:`read_orientations`; None: no image has one
    first: int = 0  # the position of the first image among those that were given together

    def one(self, i: int) -> Chunk:
        """Image ``i`` alone, without its seek table."""
        return Chunk(
            self.images[i : i + 1],
            self.keys[i : i + 1],
            None if self.sizes is None else self.sizes[i : i + 1],
            steps=None if self.steps is None else self.steps[i : i + 1],
            boxes=None if self.boxes is None else self.boxes[i : i + 1],
            orientations=None if self.orientations is None else self.orientations[i : i + 1],
            first=self.first + i,
        )

    def take_images(self, positions: NDArray[np.int64]) -> Sequence[ImageLike]:
        """Return the images at some positions."""
        images = self.images
        return images.take(positions) if isinstance(images, EncodedRows) else [images[i] for i in positions.tolist()]

    def steps_of(self, i: int) -> list[Step] | None:
        """The list of ops of image ``i``; None if ops are not noted."""
        return None if self.steps is None else self.steps[i]

    def boxes_of(self, i: int) -> object:
        """Return the boxes of image ``i``; None if no op reads them."""
        return None if self.boxes is None else self.boxes[i]

    @property
    def known_sizes(self) -> NDArray[np.int32]:
        """The sizes, after :meth:`read_sizes`."""
        assert self.sizes is not None
        return self.sizes

    def find_sizes(self) -> NDArray[np.int32]:
        """Return the sizes that the native core reads in the headers; (0, 0) where it does not."""
        if self.sizes is None:
            self.sizes = self.images.sizes if isinstance(self.images, EncodedRows) else _native.sizes(self.images)
        return self.sizes

    def read_sizes(self, max_pixels: int) -> None:
        """Read missing sizes in the headers of the images."""
        sizes = self.find_sizes()
        if np.count_nonzero(sizes) < 2 * len(self.images):
            self.sizes = fill_missing_sizes(self.images, sizes.copy(), max_pixels)

    def read_orientations(self, max_pixels: int) -> None:
        """Read Exif orientations, after :meth:`read_sizes`, and swap the sizes of images that are transposed."""
        if self.orientations is not None:
            return
        orientations = read_orientations(self.images, max_pixels)
        if (orientations != 1).any():
            self.orientations = orientations
            self.sizes = self._swap_transposed(self.known_sizes)

    @property
    def stored_sizes(self) -> NDArray[np.int32]:
        """The sizes before orientation, after :meth:`read_sizes`."""
        return self.known_sizes if self.orientations is None else self._swap_transposed(self.known_sizes)

    def _swap_transposed(self, sizes: NDArray[np.int32]) -> NDArray[np.int32]:
        assert self.orientations is not None
        return np.where(self.orientations[:, None] >= FIRST_TRANSPOSED, sizes[:, ::-1], sizes)

    def orientation_of(self, i: int) -> int:
        """Return the orientation of image ``i``; 1 if none was read."""
        return 1 if self.orientations is None else int(self.orientations[i])

    def count_threads(self) -> int:
        """Threads for one native call: all cores for one large image, else one."""
        if len(self.images) > 1 or self.known_sizes.prod() < _LARGE_PIXELS:
            return 1
        return count_usable_cores()


def seek_table_arguments(
    seek_tables: ChunkSeekTables | None, fused: NDArray[np.int64] | None, found: list[tuple[int, bool, bytes | None]]
) -> dict[str, Value]:
    """Arguments of ``_native.fill`` for the tables; ``fused``: positions of the images that are given to it."""
    if seek_tables is None:
        return {}
    entries = seek_tables.entries
    if fused is not None:
        entries = [entries[i] for i in fused.tolist()] if isinstance(entries, list) else entries.take(fused)
    return {"indices": entries, "learn": seek_tables.learn, "found": found}


@dataclass(frozen=True, slots=True)
class Failure:
    """A row that could not be filled: its position in the chunk, and the error."""

    position: int
    error: Exception


@dataclass(frozen=True, slots=True)
class Plan:
    """The sources of the pixels of each row of a chunk.

    Parameters
    ----------
    geometry : ndarray, shape (n, 9), int32
        As ``penstock._native.fill`` takes it.
    size : ndarray, shape (n, 2), or None
        Width and height of each image after the fused ops; None if all have that of the spec.
    general : ndarray, shape (n,), bool, or None
        Rows that take the general path (padding, Exif orientation, a truncated file); None if there are none.
    drawn : list of (Op, ndarray, ndarray)
        Each fused op that moves pixels, what it drew for each image, and the images' sizes before it; empty if the
        native core drew.
    """

    geometry: NDArray[np.int32]
    size: Array | None
    general: NDArray[np.bool_] | None
    drawn: list[Drawn]


def raise_first(failed: Sequence[Failure]) -> None:
    """Raise the error of the failure with the lowest position, with this position noted."""
    first = min(failed, key=lambda failure: failure.position)
    if isinstance(first.error, PenstockError):
        first.error.where["position"] = first.position
        raise first.error
    raise SampleError(
        f"a transform raised {type(first.error).__name__}: {first.error}", position=first.position
    ) from first.error
