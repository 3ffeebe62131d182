"""The native call that fills rows of a batch from encoded images, by the plan of a chunk.

Called by :mod:`penstock.transforms.program`. Images of 16 bits have a call of their own; what it refuses, and what has
another form, is left to the caller.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from penstock import _native
from penstock.bfloat16 import as_words
from penstock.sample import Array
from penstock.transforms.base import Fusion
from penstock.transforms.decode import Decode
from penstock.transforms.image_chunk import Chunk, seek_table_arguments

__all__ = ["fill_rows"]


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
    images, places = chunk.images, range(len(chunk.images)) if chosen is None else chosen.tolist()
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
            threads=chunk.count_threads(),
            mode=decode.mode,
            **seek_table_arguments(chunk.seek_tables, chosen, found),
        )
    if chunk.seek_tables is not None:
        chunk.seek_tables.found += [(places[i], damaged, entry) for i, damaged, entry in found]
    return [(places[i], kind, message) for i, kind, message in refused], decode_ns, resize_ns
