"""The native calls that draw the plan of a chunk, and that fill rows of a batch from encoded images by it.

Called by :mod:`penstock.transforms.program.program`. Images of 16 bits have a call of their own; what it refuses, and
what has another form, is left to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.bfloat16 import as_words
from penstock.errors import ImageTooLargeError
from penstock.sample import Array, SampleKeys
from penstock.transforms.base import Fusion, Op, Sizes
from penstock.transforms.decoding.decode import Decode
from penstock.transforms.ops.crop import CenterCrop, RandomResizedCrop
from penstock.transforms.ops.flip import HorizontalFlip, VerticalFlip
from penstock.transforms.ops.resize import Resize
from penstock.transforms.program.image_chunk import Chunk, seek_table_arguments

__all__ = ["draw_geometry", "fill_rows", "fuse_first", "pack_steps", "raise_refused"]

_KNOWN: Final = frozenset({RandomResizedCrop, CenterCrop, Resize, HorizontalFlip, VerticalFlip})
"""Ops that the native core draws."""


def fuse_first(ops: Sequence[Op], fusion: Fusion) -> int:
    """Return how many of the first ops become a part of ``fusion``, which they extend."""
    for position, op in enumerate(ops):
        begun = fusion.stored or fusion.decode is not None or isinstance(op, Decode)
        if fusion.final or not begun or not op.fuse(fusion):
            return position
    return len(ops)


def pack_steps(moving: Sequence[tuple[int, Op]]) -> NDArray[np.float64] | None:
    """Ops and their streams as ``_native.draw_geometry`` takes them; None if it does not know all of them."""
    packed = np.zeros((len(moving), _native.STEP_NUMBERS))
    for row, (stream, op) in zip(packed, moving, strict=True):
        settings = _find_settings(op)
        if settings is None:
            return None
        row[: 2 + len(settings[1:])] = settings[0], stream, *settings[1:]
    return packed


def _find_settings(op: Op) -> tuple[float, ...] | None:
    """Kind and settings of an op that the native core knows."""
    settings: tuple[float, ...] | None = None
    if type(op) not in _KNOWN:  # a subclass may draw otherwise
        pass
    elif isinstance(op, RandomResizedCrop):
        settings = 0, *op.window_range(), *op.size_[::-1]
    elif isinstance(op, CenterCrop):
        settings = 1, *op.size_[::-1]
    elif isinstance(op, HorizontalFlip | VerticalFlip):
        settings = 4, op.p, 2 - op.axis
    elif isinstance(op, Resize) and isinstance(op.size_, tuple):
        settings = 2, *op.size_[::-1]
    elif isinstance(op, Resize) and isinstance(op.size_, int) and op.max_size is None:
        settings = 3, op.size_
    return settings


def draw_geometry(steps: NDArray[np.float64], keys: SampleKeys, sizes: Sizes) -> NDArray[np.int32] | None:
    """Return the geometry of a chunk, by ops of :func:`pack_steps`.

    It is None if an image has no size, or a window leaves it.
    """
    indices = np.ascontiguousarray(keys.indices, np.int64)
    return _native.draw_geometry(steps, keys.seed, keys.epoch, indices, np.ascontiguousarray(sizes, np.int32))


def fill_rows(
    fusion: Fusion,
    decode: Decode,
    chunk: Chunk,
    geometry: NDArray[np.int32],
    out: Array,
    rows: NDArray[np.int64],
    chosen: NDArray[np.intp] | None,
) -> tuple[list[tuple[int, str, str]], int, int]:
    """Fill the rows of the ``chosen`` images of a chunk, or of all; seek tables that are found go to the chunk's.

    Returns
    -------
    refused : list of (int, str, str)
        Position in the chunk, kind and message of each image that the native decoder refused.
    decode_ns, resize_ns : int
        Time for decoding, and for resizing and writing.
    """
    images = chunk.images
    if chosen is not None:
        images, geometry, rows = chunk.take_images(chosen), geometry[chosen], rows[chosen]
    found: list[tuple[int, bool, bytes | None]] = []
    if fusion.source == "uint16":
        refused, decode_ns, resize_ns = _native.fill_samples(
            images,
            geometry,
            as_words(out),
            rows,
            layout=fusion.layout,
            filter=fusion.filter,
            affine=None if fusion.scale is None or fusion.offset is None else (fusion.scale[0], fusion.offset[0]),
            max_pixels=decode.max_pixels,
            max_nbytes=decode.max_nbytes,
        )
    else:
        orientations = chunk.orientations
        refused, decode_ns, resize_ns = _native.fill(
            images,
            geometry,
            as_words(out),
            rows,
            layout=fusion.layout,
            filter=fusion.filter,
            scale=fusion.scale,
            offset=fusion.offset,
            beside=fusion.beside,
            max_pixels=decode.max_pixels,
            max_nbytes=decode.max_nbytes,
            orientations=orientations if orientations is None or chosen is None else orientations[chosen],
            quality=decode.quality if decode.scale == "auto" else None,
            late_color=decode.late_color,
            threads=1 if len(rows) > 1 else chunk.count_threads(),
            mode=decode.mode,
            **seek_table_arguments(chunk.seek_tables, chosen, found),
        )
    if chosen is not None:
        found = [(int(chosen[i]), damaged, entry) for i, damaged, entry in found]
        refused = [(int(chosen[i]), kind, message) for i, kind, message in refused]
    if found and chunk.seek_tables is not None:
        chunk.seek_tables.found += found
    return refused, decode_ns, resize_ns


def raise_refused(kind: str, message: str) -> None:
    """Raise for an image that the native core refused for its size or for want of memory, whatever else decodes it."""
    if kind == "too_large":
        raise ImageTooLargeError(message)
    if kind == "out_of_memory":
        raise MemoryError(message)
